"""The common settings of a cluster's capacity on every cloud, and their checks.

Each cloud has its own input types, since a component's schema has no inheritance. Their common inputs have the same
names, and are read here.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from everspot_clouds.price_files import refresh_command
from everspot_core.capacity.catalogue import Catalogue, InstanceType, is_burstable
from everspot_core.capacity.fleet import CapacitySpec, TypeChoice, derived_weights
from everspot_core.capacity.gpus import IMAGE_BUILD, Families, is_arch
from everspot_core.capacity.hourly import ElasticCap, list_rates, no_room
from everspot_core.capacity.market import Market
from everspot_core.capacity.offers import gpu_problems, price_problems
from everspot_core.cluster.manifest import Elastic, FleetOffer, Standing
from everspot_core.documents import parse_duration
from everspot_core.validation.problems import Problems, camel, near

from everspot.custom_types import Entries, check_declared, declared_types, resolve_types
from everspot.limits import IDLE_LIMIT, idle_limit_problems
from everspot.pricing import ask_for_missing, load_catalogue, with_missing

Inputs = Mapping[str, Any]
"""A cloud's capacity inputs or a part of them, for example `AwsCapacityArgs` or `GcpElasticArgs`."""


def registered(args: Inputs, *, leaving: str) -> dict[str, Any]:
    """Return the inputs that a component of instances registers: types, limits and tags, as its settings spell them.

    A preview then shows costs that no resource shows: the limits of elastic capacity, and those of a new cluster, whose
    documents are not known yet. `leaving`: the part of the capacity that is not this component's.
    """
    capacity = {key: value for key, value in args["capacity"].items() if key != leaving}
    return {"capacity": spelt(capacity), "tags": args["tags"]}


def spelt(value: Any) -> Any:
    """Return a plain input with the names of settings, at every depth."""
    if isinstance(value, Mapping):
        return {camel(str(key)): spelt(entry) for key, entry in value.items()}
    return [spelt(entry) for entry in value] if isinstance(value, list | tuple) else value


def parse_choice(entry: Inputs) -> TypeChoice:
    """Return a type as its author wrote it. A cloud whose entries have no weight or maximum price leaves these None."""
    return TypeChoice(
        name=entry["type"],
        weight=entry.get("weight"),
        priority=entry.get("priority"),
        max_price=entry.get("max_price"),
        throughput=entry.get("throughput"),
        zones=tuple(entry.get("zones", ())),
    )


def list_markets(elastic: Inputs) -> list[Market]:
    """Return how elastic instances may be paid, each market once."""
    return [market for market in Market if market in elastic.get("markets", list(Market))]


def build_cap(args: Inputs) -> ElasticCap | None:
    """Return the limits of elastic capacity, for its cost; None without elastic capacity."""
    elastic = args.get("elastic")
    if elastic is None:
        return None
    return ElasticCap(
        instances=int(elastic["max_instances"]),
        usd_per_hour=elastic.get("max_usd_per_hour"),
        markets=tuple(list_markets(elastic)),
    )


def build_standing(args: Inputs, standing: CapacitySpec) -> Standing:
    """Return the declared sizes of the standing capacity, for `cluster.json`. The scheduler releases instances beyond
    them. `standing`: its shape."""
    return Standing(
        on_demand_units=standing.on_demand_target,
        spot_units=standing.spot_target,
        weights=derived_weights(standing, resolve_types(args["instance_types"])),
    )


def build_offer(args: Inputs, standing: CapacitySpec, zones: Sequence[str]) -> FleetOffer:
    """Return the types, zones and markets that instances may have, for `cluster.json`. A job that fits none of them is
    refused at submission. `standing`: the shape of the standing capacity."""
    elastic = args.get("elastic")
    units = {Market.ON_DEMAND: standing.on_demand_target, Market.SPOT: standing.spot_target}
    launched = list_markets(elastic) if elastic is not None and elastic["max_instances"] > 0 else []
    return FleetOffer(
        types=sorted({entry["type"] for entry in args["instance_types"]}),
        zones=list(zones),
        markets=[market for market, count in units.items() if count or market in launched],
    )


def build_elastic(args: Inputs, tags: Mapping[str, str], resources: Inputs) -> Elastic:
    """Return the launch settings of the scheduler, for `cluster.json`. Types with a lower `priority` come first;
    without priorities the order of the list counts.

    `tags`: of the instances. `resources`: the launch template, its version, and the subnet in each zone (`places`).
    """
    elastic = args["elastic"]
    types = sorted(args["instance_types"], key=lambda entry: entry.get("priority", 0))
    prices = {entry["type"]: entry.get("max_price", args.get("max_price")) for entry in types}
    return Elastic(
        types=[entry["type"] for entry in types],
        markets=list_markets(elastic),
        max_instances=int(elastic["max_instances"]),
        max_usd_per_hour=elastic.get("max_usd_per_hour"),
        idle_limit=parse_duration(elastic.get("idle_limit", IDLE_LIMIT)),
        template=resources["template"],
        template_version=resources["version"],
        places=resources["places"],
        zones={entry["type"]: list(entry["zones"]) for entry in types if entry.get("zones")},
        max_prices={name: price for name, price in prices.items() if price is not None},
        tags=dict(tags),
    )


def build_catalogue(args: Inputs, region: str) -> Catalogue:
    """Return the catalogue with the types that are declared in place, and with the prices of the others in a region as
    the price lists have them, if nothing else tells. `region`: empty while it is not known."""
    known_types = load_catalogue().with_types(declared_types(args["instance_types"]))
    return with_missing(known_types, region, [entry["type"] for entry in args["instance_types"]])


def check_prices(problems: Problems, args: Inputs, standing: CapacitySpec, region: str) -> None:
    """Add every type whose price in the region is unknown, and a cap in USD per hour under which nothing fits."""
    prices = build_catalogue(args, region)
    refusal = ask_for_missing(prices, region, [entry["type"] for entry in args["instance_types"]]).refusal
    price_problems(problems, standing.types, region, prices, refusal)
    cap = build_cap(args)
    reason = no_room(list_rates(region, prices, standing), cap) if cap is not None else None
    problems.need(reason is None, "elastic.maxUsdPerHour", reason or "")


def check_gpus(problems: Problems, args: Inputs, arches: Sequence[str] | None, families: Families) -> None:
    """Add every type whose GPUs the image's torch does not run on. `arches` None: the build that Everspot bakes.
    `families`: the cloud's families of types with GPUs."""
    types = [parse_choice(entry) for entry in args["instance_types"]]
    build = IMAGE_BUILD.arches if arches is None else arches
    gpu_problems(problems.at("capacity"), types, resolve_types(args["instance_types"]), build, families)
    for arch in arches or ():
        problems.need(is_arch(arch), "gpuArches", f"{arch!r} is not an architecture, such as sm_80")


def check_some(problems: Problems, args: Inputs) -> None:
    """Add a problem if the cluster has no standing and no elastic capacity."""
    problems.need(
        "standing" in args or "elastic" in args,
        "",
        "neither standing nor elastic is given, so that nothing would ever run; standing: {target: …} says what is "
        "always there, elastic: {maxInstances: …} what the scheduler may launch",
    )


def check_elastic(problems: Problems, elastic: Inputs, zones: Sequence[str], *, all_zones: str, lacks: str) -> None:
    """Add a problem for each mistake in the markets, zones and idle limit of elastic capacity. `zones`: of the cluster,
    if known. `all_zones` and `lacks`: the cloud's words for all of these zones, and for a cluster that is not in a
    zone."""
    markets = elastic.get("markets")
    problems.need(markets is None or bool(markets), "markets", f"is empty; there is {', '.join(Market)}")
    for index, market in enumerate(markets or ()):
        problems.choice(Market, market, f"markets[{index}]")
    chosen = elastic.get("zones")
    problems.need(chosen is None or bool(chosen), "zones", f"is empty; leave it out for {all_zones}")
    check_zones(problems, chosen or (), zones, lacks)
    idle_limit_problems(problems, elastic.get("idle_limit", IDLE_LIMIT))


def check_zones(problems: Problems, chosen: Sequence[str], zones: Sequence[str], lacks: str) -> None:
    """Add the wanted zones in which the cluster is not. `zones`: its zones, empty if unknown; `lacks`: see
    `check_elastic`."""
    strange = [zone for zone in chosen if zones and zone not in zones]
    problems.need(not strange, "zones", f"{', '.join(strange)}: the cluster {lacks} there, but in {', '.join(zones)}")


def check_types(problems: Problems, entries: Entries) -> dict[str, InstanceType]:
    """Return all known types by name: those of the catalogue and those declared in place. Add the types of the list
    that are neither, the mistakes in the declared ones, and burstable types: a job's steady load uses up their credits
    (EC2 User Guide, "Standard mode for burstable performance instances"), so that neither a plan nor an estimate by
    their vCPUs would be true."""
    types = {**load_catalogue().types, **check_declared(problems, entries)}
    for index, entry in enumerate(entries):
        name = entry["type"]
        if name not in types and "vcpus" not in entry and "memory_gib" not in entry:
            problems.add(
                f"instanceTypes[{index}].type",
                f"{name} is not in the catalogue{near(name, types)}; {refresh_command('REGION')} reads what it has, or "
                "declare it in place with vcpus and memoryGib",
            )
        problems.need(
            not is_burstable(str(name)),
            f"instanceTypes[{index}].type",
            f"{name} is burstable: a job gets a part of its vCPUs; choose a type that has all of them at any time",
        )
    return types
