"""Bad inputs, collected by name and reported all at once instead of one by one."""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

E = TypeVar("E", bound=StrEnum)
M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with one input. `path`: the input as the user wrote it, like `fleet.types[2].weight`."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}" if self.path else self.reason


class BadInputs(ValueError):
    """Raised once for all problems of one thing; the message has a line for each."""

    def __init__(self, what: str, problems: Iterable[Problem]):
        self.problems = tuple(problems)
        lines = "".join(f"\n  - {problem}" for problem in self.problems)
        count = len(self.problems)
        super().__init__(f"{what} has {count} bad input{'' if count == 1 else 's'}:{lines}")


class Problems:
    """A list of problems that knows where it is: `at` gives a view whose paths carry a prefix."""

    def __init__(self, prefix: str = "", found: list[Problem] | None = None):
        self._prefix = prefix
        self._found: list[Problem] = [] if found is None else found

    @property
    def found(self) -> tuple[Problem, ...]:
        """Everything that was added so far, through any view."""
        return tuple(self._found)

    def at(self, name: str) -> "Problems":
        """The same list, seen from inside the input `name`."""
        return Problems(self._path(name), self._found)

    def add(self, name: str, reason: str) -> None:
        """Note a problem of the input `name`; an empty name means the whole."""
        self._found.append(Problem(self._path(name), reason))

    def need(self, holds: bool, name: str, reason: str) -> bool:
        """Note a problem unless `holds`; returns `holds`."""
        if not holds:
            self.add(name, reason)
        return holds

    def choice(self, kind: type[E], value: object, name: str) -> E | None:
        """`value` as a member of an enumeration; otherwise None and a problem that lists what is allowed."""
        try:
            return kind(str(value))
        except ValueError:
            allowed = [member.value for member in kind]
            self.add(name, f"{str(value)!r} is not allowed{near(str(value), allowed)}; one of: {', '.join(allowed)}")
            return None

    def model(self, kind: type[M], values: Mapping[str, Any], note: str = "") -> M | None:
        """`values` as a model; otherwise None and a problem for each value that is wrong, with `note` behind it."""
        try:
            return kind.model_validate(values)
        except ValidationError as error:
            for detail in error.errors():
                name = camel(str(detail["loc"][0])) if detail["loc"] else ""
                self.add(name, detail["msg"].removeprefix("Value error, ") + note)
            return None

    def raise_any(self, what: str) -> None:
        """Raise what was found.

        Raises:
            BadInputs: if there is at least one problem.
        """
        if self._found:
            raise BadInputs(what, self._found)

    def _path(self, name: str) -> str:
        if not self._prefix or not name:
            return self._prefix or name
        return f"{self._prefix}{name}" if name.startswith("[") else f"{self._prefix}.{name}"


def camel(name: str) -> str:
    """The name of an input as settings and other languages write it: `memory_gib` is `memoryGib`."""
    head, *tail = name.split("_")
    return head + "".join(part.capitalize() for part in tail)


def near(word: str, known: Iterable[str]) -> str:
    """` (did you mean x?)`, or nothing when no known word is close."""
    matches = difflib.get_close_matches(word, list(known), n=2, cutoff=0.6)
    return f" (did you mean {' or '.join(matches)}?)" if matches else ""
