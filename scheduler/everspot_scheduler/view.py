"""Builds the plan's view of a cluster from the store's documents and the facts from the cloud."""

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from everspot_clouds.base import Phase
from everspot_core.clock import Clock
from everspot_core.costs.ledger import FaultRecord, LaunchRecord
from everspot_core.costs.team_budgets import CapUse
from everspot_core.jobs.job import JobSubmission
from everspot_core.jobs.lease import waits_since
from everspot_core.jobs.records import (
    Assignment,
    InstanceRecord,
    InstanceState,
    JobRecord,
    JobState,
    NoticeKind,
    Reason,
    Role,
)
from everspot_core.schedule import (
    Behaviour,
    ClusterView,
    Drill,
    InstanceView,
    JobView,
    MeasuredUse,
    PoolKey,
    PoolView,
    Spent,
    StageRun,
)

from everspot_scheduler.changeovers import ChangeoverLog
from everspot_scheduler.cloud_facts import Facts
from everspot_scheduler.dependencies import Standing
from everspot_scheduler.elastic.manager import ElasticManager
from everspot_scheduler.ledger import Ledger
from everspot_scheduler.manifest_watch import ManifestWatch
from everspot_scheduler.observer import Observation
from everspot_scheduler.run_conditions import JudgedCondition
from everspot_scheduler.speeds import Speeds

_log = logging.getLogger(__name__)
_UNSPENT = Spent(dollars=0.0, gpu_hours=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanInputs:
    """What the plan needs in addition to the documents of this tick.

    Attributes:
        facts: The cloud's facts about instances.
        ledger: Launches, ends and prices.
        faults: Unusable instances, by instance.
        spent: By job, for jobs whose budget needs it.
        losses: The times at which a job lost spot instances, for jobs that lost them often.
        usage: Dollars that each team has used lately.
        pools: The views of the pools.
        cap_uses: The budgets of teams and of the environment, with the spent amounts.
        unions: How sets of pools have behaved as one.
        elastic_manager: The elastic capacity.
        changeovers: The measured lengths of changeovers.
        head_epochs: By job, the epoch in the head of its checkpoints, for those whose head is ahead of their record.
        after: By job, the states of the jobs that it comes after.
        evaluate_run_if: Returns the result of the `run_if` of a job.
        same_stage: By job, the earlier jobs of the same cached stage.
        withheld: Returns how long a job might not run in its present wait, by the beginning of the wait.
    """

    facts: Facts
    ledger: Ledger
    faults: Mapping[str, FaultRecord]
    spent: Mapping[str, Spent]
    losses: Mapping[str, tuple[datetime, ...]]
    usage: Mapping[str, float]
    pools: tuple[PoolView, ...]
    cap_uses: tuple[CapUse, ...]
    unions: Mapping[frozenset[PoolKey], Behaviour]
    elastic_manager: ElasticManager
    changeovers: ChangeoverLog
    head_epochs: Mapping[str, int]
    after: Mapping[str, Standing]
    evaluate_run_if: Callable[[str], JudgedCondition]
    same_stage: Mapping[str, tuple[StageRun, ...]]
    withheld: Callable[[str, datetime], timedelta]


class ViewBuilder:
    """Makes the views of one cluster, tick by tick."""

    def __init__(self, manifest_watch: ManifestWatch, clock: Clock) -> None:
        self._manifest_watch, self._clock = manifest_watch, clock
        self._speeds = Speeds(clock)
        self._jobs: dict[str, JobView] = {}

    def view(self, observation: Observation, inputs: PlanInputs) -> ClusterView:
        """Return the plan's view of the cluster now.

        A job whose submission or record cannot be read, or makes no sense, is left out, and so is an instance whose
        assignment cannot be read or names such a job. Otherwise they would look like a waiting job and a free instance.
        """
        facts, declared = inputs.facts, self._manifest_watch
        names = set(observation.instances) | set(observation.assignments) | set(facts.warned)
        names |= {name for name in inputs.elastic_manager.launched if name not in inputs.ledger.ends}
        busy = {n for n, assignment in observation.assignments.items() if assignment.value.jobs}
        names -= inputs.elastic_manager.unclaimed_instances() - busy
        names -= observation.unreadable_assignments
        jobs, unclear = self._job_views(observation, inputs)
        names -= {n for n, assignment in observation.assignments.items() if unclear.intersection(assignment.value.jobs)}
        agents = (i for i in facts.described.values() if i.phase is Phase.ALIVE and i.role is Role.AGENT)
        standing_agents = (i for i in agents if not i.launch)  # launched instances are counted one by one
        renewing, noticed = observation.renewing(), _notice_times(observation)
        instances = tuple(_instance(n, observation, inputs, renewing, noticed.get(n)) for n in sorted(names))
        return ClusterView(
            jobs=jobs,
            instances=instances,
            draining=observation.draining,
            types=inputs.ledger.types(),
            limits=declared.limits,
            pools=inputs.pools
            if inputs.elastic_manager.declared is not None or not inputs.elastic_manager.active
            else (),
            unions=inputs.unions,
            usage=inputs.usage,
            shares=declared.manifest.shares,
            tick=self._clock.to_market(self._manifest_watch.limits.longest_tick),
            shared=declared.manifest.shared_instances,
            standing=declared.standing(instances),
            generation=declared.generation(instances),
            rolling=declared.rolling(),
            booting=sum(i.instance_id not in observation.instances for i in standing_agents),
            faults=tuple(inputs.faults.values()),
            idle_limit=inputs.elastic_manager.idle_limit,
            cap=inputs.elastic_manager.cap,
            cap_uses=inputs.cap_uses,
            lasting_changeover=inputs.changeovers.lasting_bound,
        )

    def _job_views(self, observation: Observation, inputs: PlanInputs) -> tuple[tuple[JobView, ...], set[str]]:
        """Return the views of jobs, and the names of jobs that are left out because they are unreadable or invalid."""
        drills: dict[str, list[Drill]] = defaultdict(list)
        for name, request in observation.drills.items():
            job_id, _, drill_id = name.partition("/")
            drills[job_id].append(Drill(drill_id=drill_id, at=request.value.at))
        self._speeds.forget(observation.jobs)
        views: dict[str, JobView] = {}
        unclear = set(observation.unreadable_jobs)
        for name, job in observation.jobs.items():
            if name in unclear:
                continue
            try:
                views[name] = self._job(name, job.value, observation, drills, inputs)
            except Exception:  # no job's documents may keep all others from being planned
                _log.exception("job %s is left out of the plan: what is written of it makes no sense", name)
                unclear.add(name)
        self._jobs = views
        return tuple(views.values()), unclear

    def _job(
        self,
        name: str,
        submission: JobSubmission,
        observation: Observation,
        drills: Mapping[str, list[Drill]],
        inputs: PlanInputs,
    ) -> JobView:
        """Return the view of the job. It is the same object as long as nothing has changed, since there are many
        jobs."""
        record = observation.records[name].value if name in observation.records else None
        before, judgement = self._jobs.get(name), inputs.evaluate_run_if(name)
        speeds = self._speeds.read(submission, record, self._instance_type(record, observation, inputs))
        view = JobView(
            submission=submission,
            record=record,
            stale=name in observation.stale_records and name not in observation.written,
            cancel=name in observation.cancels,
            drills=tuple(sorted(drills[name], key=lambda d: d.drill_id)) if name in drills else (),
            spent=inputs.spent.get(name, _UNSPENT),
            after=inputs.after.get(name, ()),
            condition_result=judgement.condition_result,
            missing_metric=judgement.missing,
            awaits=judgement.awaits,
            same_stage=inputs.same_stage.get(name, ()),
            nodes=1,  # a job file asks for one instance
            outlook=None,  # the plan uses the author's expectation, less the finished steps
            head_epoch=inputs.head_epochs.get(name),
            changeover=inputs.changeovers.for_job(name),
            preempted_at=inputs.losses.get(name, ()),
            measured=_measured(record),
            speeds=speeds,
            measured_speeds=frozenset(speeds),
            withheld=self._withheld(submission, record, inputs),
            accepted_deadline_at=None,
        )
        return before if before is not None and _same(before, view) else view

    def _withheld(self, submission: JobSubmission, record: JobRecord | None, inputs: PlanInputs) -> timedelta:
        """Return how long the job might not run in its present wait, which may be shorter than what was noted."""
        if record is not None and record.state is not JobState.PENDING:
            return timedelta(0)
        begin = waits_since(record, submission)
        withheld = inputs.withheld(submission.job_id, begin)
        return max(timedelta(0), min(withheld, self._clock.now() - begin)) if withheld else withheld

    @staticmethod
    def _instance_type(record: JobRecord | None, observation: Observation, inputs: PlanInputs) -> str | None:
        """Return the type of the instance that holds the job, or held it last."""
        name = (record.owner or record.last_owner or "") if record is not None else ""
        if name in observation.instances:
            return observation.instances[name].value.instance_type
        launch = inputs.ledger.launches.get(name)
        return launch.instance_type if launch is not None else None


def _measured(record: JobRecord | None) -> MeasuredUse | None:
    """Return the measurements of the job's agents. They measure memory, not processors."""
    progress = record.progress if record is not None else None
    if progress is None or (progress.memory_gib is None and progress.gpu_memory_gib is None):
        return None
    return MeasuredUse(
        vcpus=None, memory_gib=progress.memory_gib, gpu_memory_gib=progress.gpu_memory_gib, mixed=progress.mixed
    )


def _same(before: JobView, now: JobView) -> bool:
    """Return whether two views of a job are equal. Documents are compared by identity, since unchanged ones are not
    read again."""
    return (
        before.submission is now.submission
        and before.record is now.record
        and (before.stale, before.cancel, before.drills, before.after) == (now.stale, now.cancel, now.drills, now.after)
        and (before.same_stage, before.condition_result) == (now.same_stage, now.condition_result)
        and (before.missing_metric, before.awaits) == (now.missing_metric, now.awaits)
        and before.withheld == now.withheld
        and (before.spent, before.preempted_at, before.speeds) == (now.spent, now.preempted_at, now.speeds)
        and (before.changeover, before.head_epoch) == (now.changeover, now.head_epoch)
    )


def notices(observation: Observation) -> dict[str, datetime]:
    """Return when instances got interruption notices, by their heartbeats and by the jobs that they gave back for
    them."""
    records = (document.value for document in observation.instances.values())
    by_instance = {r.instance_id: r.notice for r in records if r.notice is not None}
    return _notice_times(observation) | {
        n: notice.seen_at for n, notice in by_instance.items() if notice.kind is NoticeKind.INTERRUPTION
    }


def _notice_times(observation: Observation) -> dict[str, datetime]:
    """Return when instances gave a job back because the cloud takes them, by their jobs' records.

    A heartbeat may come seconds after that, and an agent reports the notice with the next one. A cloud without messages
    ahead of an end says nothing until then.
    """
    records = (document.value for document in observation.records.values())
    noticed_records = [
        r for r in records if r.last_reason is Reason.NOTICE and r.owner is None and r.last_owner is not None
    ]
    return {
        r.last_owner: r.changed_at
        for r in sorted(noticed_records, key=lambda r: r.changed_at)
        if r.last_owner is not None
    }


def _instance(
    name: str, observation: Observation, inputs: PlanInputs, renewing: set[str], noticed: datetime | None
) -> InstanceView:
    """Return the view of one instance. `noticed`: as `_notice_times` returns it. A later report of the instance itself
    counts instead; both times are of its own clock."""
    facts, ledger = inputs.facts, inputs.ledger
    record = observation.instances[name].value if name in observation.instances else None
    unreported = noticed is not None and (record is None or record.updated_at <= noticed)
    last_word = record is not None and record.state is InstanceState.GONE
    forgotten = name in ledger.ends and name not in facts.described
    launch, place = ledger.launches.get(name), inputs.elastic_manager.launched.get(name)
    assignment = observation.assignments[name].value if name in observation.assignments else None
    return InstanceView(
        instance_id=name,
        may_exist=inputs.elastic_manager.by_hand or place is not None or facts.may_exist(name),
        record=record,
        assignment=assignment,
        stale=name in observation.stale_instances and name not in renewing,
        is_gone=facts.is_gone(name)
        or last_word
        or forgotten
        or ledger.is_restarted(facts.described.get(name))
        or (record is None and inputs.elastic_manager.is_gone(name)),
        ending=facts.ending(name) or unreported,
        rebalance=name in facts.rebalance,
        deadline=_taken_at(record) or facts.warned.get(name),
        launched_for=place.job_id if place is not None else None,
        # All instances of one launch get the same time: the plan recognizes a gang by it.
        launched_at=place.made_at if place is not None else launch.launched_at if launch is not None else None,
        idle_since=_idle_since(record, assignment),
        pool=place.pool if place is not None else _launch_pool(launch),
        residents=tuple(s.job_id for s in assignment.seats) if assignment is not None else (),
    )


def _taken_at(record: InstanceRecord | None) -> datetime | None:
    """Return when the cloud takes it, by its own notice. The cloud's events only say when they were sent."""
    notice = record.notice if record is not None else None
    return notice.action_at if notice is not None and notice.kind is NoticeKind.INTERRUPTION else None


def _launch_pool(launch: LaunchRecord | None) -> PoolKey | None:
    return PoolKey(launch.instance_type, launch.zone, launch.market) if launch is not None else None


def _idle_since(record: InstanceRecord | None, assignment: Assignment | None) -> datetime | None:
    """Return since when it has had no job: since its agent began, or since its last job was struck out."""
    if record is None or (assignment is not None and assignment.jobs):
        return None
    return record.booted_at if assignment is None else max(record.booted_at, assignment.changed_at)
