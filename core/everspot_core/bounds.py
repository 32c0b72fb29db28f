"""Bounds of every number in the settings of a cluster's instances. They are checked first, on the values as written."""

import re
from collections.abc import Mapping
from typing import Any

from everspot_core.problems import Problems, camel, shown

TYPE_NAME = re.compile(r"^[a-z0-9][a-z0-9-]*([.+][a-z0-9][a-z0-9-]*)?$")
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

_WHOLE = ("target", "on_demand_base", "max_instances")


def sound_numbers(problems: Problems, args: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a cluster's instances without values that are not numbers or are out of bounds. Adds a problem
    for each.

    A wrong `target` of `standing` becomes the largest one, so that no other setting is blamed for it. A wrong
    `max_instances` becomes 0.
    """
    sound = _sound(problems, args, CAPACITY)
    for part, bounds, stand_in in (
        ("standing", STANDING, {"target": LARGEST_FLEET}),
        ("elastic", ELASTIC, {"max_instances": 0}),
    ):
        if part in args:
            given = args[part]
            sound[part] = {
                **{key: value for key, value in stand_in.items() if key in given},
                **_sound(problems.at(part), given, bounds),
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
