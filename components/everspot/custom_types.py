"""Instance types that a spec declares itself, because the catalogue lacks them or lacks facts about them."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from everspot_core.capacity.catalogue import InstanceType, builtin
from everspot_core.capacity.type_facts import OVERRIDE, fact_problems
from everspot_core.validation.model_errors import parse_model
from everspot_core.validation.problems import Problems, near

from everspot.pricing import load_catalogue

Entries = Sequence[Mapping[str, Any]]
"""A spec's list of instance types. Each entry has a `type` and possibly facts about it."""

_FACTS = frozenset(InstanceType.model_fields) - {"name"}


def declared_types(entries: Entries) -> list[InstanceType]:
    """Return the types that instances cannot know by themselves, for the manifest: those declared in place, and those
    that only the project's files of prices have. Wrong ones are left out; `check_declared` reports them."""
    own, shipped, types = check_declared(Problems(), entries), builtin().types, load_catalogue().types
    files = {name: types[name] for entry in entries if (name := entry["type"]) in types and name not in shipped}
    return list({**files, **own}.values())


def resolve_types(entries: Entries) -> Mapping[str, InstanceType]:
    """Return all known types: those of the catalogue and those declared in place, which win."""
    return {**load_catalogue().types, **check_declared(Problems(), entries)}


def check_declared(problems: Problems, entries: Entries) -> dict[str, InstanceType]:
    """Return the types declared in place, by name. Add the mistakes in the others."""
    declared_types: dict[str, InstanceType] = {}
    listed = load_catalogue().types
    for index, entry in enumerate(entries):
        facts: dict[str, Any] = {key: value for key, value in entry.items() if key in _FACTS}
        if not facts:
            continue
        here = problems.at(f"instanceTypes[{index}]")
        # Of a type that the catalogue has, only what is given differs.
        listed_facts = listed[entry["type"]].model_dump() if entry["type"] in listed else {"name": entry["type"]}
        declared = parse_model(here, InstanceType, {**listed_facts, **facts}, " (a type declared in place)")
        if declared is not None:
            declared_types[entry["type"]] = declared
        override = entry.get(OVERRIDE, False) is True
        fact_problems(here, entry["type"], facts, listed.get(entry["type"]), override=override)
    return declared_types


def check_type(problems: Problems, name: str, instance_type: str, arches: Collection[str] = ()) -> None:
    """Add a problem if an instance type is unknown or does not fit the image's architecture. `arches`: the
    architectures of the fleets' types."""
    types = load_catalogue().types
    if instance_type not in types:
        problems.add(name, f"{instance_type} is not in the catalogue{near(instance_type, types)}")
    elif len(arches) == 1 and types[instance_type].arch not in arches:
        problems.add(name, f"{instance_type} is {types[instance_type].arch}, the fleet's image is {', '.join(arches)}")
