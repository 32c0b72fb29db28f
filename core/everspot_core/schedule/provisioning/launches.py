"""The instances that were launched for jobs: those that are on their way, and those that nobody needs any more."""

from collections import defaultdict
from datetime import datetime, timedelta

from everspot_core.records import InstanceState, Reason
from everspot_core.schedule.actions import Release, Why
from everspot_core.schedule.jobs import CHANGEOVER_UPPER, outlook_of
from everspot_core.schedule.view import ClusterView, InstanceView, JobView, PoolKey, pool_of

LAUNCH_PATIENCE = 2
"""A launch is given up once it has taken so many times as long as a whole changeover may take, 15 min at the least."""


class Launches:
    """The launched instances by job, in one round of planning.

    `taken`: of which something else has been decided. `failed`: pools whose launches were given up in this round.
    """

    def __init__(self, view: ClusterView, now: datetime, taken: set[str]) -> None:
        self.taken, self.failed = set(taken), set[PoolKey]()
        self._view, self._now = view, now
        self._by_job: dict[str, list[InstanceView]] = defaultdict(list)
        for instance in sorted(view.instances, key=lambda i: i.instance_id):
            if instance.launched_for is not None and not instance.gone:
                self._by_job[instance.launched_for].append(instance)
        self._kept: set[str] = set()
        self._settled: set[str] = set()

    def coming(self, job: JobView, owner: InstanceView | None) -> list[InstanceView]:
        """What was launched for the job last and has not had it yet.

        Empty once it is given up: a gang of which an instance is lost, and what is not ready after all patience.
        """
        batch = self._last(job, owner)
        sound = [i for i in batch if not _lost(i)]
        if not sound or (len(sound) < len(batch) and job.nodes > 1):
            return []
        ready = len(sound) >= job.nodes and all(i.healthy for i in sound)
        begun = sound[0].launched_at
        if not ready and begun is not None and self._now - begun > _patience(job):
            self.failed |= {pool for i in sound if (pool := pool_of(i)) is not None}
            return []
        return sound

    def keep(self, instances: list[InstanceView]) -> None:
        """These are still needed."""
        self._kept |= {i.instance_id for i in instances}

    def settle(self, job_id: str) -> None:
        """It is decided what the job needs: those of its instances that are idle and not kept can be released."""
        self._settled.add(job_id)

    def release(self) -> list[Release]:
        """The releases of launched instances that are not needed any more.

        What the cloud is about to take is left to the cloud: a spot instance that it takes in its first hour may cost
        nothing, while one that is released is paid.
        """
        alive = {j.job_id for j in self._view.jobs if not (j.state.final or j.cancel)}
        open_jobs = set() if self._view.draining else alive - self._settled
        released = []
        for job_id, launched in sorted(self._by_job.items()):
            for instance in launched:
                needed = job_id in open_jobs or (job_id in alive and instance.instance_id in self._kept)
                going = instance.ending and instance.deadline is not None and self._now <= instance.deadline
                if instance.idle and not needed and not going and instance.instance_id not in self.taken:
                    released.append(Release(instance_id=instance.instance_id, why=Why.NEEDED_NO_MORE))
        return released

    def _last(self, job: JobView, owner: InstanceView | None) -> list[InstanceView]:
        """The idle instances of the last launch; never what the job was told to leave, nor what is older than what it
        holds.
        """
        record = job.record
        left = record.last_owner if record is not None and record.last_reason is Reason.MOVE else None
        mine = self._by_job[job.job_id]
        # A gang leaves all that was launched with the one that its lease named.
        leaving = {i.launched_at for i in mine if i.instance_id == left and i.launched_at is not None}
        own = owner is not None and owner.launched_for == job.job_id
        begun = owner.launched_at if owner is not None and own else None
        fresh = [
            i
            for i in mine
            if i.idle
            and i.instance_id != left
            and i.launched_at not in leaving
            and i.instance_id not in self.taken
            and (begun is None or (i.launched_at is not None and i.launched_at >= begun))
        ]
        last = max((i.launched_at for i in fresh if i.launched_at is not None), default=None)
        return [i for i in fresh if i.launched_at == last]


def _lost(instance: InstanceView) -> bool:
    """Whether the instance will never take a job."""
    ending = instance.record is not None and instance.record.state in (InstanceState.DRAINING, InstanceState.GONE)
    return instance.ending or instance.stale or instance.notified or ending


def _patience(job: JobView) -> timedelta:
    work = outlook_of(job)
    changeover = max(CHANGEOVER_UPPER, work.changeover_upper) if work is not None else CHANGEOVER_UPPER
    return LAUNCH_PATIENCE * changeover
