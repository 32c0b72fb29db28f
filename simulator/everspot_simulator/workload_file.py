"""Reads a workload from the values of its file. All wrong fields are named together."""

from collections.abc import Mapping
from typing import TypeVar

from everspot_core.capacity.catalogue import Catalogue, InstanceType, UnknownInstanceType
from everspot_core.jobs.fit import Shape, fits
from everspot_core.schedule.view import PoolKey
from everspot_core.validation.model_errors import translate_errors, unknown_field
from everspot_core.validation.problems import Problems, near
from pydantic import BaseModel, ValidationError

from everspot_simulator.workload import (
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
    """Return a workload from the decoded YAML or JSON of its file. `name`: its path. Instance types may be declared in
    it.

    Raises:
        BadInputs: naming every field that is wrong, and what is allowed.
    """
    problems = Problems()
    if not isinstance(values, Mapping):
        problems.add("", "must be a mapping with `jobs` and `fleet`")
        problems.raise_any(f"workload {name}")
        raise AssertionError("unreachable")
    fields = list(Workload.model_fields)
    for field_name in (str(k) for k in values if k not in fields):
        problems.add(field_name, unknown_field(field_name, fields))
    jobs = parse_each(WorkloadJob, values.get("jobs", []), problems.at("jobs"))
    for n in (n for n, job in jobs.items() if job.cluster):
        problems.add(f"jobs[{n}].cluster", "there are no `clusters`, but one `fleet` for all jobs")
    problems.need(bool(values.get("jobs")), "jobs", "at least one is needed")
    traces = traces_named(values.get("traces", {}), problems.at("traces"))
    fleet = parse_fleet(values.get("fleet", {}), set(list_keys(values.get("traces"))), catalogue, problems.at("fleet"))
    teams = parse_teams(values.get("teams", {}), problems.at("teams"))
    check_jobs(jobs, fleet, problems)
    last = max((j.arrival_hours for j in jobs.values()), default=0.0)
    horizon = parse_horizon(values.get("horizon_hours"), last, problems)
    problems.raise_any(f"workload {name}")
    return Workload(jobs=tuple(jobs.values()), fleet=fleet, teams=teams, traces=traces, horizon_hours=horizon)


def parse_fleet(values: object, traces: set[str], catalogue: Catalogue, problems: Problems) -> Fleet:
    """Return the fleet of these values. `traces`: the names that its pools may use."""
    if not isinstance(values, Mapping):
        problems.add("", "must be a mapping with `standing` or `pools`")
        return Fleet()
    parts = ("standing", "pools", "types")
    terms = (
        parse_model(FleetTerms, {k: v for k, v in values.items() if k not in parts}, problems, Fleet) or FleetTerms()
    )
    types = parse_each(InstanceType, values.get("types", []), problems.at("types"))
    standing = parse_each(StandingOffer, values.get("standing", []), problems.at("standing"))
    pools = parse_each(PoolOffer, values.get("pools", []), problems.at("pools"))
    declared = catalogue.with_types(types.values())
    types_used: dict[str, InstanceType] = {}
    terms_of: dict[PoolKey, tuple[float, str, float | None]] = {}
    offers_by_path = [(f"standing[{n}]", s) for n, s in standing.items()] + [
        (f"pools[{n}]", p) for n, p in pools.items()
    ]
    for where, offer in offers_by_path:
        offer_problems = problems.at(where)
        try:
            types_used[offer.instance_type] = declared.get(offer.instance_type)
        except UnknownInstanceType as error:
            offer_problems.add("instance_type", str(error))
        right = offer.availability == ALWAYS or offer.availability in traces
        names = sorted(traces)
        words = f"there is no trace {offer.availability!r}{near(offer.availability, names)}; "
        offer_problems.need(right, "availability", f"{words}one of: {', '.join([ALWAYS, *names])}")
        price = offer.usd_per_hour, offer.availability, offer.launch_hours
        same = terms_of.setdefault(offer.key, price) == price
        words = "price, availability and launch_hours must be the same wherever a pool is named"
        offer_problems.need(same, "usd_per_hour", words)
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
        types=tuple(types_used.values()),
    )


def check_jobs(jobs: Mapping[int, WorkloadJob], fleet: Fleet, problems: Problems) -> None:
    """Add a problem for each part of the jobs that conflicts with other jobs, or with the types of the fleet."""
    first: dict[str, int] = {}
    types = {t.name for t in fleet.types}
    shapes = [Shape.from_machine(t) for t in fleet.types]
    for n, job in jobs.items():
        job_problems = problems.at(f"jobs[{n}]")
        twice = first.setdefault(job.id, n)
        job_problems.need(twice == n, "id", f"{job.id!r} is the id of jobs[{twice}] too")
        for name in job.speeds:
            job_problems.need(
                not types or name in types, f"speeds.{name}", f"no instance of the fleet is one{near(name, types)}"
            )
        able = not shapes or any(fits(job.resources, s) for s in shapes)
        job_problems.need(able, "resources", "no type of the fleet has all of that")


def parse_horizon(value: object, last: float, problems: Problems) -> float:
    """Return the horizon in hours; by default thirty days after the last arrival."""
    if value is None:
        return last + 720
    right = isinstance(value, int | float) and not isinstance(value, bool) and last < value <= 1e6
    problems.need(right, "horizon_hours", f"must be above the last arrival ({last:g}), at most 1e6; it is {value!r}")
    return float(value) if right and isinstance(value, int | float) else last + 720


def parse_teams(values: object, problems: Problems) -> dict[str, float]:
    """Return the weights of teams."""
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
    """Return the valid sources of traces by name."""
    if not isinstance(values, Mapping):
        problems.add("", "must be a mapping of traces by name")
        return {}
    read = {str(name): parse_model(TraceSource, source, problems.at(str(name))) for name, source in values.items()}
    problems.need(ALWAYS not in read, ALWAYS, "is the availability of what never runs dry, and not of a trace")
    return {name: source for name, source in read.items() if source is not None}


def list_keys(values: object) -> list[str]:
    """Return the names of all traces, also of badly described ones: a pool that names such a one is not wrong
    itself."""
    return [str(k) for k in values] if isinstance(values, Mapping) else []


def parse_each(kind: type[M], values: object, problems: Problems) -> dict[int, M]:
    """Return the valid ones, by their position in the list."""
    if not isinstance(values, list | tuple):
        problems.add("", "must be a list")
        return {}
    read = {n: parse_model(kind, v, problems.at(f"[{n}]")) for n, v in enumerate(values)}
    return {n: model for n, model in read.items() if model is not None}


def parse_model(
    kind: type[M], values: object, problems: Problems, shown_model: type[BaseModel] | None = None
) -> M | None:
    """Return the model of these values; None if they are wrong.

    `shown_model`: the model whose fields are named for an unknown one.
    """
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        for fault in translate_errors(error, shown_model or kind):
            problems.add(fault.path, fault.reason)
        return None
