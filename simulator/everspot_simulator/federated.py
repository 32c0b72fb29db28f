"""A workload on several clusters that take over jobs from each other.

Each cluster has its own fleet, traces and scheduler. A job is submitted to one of them, its home. The clusters decide
by `everspot_core.federation` when it moves to another one, as the schedulers of a real federation do.
"""

from collections.abc import Mapping
from typing import Annotated

from everspot_core.capacity.catalogue import Catalogue, InstanceType
from everspot_core.documents import Frozen
from everspot_core.validation.model_errors import unknown_field
from everspot_core.validation.problems import Problems
from pydantic import Field

from everspot_simulator.workload import Fleet, TraceSource, Workload, WorkloadJob
from everspot_simulator.workload_file import (
    check_jobs,
    list_keys,
    parse_each,
    parse_fleet,
    parse_horizon,
    parse_model,
    parse_teams,
    traces_named,
)


class FederationTerms(Frozen):
    """The terms between clusters. `every_seconds`: the interval at which they look at their jobs, and publish their
    markets."""

    gigabytes_per_hour: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)] = 180.0
    every_seconds: Annotated[float, Field(ge=60, le=86_400, allow_inf_nan=False)] = 600.0


class FederatedWorkload(Frozen):
    """The clusters by name, each with the jobs whose home it is.

    `egress`: dollars for a gigabyte that leaves the cluster. All workloads have the same traces, teams and horizon.
    """

    clusters: dict[str, Workload]
    egress: dict[str, float]
    terms: FederationTerms

    @property
    def traces(self) -> Mapping[str, TraceSource]:
        """The traces by name; the fleets of all clusters use these names."""
        return {name: source for w in self.clusters.values() for name, source in w.traces.items()}

    @property
    def horizon_hours(self) -> float:
        """The simulation ends then, whatever still runs."""
        return max(w.horizon_hours for w in self.clusters.values())


PARTS = ["jobs", "clusters", "federation", "teams", "traces", "horizon_hours"]


class _Egress(Frozen):
    """The facts about a cluster beside its fleet."""

    egress_usd_per_gb: float = 0.0


def is_federated(values: object) -> bool:
    """Return whether these are the values of a workload on several clusters."""
    return isinstance(values, Mapping) and "clusters" in values


def parse_federated(values: Mapping[str, object], name: str, catalogue: Catalogue) -> FederatedWorkload:
    """Return a workload from the decoded YAML or JSON of its file. `name`: its path. Instance types may be declared in
    it.

    Raises:
        BadInputs: naming every field that is wrong, and what is allowed.
    """
    problems = Problems()
    for field_name in (str(k) for k in values if k not in PARTS):
        problems.add(field_name, unknown_field(field_name, PARTS))
    jobs = parse_each(WorkloadJob, values.get("jobs", []), problems.at("jobs"))
    problems.need(bool(values.get("jobs")), "jobs", "at least one is needed")
    traces = traces_named(values.get("traces", {}), problems.at("traces"))
    fleets, egress = _clusters(values.get("clusters"), set(list_keys(values.get("traces"))), catalogue, problems)
    teams = parse_teams(values.get("teams", {}), problems.at("teams"))
    types_by_name: dict[str, InstanceType] = {t.name: t for fleet in fleets.values() for t in fleet.types}
    check_jobs(jobs, Fleet(types=tuple(types_by_name.values())), problems)
    _check_homes(jobs, set(fleets), problems)
    terms = parse_model(FederationTerms, values.get("federation", {}), problems.at("federation")) or FederationTerms()
    last = max((j.arrival_hours for j in jobs.values()), default=0.0)
    horizon = parse_horizon(values.get("horizon_hours"), last, problems)
    problems.raise_any(f"workload {name}")
    workloads = {
        cluster: Workload(
            jobs=tuple(j for j in jobs.values() if j.cluster == cluster),
            fleet=fleet,
            teams=teams,
            traces=traces,
            horizon_hours=horizon,
        )
        for cluster, fleet in fleets.items()
    }
    return FederatedWorkload(clusters=workloads, egress=egress, terms=terms)


def _clusters(
    values: object, traces: set[str], catalogue: Catalogue, problems: Problems
) -> tuple[dict[str, Fleet], dict[str, float]]:
    if not isinstance(values, Mapping) or len(values) < 2:
        problems.add("clusters", "must be a mapping of at least two clusters by name, each with its `fleet`")
        return {}, {}
    fleets, egress = {}, {}
    for name, cluster in ((str(k), v) for k, v in values.items()):
        cluster_problems = problems.at(f"clusters.{name}")
        if not isinstance(cluster, Mapping):
            cluster_problems.add("", "must be a mapping with `fleet`")
            continue
        terms = {k: v for k, v in cluster.items() if k != "fleet"}
        egress_terms = parse_model(_Egress, terms, cluster_problems) or _Egress()
        cluster_problems.need(0 <= egress_terms.egress_usd_per_gb <= 100, "egress_usd_per_gb", "must be from 0 to 100")
        fleets[name] = parse_fleet(cluster.get("fleet", {}), traces, catalogue, cluster_problems.at("fleet"))
        egress[name] = egress_terms.egress_usd_per_gb
    return fleets, egress


def _check_homes(jobs: Mapping[int, WorkloadJob], clusters: set[str], problems: Problems) -> None:
    for n, job in jobs.items():
        job_problems, cluster_names = problems.at(f"jobs[{n}]"), ", ".join(sorted(clusters))
        if clusters:
            job_problems.need(job.cluster in clusters, "cluster", f"must be the job's home, one of: {cluster_names}")
