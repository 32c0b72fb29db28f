"""Room on coming instances for jobs that may share them: a job that fits there needs no launch of its own."""

from everspot_core.jobs.fit import Shape, fits
from everspot_core.schedule.actions import Why
from everspot_core.schedule.jobs import critical
from everspot_core.schedule.market.policy import MarketChoice
from everspot_core.schedule.placement.hosts import Room, is_enough, less, total_room
from everspot_core.schedule.view import ClusterView, JobView, PoolKey


class SharedRoom:
    """The room left on such instances in one round of planning. Jobs take it in the order in which they choose.

    A launch may provide a smaller type than its first pool's, and a job that then finds no room gets its own launch
    later. So jobs that cannot wait that long do not count on this room.
    """

    def __init__(self, view: ClusterView) -> None:
        listed = [*view.types, *(p.instance_type for p in view.pools)] if view.shared else []
        self._shapes = {t.name: Shape.from_machine(t) for t in listed}
        self._open = view.shared
        self._coming: list[tuple[PoolKey, Room]] = []

    def add(self, job: JobView, pool: PoolKey | None) -> None:
        """Note that an instance of the pool is on its way to the job."""
        shape = self._shapes.get(pool.instance_type) if pool is not None else None
        if pool is not None and shape is not None and self._open and _may_share(job):
            self._coming.append((pool, less(total_room(shape), total_room(job.submission.spec.resources))))

    def find_pool(self, job: JobView, to: MarketChoice) -> PoolKey | None:
        """Return the pool of a coming instance with room for the job too; None if the job needs an instance of its
        own."""
        need = job.submission.spec.resources
        if not _may_share(job) or critical(job) or to.cause is Why.LAST_SAFE_MOMENT:
            return None
        for n, (pool, room) in enumerate(self._coming):
            if (
                pool.market is to.market
                and fits(need, self._shapes[pool.instance_type])
                and is_enough(room, total_room(need))
            ):
                self._coming[n] = pool, less(room, total_room(need))
                return pool
        return None


def _may_share(job: JobView) -> bool:
    return job.shares and job.nodes == 1
