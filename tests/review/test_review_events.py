"""The engine's event log is parsed in any order of its entries, and refused if entries are missing or malformed."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from everspot_review.event_log import EventLog
from everspot_review.events import EventLogError, read, read_file
from hypothesis import given
from hypothesis import strategies as st

END = '{"summaryEvent":{"result":"succeeded"}}'

# Log → (resources that do not stay, all resources, whether the engine succeeded, whether nobody knows what would be)
RECORDED = {
    "aws-first": (61, 61, True, False),
    "aws-unchanged": (0, 61, True, False),
    "aws-target-up": (2, 61, True, False),
    "aws-template": (6, 61, True, False),
    "aws-replace": (1, 61, True, False),
    "aws-destroy": (61, 61, True, False),
    "aws-rules": (6, 61, False, False),
    "aws-replace-protected": (1, 63, False, True),
    "aws-failed": (0, 3, False, True),
    "gcp-target-up": (2, 55, True, False),
    "gcp-template": (8, 55, True, False),
}


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_log_says_what_would_be_done(name: str, log: Callable[[str], EventLog]) -> None:
    events = log(name)
    changing = sum(not step.idle for step in events.steps)
    assert (changing, len(events.steps), events.succeeded, events.failed) == RECORDED[name]
    assert [step.urn for step in events.steps] == sorted(step.urn for step in events.steps)


def test_the_three_steps_of_a_replacement_are_one(log: Callable[[str], EventLog]) -> None:
    (step,) = [step for step in log("aws-replace").steps if not step.idle]
    assert step.ops == ("create-replacement", "delete-replaced", "replace")
    assert step.diff == {"spotOptions.allocationStrategy": "update-replace"}
    assert step.old is not None and step.new is not None
    assert step.new.inputs["spotOptions"]["allocationStrategy"] == "capacity-optimized"


def test_the_order_of_lines_says_nothing(lines: Callable[[str], list[str]], log: Callable[[str], EventLog]) -> None:
    for name in ("aws-replace", "aws-rules", "gcp-template"):
        mixed = lines(name)
        random.Random(1).shuffle(mixed)
        assert read(mixed) == log(name)


def test_rules_carry_their_level_their_severity_and_what_is_wrong(log: Callable[[str], EventLog]) -> None:
    first, *_, last = log("aws-rules").rules
    assert (first.rule, first.level, first.severity) == ("hop-limit", "mandatory", "high")
    assert first.resource == "everspot-local-fleet-template"
    assert first.message.startswith("The metadata service's hop limit is 2")  # without the rule's description
    assert (last.rule, last.level, last.severity) == ("known-team", "advisory", "low")
    assert log("aws-rules").passed == ("encrypted",)


@pytest.mark.parametrize(
    ("level", "message", "expected", "reason"),
    [
        (
            "advisory",
            "acl: is public. Excepted until 2027-01-31: The page is for all.",
            "acl: is public.",
            "The page is for all.",
        ),
        ("advisory", "a. Excepted until 2027-13-41: none", "a. Excepted until 2027-13-41: none", None),
        ("advisory", "acl: is public. Set it.", "acl: is public. Set it.", None),
        # Text of the change that a message quotes does not count as an exception.
        (
            "mandatory",
            "team: x. Excepted until 2027-01-31: me is no team.",
            "team: x. Excepted until 2027-01-31: me is no team.",
            None,
        ),
    ],
)
def test_an_exception_is_read_where_it_made_the_rule_advisory(
    level: str, message: str, expected: str, reason: str | None
) -> None:
    event = {"message": f"The title\n{message}", "policyName": "aws-tags", "enforcementLevel": level}
    (rule,) = read([json.dumps({"policyEvent": event})]).rules
    assert (rule.message, rule.excepted and rule.excepted.reason) == (expected, reason)
    assert rule.stops == (level == "mandatory")
    assert rule.excepted is None or rule.excepted.until.isoformat() == "2027-01-31"


def test_what_the_engine_says_of_its_own_machine_is_left_out(log: Callable[[str], EventLog]) -> None:
    assert log("aws-unchanged").diagnostics == ()
    texts = [diagnostic.text for diagnostic in log("aws-failed").diagnostics]
    assert any("nonsense.large is not in the catalogue" in text for text in texts)
    assert not any(text == "preview failed" for text in texts)


def test_a_log_that_was_cut_says_so(lines: Callable[[str], list[str]]) -> None:
    whole = lines("aws-target-up")
    without_end = [line for line in whole if "summaryEvent" not in line]
    half = "\n".join(without_end)[:-40].splitlines()
    for cut in (without_end, half, []):
        events = read(cut)
        assert (events.whole, events.failed) == (False, True)


def test_unknown_events_and_empty_lines_are_passed_over() -> None:
    events = read(['{"sequence":1,"ofTomorrowEvent":{"a":[1]}}', "", "{}", END])
    assert events == EventLog(succeeded=True)


def test_a_line_ends_where_the_engine_ends_it(tmp_path: Path, step_line: Callable[..., str]) -> None:
    """Python's own idea of lines has more ends than one."""
    file = tmp_path / "events.jsonl"
    event = json.loads(step_line(new={"a": "one\u0085two\u2028three"}))
    file.write_text("\n".join([json.dumps(event, ensure_ascii=False), END, ""]), encoding="utf-8")
    (step,) = read_file(file).steps
    assert step.new is not None and step.new.inputs == {"a": "one\u0085two\u2028three"}
    assert read_file(tmp_path / "none") == EventLog()


def test_to_stop_protecting_is_a_step_though_the_engine_calls_it_none(log: Callable[[str], EventLog]) -> None:
    changed = {step.name: step for step in log("aws-replace-unprotected").steps if not step.idle}
    assert set(changed) == {"everspot-local-fleet-spot", "everspot-local-fleet-on-demand"}
    assert changed["everspot-local-fleet-on-demand"].loosened


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("[1]", "line 1: no JSON object"),
        ("{nothing", "line 1: no JSON"),
        ('{"resourcePreEvent":{}}', "line 1: `resourcePreEvent.metadata` is no object"),
        ('{"resourcePreEvent":{"metadata":{"op":7}}}', "line 1: `op` is no text"),
        ('{"resourcePreEvent":{"metadata":{"op":"update","urn":"x"}}}', "line 1: 'x' is no URN"),
        ('{"resourcePreEvent":{"metadata":{"op":"update","urn":"urn:pulumi:a::b"}}}', "'urn:pulumi:a::b' is no URN"),
        ('{"resourcePreEvent":{"metadata":{"op":"update","urn":"arn:a::b::c::d"}}}', "'arn:a::b::c::d' is no URN"),
        ('{"policyEvent":{"enforcementLevel":"mandatory"}}', "line 1: `message` is no text"),
        ('{"policyAnalyzeSummaryEvent":{"passed":"all"}}', "line 1: `passed` is no list of texts"),
        ('{"diagnosticEvent":[]}', "line 1: `diagnosticEvent` is no object"),
    ],
)
def test_a_line_that_is_not_the_engines_is_refused_by_its_number(line: str, expected: str) -> None:
    with pytest.raises(EventLogError) as refused:
        read([line, END])
    assert expected in str(refused.value)


def test_all_bad_lines_are_told_at_once() -> None:
    with pytest.raises(EventLogError, match=r"line 1: .*; line 3: .*"):
        read(["[1]", END, '{"diagnosticEvent":7}'])
    with pytest.raises(EventLogError, match="and 15 more"):
        read(["[1]"] * 20)


@pytest.mark.parametrize(("severity", "failed"), [("error", True), ("warning", False)])
def test_an_error_that_is_told_fails_a_run_and_a_warning_does_not(severity: str, failed: bool) -> None:
    event = {"diagnosticEvent": {"severity": severity, "message": "it is so"}}
    events = read([json.dumps(event), END])
    assert ([diagnostic.severity for diagnostic in events.diagnostics], events.failed) == ([severity], failed)


def test_a_step_has_to_have_its_sides(step_line: Callable[..., str]) -> None:
    broken = json.loads(step_line())
    broken["resourcePreEvent"]["metadata"]["old"]["inputs"] = [1]
    with pytest.raises(EventLogError, match=r"`old.inputs` is no object"):
        read([json.dumps(broken), END])


def test_names_may_have_any_character(step_line: Callable[..., str]) -> None:
    name = "a::b $c <b>"
    assert [step.name for step in read([step_line(name=name), END]).steps] == [name]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KINDS = ("resourcePreEvent", "policyEvent", "policyAnalyzeSummaryEvent", "diagnosticEvent", "summaryEvent")


@given(st.lists(st.tuples(st.sampled_from(KINDS), JSON | st.fixed_dictionaries({"metadata": JSON})), max_size=5))
def test_whatever_stands_in_a_log_is_read_or_refused(events: list[tuple[str, Any]]) -> None:
    try:
        read([json.dumps({kind: value}) for kind, value in events])
    except EventLogError as refused:
        assert "line " in str(refused)
