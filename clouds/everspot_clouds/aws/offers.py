"""Checks that a fleet's zones offer its instance types."""

from collections.abc import Collection, Sequence

from everspot_core.capacity.fleet import TypeChoice
from everspot_core.validation.problems import Problems

Offered = Collection[tuple[str, str]]
"""Pairs of instance type and zone that EC2 offers."""


def zone_problems(
    problems: Problems, types: Sequence[TypeChoice], zones: Sequence[str], offered: Offered | None
) -> None:
    """Add every zone that does not offer a type that the fleet uses there. `offered` None: EC2 could not be asked."""
    for index, choice in enumerate(types):
        here = problems.at(f"instanceTypes[{index}]")
        strange = [zone for zone in choice.zones if zone not in zones]
        here.need(not strange, "zones", f"{', '.join(strange)}: the fleet has no subnet there, but in {_list(zones)}")
        if offered is None:
            continue
        used_zones = [zone for zone in zones if not choice.zones or zone in choice.zones]
        lacking = [zone for zone in used_zones if (choice.name, zone) not in offered]
        having = [zone for zone in used_zones if zone not in lacking]
        if lacking and having:
            here.add(
                "zones",
                f"EC2 does not offer {choice.name} in {_list(lacking)}; say where it is to be used, "
                f"zones: [{', '.join(having)}], or leave the zone or the type out",
            )
        elif lacking:
            here.add("type", f"EC2 offers {choice.name} in none of the zones {_list(lacking)}")


def _list(words: Sequence[str]) -> str:
    return ", ".join(words)
