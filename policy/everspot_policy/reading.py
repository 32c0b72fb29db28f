"""Reads inputs without trust: any JSON may be anywhere, and hidden, unknown or secret values are no mistakes.

Every function takes any value and raises nothing.
"""

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from everspot_core.cluster.declared import secret, unknown

_YES = {"true", "yes", "1", "on", "y"}
_DEEPEST = 40  # levels of a document's lists and objects; real ones are flatter, and deeper ones exhaust the stack


def hidden(value: Any) -> bool:
    """Return whether nothing can be said of a value yet: it is a secret, or only the update will know it."""
    return unknown(value) or secret(value)


def yes(value: Any) -> bool:
    """Return whether a known value says yes: as a boolean, or as one of the texts that providers take for it."""
    return value is True or (isinstance(value, str) and value.strip().lower() in _YES)


def lacks(value: Any) -> bool:
    """Return whether a value, if it is known, does not say yes. Saying nothing is not yes."""
    return not hidden(value) and not yes(value)


def denied(value: Any) -> bool:
    """Return whether a value is given, known, and does not say yes."""
    return value is not None and lacks(value)


def number(value: Any) -> float | None:
    """Return a known, finite number, also as a text; otherwise None."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        parsed = float(value)
    except (ValueError, OverflowError):
        return None
    return parsed if math.isfinite(parsed) else None


def text(value: Any) -> str:
    """Return a known text; otherwise the empty one."""
    return value if isinstance(value, str) and not hidden(value) else ""


def texts(value: Any) -> list[str]:
    """Return the known texts of a list; a text alone counts as a list of one."""
    items = value if isinstance(value, list | tuple) else [value]
    return [each for each in items if text(each)]


def mapping(value: Any) -> Mapping[str, Any]:
    """Return a known object; otherwise an empty one."""
    return value if isinstance(value, Mapping) and not hidden(value) else {}


def inner(value: Any, *names: str) -> Mapping[str, Any]:
    """Return an object inside other ones; empty if one of them is missing or hidden."""
    for name in names:
        value = mapping(value).get(name)
    return mapping(value)


def objects(inputs: Mapping[str, Any], name: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the objects of an input with their paths, such as `name[2]`. A single object counts as a list of one."""
    value = inputs.get(name)
    if isinstance(value, list | tuple):
        for index, each in enumerate(value):
            if isinstance(each, Mapping) and not hidden(each):
                yield f"{name}[{index}]", each
    elif isinstance(value, Mapping) and not hidden(value):
        yield name, value


def document(value: Any) -> Any:
    """Return the content of a JSON document, given as a text or as an object; None if it is hidden or no document."""
    if hidden(value):
        return None
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, Mapping | list) and not _deep(value) else None


def _deep(value: Any) -> bool:
    level = [value]
    for _ in range(_DEEPEST):
        level = [
            below
            for each in level
            for below in (each.values() if isinstance(each, Mapping) else each if isinstance(each, list) else ())
        ]
        if not level:
            return False
    return True
