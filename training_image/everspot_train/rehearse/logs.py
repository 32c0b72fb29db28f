"""Compares the output of two runs: the numbers in lines with a step."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+|nan|inf)(?![\w.]*\w)")
_POSITION = re.compile(
    r"\b(?P<key>(?:global[ _]?)?step|iter(?:ation)?|it|batch|update|epoch)s?\b"
    r"[\s=:#/\[('\"]*(?P<value>\d+\.?\d*)",
    re.IGNORECASE,
)
_ORDER = ("epoch", "step", "iter", "it", "update", "batch")


@dataclass(frozen=True)
class LogLine:
    """A line with a step.

    Attributes:
        form: its text with `#` for each number.
        key: the words for the step, such as `epoch, batch`.
        position: the numbers of the key.
    """

    form: str
    key: str
    position: tuple[float, ...]
    numbers: tuple[str, ...]


def log_lines(text: str) -> list[LogLine]:
    """Return the lines of a program's output with a step and other numbers."""
    parsed = []
    for line in re.split(r"[\r\n]+", text):
        places = {_key(match["key"]): float(match["value"]) for match in reversed(list(_POSITION.finditer(line)))}
        numbers = tuple(_NUMBER.findall(line))
        if places and numbers:
            keys = sorted(places, key=_ORDER.index)
            position = tuple(places[key] for key in keys)
            parsed.append(LogLine(_NUMBER.sub("#", line).strip(), ", ".join(keys), position, numbers))
    return parsed


def _key(text: str) -> str:
    key = re.sub(r"^global[ _]?", "", text.lower())
    return "iter" if key.startswith("iter") else key


def by_place(lines: Iterable[LogLine]) -> dict[tuple[str, tuple[float, ...]], tuple[str, ...]]:
    """Return the numbers of each form at each position. If a position is repeated, the last numbers count."""
    return {(line.form, line.position): line.numbers for line in lines}


def unstable_numbers(expected: list[LogLine], actual: list[LogLine]) -> set[tuple[str, int]]:
    """Return the numbers that differ between two undisturbed runs, such as times, by form and index."""
    by_expected_place, by_actual_place = by_place(expected), by_place(actual)
    return {
        (form, place)
        for (form, position), numbers in by_expected_place.items()
        for place, number in enumerate(numbers)
        if (form, position) in by_actual_place
        and place < len(by_actual_place[form, position])
        and by_actual_place[form, position][place] != number
    }


def first_log_difference(
    reference: list[LogLine], lines: list[LogLine], unstable: set[tuple[str, int]]
) -> tuple[LogLine, str, str] | None:
    """Return the first line with other numbers than in the reference, with both texts."""
    expected = by_place(reference)
    for line in lines:
        numbers = expected.get((line.form, line.position))
        if numbers is None:
            continue
        for place, (expected_number, actual_number) in enumerate(zip(numbers, line.numbers, strict=False)):
            if expected_number != actual_number and (line.form, place) not in unstable:
                return line, expected_number, actual_number
    return None


def first_position(lines: list[LogLine], key: str) -> tuple[float, ...] | None:
    """Return the lowest position of the lines with this key."""
    return min((line.position for line in lines if line.key == key), default=None)


def usual_key(lines: list[LogLine]) -> str | None:
    """Return the key with the most different positions; None without lines."""
    positions: dict[str, set[tuple[float, ...]]] = {}
    for line in lines:
        positions.setdefault(line.key, set()).add(line.position)
    return max(positions, key=lambda key: len(positions[key]), default=None)
