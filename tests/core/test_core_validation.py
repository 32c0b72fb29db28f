"""Validation errors of a model, in Everspot's own words."""

from datetime import datetime
from typing import Literal

import pytest
from everspot_core.documents import Duration, Frozen, Utc
from everspot_core.validation.field_types import Whole
from everspot_core.validation.model_errors import translate_errors
from everspot_core.validation.problems import SHOWN_AT_MOST, BadInputs, Problem
from pydantic import Field, ValidationError, field_validator


class Inner(Frozen):
    """A model in another one."""

    size: Whole = Field(default=1, ge=1)
    rate: float = 0.5
    on: bool = False


class Outer(Frozen):
    """A model with a field of each kind."""

    name: str = "a"
    count: int = 1
    when: Duration | Utc | None = None
    kind: Literal["a", "b"] = "a"
    inner: Inner = Inner()
    list_of: list[Inner] = Field(default_factory=list)
    needs: dict[str, int] = Field(default_factory=dict)

    @field_validator("needs")
    @classmethod
    def _no_more_than_one(cls, value: dict[str, int]) -> dict[str, int]:
        if len(value) > 1:
            raise BadInputs("needs", [Problem(name, "is one too many") for name in value])
        return value


def find_problems(values: object) -> dict[str, str]:
    with pytest.raises(ValidationError) as caught:
        Outer.model_validate(values)
    return {problem.path: problem.reason for problem in translate_errors(caught.value, Outer)}


@pytest.mark.parametrize(
    ("values", "path", "words"),
    [
        ({"name": 3}, "name", "must be a text, not 3"),
        ({"count": "two"}, "count", "must be a whole number, not 'two'"),
        ({"count": 1.5}, "count", "must be a whole number, not 1.5"),
        ({"inner": {"size": "two"}}, "inner.size", "has to be a number, not 'two'"),
        ({"inner": {"size": 0}}, "inner.size", "must be greater than or equal to 1, not 0"),
        ({"inner": {"rate": "fast"}}, "inner.rate", "must be a number, not 'fast'"),
        ({"inner": {"on": "perhaps"}}, "inner.on", "must be true or false, not 'perhaps'"),
        ({"inner": 3}, "inner", "must be a mapping, not 3"),
        ({"list_of": {}}, "list_of", "must be a list"),
        ({"list_of": [{"sise": 1}]}, "list_of[0].sise",
         "unknown field (did you mean size?); allowed: size, rate, on"),
        ({"inner": {"sise": 1}}, "inner.sise", "unknown field (did you mean size?); allowed: size, rate, on"),
        ({"cuont": 1}, "cuont",
         "unknown field (did you mean count?); allowed: name, count, when, kind, inner, list_of, needs"),
        ({"kind": "c"}, "kind", "must be 'a' or 'b', not 'c'"),
        ({"when": -1}, "when", "a duration lies between 0s and 3650d, not -1"),
        ({"needs": {"x": 1, "y": 2}}, "needs.y", "is one too many"),
    ],
)  # fmt: skip
def test_each_field_is_told_in_one_sentence_with_what_is_allowed(values: object, path: str, words: str) -> None:
    assert find_problems(values)[path] == words


def test_what_may_be_of_two_types_is_told_once() -> None:
    assert list(find_problems({"when": "soon"})) == ["when"]
    assert "soon" in find_problems({"when": "soon"})["when"]
    assert list(find_problems({"when": datetime(2026, 1, 1)})) == ["when"]  # noqa: DTZ001 - that it lacks its zone is the point


def test_beyond_those_that_are_shown_faults_are_counted_without_words() -> None:
    problems = find_problems({f"key{number}": number for number in range(5000)})
    assert len(problems) == 5000
    assert sum(bool(words) for words in problems.values()) == SHOWN_AT_MOST


def test_names_and_values_are_cut_and_send_nothing_to_a_terminal() -> None:
    problems = find_problems({"\x1b[2J": 1, "k" * 10**5: 1, "count": "\x1b" * 10**5})
    assert all(char.isprintable() for pair in problems.items() for char in "".join(pair))
    assert all(len(path) <= 80 and len(words) <= 800 for path, words in problems.items())
