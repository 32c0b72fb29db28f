"""Reading a workload on several clusters from the values of its file. All wrong fields are named at once."""

from collections.abc import Mapping

from everspot_core.catalogue import Catalogue, InstanceType
from everspot_core.documents import Frozen
from everspot_core.faults import unknown_field
from everspot_core.problems import Problems
from everspot_core.simulate.federated import FederatedWorkload, FederationTerms
from everspot_core.simulate.workload import Fleet, Workload, WorkloadJob
from everspot_core.simulate.workload_file import (
    check_jobs,
    each_of,
    fleet_of,
    horizon_of,
    keys_of,
    model_of,
    teams_of,
    traces_named,
)

PARTS = ["jobs", "clusters", "federation", "teams", "traces", "horizon_hours"]


class _Egress(Frozen):
    """What is said of a cluster beside its fleet."""

    egress_usd_per_gb: float = 0.0


def is_federated(values: object) -> bool:
    """Whether these are the values of a workload on several clusters."""
    return isinstance(values, Mapping) and "clusters" in values


def parse_federated(values: Mapping[str, object], name: str, catalogue: Catalogue) -> FederatedWorkload:
    """A workload from the decoded YAML or JSON of its file. `name`: its path. Instance types may be declared in it.

    Raises:
        BadInputs: naming every field that is wrong, and what is allowed.
    """
    problems = Problems()
    for word in (str(k) for k in values if k not in PARTS):
        problems.add(word, unknown_field(word, PARTS))
    jobs = each_of(WorkloadJob, values.get("jobs", []), problems.at("jobs"))
    problems.need(bool(values.get("jobs")), "jobs", "at least one is needed")
    traces = traces_named(values.get("traces", {}), problems.at("traces"))
    fleets, egress = _clusters(values.get("clusters"), set(keys_of(values.get("traces"))), catalogue, problems)
    teams = teams_of(values.get("teams", {}), problems.at("teams"))
    known: dict[str, InstanceType] = {t.name: t for fleet in fleets.values() for t in fleet.types}
    check_jobs(jobs, Fleet(types=tuple(known.values())), problems)
    _check_homes(jobs, set(fleets), problems)
    terms = model_of(FederationTerms, values.get("federation", {}), problems.at("federation")) or FederationTerms()
    last = max((j.arrival_hours for j in jobs.values()), default=0.0)
    horizon = horizon_of(values.get("horizon_hours"), last, problems)
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
        there = problems.at(f"clusters.{name}")
        if not isinstance(cluster, Mapping):
            there.add("", "must be a mapping with `fleet`")
            continue
        beside = {k: v for k, v in cluster.items() if k != "fleet"}
        said = model_of(_Egress, beside, there) or _Egress()
        there.need(0 <= said.egress_usd_per_gb <= 100, "egress_usd_per_gb", "must be from 0 to 100")
        fleets[name] = fleet_of(cluster.get("fleet", {}), traces, catalogue, there.at("fleet"))
        egress[name] = said.egress_usd_per_gb
    return fleets, egress


def _check_homes(jobs: Mapping[int, WorkloadJob], clusters: set[str], problems: Problems) -> None:
    for n, job in jobs.items():
        there, known = problems.at(f"jobs[{n}]"), ", ".join(sorted(clusters))
        if clusters:
            there.need(job.cluster in clusters, "cluster", f"must be the job's home, one of: {known}")
