"""The report on an environment: the display of values, secrets and failed previews."""

import base64
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from everspot_clouds.base.resources import ResourceKinds
from everspot_core.cluster.declared import UNKNOWN
from everspot_review.events import read
from everspot_review.judge import judge
from everspot_review.markdown import comment, summary
from everspot_review.report import EnvironmentReport, PreviewOutcome, PropertyChange
from everspot_review.values import LONGEST, at, masked, split

END = '{"summaryEvent":{"result":"succeeded"}}'
MARK = {"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270", "ciphertext": "[secret]"}
UPDATE = {"diffKind": "update"}


@pytest.fixture
def changes(step_line: Callable[..., str], kinds: ResourceKinds) -> Callable[..., list[tuple[Any, ...]]]:
    """Return the reported property changes of one step."""

    def read_changes(**more: Any) -> list[tuple[Any, ...]]:
        environment_report = judge(read([step_line(**more), END]), environment="dev", stack="dev", kinds=kinds)
        return [(c.path, c.before, c.after) for c in environment_report.steps[0].changes]

    return read_changes


def packed(**content: Any) -> str:
    return base64.b64encode(json.dumps(content).encode()).decode()


TOLD: dict[str, tuple[Any, Any, list[tuple[Any, ...]]]] = {
    "a value": (1, 2, [("a", "1", "2")]),
    "a secret": (MARK, MARK, [("a", "[secret]", "[secret]")]),
    "what stops being a secret": (MARK, "perhaps-the-secret-still", [("a", "[secret]", "[secret]")]),
    "what becomes one": ("perhaps-the-secret-already", MARK, [("a", "[secret]", "[secret]")]),
    "a secret within": ({"b": MARK, "c": 1}, {"b": MARK, "c": 2}, [("a", '{"b": "[secret]", "c": 1}',
                                                                  '{"b": "[secret]", "c": 2}')]),
    "what is known later": ("x", UNKNOWN, [("a", '"x"', "(known after apply)")]),
    "a policy": ('{"Version": "1", "Action": ["a"]}', '{"Version": "1", "Action": ["a", "b"]}',
                 [("a.Action[1]", None, '"b"')]),
    "packed user data": (packed(role="agent", poll=1, url="s3://bucket"), packed(role="agent", poll=2, url="s3://bucket"),
                         [("a.poll", "1", "2")]),
    "keys with dots": ('{"a.b": 1, "c": 0}', '{"a.b": 2, "c": 0}', [('a["a.b"]', "1", "2")]),
    "a credential that nobody marked": ("x", "AKIAIOSFODNN7EXAMPLE", [("a", '"x"', '"[secret]"')]),
}  # fmt: skip


@pytest.mark.parametrize("case", TOLD)
def test_what_is_told_of_a_property(case: str, changes: Callable[..., list[tuple[Any, ...]]]) -> None:
    before, after, expected = TOLD[case]
    assert changes(old={"a": before}, new={"a": after}, detailedDiff={"a": UPDATE}) == expected


def test_what_the_provider_fills_in_itself_is_not_shown(changes: Callable[..., list[tuple[Any, ...]]]) -> None:
    filled = {"network[0].addresses": {"diffKind": "add"}, "a": UPDATE}
    assert changes(old={"a": 1}, new={"a": 2}, detailedDiff=filled) == [("a", "1", "2")]
    assert changes(detailedDiff={"arn": {"diffKind": "add-replace"}}) == [("arn", None, "(known after apply)")]


def test_a_long_value_is_cut_and_its_length_shown(changes: Callable[..., list[tuple[Any, ...]]]) -> None:
    ((_, _, after),) = changes(old={"a": "x"}, new={"a": "y" * 5000}, detailedDiff={"a": UPDATE})
    assert len(after) <= LONGEST and after.endswith("(5002 characters)")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a.b", ("a", "b")),
        ("a[0].b", ("a", 0, "b")),
        ('a["b.c"][3]', ("a", "b.c", 3)),
        ('["a\\"b"]', ('a"b',)),
        ("tags.everspot:cluster", ("tags", "everspot:cluster")),
    ],
)
def test_paths_are_the_engines(path: str, expected: tuple[Any, ...]) -> None:
    assert split(path) == expected


def test_within_a_secret_all_is_secret() -> None:
    assert at({"a": MARK}, "a.b[0]") == MARK


@pytest.mark.parametrize(
    "text",
    [
        "password=hunter2hunter2", '"api_key": "abcdefghijkl"', "ghp_" + "a" * 36, "postgres://me:hunter22@db/x",
        "-----BEGIN RSA PRIVATE KEY-----\nhunter2\n-----END RSA PRIVATE KEY-----", "Token: hunter2hunter2",
    ],
)  # fmt: skip
def test_what_looks_like_a_credential_is_masked(text: str) -> None:
    masked_text = masked(text)
    assert "[secret]" in masked_text
    assert not any(part in masked_text for part in ("hunter2", "abcdefghijkl", "a" * 30))


@pytest.mark.parametrize("text", ["the token is rotated", "secretsmanager:GetSecretValue", "arn:aws:iam::1:role/x"])
def test_what_is_none_stays(text: str) -> None:
    assert masked(text) == text


def test_no_planted_secret_is_in_any_text(lines: Callable[[str], list[str]], kinds: ResourceKinds) -> None:
    """Real logs with real secrets, and one that a program wrote where nobody knows that it is one."""
    diagnostic = {"severity": "error", "message": "login failed: password=Planted-Secret-3"}
    planted = [*lines("aws-secret"), json.dumps({"diagnosticEvent": diagnostic})]
    environment_report = judge(
        read(planted), environment="dev", stack="dev", kinds=kinds, failure="token: Planted-Secret-4"
    )
    for text in (comment([environment_report]), summary([environment_report]), environment_report.to_json().decode()):
        assert "Planted-Secret" not in text and "[secret]" in text
    values = [change for step in environment_report.steps for change in step.changes]
    assert values == [PropertyChange(path="value", before="[secret]", after="[secret]")] * 2


def test_a_preview_that_could_not_begin_failed_and_says_why(kinds: ResourceKinds) -> None:
    environment_report = judge(read([]), environment="dev", stack="dev", kinds=kinds, failure="error: no credentials")
    assert (environment_report.outcome, environment_report.whole, environment_report.digest) == (
        PreviewOutcome.FAILED,
        False,
        "",
    )
    assert [diagnostic.text for diagnostic in environment_report.diagnostics] == ["error: no credentials"]


def test_why_it_failed_is_told_once_and_never_of_one_that_succeeded(
    lines: Callable[[str], list[str]], kinds: ResourceKinds
) -> None:
    def list_errors(name: str, failure: str) -> list[str]:
        environment_report = judge(read(lines(name)), environment="dev", stack="dev", kinds=kinds, failure=failure)
        return [diagnostic.text for diagnostic in environment_report.diagnostics if diagnostic.severity == "error"]

    assert list_errors("aws-failed", "and once more") == list_errors("aws-failed", "") != []
    assert list_errors("aws-unchanged", "") == []


def test_a_log_that_was_cut_is_told_to_be(lines: Callable[[str], list[str]], kinds: ResourceKinds) -> None:
    cut = [line for line in lines("aws-target-up") if "summaryEvent" not in line]
    environment_report = judge(read(cut), environment="dev", stack="dev", kinds=kinds)
    assert (
        environment_report.outcome is PreviewOutcome.FAILED
        and not environment_report.whole
        and environment_report.blocked
    )
    assert "no end" in environment_report.diagnostics[-1].text and "no end" in comment([environment_report])


def test_a_broken_rule_blocks_and_what_would_be_done_is_known(report: Callable[..., EnvironmentReport]) -> None:
    environment_report = report("aws-rules")
    assert (
        environment_report.blocked
        and environment_report.outcome is PreviewOutcome.CHANGES
        and environment_report.digest
    )
    assert not report("aws-template").blocked


@pytest.mark.parametrize(
    ("level", "outcome"), [("mandatory", PreviewOutcome.CHANGES), ("advisory", PreviewOutcome.FAILED)]
)
def test_only_a_rule_that_stops_explains_why_the_engine_failed(
    level: str, outcome: PreviewOutcome, lines: Callable[[str], list[str]], kinds: ResourceKinds
) -> None:
    log_lines = [re.sub('"(mandatory|advisory)"', f'"{level}"', line) for line in lines("aws-rules")]
    assert judge(read(log_lines), environment="dev", stack="dev", kinds=kinds).outcome is outcome


def test_a_first_preview_is_told_to_be_one(report: Callable[..., EnvironmentReport]) -> None:
    assert report("aws-first").first and not report("aws-unchanged").first and not report("aws-failed").first


def test_components_are_in_no_count_because_the_cloud_has_none(report: Callable[..., EnvironmentReport]) -> None:
    assert all(":index:" not in step.type for step in report("aws-first").steps)
    assert report("aws-unchanged").stays == len(report("aws-destroy").steps)
