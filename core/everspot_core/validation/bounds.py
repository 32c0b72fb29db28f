"""The bounds of settings: of every text, and of every number about a cluster's instances. They are checked on the
values as written."""

import math
import re
from collections.abc import Mapping
from typing import Any

from everspot_core.validation.field_types import is_printable
from everspot_core.validation.problems import Problems, camel, shown

TYPE_NAME = re.compile(r"^[a-z0-9][a-z0-9-]*([.+][a-z0-9][a-z0-9-]*)?\Z")
"""Name of an instance type: g5.xlarge, u-6tb1.metal, n1-standard-4, n1-standard-8+t4 (with GPUs that are attached)."""

LARGEST_FLEET = 10_000
"""Largest target of a fleet, in units. No cloud allows a larger fleet; some allow less."""

_PRICE = (0.0001, 10_000.0)

STANDING: Mapping[str, tuple[float, float]] = {
    "target": (0, LARGEST_FLEET),
    "on_demand_base": (0, LARGEST_FLEET),
    "on_demand_percentage": (0, 100),
}
"""Bounds of the numbers of standing capacity; the first two are whole numbers."""

ELASTIC: Mapping[str, tuple[float, float]] = {
    "max_instances": (0, LARGEST_FLEET),
    "max_usd_per_hour": (0.0001, 1_000_000.0),
}
"""Bounds of the numbers of elastic capacity; the first is a whole number."""

CAPACITY: Mapping[str, tuple[float, float]] = {"max_price": _PRICE}
"""Bounds of the numbers that both kinds of capacity have."""

TYPE: Mapping[str, tuple[float, float]] = {
    "weight": (0.001, LARGEST_FLEET),  # weights are rounded to three digits, and no fleet is larger
    "priority": (0, 1_000_000),
    "throughput": (1e-6, 1e9),
    "max_price": _PRICE,
}
"""Bounds of the numbers of one type in the list."""

TEXT_AT_MOST = 1024
"""Most characters of a setting. The longest of the clouds' own names is a parameter's, 1011 characters."""

LIST_AT_MOST = 1000
"""Most entries of a list of settings."""

SMALLEST, LARGEST = 1e-6, 1e12
"""Least and largest absolute value of a number that is not 0. Each setting has bounds of its own within them."""

_OWN_KEYS = ("tags", "shares")
"""Settings whose keys are the author's own. Their values may be empty, and a key is checked as a text is."""

_WHOLE = ("target", "on_demand_base", "max_instances")


def check_values(problems: Problems, settings: Mapping[str, Any]) -> None:
    """Add a problem for every bad text, list entry and number of some settings, at any depth.

    A text is bad if it is too long or empty, begins or ends with a space, or has characters that cannot be printed. An
    entry is bad if its list has it twice, and a number if no setting can mean it. Problems that were reported already
    are not added again.

    Args:
        problems: Where to add.
        settings: With names as settings or as Python spells them.
    """
    for key, value in settings.items():
        _check(problems, camel(key) if is_printable(key) else shown(key), value, own=key in _OWN_KEYS)


def _check(problems: Problems, name: str, value: Any, *, own: bool = False, depth: int = 0) -> None:
    if isinstance(value, str):
        reason = text_problem(value, empty=own)
        if reason and not problems.covers(name):
            problems.add(name, reason)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        if value and not math.isnan(value) and not SMALLEST <= abs(value) <= LARGEST and not problems.covers(name):
            problems.add(name, f"has to be 0, or lie between {SMALLEST:g} and {LARGEST:g}, not {shown(value)}")
    elif isinstance(value, Mapping) and depth < _DEEPEST:
        here = problems.at(name)
        for key, entry in value.items():
            reason = text_problem(str(key))
            inner = shown(key) if reason else str(key) if own else camel(str(key))
            if reason and not here.covers(inner) and not (own and problems.covers(name)):
                here.add(inner, f"the key {reason}")
            _check(here, inner, entry, own=own or key in _OWN_KEYS, depth=depth + 1)
    elif isinstance(value, list | tuple) and depth < _DEEPEST:
        problems.need(len(value) <= LIST_AT_MOST, name, f"has {len(value):,} entries; {LIST_AT_MOST:,} are allowed")
        before: set[str] = set()
        for index, entry in enumerate(value[:LIST_AT_MOST]):
            place = f"{name}[{index}]"
            _check(problems, place, entry, depth=depth + 1)
            if isinstance(entry, str) and entry in before and not problems.covers(place):
                problems.add(place, f"{shown(entry)} is listed twice")
            if isinstance(entry, str):
                before.add(entry)


_DEEPEST = 12


def text_problem(text: str, *, empty: bool = False, most: int = TEXT_AT_MOST) -> str:
    """Return the reason why a text of the settings is not allowed; empty if it is allowed. `empty`: whether it may be
    empty."""
    if len(text) > most:
        return f"has {len(text):,} characters; {most:,} are allowed"
    if not is_printable(text) or "\t" in text:
        return f"has characters that cannot be printed: {shown(text)}"
    if not text.strip():
        return "" if empty and not text else "is empty"
    return "" if text == text.strip() else f"begins or ends with a space: {shown(text)}"


def sound_numbers(problems: Problems, args: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a cluster's instances without values that are not numbers or are out of bounds. Adds a
    problem for each.

    A wrong `target` of `standing` becomes the largest one, so that no other setting is blamed for it. A wrong
    `max_instances` becomes 0.
    """
    sound = _sound(problems, args, CAPACITY)
    for part, bounds, stand_in in (
        ("standing", STANDING, {"target": LARGEST_FLEET}),
        ("elastic", ELASTIC, {"max_instances": 0}),
    ):
        if part in args:
            part_args = args[part]
            sound[part] = {
                **{key: value for key, value in stand_in.items() if key in part_args},
                **_sound(problems.at(part), part_args, bounds),
            }
    sound["instance_types"] = []
    for index, entry in enumerate(args["instance_types"]):
        here, name = problems.at(f"instanceTypes[{index}]"), entry["type"]
        fits = isinstance(name, str) and len(name) <= 64 and TYPE_NAME.match(name)
        here.need(bool(fits), "type", f"{shown(name)} is not the name of an instance type, such as g5.xlarge")
        sound["instance_types"].append(_sound(here, entry, TYPE))
    return sound


def _sound(problems: Problems, args: Mapping[str, Any], bounds: Mapping[str, tuple[float, float]]) -> dict[str, Any]:
    return {
        key: value
        for key, value in args.items()
        if key not in bounds or value is None or problems.number(value, camel(key), *bounds[key], whole=key in _WHOLE)
    }
