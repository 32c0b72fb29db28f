"""Checks a job at submission against the cluster's instance types: whether one can hold the job, and whether prices are
known."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from everspot_core.candidates import Candidate, candidates, misfits
from everspot_core.catalogue import InstanceType
from everspot_core.counting import counted, first_few
from everspot_core.job import JobSubmission

from everspot_cli.commands.submit.migration_check import travel_warnings
from everspot_cli.commands.submit.other_clusters import able_peers
from everspot_cli.dependencies import resolve_dependencies
from everspot_cli.errors import CliError
from everspot_cli.job_inputs import refuse_missing
from everspot_cli.session import Session

WAIT_HINT = "; or let the job wait until there is one: --wait-for-capacity"
"""The way out that only `submit` and `retry` offer."""
_SHOWN = 5
THREADS = "OMP_NUM_THREADS"


@dataclass(frozen=True)
class FleetTypes:
    """The types of a cluster's instances. `declared`: the infrastructure declares them, so that there are never others;
    else they are the types of the instances that have reported, and people may start others."""

    kinds: tuple[InstanceType, ...]
    declared: bool

    @property
    def types(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(kind.name for kind in self.kinds)


def read_fleet_types(session: Session) -> FleetTypes | None:
    """Return the cluster's types, from its description, or in a folder cluster from its running instances. None if
    unknown."""
    types, offer = session.catalogue.types, session.manifest.fleet
    if offer is not None:
        return FleetTypes(tuple(types[name] for name in offer.types if name in types), True)
    if not session.cloud.by_hand:
        return None
    alive = [doc.value for doc in session.store.instances.scan().values()]
    kinds = {
        record.instance_type: InstanceType(
            name=record.instance_type, vcpus=record.vcpus, memory_gib=record.memory_gib, gpus=record.gpus,
            gpu=record.gpu, gpu_memory_gib=record.gpu_memory_gib,
        )
        for record in alive
        if record.role.value == "agent" and record.state.value != "GONE"
    }  # fmt: skip
    return FleetTypes(tuple(kinds.values()), False) if kinds else None


def possible(session: Session, submission: JobSubmission) -> list[Candidate]:
    """Return the types that the job might run on, with prices: the cluster's own types if it declares them, else the
    catalogue's."""
    catalogue, region, offer = session.catalogue, session.manifest.region, session.manifest.fleet
    return candidates(
        submission.spec.resources,
        catalogue,
        [region] if region in catalogue.regions else None,
        only=offer.types if offer is not None else None,
    )


def cluster_rules(
    session: Session, file: Path, submission: JobSubmission, fleet: FleetTypes | None, wait_for_capacity: bool
) -> list[Callable[[], list[str]]]:
    """Return the cluster's rules for accepting a job. Each rule returns warnings, or refuses the job."""

    def room() -> list[str]:
        return refuse_impossible(session, file, submission, fleet, wait_for_capacity)

    def datasets() -> list[str]:
        refuse_missing(session, str(file), submission)
        return []

    def chain() -> list[str]:
        resolve_dependencies(session, str(file), submission)
        return []

    return [
        room,
        lambda: price_warnings(session, file, submission, fleet),
        datasets,
        chain,
        lambda: travel_warnings(session, file, submission),
    ]


def refuse_impossible(
    session: Session, file: Path, submission: JobSubmission, fleet: FleetTypes | None, wait_for_capacity: bool
) -> list[str]:
    """Refuse a job that no instance type of the cluster can hold, nor one of a peer that it may visit.

    Returns:
        A warning if only a peer can hold it.

    Raises:
        CliError: if none can, and the user does not insist on waiting for one that could.
    """
    resources = submission.spec.resources
    if fleet is None or wait_for_capacity or any(not misfits(kind, resources) for kind in fleet.kinds):
        return []
    able = able_peers(session, submission)
    if able:
        return [f"no instance type of {session.manifest.cluster} can hold the job: it waits for {', '.join(able)}"]
    near = sorted(fleet.kinds, key=lambda kind: (len(misfits(kind, resources)), -kind.vcpus, kind.name))
    lacks, has = (
        first_few([describe(kind) for kind in near], _SHOWN, between="; ", remainder_phrase="; and {} more types")
        for describe in (lambda kind: f"{kind.name} has {', '.join(misfits(kind, resources))}", _words)
    )
    subject = "the fleet's types" if fleet.declared else "the instances that have reported"
    raise CliError(
        f"{file}: nothing that the cluster {session.manifest.cluster} has can hold this job",
        hint=f"{subject}: {has}. Ask for less, or add a type that holds it to the fleet{WAIT_HINT}",
        problems=[{"field": "resources", "problem": lacks or "the fleet has no types"}],
    )


def price_warnings(session: Session, file: Path, submission: JobSubmission, fleet: FleetTypes | None) -> list[str]:
    """Warnings about types that could hold the job, but have no known price.

    Raises:
        CliError: if the job has a budget in dollars, which could not be kept there.
    """
    region = session.manifest.region
    if fleet is None or not fleet.declared:
        return []
    fitting = [kind.name for kind in fleet.kinds if not misfits(kind, submission.spec.resources)]
    unpriced = [name for name in fitting if session.catalogue.on_demand(name, region) is None]
    if not unpriced:
        return []
    words = f"no on-demand price is known in {region or 'this region'} for {', '.join(unpriced)}"
    ways = (
        "`everspot cost prices refresh` reads it, or declare onDemandUsdPerHour with the type in the stack's settings"
    )
    if submission.spec.budget.dollars is None:
        return [f"{words}: the job's cost there is unknown; {ways}"]
    raise CliError(
        f"{file}: a budget in dollars needs prices",
        hint=ways,
        problems=[{"field": "budget.dollars", "problem": f"{words}, which the job could run on"}],
    )


def thread_warnings(submission: JobSubmission) -> list[str]:
    """Warnings about a job with more threads than vCPUs: the threads take turns and wait for each other."""
    threads, vcpus = submission.spec.env.get(THREADS), submission.spec.resources.vcpus
    if threads is None or not threads.isdecimal() or int(threads) <= vcpus:
        return []
    return [
        f"{THREADS}={threads} is more than the {counted(vcpus, 'vCPU')} that the job asks for: threads that wait for "
        "each other make it many times slower. Without the variable it gets as many threads as resources.vcpus, "
        "shared among its processes"
    ]


def sharing_warnings(session: Session, submission: JobSubmission) -> list[str]:
    """Warnings about a job that may share an instance, on a cluster without shared instances."""
    if not submission.spec.resources.shared or session.manifest.shared_instances:
        return []
    return [
        f"resources.shared does nothing here: instances of the cluster {session.manifest.cluster} are not shared "
        "(its setting sharedInstances). The job has an instance alone and pays all of it"
    ]


def _words(kind: InstanceType) -> str:
    gpus = f", {kind.gpus} {kind.gpu} of {kind.gpu_memory_gib:g} GiB" if kind.gpus else ""
    return f"{kind.name} ({kind.vcpus} vCPUs, {kind.memory_gib:g} GiB{gpus})"
