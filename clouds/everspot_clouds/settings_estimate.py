"""Estimates the resources that an environment will declare from its settings alone, as far as they cost money.

This is for callers without an engine and credentials: the price of a change in a fork. The declared components give the
same figures, and tests compare the two.
"""

import math
import re
from collections.abc import Container, Mapping, Sequence
from typing import Any

from everspot_core.capacity.catalogue import InstanceType
from everspot_core.capacity.fleet import TypeChoice
from everspot_core.capacity.type_facts import OVERRIDE, fact_problems
from everspot_core.cluster.declared import DeclaredResource
from everspot_core.validation.bounds import sound_numbers
from everspot_core.validation.model_errors import parse_model
from everspot_core.validation.problems import Problems

from everspot_clouds.price_files import load_catalogue

PREFIX = "everspot-"
"""The prefix of a cluster's name, before the name of its stack."""

ENVIRONMENT = "Environment"
"""The tag that is derived from the stack's name where the settings have none."""


class ClusterOutline:
    """Collects the resources of one cluster."""

    def __init__(self, stack: str, settings: Mapping[str, Any], cluster_type: str) -> None:
        """`settings`: the section of the cluster; `cluster_type`: of its component."""
        self.name = f"{PREFIX}{stack}"
        self.settings = settings
        self.tags = {ENVIRONMENT: stack, **(settings.get("tags") or {})}
        self.capacity: Mapping[str, Any] = settings["capacity"]
        self.resources: list[DeclaredResource] = []
        self._stack, self._cluster_type = stack, cluster_type

    def add(self, kind: str, suffix: str, inputs: Mapping[str, Any], *parents: str) -> None:
        """Add a resource. `suffix`: of its name; `parents`: types of the components between it and the cluster's."""
        types = "$".join([self._cluster_type, *parents, kind])
        urn = f"urn:pulumi:{self._stack}::everspot::{types}::{self.name}-{suffix}"
        self.resources.append(DeclaredResource(urn, kind, inputs))

    def component(self, kind: str, suffix: str, leaving: str) -> None:
        """Add a component of instances. `leaving`: the part of the capacity that is not its own."""
        own = {key: value for key, value in self.capacity.items() if key != leaving}
        self.add(kind, suffix, {"capacity": own, "tags": self.tags})


def check_shape(problems: Problems, settings: Mapping[str, Any]) -> bool:
    """Add the mistakes that keep the settings of a cluster from being read at all. Return True if there are no
    mistakes."""
    capacity = settings.get("capacity")
    if not problems.need(isinstance(capacity, Mapping), "capacity", "is missing, or is no mapping"):
        return False
    assert isinstance(capacity, Mapping)  # noqa: S101 - as was just found
    sound = True
    for key in ("standing", "elastic"):
        part = capacity.get(key, {})
        sound &= problems.need(isinstance(part, Mapping), f"capacity.{key}", "is no mapping")
    types = capacity.get("instanceTypes")
    if not problems.need(
        isinstance(types, list) and bool(types), "capacity.instanceTypes", "is missing, or is no list"
    ):
        return False
    for index, entry in enumerate(types or ()):
        has_type = isinstance(entry, str) or (isinstance(entry, Mapping) and isinstance(entry.get("type"), str))
        sound &= problems.need(has_type, f"capacity.instanceTypes[{index}]", "names no type")
    for key in ("tags", "federation", "zones"):
        kind: type = dict if key == "tags" else list
        sound &= problems.need(isinstance(settings.get(key, kind()), kind), key, "is of the wrong kind")
    if not sound or not _right_numbers(problems, capacity):
        return False
    before = len(problems.collected)
    _check_bounds(problems.at("capacity"), capacity)
    return len(problems.collected) == before


def _check_bounds(problems: Problems, capacity: Mapping[str, Any]) -> None:
    """Add the numbers of a capacity that are out of bounds, as its component does, and the figures of types that
    contradict the catalogue."""
    entries = [{"type": entry} if isinstance(entry, str) else entry for entry in capacity["instanceTypes"]]
    spelt = _as_python({**capacity, "instanceTypes": entries})
    sound_numbers(problems, spelt)
    for index, entry in enumerate(spelt["instance_types"]):
        facts = {key: value for key, value in entry.items() if key in InstanceType.model_fields and key != "name"}
        here, listed = problems.at(f"instanceTypes[{index}]"), load_catalogue().types.get(entry["type"])
        base = listed.model_dump() if listed is not None else {"name": entry["type"]}
        if facts:
            parse_model(here, InstanceType, {**base, **facts}, " (a type declared in place)")
            fact_problems(here, entry["type"], facts, listed, override=entry.get(OVERRIDE) is True)


def _as_python(value: Any) -> Any:
    """Return settings with the names of a component's inputs, at every depth."""
    if isinstance(value, Mapping):
        return {re.sub(r"(?<!^)([A-Z])", r"_\1", str(key)).lower(): _as_python(entry) for key, entry in value.items()}
    return [_as_python(entry) for entry in value] if isinstance(value, list) else value


def check_listed(problems: Problems, types: Sequence[TypeChoice], catalogue: Container[str]) -> bool:
    """Add the chosen types that are not known; whether all are. `problems`: of the capacity."""
    sound = True
    for index, choice in enumerate(types):
        reason = f"{choice.name} is not in the catalogue"
        sound &= problems.need(choice.name in catalogue, f"instanceTypes[{index}].type", reason)
    return sound


_NUMBERS = {
    "standing": ("target", "onDemandBase", "onDemandPercentage"),
    "elastic": ("maxInstances", "maxUsdPerHour"),
}


def _right_numbers(problems: Problems, capacity: Mapping[str, Any]) -> bool:
    sound = True
    for part, names in _NUMBERS.items():
        for name in names:
            value = capacity.get(part, {}).get(name, 0)
            right = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf
            sound &= problems.need(right, f"capacity.{part}.{name}", "has to be a number, 0 or more")
    for part, name in (("standing", "target"), ("elastic", "maxInstances")):
        if part in capacity:
            sound &= problems.need(name in capacity[part], f"capacity.{part}.{name}", "is missing")
    return sound
