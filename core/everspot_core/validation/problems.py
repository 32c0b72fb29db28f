"""Bad inputs, collected by name and reported together instead of one by one."""

import difflib
import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from everspot_core.counting import counted

E = TypeVar("E", bound=StrEnum)

LISTED_AT_MOST = 12
"""Known names that are listed beside one that is not."""
SHOWN_AT_MOST = 20
"""Number of problems that a message lists. Further ones are only counted."""

_TEXT_AT_MOST = 300  # of one problem's path, and of its reason
_VALUE_AT_MOST = 80
_WORD_AT_MOST = 64  # comparing longer words with every known one costs seconds, and suggests nothing


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with one input. `path`: the input as the user wrote it, like `fleet.types[2].weight`."""

    path: str
    reason: str

    def __str__(self) -> str:
        """Return one line that no terminal obeys: names of inputs are their author's."""
        path, reason = (_legible(cut(text, _TEXT_AT_MOST)) for text in (self.path, self.reason))
        return f"{path}: {reason}" if path else reason


def _legible(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char == "\u00a0" else repr(char)[1:-1] for char in text)


class BadInputs(ValueError):
    """All problems of one set of inputs. The message has a line for each of the first `SHOWN_AT_MOST` and counts the
    rest; `problems` holds them all."""

    def __init__(self, subject: str, problems: Iterable[Problem]):
        self.problems = tuple(problems)
        lines = "".join(f"\n  - {problem}" for problem in self.shown)
        count = len(self.problems)
        if count > SHOWN_AT_MOST:
            lines += f"\n  … and {count - SHOWN_AT_MOST:,} more"
        super().__init__(f"{subject} has {counted(count, 'bad input')}:{lines}")

    @property
    def shown(self) -> tuple[Problem, ...]:
        """The problems that the message lists."""
        return self.problems[:SHOWN_AT_MOST]


class Problems:
    """A list of problems. `at` gives a view of it that puts a prefix before the paths."""

    def __init__(self, prefix: str = "", collected: list[Problem] | None = None):
        self._prefix = prefix
        self._collected: list[Problem] = [] if collected is None else collected

    @property
    def collected(self) -> tuple[Problem, ...]:
        """Everything that was added so far, through any view."""
        return tuple(self._collected)

    def at(self, name: str) -> "Problems":
        """Return a view of the same list for the input `name`: paths are relative to it."""
        return Problems(self._path(name), self._collected)

    def add(self, name: str, reason: str) -> None:
        """Add a problem of the input `name`. An empty name means the input as a whole."""
        self._collected.append(Problem(self._path(name), reason))

    def covers(self, name: str) -> bool:
        """Return whether a problem of the input `name` was added."""
        path = self._path(name)
        return any(problem.path == path for problem in self._collected)

    def need(self, condition: bool, name: str, reason: str) -> bool:
        """Add a problem unless `condition`. Returns `condition`."""
        if not condition:
            self.add(name, reason)
        return condition

    def unknown(self, names: Iterable[object], allowed: Collection[str], reason: str, *, listed: bool = False) -> None:
        """Add a problem for every name of `names` that is not known, with similar known names. If no name is similar,
        the problem lists all known names, if they are few."""
        for name in names:
            if name not in allowed:
                # A search for near names is expensive, and nobody reads suggestions beyond the first few.
                suggestion = near(str(name), allowed) if len(self._collected) < SHOWN_AT_MOST else ""
                if listed and not suggestion and len(allowed) <= LISTED_AT_MOST:
                    suggestion = f"; there are {', '.join(sorted(allowed))}"
                self.add(cut(str(name), _VALUE_AT_MOST), reason + suggestion)

    def number(self, value: object, name: str, low: float, high: float, *, whole: bool = False) -> bool:
        """Add a problem unless a value is a number from `low` to `high`, and with `whole` a whole number. Returns
        whether it is.

        True and False are not numbers. A whole number may be a float, as numbers from other languages are.
        """
        kind = "a whole number" if whole else "a number"
        finite = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if not finite or (whole and value != int(value)):  # type: ignore[call-overload]
            self.add(name, f"has to be {kind}, not {shown(value)}")
            return False
        inside = low <= value <= high  # type: ignore[operator]
        return self.need(inside, name, f"has to lie between {low:.10g} and {high:.10g}, not {shown(value)}")

    def choice(self, kind: type[E], value: object, name: str) -> E | None:
        """Return `value` as a member of an enumeration; otherwise None, and add a problem that lists the allowed
        values."""
        try:
            return kind(str(value))
        except ValueError:
            allowed = [member.value for member in kind]
            suggestion = near(str(value), allowed)
            self.add(name, f"{shown(str(value))} is not allowed{suggestion}; one of: {', '.join(allowed)}")
            return None

    def raise_any(self, subject: str) -> None:
        """Raise all problems that were added.

        Raises:
            BadInputs: if there is at least one problem.
        """
        if self._collected:
            raise BadInputs(subject, self._collected)

    def _path(self, name: str) -> str:
        if not self._prefix or not name:
            return self._prefix or name
        return f"{self._prefix}{name}" if name.startswith("[") else f"{self._prefix}.{name}"


def camel(name: str) -> str:
    """Return the name of an input as settings and other languages write it: `memory_gib` is `memoryGib`."""
    head, *tail = name.split("_")
    return head + "".join(part.capitalize() for part in tail)


def near(name: str, candidates: Iterable[str]) -> str:
    """Return ` (did you mean x?)`, or nothing when no known word is close."""
    if len(name) > _WORD_AT_MOST:
        return ""
    matches = difflib.get_close_matches(name, list(candidates), n=2, cutoff=0.6)
    return f" (did you mean {' or '.join(matches)}?)" if matches else ""


def shown(value: object) -> str:
    """Return a value as its author wrote it, for a message. A long one is cut."""
    if isinstance(value, str):
        return cut(repr(value[: _VALUE_AT_MOST + 1]), _VALUE_AT_MOST)
    if isinstance(value, Collection) and len(value) > _VALUE_AT_MOST:
        return f"a {type(value).__name__} of {len(value)}"
    return cut(repr(value), _VALUE_AT_MOST)


def cut(text: str, most: int) -> str:
    """Return at most `most` characters of a text, with an ellipsis in place of the rest."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
