"""Checks a cluster's capacity: against the catalogue, and by itself."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, cast

from everspot_clouds.gcp.fleet import MAX_RUN, GcpPrefer, GcpShape, capacity_problems
from everspot_clouds.gcp.gpus import FAMILIES
from everspot_clouds.gcp.rules import NOTICES
from everspot_core import catalogue
from everspot_core.bounds import sound_numbers
from everspot_core.documents import format_duration, parse_duration
from everspot_core.gpus import IMAGE_BUILD, is_arch
from everspot_core.hourly import no_room, rates_of
from everspot_core.market import Market
from everspot_core.offers import gpu_problems, price_problems
from everspot_core.problems import Problems, near, shown

from everspot.declared import check_declared, declared_types, known_types
from everspot.gcp.capacity import (
    NOTHING,
    GcpCapacityArgs,
    GcpElasticArgs,
    GcpStandingArgs,
    cap_of,
    capacity_of,
    choice_of,
)
from everspot.limits import IDLE_LIMIT, idle_limit_problems


def check_offers(problems: Problems, args: GcpCapacityArgs, *, region: str) -> None:
    """Add every type whose price in the region is unknown, and a cap under which nothing fits."""
    known = catalogue.builtin().with_types(declared_types(args["instance_types"]))
    price_problems(problems, capacity_of(args).types, region, known)
    cap = cap_of(args)
    reason = no_room(rates_of(region, known, capacity_of(args)), cap) if cap is not None else None
    problems.need(reason is None, "elastic.maxUsdPerHour", reason or "")


def check_gpus(problems: Problems, args: GcpCapacityArgs, arches: Sequence[str] | None) -> None:
    """Add every type whose GPUs the image's torch does not run on. `arches` None: the build that Everspot bakes."""
    types = [choice_of(entry) for entry in args["instance_types"]]
    known, build = known_types(args["instance_types"]), IMAGE_BUILD.arches if arches is None else arches
    gpu_problems(problems.at("capacity"), types, known, build, FAMILIES)
    for arch in arches or ():
        problems.need(is_arch(arch), "gpuArches", f"{arch!r} is not an architecture, such as sm_80")


def check_capacity(problems: Problems, args: GcpCapacityArgs, zones: Sequence[str] = ()) -> None:
    """Add everything that is wrong with the settings of a cluster's instances. `zones`: of the cluster."""
    problems.need(
        "standing" in args or "elastic" in args,
        "",
        "neither standing nor elastic is given, so that nothing would ever run; standing: {target: …} says what is "
        "always there, elastic: {maxInstances: …} what the scheduler may launch",
    )
    _duration(problems, args, "notice", NOTICES)
    if "elastic" in args:
        _check_elastic(problems.at("elastic"), args["elastic"], zones)
    args = cast(GcpCapacityArgs, sound_numbers(problems, args))
    known = {**catalogue.builtin().types, **check_declared(problems, args["instance_types"])}
    for index, entry in enumerate(args["instance_types"]):
        name, here = entry["type"], problems.at(f"instanceTypes[{index}]")
        told = f"{name} is not in the catalogue{near(name, known)}; declare it in place with vcpus and memoryGib"
        here.need(name in known or "vcpus" in entry or "memory_gib" in entry, "type", told)
        strange = [zone for zone in entry.get("zones", []) if zones and zone not in zones]
        here.need(not strange, "zones", _elsewhere(strange, zones))
    sound = {**args, "standing": _checked_options(problems.at("standing"), args.get("standing", NOTHING))}
    capacity_problems(problems, capacity_of(cast(GcpCapacityArgs, sound)), known)


def _checked_options(problems: Problems, args: GcpStandingArgs) -> GcpStandingArgs:
    """The standing groups' settings. Adds a problem for each unknown word, and uses the default in its place."""
    sound = args.copy()
    if "prefer" in args and problems.choice(GcpPrefer, args["prefer"], "prefer") is None:
        del sound["prefer"]
    if "shape" in args and problems.choice(GcpShape, args["shape"], "shape") is None:
        del sound["shape"]
    return sound


def _check_elastic(problems: Problems, args: GcpElasticArgs, zones: Sequence[str]) -> None:
    markets = args.get("markets")
    problems.need(markets is None or bool(markets), "markets", f"is empty; there is {', '.join(Market)}")
    for index, market in enumerate(markets or ()):
        problems.choice(Market, market, f"markets[{index}]")
    wanted = args.get("zones")
    problems.need(wanted is None or bool(wanted), "zones", "is empty; leave it out for those of the cluster")
    strange = [zone for zone in wanted or () if zones and zone not in zones]
    problems.need(not strange, "zones", _elsewhere(strange, zones))
    idle_limit_problems(problems, args.get("idle_limit", IDLE_LIMIT))
    _duration(problems, args, "max_run", between=MAX_RUN)


def _duration(
    problems: Problems,
    args: Mapping[str, Any],
    key: str,
    allowed: Sequence[timedelta] = (),
    between: tuple[timedelta, timedelta] | None = None,
) -> None:
    """Add a problem if an input is no duration, or no allowed one."""
    if key not in args:
        return
    name = "maxRun" if key == "max_run" else key
    try:
        value = cast(timedelta, parse_duration(args[key]))
    except ValueError as error:
        problems.add(name, str(error))
        return
    if allowed:
        words = " or ".join(format_duration(one) for one in allowed)
        problems.need(value in allowed, name, f"has to be {words}, not {shown(args[key])}")
    if between is not None:
        low, high = (format_duration(one) for one in between)
        inside = between[0] <= value <= between[1]
        problems.need(inside, name, f"has to lie between {low} and {high}, not {shown(args[key])}")


def _elsewhere(strange: Sequence[str], zones: Sequence[str]) -> str:
    return f"{', '.join(strange)}: the cluster is not there, but in {', '.join(zones)}"
