"""An instance in the plan's input."""

from dataclasses import dataclass
from datetime import datetime

from everspot_core.jobs.records import Assignment, InstanceRecord, InstanceState, NoticeKind, Order, Role
from everspot_core.schedule.view.pool import PoolKey


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceView:
    """An instance: its own record, its orders, and the cloud's description of it.

    - `may_exist`: the cloud describes it, or has said that it launched it. A record of any other id is a copy's or a
      stranger's, and gets no job.
    - `record` is None until its agent has reported.
    - `stale`: its heartbeat has not changed for the length of a lease.
    - `is_gone`: it no longer runs, by the cloud or by its own last report.
    - `ending`: the cloud is about to take it or is ending it. `deadline`: when it is taken, by its own notice or by the
      cloud, if that is known.
    - `rebalance`: the cloud recommends to leave it. It may stay all the same.
    - `launched_for`: the job that a plan had it launched for; None for an instance of the standing fleets.
    - `launched_at`: when it began to cost money, if that is known.
    - `idle_since`: since when it has had no job: since its last one, or since it reported. None if it has a job, or if
      that is unknown.
    - `pool`: the pool that it belongs to, for one that has not reported yet; None if that is unknown.
    - `residents`: the jobs that share it; empty if no jobs do.
    """

    instance_id: str
    may_exist: bool
    record: InstanceRecord | None
    assignment: Assignment | None
    stale: bool
    is_gone: bool
    ending: bool
    rebalance: bool
    deadline: datetime | None
    launched_for: str | None
    launched_at: datetime | None
    idle_since: datetime | None
    pool: PoolKey | None
    residents: tuple[str, ...]

    @property
    def launched(self) -> bool:
        """Whether it was launched for a job, and has not ended."""
        return self.launched_for is not None and not self.is_gone

    @property
    def idle(self) -> bool:
        """Whether no job is assigned to it, and none is resident on it."""
        return not self.residents and (self.assignment is None or not self.assignment.jobs)

    @property
    def seated(self) -> bool:
        """Whether jobs share it, by its assignment."""
        return self.assignment is not None and bool(self.assignment.seats)

    def job_orders(self, job_id: str) -> Assignment | None:
        """Return the orders of its assignment for a job, as if that job had it alone; None if it does not name the
        job."""
        return self.assignment.for_job(job_id) if self.assignment is not None else None

    def stops(self, job_id: str) -> bool:
        """Return whether the instance was ordered to give back that job or all of its jobs."""
        seat = self.job_orders(job_id)
        return self.stopping or (seat is not None and seat.order is not Order.RUN)

    @property
    def notified(self) -> bool:
        """Whether the instance itself has seen an interruption notice."""
        notice = self.record.notice if self.record else None
        return notice is not None and notice.kind is NoticeKind.INTERRUPTION

    @property
    def recommended_away(self) -> bool:
        """Whether there is a rebalance recommendation for it."""
        notice = self.record.notice if self.record else None
        return self.rebalance or (notice is not None and notice.kind is NoticeKind.REBALANCE)

    @property
    def healthy(self) -> bool:
        """Whether it can get a job now: its agent lives and takes work, and there is no known reason to leave."""
        return (
            self.may_exist
            and self.record is not None
            and self.record.role is Role.AGENT
            and self.record.state in (InstanceState.READY, InstanceState.BUSY)
            and not (self.stale or self.is_gone or self.ending or self.notified)
            and not (self.assignment is not None and self.assignment.cordoned)
            and not self.leaving
        )

    @property
    def stopping(self) -> bool:
        """Whether the instance was ordered to stop its jobs."""
        return self.assignment is not None and self.assignment.order is not Order.RUN

    @property
    def leaving(self) -> bool:
        """Whether the instance was ordered to power off once it has no job."""
        return self.assignment is not None and self.assignment.order is Order.LEAVE

    @property
    def reports(self) -> bool:
        """Whether its agent has reported, and its heartbeat goes on."""
        return self.record is not None and not (self.stale or self.is_gone or self.record.state is InstanceState.GONE)


def instance_pool(instance: InstanceView) -> PoolKey | None:
    """Return the pool of an instance, by its own record or, before it has reported, by what its driver knows."""
    record = instance.record
    if record is None:
        return instance.pool
    return PoolKey(record.instance_type, record.zone, record.market)
