"""The rules by which a bucket deletes its objects, in a form in which rules of every cloud are compared."""

import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any

CURRENT, EARLIER = "current", "earlier"
"""The versions of an object."""


@dataclass(frozen=True)
class DeletionRule:
    """A rule that deletes the objects which fulfil all its conditions.

    Attributes:
        prefix: Beginning of the names of the objects.
        versions: The versions that it deletes, of CURRENT and EARLIER.
        timing: When an object is deleted, for people.
        limits: Conditions under which a larger number deletes fewer objects, or later; infinitely low where it is not
            known.
        selectors: Conditions under which another value selects other objects.
        days: Days after an object is written, if nothing else is a condition beside the prefix.
    """

    prefix: str
    versions: frozenset[str]
    timing: str
    limits: Mapping[str, float] = field(default_factory=dict)
    selectors: Mapping[str, Hashable] = field(default_factory=dict)
    days: float | None = None

    def covers(self, other: "DeletionRule") -> bool:
        """Return whether this rule deletes all that another rule deletes, no later than that one does."""
        return (
            other.prefix.startswith(self.prefix)
            and other.versions <= self.versions
            and all(-math.inf < limit <= other.limits.get(name, -math.inf) for name, limit in self.limits.items())
            and all(other.selectors.get(name) == value for name, value in self.selectors.items())
        )


def day_number(text: Any) -> float:
    """Return a date as a number of days, from an RFC 3339 date or time; infinitely low if it is not known."""
    try:
        return float(date.fromisoformat(str(text)[:10]).toordinal())
    except ValueError:
        return -math.inf


def parse_number(value: Any) -> float:
    """Return a number of inputs; infinitely low if it is not known before the update."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else -math.inf


def describe_number(value: float) -> str:
    """Return a number for people."""
    return "an unknown number of" if value == -math.inf else f"{value:g}"


def mappings(value: Any) -> Iterable[Mapping[str, Any]]:
    """Return the mappings of a list of inputs; none where it is no list, or not known."""
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list | tuple) else []
