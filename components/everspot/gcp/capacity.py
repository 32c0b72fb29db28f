"""The settings of a cluster's capacity as its author writes them, and their check against the catalogue."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, NotRequired, TypedDict, cast

from everspot_clouds.gcp.fleet import MAX_RUN, GcpCapacity, GcpPrefer, GcpShape, capacity_problems
from everspot_clouds.gcp.rules import NOTICES
from everspot_core.capacity.allocation import Prefer
from everspot_core.capacity.market import Market
from everspot_core.documents import format_duration, parse_duration
from everspot_core.validation.bounds import sound_numbers
from everspot_core.validation.problems import Problems, shown

from everspot.capacity import build_catalogue, check_elastic, check_some, check_types, check_zones, parse_choice
from everspot.custom_types import resolve_types

MAX_LIFE = "30d"
"""Default time after which Compute Engine itself ends a launched instance."""

NOTICE = "2m"
"""Default of the requested notice before a preemption."""


class GcpInstanceTypeArgs(TypedDict):
    """A machine type that the cluster may use. A type that the catalogue lacks is declared by vcpus and memory_gib."""

    type: str
    """The type's name, for example g2-standard-4; with attached GPUs for example n1-standard-8+t4."""
    priority: NotRequired[float]
    """Priority, for `prefer` order; a lower number is preferred. Default: the order of the list."""
    throughput: NotRequired[float]
    """Training speed relative to the other types: prices are compared per unit of it. Default: 1 for every type."""
    zones: NotRequired[list[str]]
    """Names of the zones in which the scheduler launches the type. For a cluster without standing capacity, since a
    group tries its types in all of its zones. Default: all zones."""
    vcpus: NotRequired[int]
    """vCPUs, for a type declared in place."""
    memory_gib: NotRequired[float]
    """Memory in GiB, for a type declared in place."""
    gpus: NotRequired[int]
    """Number of GPUs, for a type declared in place. Default: 0."""
    gpu: NotRequired[str]
    """GPU model, for a type declared in place."""
    gpu_memory_gib: NotRequired[float]
    """Memory of each GPU in GiB, for a type declared in place."""
    arch: NotRequired[str]
    """x86_64 or arm64, for a type declared in place. Default: x86_64."""
    local_nvme_gb: NotRequired[float]
    """Size of the machine's own NVMe disks in GB, for a type declared in place. Default: 0."""
    on_demand_usd_per_hour: NotRequired[float]
    """On-demand price in USD per hour, for a type declared in place or without a known price in the region."""
    override: NotRequired[bool]
    """Whether figures given here may contradict the catalogue, for a type that it has. Default: false."""


class GcpStandingArgs(TypedDict):
    """Capacity that is always there: the sizes of the two standing groups, and how they choose instances."""

    target: int
    """Number of instances of both groups together, on-demand and Spot. May be 0. Changes in place; a lower one has the
    groups end instances of their own choice."""
    on_demand_base: NotRequired[int]
    """Number of instances that are always on-demand. Changes in place. Default: 0."""
    on_demand_percentage: NotRequired[float]
    """Percentage of the instances above the base that are on-demand. Changes in place. Default: 0."""
    prefer: NotRequired[GcpPrefer]
    """How the groups choose between types. Changes in place. Default: balance."""
    shape: NotRequired[GcpShape]
    """How the instances are spread over the zones. Changes in place. Default: any."""


_NOTHING: GcpStandingArgs = {"target": 0}


class GcpElasticArgs(TypedDict):
    """Capacity that follows the work: what the scheduler may launch while jobs wait. All settings change in place."""

    max_instances: int
    """Largest number of launched instances at a time, on-demand and Spot together."""
    max_usd_per_hour: NotRequired[float]
    """Highest cost of all launched instances together, in USD per hour. A launch that would exceed it waits. Default:
    no limit besides `max_instances`."""
    markets: NotRequired[list[str]]
    """How launched instances may be paid: spot, on-demand or both. Default: both."""
    zones: NotRequired[list[str]]
    """Zones in which instances may be launched, by name. Default: all zones of the cluster."""
    idle_limit: NotRequired[str]
    """A launched instance without a job is terminated after this long, unless the scheduler expects a job for it
    sooner. Default: 5m."""
    max_run: NotRequired[str]
    """Compute Engine itself ends a launched instance after this long, whatever it does, 1h to 120d: a guard against
    instances that nobody ends. Default: 30d."""


class GcpCapacityArgs(TypedDict):
    """Instance types of a cluster, and how many instances it has: always (`standing`) and while jobs wait (`elastic`).

    At least one of the two has to be given."""

    instance_types: list[GcpInstanceTypeArgs]
    """Machine types that instances may have, at most ten. Changes in place."""
    notice: NotRequired[str]
    """The notice that instances get before a preemption, 0s or 2m. Default: 2m."""
    standing: NotRequired[GcpStandingArgs]
    """Capacity that is always there. Default: none."""
    elastic: NotRequired[GcpElasticArgs]
    """Capacity that the scheduler launches for jobs and terminates after them. Default: none."""


def parse_capacity(args: GcpCapacityArgs) -> GcpCapacity:
    """Return the shape of the standing groups.

    Raises:
        ValueError: if a value is of the wrong kind; `check_capacity` says which.
    """
    standing = args.get("standing", _NOTHING)
    return GcpCapacity(
        target=int(standing["target"]),
        on_demand_base=int(standing.get("on_demand_base", 0)),
        on_demand_percentage=standing.get("on_demand_percentage", 0),
        prefer=Prefer(standing.get("prefer", GcpPrefer.BALANCE)),
        shape=GcpShape(standing.get("shape", GcpShape.ANY)),
        types=tuple(parse_choice(entry) for entry in args["instance_types"]),
    )


def usd_per_hour(args: GcpCapacityArgs, region: str, market: Market) -> dict[str, float]:
    """Return prices of the types in a region and market, as far as they are known."""
    catalogue = build_catalogue(args, region)
    prices = {}
    for entry in args["instance_types"]:
        name = entry["type"]
        price, spot = catalogue.on_demand(name, region), catalogue.spot_range(name, region)
        listed = spot[0] if market is Market.SPOT and spot is not None else price
        if listed is not None:
            prices[name] = listed.usd_per_hour
    return prices


def type_names(args: GcpCapacityArgs) -> list[str]:
    """Return the instance types, by name."""
    return [entry["type"] for entry in args["instance_types"]]


def has_gpus(args: GcpCapacityArgs) -> bool:
    """Return whether any of the types has GPUs."""
    types = resolve_types(args["instance_types"])
    return any(types[entry["type"]].gpus > 0 for entry in args["instance_types"] if entry["type"] in types)


def parse_notice(args: GcpCapacityArgs) -> timedelta:
    """Return the requested notice before a preemption."""
    return cast(timedelta, parse_duration(args.get("notice", NOTICE)))


def parse_max_run(args: GcpElasticArgs) -> timedelta:
    """Return the time after which Compute Engine ends a launched instance."""
    return cast(timedelta, parse_duration(args.get("max_run", MAX_LIFE)))


def check_capacity(problems: Problems, args: GcpCapacityArgs, zones: Sequence[str] = ()) -> None:
    """Add a problem for each mistake in the settings of a cluster's instances. `zones`: of the cluster."""
    check_some(problems, args)
    _duration(problems, args, "notice", NOTICES)
    if "elastic" in args:
        here = problems.at("elastic")
        check_elastic(here, args["elastic"], zones, all_zones="those of the cluster", lacks="is not")
        _duration(here, args["elastic"], "max_run", between=MAX_RUN)
    args = cast(GcpCapacityArgs, sound_numbers(problems, args))
    types = check_types(problems, args["instance_types"])
    for index, entry in enumerate(args["instance_types"]):
        check_zones(problems.at(f"instanceTypes[{index}]"), entry.get("zones", []), zones, lacks="is not")
    sound = {**args, "standing": _checked_options(problems.at("standing"), args.get("standing", _NOTHING))}
    capacity_problems(problems, parse_capacity(cast(GcpCapacityArgs, sound)), types)


def _checked_options(problems: Problems, args: GcpStandingArgs) -> GcpStandingArgs:
    """Return the standing groups' settings. Adds a problem for each unknown word, and uses the default in its place."""
    sound = args.copy()
    if "prefer" in args and problems.choice(GcpPrefer, args["prefer"], "prefer") is None:
        del sound["prefer"]
    if "shape" in args and problems.choice(GcpShape, args["shape"], "shape") is None:
        del sound["shape"]
    return sound


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
        words = " or ".join(format_duration(choice) for choice in allowed)
        problems.need(value in allowed, name, f"has to be {words}, not {shown(args[key])}")
    if between is not None:
        low, high = (format_duration(choice) for choice in between)
        inside = between[0] <= value <= between[1]
        problems.need(inside, name, f"has to lie between {low} and {high}, not {shown(args[key])}")
