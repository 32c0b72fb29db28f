"""Least and most of every number in a fleet's settings, checked as its author wrote them, before they are believed."""

import re
from collections.abc import Mapping
from typing import Any

from everspot_core.problems import Problems, camel, shown

TYPE_NAME = re.compile(r"^[a-z0-9][a-z0-9-]*(\.[a-z0-9][a-z0-9-]*)?$")
"""Name of an instance type: g5.xlarge, u-6tb1.metal, n1-standard-4."""

LARGEST_FLEET = 10_000
"""Units that a fleet may be asked to hold; no cloud takes more for one, some less."""

_PRICE = (0.0001, 10_000.0)

FLEET: Mapping[str, tuple[float, float]] = {
    "target": (0, LARGEST_FLEET),
    "on_demand_base": (0, LARGEST_FLEET),
    "on_demand_percentage": (0, 100),
    "max_price": _PRICE,
}
"""Bounds of a fleet's own numbers; the first two are whole."""

TYPE: Mapping[str, tuple[float, float]] = {
    "weight": (0.001, LARGEST_FLEET),  # weights are rounded to three digits, and no fleet is larger
    "priority": (0, 1_000_000),
    "throughput": (1e-6, 1e9),
    "max_price": _PRICE,
}
"""Bounds of the numbers of one type in the list."""

_WHOLE = ("target", "on_demand_base")


def sound_numbers(problems: Problems, args: Mapping[str, Any]) -> dict[str, Any]:
    """A fleet's settings without the numbers that are none or lie outside of their bounds; a problem for each.

    `target`, which no fleet can lack, becomes the largest one, so that nothing else is blamed for it.
    """
    sound = _sound(problems, args, FLEET)
    sound.setdefault("target", FLEET["target"][1])
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
