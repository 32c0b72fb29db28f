"""Checks the facts of settings about an instance type: sane figures, and no contradiction of the catalogue without
`override`."""

import re
from collections.abc import Mapping
from typing import Any

from everspot_core.capacity.catalogue import InstanceType
from everspot_core.validation.problems import Problems, camel, shown

OVERRIDE = "override"
"""The setting that lets a type's figures contradict the catalogue."""

_GPU = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._+/-]{0,63}")
_ARCHES = ("x86_64", "arm64")

_BOUNDS: Mapping[str, tuple[float, float]] = {
    "memory_gib": (0.25, 1_000_000),
    "gpu_memory_gib": (0.25, 10_000),
    "local_nvme_gb": (1, 1_000_000),
    "on_demand_usd_per_hour": (0.0001, 10_000),
}
"""Least and largest figures; no cloud has a smaller machine. 0 is allowed where a type may lack the thing."""

_MAY_LACK = ("gpu_memory_gib", "local_nvme_gb")
_COMPARED = ("arch", "vcpus", "memory_gib", "gpus", "gpu", "gpu_memory_gib", "local_nvme_gb")
"""The figures of a type that must agree with the catalogue. Prices are left out, because they differ by region and
date."""


def fact_problems(
    problems: Problems, name: str, facts: Mapping[str, Any], listed: InstanceType | None, *, override: bool
) -> None:
    """Add a problem for each wrong figure of a type in the settings. Problems that were reported already are left out.

    Args:
        problems: Of the type's entry.
        name: The type's name.
        facts: The figures, by the names of `InstanceType`.
        listed: The type in the catalogue, if it is there.
        override: Whether the author says that the catalogue is wrong.
    """
    for key, (low, high) in _BOUNDS.items():
        value = facts.get(key)
        if value is not None and not (key in _MAY_LACK and value == 0) and not problems.covers(camel(key)):
            problems.number(value, camel(key), low, high)
    gpu = facts.get("gpu")
    if gpu is not None and not problems.covers("gpu") and not (isinstance(gpu, str) and _GPU.fullmatch(gpu)):
        problems.add("gpu", f"{shown(gpu)} is not the name of a GPU, such as A10G: at most 64 letters, digits, ._+/-")
    arch = facts.get("arch")
    problems.need(arch is None or arch in _ARCHES, "arch", f"{shown(arch)} is none of {', '.join(_ARCHES)}")
    if listed is None or override:
        return  # there is nothing to contradict
    for key in _COMPARED:
        listed_value = getattr(listed, key)
        if key in facts and facts[key] != listed_value and not problems.covers(camel(key)):
            has = (
                "no"
                if listed_value in (None, 0)
                else f"{listed_value:g}"
                if isinstance(listed_value, float)
                else str(listed_value)
            )
            problems.add(
                camel(key),
                f"{shown(facts[key])} contradicts the catalogue, which has {has} for {name}: leave it out, or say "
                f"{OVERRIDE}: true",
            )
