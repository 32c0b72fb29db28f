"""Reading a workload from the values of its file. All wrong fields are named at once."""

from collections.abc import Mapping
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from everspot_core.catalogue import Catalogue, InstanceType, UnknownInstanceType
from everspot_core.faults import faults, unknown_field
from everspot_core.fit import Shape, fits
from everspot_core.problems import Problems, near
from everspot_core.schedule.view import PoolKey
from everspot_core.simulate.workload import (
    ALWAYS,
    Fleet,
    FleetTerms,
    PoolOffer,
    StandingOffer,
    TraceSource,
    Workload,
    WorkloadJob,
)

M = TypeVar("M", bound=BaseModel)


def parse(values: object, name: str, catalogue: Catalogue) -> Workload:
    """A workload from the decoded YAML or JSON of its file. `name`: its path. Instance types may be declared in it.

    Raises:
        BadInputs: naming every field that is wrong, and what is allowed.
    """
    problems = Problems()
    if not isinstance(values, Mapping):
        problems.add("", "must be a mapping with `jobs` and `fleet`")
        problems.raise_any(f"workload {name}")
        raise AssertionError("unreachable")
    known = list(Workload.model_fields)
    for word in (str(k) for k in values if k not in known):
        problems.add(word, unknown_field(word, known))
    jobs = each_of(WorkloadJob, values.get("jobs", []), problems.at("jobs"))
    for n in (n for n, job in jobs.items() if job.cluster):
        problems.add(f"jobs[{n}].cluster", "there are no `clusters`, but one `fleet` for all jobs")
    problems.need(bool(values.get("jobs")), "jobs", "at least one is needed")
    traces = traces_named(values.get("traces", {}), problems.at("traces"))
    fleet = fleet_of(values.get("fleet", {}), set(keys_of(values.get("traces"))), catalogue, problems.at("fleet"))
    teams = teams_of(values.get("teams", {}), problems.at("teams"))
    check_jobs(jobs, fleet, problems)
    last = max((j.arrival_hours for j in jobs.values()), default=0.0)
    horizon = horizon_of(values.get("horizon_hours"), last, problems)
    problems.raise_any(f"workload {name}")
    return Workload(jobs=tuple(jobs.values()), fleet=fleet, teams=teams, traces=traces, horizon_hours=horizon)


def fleet_of(values: object, traces: set[str], catalogue: Catalogue, problems: Problems) -> Fleet:
    """The fleet of these values. `traces`: the names that its pools may use."""
    if not isinstance(values, Mapping):
        problems.add("", "must be a mapping with `standing` or `pools`")
        return Fleet()
    parts = ("standing", "pools", "types")
    terms = model_of(FleetTerms, {k: v for k, v in values.items() if k not in parts}, problems, Fleet) or FleetTerms()
    types = each_of(InstanceType, values.get("types", []), problems.at("types"))
    standing = each_of(StandingOffer, values.get("standing", []), problems.at("standing"))
    pools = each_of(PoolOffer, values.get("pools", []), problems.at("pools"))
    declared = catalogue.with_types(types.values())
    found: dict[str, InstanceType] = {}
    terms_of: dict[PoolKey, tuple[float, str, float | None]] = {}
    wanted = [(f"standing[{n}]", s) for n, s in standing.items()] + [(f"pools[{n}]", p) for n, p in pools.items()]
    for where, offer in wanted:
        there = problems.at(where)
        try:
            found[offer.instance_type] = declared.get(offer.instance_type)
        except UnknownInstanceType as error:
            there.add("instance_type", str(error))
        right = offer.availability == ALWAYS or offer.availability in traces
        names = sorted(traces)
        words = f"there is no trace {offer.availability!r}{near(offer.availability, names)}; "
        there.need(right, "availability", f"{words}one of: {', '.join([ALWAYS, *names])}")
        price = offer.usd_per_hour, offer.availability, offer.launch_hours
        same = terms_of.setdefault(offer.key, price) == price
        words = "price, availability and launch_hours must be the same wherever a pool is named"
        there.need(same, "usd_per_hour", words)
    for part, offers in (("pools", pools), ("standing", standing)):
        keys = [o.key for o in offers.values()]
        for n, offer in offers.items():
            problems.need(keys.count(offer.key) == 1, f"{part}[{n}]", "the same type, zone and market is there twice")
    if not values.get("standing") and not values.get("pools"):
        problems.add("", "at least one of `standing` and `pools` is needed")
    return Fleet(
        **terms.model_dump(),
        standing=tuple(standing.values()),
        pools=tuple(pools.values()),
        types=tuple(found.values()),
    )


def check_jobs(jobs: Mapping[int, WorkloadJob], fleet: Fleet, problems: Problems) -> None:
    """Add what of the jobs does not go with each other, or with the types of the fleet."""
    first: dict[str, int] = {}
    types = {t.name for t in fleet.types}
    shapes = [Shape.of(t) for t in fleet.types]
    for n, job in jobs.items():
        there = problems.at(f"jobs[{n}]")
        twice = first.setdefault(job.id, n)
        there.need(twice == n, "id", f"{job.id!r} is the id of jobs[{twice}] too")
        for name in job.speeds:
            there.need(
                not types or name in types, f"speeds.{name}", f"no instance of the fleet is one{near(name, types)}"
            )
        able = not shapes or any(fits(job.resources, s) for s in shapes)
        there.need(able, "resources", "no type of the fleet has all of that")


def horizon_of(value: object, last: float, problems: Problems) -> float:
    """The horizon in hours; by default thirty days after the last arrival."""
    if value is None:
        return last + 720
    right = isinstance(value, int | float) and not isinstance(value, bool) and last < value <= 1e6
    problems.need(right, "horizon_hours", f"must be above the last arrival ({last:g}), at most 1e6; it is {value!r}")
    return float(value) if right and isinstance(value, int | float) else last + 720


def teams_of(values: object, problems: Problems) -> dict[str, float]:
    """The weights of teams."""
    if not isinstance(values, Mapping):
        problems.add("", "must be a mapping of weights, such as `research: 2`")
        return {}
    weights = {}
    for name, weight in values.items():
        right = isinstance(weight, int | float) and not isinstance(weight, bool) and 0 < weight <= 1e6
        if problems.need(right, str(name), f"must be a number > 0; it is {weight!r}"):
            weights[str(name)] = float(weight)
    return weights


def traces_named(values: object, problems: Problems) -> dict[str, TraceSource]:
    """The valid sources of traces by name."""
    if not isinstance(values, Mapping):
        problems.add("", "must be a mapping of traces by name")
        return {}
    read = {str(name): model_of(TraceSource, source, problems.at(str(name))) for name, source in values.items()}
    problems.need(ALWAYS not in read, ALWAYS, "is the availability of what never runs dry, and not of a trace")
    return {name: source for name, source in read.items() if source is not None}


def keys_of(values: object) -> list[str]:
    """The names of all traces, also of badly described ones: a pool that names such a one is not wrong itself."""
    return [str(k) for k in values] if isinstance(values, Mapping) else []


def each_of(kind: type[M], values: object, problems: Problems) -> dict[int, M]:
    """The valid ones, by their position in the list."""
    if not isinstance(values, list | tuple):
        problems.add("", "must be a list")
        return {}
    read = {n: model_of(kind, v, problems.at(f"[{n}]")) for n, v in enumerate(values)}
    return {n: model for n, model in read.items() if model is not None}


def model_of(kind: type[M], values: object, problems: Problems, known: type[BaseModel] | None = None) -> M | None:
    """The model of these values; None if they are wrong. `known`: whose fields are named beside an unknown one."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        for fault in faults(error, known or kind):
            problems.add(fault.path, fault.reason)
        return None
