"""Finds the launched instances that are on their way to jobs, and the launched instances that no job needs any
longer."""

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta

from everspot_core.jobs.changeover import Changeover
from everspot_core.jobs.records import InstanceState
from everspot_core.schedule.actions import ReasonFigures, Release, Why
from everspot_core.schedule.awaited_instances import awaited, is_going
from everspot_core.schedule.jobs import CHANGEOVER, CHANGEOVER_UPPER, earliest_start, job_outlook
from everspot_core.schedule.market.reuse import Reuse
from everspot_core.schedule.placement.queue import queue_order
from everspot_core.schedule.view import ClusterView, InstanceView, JobView, PoolKey, instance_pool

LAUNCH_PATIENCE = 2
"""A launch is given up after this many times the upper bound of a changeover, which counts as 15 min at least."""


NOTICE_MOST = timedelta(minutes=5)
"""Market time after which an instance with a notice no longer counts as ending. It runs from the announced end, or
without one from the end of the instance's last job. The clouds call the announced end approximate, and some messages
only have the time when they were sent. An instance that is ended just before the cloud ends it is billed, though it
would have been free."""


class Launches:
    """The launched instances by job, in one round of planning.

    `busy`: instances that something else is decided about. `failed`: pools whose launches this round gave up.
    """

    def __init__(self, view: ClusterView, now: datetime, busy: set[str]) -> None:
        self.busy, self.failed = set(busy), set[PoolKey]()
        self._view, self._now = view, now
        self._by_job: dict[str, list[InstanceView]] = defaultdict(list)
        for instance in sorted(view.instances, key=lambda i: i.instance_id):
            if instance.launched_for is not None and not instance.is_gone:
                self._by_job[instance.launched_for].append(instance)
        self._retained: set[str] = set()
        self._decided: set[str] = set()
        self._given_up: set[str] = set()
        self._awaited: set[str] = set()
        self._alive = {j.job_id for j in view.jobs if j.may_need_instance}
        self._changeovers: dict[PoolKey | None, Changeover] = {
            p.key: p.changeover for p in view.pools if p.changeover is not None
        }

    def coming(self, job: JobView, owner: InstanceView | None) -> list[InstanceView]:
        """Return the instances of the job's last launch, as long as the job has not been on them.

        Empty once the launch is given up: a gang lost an instance, or it is not ready in time.
        """
        if job.job_id not in self._by_job:
            return []
        batch = self._last(job, owner)
        sound = [i for i in batch if not _lost(i)]
        if not sound or (len(sound) < len(batch) and job.nodes > 1):
            return []
        ready = len(sound) >= job.nodes and all(i.healthy for i in sound)
        begun = sound[0].launched_at
        if not ready and begun is not None and self._now - begun > self._patience(job, sound):
            self.failed |= {pool for i in sound if (pool := instance_pool(i)) is not None}
            self._given_up |= {i.instance_id for i in sound}
            return []
        return sound

    def _patience(self, job: JobView, coming: Iterable[InstanceView]) -> timedelta:
        """Return how long to wait for these instances: LAUNCH_PATIENCE times the longest upper bound that concerns
        them."""
        work, pools = job_outlook(job), (instance_pool(i) for i in coming)
        bounds = [self._changeovers[pool].upper for pool in pools if pool in self._changeovers]
        if work is not None:
            bounds.append(work.changeover_upper)
        return LAUNCH_PATIENCE * max([CHANGEOVER_UPPER, *bounds])

    def keep(self, instances: list[InstanceView]) -> None:
        """Keep these instances: they are still needed."""
        self._retained |= {i.instance_id for i in instances}

    def await_by_others(self, instance_id: str) -> None:
        """Note that a job waits for this instance, which was launched for another job: it is not released."""
        self._awaited.add(instance_id)

    def mark_decided(self, job_id: str) -> None:
        """Note that the job's needs are decided: its instances that are idle and not kept may be released."""
        self._decided.add(job_id)

    def release(self, reuse: Reuse, *, pressed: bool) -> list[Release]:
        """Return the releases of launched instances that are no longer needed: immediately, or once they have been idle
        for the limit and no work is foreseen for them. `pressed`: jobs wait for their room.

        An instance that the cloud is about to take is not released: a spot instance that the cloud takes in its first
        hour may cost nothing, a released one is paid.
        """
        spare = [i for _, launched in sorted(self._by_job.items()) for i in launched if self._is_spare(i)]
        if self._view.draining or pressed or not self._view.idle_limit:
            return [_needed_no_more(i) for i in spare]
        useless = [i for i in spare if not self._is_of_use(i)]
        idle = [i for i in spare if self._is_of_use(i) and self._idle_for(i) >= self._view.idle_limit]
        foreseen = self._foreseen(idle, reuse) if idle else set()
        late = [self._was_idle(i) for i in idle if i.instance_id not in foreseen]
        return [*(_needed_no_more(i) for i in useless), *late]

    def _is_spare(self, instance: InstanceView) -> bool:
        """Return whether the instance is idle and no job of this plan waits for it."""
        name, alive = instance.launched_for or "", self._alive
        waiting = not self._view.draining and name in alive and name not in self._decided
        needed = waiting or (name in alive and instance.instance_id in self._retained)
        needed = needed or (not self._view.draining and instance.instance_id in self._awaited)
        return instance.idle and not needed and not self._is_taken(instance) and instance.instance_id not in self.busy

    def _is_taken(self, instance: InstanceView) -> bool:
        """Return whether the cloud takes it, and has not had the time for that yet. Not every notice carries a time."""
        if instance.deadline is not None:
            return is_going(instance) and self._now <= instance.deadline + NOTICE_MOST
        return is_going(instance) and not instance.stale and self._idle_for(instance) <= NOTICE_MOST

    def _is_of_use(self, instance: InstanceView) -> bool:
        """Return whether another job could use the instance, now or once it has booted."""
        if instance.instance_id in self._given_up:
            return False
        return instance.healthy or (instance.record is None and not _lost(instance))

    def _idle_for(self, instance: InstanceView) -> timedelta:
        """Return how long the instance has been idle; since its launch if it boots, and the longest time if unknown."""
        since = instance.idle_since or instance.launched_at
        return self._now - since if since is not None else timedelta.max

    def _foreseen(self, idle: list[InstanceView], reuse: Reuse) -> set[str]:
        """Return the instances for jobs that may not begin yet, but will sooner than a changeover takes."""
        reserved: set[str] = set()
        for job in sorted(self._view.jobs, key=queue_order):
            work, begins = job_outlook(job), earliest_start(job)
            soon = work.changeover if work is not None else CHANGEOVER
            if job.job_id not in self._alive or begins is None or not self._now < begins <= self._now + soon:
                continue
            able = [i for i in idle if i.instance_id not in reserved and i.healthy and reuse.suits(job, i)]
            if len(able) >= job.nodes:
                reserved |= {i.instance_id for i in able[: job.nodes]}
        return reserved

    def _was_idle(self, instance: InstanceView) -> Release:
        minute = timedelta(minutes=1)
        figures: ReasonFigures = {
            "minutes": self._idle_for(instance) / minute,
            "limit_minutes": self._view.idle_limit / minute,
        }
        return Release(instance_id=instance.instance_id, cause=Why.IDLE, figures=figures)

    def _last(self, job: JobView, owner: InstanceView | None) -> list[InstanceView]:
        """Return the instances that the job waits for, without those given away in this plan."""
        free = (i for i in self._by_job[job.job_id] if i.instance_id not in self.busy)
        return awaited(job, owner, free)


def _needed_no_more(instance: InstanceView) -> Release:
    return Release(instance_id=instance.instance_id, cause=Why.NEEDED_NO_MORE)


def _lost(instance: InstanceView) -> bool:
    """Return whether the instance will never take a job."""
    ending = instance.record is not None and instance.record.state in (InstanceState.DRAINING, InstanceState.GONE)
    return instance.ending or instance.stale or instance.notified or ending
