"""A YAML file that readers interpret differently is refused, with the unambiguous spelling."""

import json
import math
import re
from typing import Any

import pytest
import yaml
from everspot_core.validation.yaml_readers import value_difference
from everspot_core.validation.yaml_text import BadYaml, load, scalars
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("2026-01-31", '"2026-01-31"'),
        ("2026-1-1", '"2026-1-1"'),
        ("2026-01-31T12:00:00Z", '"2026-01-31T12:00:00Z"'),
        ("2026-01-31 12:00:00.5 +01:00", '"2026-01-31 12:00:00.5 +01:00"'),
        ("yes", '"yes" for the text, or true'), ("No", '"No" for the text, or false'),
        ("on", '"on" for the text, or true'), ("OFF", '"OFF" for the text, or false'),
        ("0123", '"0123"'), ("012345678901", '"012345678901"'), ("08", '"08"'), ("-07", '"-07"'),
        ("0o17", '"0o17"'), ("0x1F", '"0x1F"'), ("0XFF", '"0XFF"'), ("0b101", '"0b101"'), ("-0x1", '"-0x1"'),
        ("1:30", '"1:30"'), ("22:22", '"22:22"'), ("190:20:30.15", '"190:20:30.15"'),
        ("1_000", '"1_000" for the text, or 1000 for'), ("1_000.5", "or 1000.5"), ("._5", ""), (".5_0", "or 0.5"),
        ("1e3", "or 1000.0"), ("1E-5", "or 1.0e-05"), ("1.5e3", "or 1500.0"), ("123e456", '"123e456"'),
        ("1234567e1", '"1234567e1"'), ("-.5", "or -0.5"), ("1.0e+999", '"1.0e+999"'),
        ("9223372036854775808", '"9223372036854775808"'), ("1" * 24, '"1'), ("1" * 5_000, "…"),
        ("=", '"="'), ("<<", '"<<"'),
    ],
)  # fmt: skip
def test_a_value_that_readers_take_differently_is_refused_with_its_quoted_form(text: str, remedy: str) -> None:
    if not remedy:
        assert not value_difference(text)
        return
    assert remedy in value_difference(text)
    for form in (f"a: {text}", f"a: [{text}]", f"a:\n  - {text}\n", f"a: {{b: {text}}}"):
        with pytest.raises(BadYaml, match=r"line [12], a") as refused:
            load(form)
        assert len(str(refused.value)) < 400 and refused.value.differences
    assert load(f'a: "{text}"') == {"a": text}
    assert load(f"a: !!str {text}") == {"a": text}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12", 12), ("-3", -3), ("0", 0), ("1.5", 1.5), ("2.", 2.0), (".5", 0.5), ("-.INF", -math.inf),
        ("1.0e-05", 1e-05), ("1.0E+3", 1e3),
        ("true", True), ("FALSE", False), ("null", None), ("~", None), ("", None), ("ami-04681a1dbd79675a5",) * 2,
        ("nope",) * 2, ("1.2.3",) * 2, ("10.64.0.0/16",) * 2, ("8080:80",) * 2, ("1h30m",) * 2, ("2026-01",) * 2,
        ("2026-01-31-a",) * 2, ("g5.xlarge",) * 2, ("arn:aws:s3:::a",) * 2, ("sha256:1e5",) * 2, ("1a2b",) * 2,
        ("0xZZ",) * 2, ("e3",) * 2, ("v1_0",) * 2, ("::1",) * 2, ("yes please",) * 2, ("--x",) * 2,
        ("y",) * 2, ("N",) * 2,
    ],
)  # fmt: skip
def test_what_all_readers_agree_on_is_taken(text: str, value: Any) -> None:
    assert load(f"a: {text}\n") == {"a": value}


@pytest.mark.parametrize(
    "key", ["on", "1", "1.5", "true", "null", "~", "2026-01-31", "0x1", "1:30", "yes", ".inf", "-.Inf", ".nan"]
)
def test_a_key_that_is_no_text_to_all_is_refused(key: str) -> None:
    with pytest.raises(BadYaml, match="the key "):
        load(f"a: {{{key}: x}}")
    assert load(f"a: {{'{key}': x}}") == {"a": {key: "x"}}


def test_merge_keys_tags_and_separators_are_refused_and_anchors_are_not() -> None:
    assert load("a: &a {x: 1}\nb: *a\ny: 2\n") == {"a": {"x": 1}, "b": {"x": 1}, "y": 2}
    for text, reason in (
        ("a: &a {x: 1}\nb: {<<: *a}\n", "line 2, b.<<: << merges"),
        ("a: !!int '5'\n", "line 1, a: has the tag 'int'"),
        ("a: ! 5\n", "has the tag"),
        ("a: x\u2028y\n", "line 1: U+2028"),
        ("a: 1\nb: 'x\u0085y'\n", "line 2: U+0085"),
    ):
        with pytest.raises(BadYaml, match=re.escape(reason)):
            load(text)


def test_every_difference_of_a_file_is_named_at_once() -> None:
    with pytest.raises(BadYaml) as refused:
        load("a: yes\nb:\n  - 1e3\n  - {c: 0123}\non: x\n")
    assert [difference.path for difference in refused.value.differences] == [
        "line 1, a", "line 3, b[0]", "line 4, b[1].c", "line 5, on",
    ]  # fmt: skip
    with pytest.raises(BadYaml, match="and 480 more"):
        load("".join(f"k{n}: yes\n" for n in range(500)))


def test_moments_and_words_of_a_format_are_its_own() -> None:
    assert load("until: 2027-06-30\n", moments={"until"}) == {"until": "2027-06-30"}
    assert load("a: off\n", words={"off"}) == {"a": "off"}
    for text in ("since: 2027-06-30", "until: yes"):
        with pytest.raises(BadYaml):
            load(text, moments={"until"}, words={"off"})


def test_json_keeps_its_numbers_and_the_reader_of_a_word_alone_is_not_strict() -> None:
    assert load('{"a": 1e-05, "b": 1E3, "c": [100000000000000000000000]}') == {"a": 1e-05, "b": 1000.0, "c": [10**23]}
    with pytest.raises(BadYaml, match="given twice"):
        load('{"a": 1, "a": 2}')
    with pytest.raises(BadYaml, match="line 1, a"):
        load("{a: 1e5}")
    assert load("1e-4", strict=False) == 1e-4


@given(st.text(st.sampled_from("0123456789_.:-+eExXoObBaAfFinIN yYsStTZ~=<nul"), min_size=1, max_size=12))
def test_what_is_taken_is_the_same_to_pyyaml(text: str) -> None:
    try:
        value = load(f"a: {text}\n")["a"]
    except (BadYaml, TypeError, KeyError):
        return
    try:
        other = yaml.safe_load(f"a: {text}\n")["a"]
    except ValueError:  # digits in the form of a date that does not exist
        other = None
    assert (type(value), repr(value)) == (type(other), repr(other))


@given(st.dictionaries(st.text(max_size=8), st.text(max_size=12), max_size=4))
def test_what_quotes_hold_is_taken(values: dict[str, str]) -> None:
    text = yaml.safe_dump(values, default_style='"', allow_unicode=False)
    assert load(text) == values


def test_scalars_have_their_place_and_line() -> None:
    text = "config:\n  everspot:cluster:\n    tags: {Team: a,\n      Owner: 'b'}\n    zones: [x,\n      z]\n"
    assert [(scalar.path, scalar.key, scalar.text, scalar.line) for scalar in scalars(text)] == [
        ("config.everspot:cluster.tags.Team", "Team", "a", 3),
        ("config.everspot:cluster.tags.Owner", "Owner", "b", 4),
        ("config.everspot:cluster.zones[0]", "zones", "x", 5),
        ("config.everspot:cluster.zones[1]", "zones", "z", 6),
    ]


def test_a_key_named_y_stands_beside_x() -> None:
    assert load("{x: 1, y: 2, n: 3}") == {"x": 1, "y": 2, "n": 3}


@given(st.dictionaries(st.text(min_size=1, max_size=5), st.text(max_size=5), max_size=4))
def test_json_with_escapes_means_what_json_means(document: dict[str, str]) -> None:
    """JSON writes a character beyond U+FFFF as a pair of escapes, which every reader reads as one character."""
    assert load(json.dumps(document), strict=False) == document


@pytest.mark.parametrize("text", ['{"a": "\\ud83d"}', 'a: "\\ude00"', '{"\\ud83d": 1}'])
def test_half_a_character_is_refused(text: str) -> None:
    with pytest.raises(BadYaml, match="lone surrogate"):
        load(text)
