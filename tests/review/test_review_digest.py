"""Two previews have the same digest if and only if they would take the same steps."""

import base64
import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from everspot_core.cluster.declared import UNKNOWN
from everspot_review.digest import digest
from everspot_review.event_log import EventLog
from everspot_review.events import read
from hypothesis import given, settings
from hypothesis import strategies as st

END = '{"summaryEvent":{"result":"succeeded"}}'
MARK = {"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270"}


@pytest.mark.parametrize("name", ["aws-first", "gcp-template"])
def test_a_second_preview_of_the_same_change_has_the_same_digest(name: str, log: Callable[[str], EventLog]) -> None:
    """The engine draws other names each time for what it makes, and they are written in policies and user data."""
    first, again = log(name), log(f"{name}-again")
    assert first != again
    assert digest(first) == digest(again) != ""


def test_a_preview_with_rules_does_what_one_without_them_does(log: Callable[[str], EventLog]) -> None:
    assert digest(log("aws-rules")) == digest(log("aws-template"))


def test_other_changes_have_other_digests(log: Callable[[str], EventLog]) -> None:
    names = ("aws-first", "aws-unchanged", "aws-target-up", "aws-target-down", "aws-template", "aws-replace")
    names += ("aws-replace-unprotected", "aws-destroy", "aws-secret", "gcp-target-up", "gcp-template", "gcp-destroy")
    assert len({digest(log(name)) for name in names}) == len(names)


def test_what_nobody_knows_has_no_digest(lines: Callable[[str], list[str]], log: Callable[[str], EventLog]) -> None:
    for name in ("aws-failed", "aws-replace-protected"):
        assert digest(log(name)) == ""
    assert digest(read(line for line in lines("aws-target-up") if "summaryEvent" not in line)) == ""


def test_the_order_of_the_engines_work_is_none_of_the_digest(lines: Callable[[str], list[str]]) -> None:
    for name in ("aws-first", "gcp-template"):
        mixed = lines(name)
        random.Random(7).shuffle(mixed)
        assert digest(read(mixed)) == digest(read(lines(name)))


LONG = "x" * 400

DIFFERENT: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "another operation": ({}, {"op": "delete"}),
    "another name": ({}, {"name": "other"}),
    "another value far behind": ({"new": {"a": LONG + "1"}}, {"new": {"a": LONG + "2"}}),
    "another value within": ({"new": {"a": [{"b": 1}]}}, {"new": {"a": [{"b": 2}]}}),
    "null for none": ({"new": {"a": None}}, {"new": {}}),
    "a number for a text": ({"new": {"a": 1}}, {"new": {"a": "1"}}),
    "a number for a truth": ({"new": {"a": 1}}, {"new": {"a": True}}),
    "another value before": ({"old": {"a": 1}, "new": {"a": 3}}, {"old": {"a": 2}, "new": {"a": 3}}),
    "another resource of the cloud": ({}, {"old_flags": {"id": "id-2"}}),
    "another provider": ({"provider": "one"}, {"provider": "two"}),
    "no protection": ({"new_flags": {"protect": True}}, {}),
    "not kept": ({"old_flags": {"retainOnDelete": True}}, {}),
    "known or not": ({"new": {"a": UNKNOWN}}, {"new": {"a": "known"}}),
    "secret or not": ({"new": {"a": MARK}}, {"new": {"a": "known"}}),
    "a path that the provider compares": ({"detailedDiff": {"a": {"diffKind": "update"}}}, {}),
    "a reason to replace": (
        {"detailedDiff": {"a": {"diffKind": "update"}}},
        {"detailedDiff": {"a": {"diffKind": "update-replace"}}},
    ),
    "an output that changed": (
        {"detailedDiff": {"a": {"diffKind": "update"}}, "old_flags": {"outputs": {"a": 1}}},
        {"detailedDiff": {"a": {"diffKind": "update"}}, "old_flags": {"outputs": {"a": 2}}},
    ),
    "a provider's name for what was drawn": (
        {"op": "create", "new": {"__defaults": [], "name": "thing-aaaaaaa"}},
        {"op": "create", "new": {"__defaults": [], "name": "thing-bbbbbbb"}},
    ),
}


@pytest.mark.parametrize("case", DIFFERENT)
def test_what_would_do_something_else_has_another_digest(case: str, step_line: Callable[..., str]) -> None:
    first, other = (digest(read([step_line(**more), END])) for more in DIFFERENT[case])
    assert first != other


def test_what_a_secret_is_does_not_count_and_that_it_is_one_does(step_line: Callable[..., str]) -> None:
    first, other = ({**MARK, "ciphertext": text} for text in ("v1:abc", "v1:def"))
    assert digest(read([step_line(new={"a": first}), END])) == digest(read([step_line(new={"a": other}), END]))


def drawn(step_line: Callable[..., str], letter: str, target: int = 5) -> str:
    """A preview that makes a bucket of a drawn name, and what the name is written in."""
    name, of_it = f"store-{letter * 7}", letter * 12
    manifest = json.dumps({"url": f"s3://{name}", "generation": of_it, "target": target})
    packed = base64.b64encode(manifest.encode()).decode()
    return digest(
        read(
            [
                step_line("create", "store", new={"__defaults": ["bucket"], "bucket": name}),
                step_line("create", "fleet", new={"tags": {"generation": of_it}}),
                step_line("create", "template", new={"userData": packed, "tags": {"generation": of_it}}),
                step_line("create", "policy", new={"policy": f'{{"Resource":"arn:aws:s3:::{name}/*"}}'}),
                END,
            ]
        )
    )


def test_drawn_names_count_as_one_also_where_they_are_packed_or_hashed(step_line: Callable[..., str]) -> None:
    assert drawn(step_line, "a") == drawn(step_line, "b")
    assert drawn(step_line, "a") != drawn(step_line, "a", target=6)


def test_the_digest_of_an_image_beside_a_drawn_name_is_compared(step_line: Callable[..., str]) -> None:
    def digest_image(letter: str, image: str) -> str:
        store = f"store-{letter * 7}"
        text = f"URL=s3://{store} GENERATION={letter * 12}\ndocker run acme/train@sha256:{image * 64}\n"
        packed = base64.b64encode(text.encode()).decode()
        bucket = step_line("create", "store", new={"__defaults": ["bucket"], "bucket": store})
        return digest(read([bucket, step_line("create", "template", new={"userData": packed}), END]))

    assert digest_image("a", "d") == digest_image("b", "d") != digest_image("a", "e")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
INPUTS = st.dictionaries(st.text("abc", min_size=1, max_size=2), VALUES, max_size=4)


def test_the_digest_is_free_of_order_and_tells_inputs_apart(step_line: Callable[..., str]) -> None:
    @settings(max_examples=settings().max_examples * 3 // 5)
    @given(st.lists(INPUTS, min_size=1, max_size=4), st.randoms(use_true_random=False), INPUTS)
    def check_digest(inputs: list[dict[str, Any]], rng: random.Random, other: dict[str, Any]) -> None:
        written = [step_line(name=f"r{number}", new=values) for number, values in enumerate(inputs)]
        reversed_keys = [
            step_line(name=f"r{n}", new=dict(reversed(list(values.items())))) for n, values in enumerate(inputs)
        ]
        rng.shuffle(reversed_keys)
        assert digest(read([*written, END])) == digest(read([END, *reversed_keys]))
        changed = [step_line(name="r0", new=other), *written[1:]]
        same = json.dumps(inputs[0], sort_keys=True) == json.dumps(other, sort_keys=True)
        assert (digest(read([*changed, END])) == digest(read([*written, END]))) == same

    check_digest()
