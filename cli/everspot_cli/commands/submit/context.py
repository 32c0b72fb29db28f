"""The input of the checks of a job before its submission: the job, the cluster's types, and the prices."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property
from math import ceil
from typing import TYPE_CHECKING

from everspot_core.capacity.catalogue import Catalogue, InstanceType, builtin
from everspot_core.jobs.candidates import Candidate, candidates, on_demand_only
from everspot_core.jobs.job import JobSubmission, Priority
from everspot_store import BadDocument

from everspot_cli.session import Session

if TYPE_CHECKING:
    from everspot_core.cluster.manifest import Manifest
    from everspot_core.jobs.changeover import Experience
    from everspot_core.schedule.provisioning.feasibility import Feasibility


@dataclass(frozen=True)
class FleetTypes:
    """The types of a cluster's instances.

    Attributes:
        kinds: The types.
        declared: Whether the infrastructure declares them, so that there are never others. Else they are the types of
            the instances that have reported, and people may start others.
    """

    kinds: tuple[InstanceType, ...]
    declared: bool

    @property
    def types(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(kind.name for kind in self.kinds)


class ClusterFacts:
    """The documents of one cluster that decide about jobs. Each is read once, when it is first needed."""

    def __init__(self, session: Session) -> None:
        self.session = session

    @property
    def manifest(self) -> "Manifest":
        """The cluster's own description."""
        return self.session.manifest

    @cached_property
    def fleet(self) -> FleetTypes | None:
        """The cluster's types, from its description, or in a folder cluster from its running instances. None if
        unknown."""
        types, offer = self.session.catalogue.types, self.manifest.fleet
        if offer is not None:
            return FleetTypes(tuple(types[name] for name in offer.types if name in types), True)
        if not self.session.cloud.by_hand:
            return None
        alive = [doc.value for doc in self.session.store.instances.scan().values()]
        kinds = {
            record.instance_type: InstanceType(
                name=record.instance_type, vcpus=record.vcpus, memory_gib=record.memory_gib, gpus=record.gpus,
                gpu=record.gpu, gpu_memory_gib=record.gpu_memory_gib,
            )
            for record in alive
            if record.role.value == "agent" and record.state.value != "GONE"
        }  # fmt: skip
        return FleetTypes(tuple(kinds.values()), False) if kinds else None

    @cached_property
    def longest_changeover(self) -> timedelta:
        """The usual upper bound of launch, boot and set-up, from the measurements of this cluster's schedulers, and the
        longest time until the scheduler sees that the instance is ready."""
        bound = read_experience(self.session).lasting_bound()
        tick = self.session.store.clock.to_market(self.manifest.limits.longest_tick)
        return timedelta(seconds=ceil((bound + tick).total_seconds()))


def read_experience(session: Session) -> "Experience":
    """Return what changeovers take by the measurements of the cluster's schedulers, if a cluster is chosen."""
    from everspot_core.jobs.changeover import Experience

    try:
        changeovers = session.store.notes.changeovers.read() if session.has_cluster else None
    except BadDocument:  # the same as no measurement
        changeovers = None
    return Experience(changeovers.times if changeovers is not None else ())


@dataclass(frozen=True)
class SubmissionContext:
    """A job that is about to be submitted, and the facts that its checks need.

    Attributes:
        session: The command's.
        subject: The job's file, or the job that is run again, as errors name it.
        submission: The job, with the bound on a changeover for judging its deadline.
        wait_for_capacity: Whether the job may wait for an instance type that the cluster lacks.
        cluster: The cluster's documents. None if no cluster is chosen, which a dry run accepts.
        catalogue: Types and prices.
        regions: The regions whose prices count. None: all of the catalogue.
    """

    session: Session
    subject: str
    submission: JobSubmission
    wait_for_capacity: bool
    cluster: ClusterFacts | None
    catalogue: Catalogue
    regions: Sequence[str] | None

    @classmethod
    def read(
        cls, session: Session, subject: str, submission: JobSubmission, *, wait_for_capacity: bool
    ) -> "SubmissionContext":
        """Return the context of a job in the session's cluster.

        Raises:
            CliError: if no cluster is chosen.
        """
        cluster = ClusterFacts(session)
        bounded = _for_cluster(cluster, submission)
        catalogue, region = session.catalogue, session.manifest.region
        regions = [region] if region in catalogue.regions else None
        return cls(session, subject, bounded, wait_for_capacity, cluster, catalogue, regions)

    @classmethod
    def read_if_chosen(
        cls, session: Session, subject: str, submission: JobSubmission, *, wait_for_capacity: bool
    ) -> "SubmissionContext":
        """Return the context of a job that is not submitted. Without a cluster all types of the catalogue count."""
        if session.has_cluster:
            return cls.read(session, subject, submission, wait_for_capacity=wait_for_capacity)
        return cls(session, subject, submission, wait_for_capacity, None, builtin(), None)

    def with_job(self, submission: JobSubmission) -> "SubmissionContext":
        """Return the same context for another job."""
        if self.cluster is not None:
            submission = _for_cluster(self.cluster, submission)
        return replace(self, submission=submission)

    @property
    def fleet(self) -> FleetTypes | None:
        """The cluster's types. None if unknown."""
        return self.cluster.fleet if self.cluster is not None else None

    @cached_property
    def candidates(self) -> list[Candidate]:
        """The types that the job might run on, with prices: the cluster's own types if it declares them, else the
        catalogue's. A job that waits for capacity might run on a type that is declared later. A critical job gets
        on-demand capacity immediately, so its types have no spot price."""
        fleet = self.fleet
        only = fleet.types if fleet is not None and fleet.declared and not self.wait_for_capacity else None
        spec = self.submission.spec
        offers = candidates(spec.resources, self.catalogue, self.regions, spec.expected_duration, only)
        return on_demand_only(offers) if spec.priority is Priority.CRITICAL else offers

    @cached_property
    def feasibility(self) -> "Feasibility | None":
        """Whether the deadline can be kept. None without a deadline."""
        if self.submission.deadline_at is None:
            return None
        from everspot_core.schedule.provisioning.feasibility import (
            feasibility,  # with the scheduler's arithmetic: only deadlines need it
        )

        bound = self.submission.changeover_bound
        return feasibility(self.submission, self.candidates, **({"changeover": bound} if bound is not None else {}))


def inherit_team(submission: JobSubmission, team: str | None) -> JobSubmission:
    """Return the job with the stack's tag Team, unless it has one of its own. Budgets, shares and reports count by
    it."""
    tags = submission.spec.tags
    if team is None or "Team" in tags:
        return submission
    spec = submission.spec.model_copy(update={"tags": {**tags, "Team": team}})
    return submission.model_copy(update={"spec": spec})


def _for_cluster(cluster: ClusterFacts, submission: JobSubmission) -> JobSubmission:
    """Return the job with the stack's team, and with its bound on a changeover. The deadline check uses the bound, here
    and later in the plan."""
    submission = inherit_team(submission, cluster.manifest.team)
    if submission.deadline_at is None:
        return submission
    return submission.model_copy(update={"changeover_bound": cluster.longest_changeover})
