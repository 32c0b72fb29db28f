"""Which waiting job goes to which free instance.

Jobs choose in turn: critical before normal, the earlier deadline first, then the longer wait. Each takes the smallest
free instance that is large enough, of the market that its priority prefers; rather than wait, it takes the other
market. Only this is kept back: a free on-demand instance that a waiting critical job could use.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from everspot_core.job import Priority
from everspot_core.records import InstanceState, JobRecord, Market, Reason, Role
from everspot_core.schedule.actions import Action, Assign, Figures, Hold, Why
from everspot_core.schedule.fit import Shape, fits, lacking
from everspot_core.schedule.limits import end_of_waiting
from everspot_core.schedule.view import ClusterView, InstanceView, JobView

_NEVER = datetime.max.replace(tzinfo=UTC)
_UNFIT = (Reason.LOST, Reason.FENCED, Reason.NOTICE, Reason.SHUTDOWN)
PREFERRED = {Priority.CRITICAL: Market.ON_DEMAND, Priority.NORMAL: Market.SPOT}


def queue_order(job: JobView) -> tuple[int, datetime, datetime, str]:
    """The order in which jobs choose: priority, deadline, age, and the id so that there is never a tie."""
    critical = job.submission.spec.priority is Priority.CRITICAL
    deadline = job.submission.deadline_at or _NEVER
    return (0 if critical else 1, deadline, job.submission.submitted_at, job.job_id)


def place(*, jobs: list[JobView], instances: list[InstanceView], view: ClusterView, now: datetime) -> list[Action]:
    """An `Assign` for each of `jobs` that finds an instance among `instances`, a `Hold` for each that does not.

    `jobs` are waiting ones; `instances` those of which nothing else has been decided.
    """
    reserved = {i.assignment.job_id for i in view.instances if i.assignment is not None} - {None}
    records = {j.job_id: j.record for j in view.jobs}
    stalls = _Stalls(i for i in instances if _free(i, records))
    shapes = _known_shapes(view)
    present = Counter(Shape.of(i.record) for i in view.instances if i.healthy and i.record is not None)
    actions: list[Action] = []
    held: list[JobView] = []
    for rank, job in enumerate(sorted(jobs, key=queue_order)):
        if end_of_waiting(job, now) is not None or job.job_id in reserved:
            continue
        hold = _not_now(job, view, shapes, now)
        if hold is not None:
            actions.append(hold)
            if hold.why is Why.BACK_OFF and _critical(job):
                held.append(job)
            continue
        kept = stalls.kept_for(held) if not _critical(job) else frozenset()
        chosen = stalls.choose(job, kept)
        if chosen is not None:
            stalls.take(chosen)
            actions.append(_assign(job, chosen, rank))
            continue
        if _critical(job):
            held.append(job)
        actions.append(_no_room(job, present, kept, stalls))
    return actions


def _critical(job: JobView) -> bool:
    return job.submission.spec.priority is Priority.CRITICAL


def _free(instance: InstanceView, records: Mapping[str, JobRecord | None]) -> bool:
    """Healthy, nothing assigned, and done with what it had.

    An agent's own word is as old as its heartbeat, so BUSY counts as free once the lease that it names has been given
    back; not if it was taken from the agent, which then may not know yet, nor if the agent gave it back because its
    machine is going or ailing, which the next heartbeat will tell.
    """
    record = instance.record
    if record is None or not instance.healthy or not instance.idle:
        return False
    if record.state is InstanceState.READY:
        return True
    held = records.get(record.job_id or "")
    if held is None or record.epoch is None or held.epoch < record.epoch:
        return False
    return held.owner != instance.instance_id and held.last_reason not in _UNFIT


def _known_shapes(view: ClusterView) -> dict[str, Shape]:
    """By type. An instance reports a little less memory than its type's sheet says: the largest report counts."""
    shapes = {t.name: Shape.of(t) for t in view.types}
    for instance in view.instances:
        record = instance.record
        if record is not None and record.role is Role.AGENT:
            seen = Shape.of(record)
            shapes[record.instance_type] = max(shapes.get(record.instance_type, seen), seen)
    return shapes


def _not_now(job: JobView, view: ClusterView, shapes: dict[str, Shape], now: datetime) -> Hold | None:
    need, record = job.submission.spec.resources, job.record
    if not shapes:
        return Hold(job_id=job.job_id, why=Why.NOTHING_SEEN)
    if not any(fits(need, s) for s in shapes.values()):
        return Hold(job_id=job.job_id, why=Why.NO_TYPE_FITS, figures=_shortfall(job, shapes))
    if view.draining:
        return Hold(job_id=job.job_id, why=Why.DRAIN)
    if record is not None and record.not_before is not None and record.not_before > now:
        seconds = round((record.not_before - now).total_seconds(), 3)
        return Hold(job_id=job.job_id, why=Why.BACK_OFF, figures={"seconds": seconds})
    return None


def _shortfall(job: JobView, shapes: dict[str, Shape]) -> Figures:
    """What the type that comes nearest lacks."""
    need = job.submission.spec.resources
    name = min(shapes, key=lambda n: (len(lacking(need, shapes[n])), n))
    return {"types": len(shapes), "nearest": name, "lacks": ", ".join(lacking(need, shapes[name]))}


def _assign(job: JobView, instance: InstanceView, rank: int) -> Assign:
    record = instance.record
    assert record is not None  # noqa: S101 - a free instance has one
    preferred = record.market is PREFERRED[job.submission.spec.priority]
    return Assign(
        job_id=job.job_id,
        instance_id=instance.instance_id,
        epoch=job.epoch + 1,
        instance_type=record.instance_type,
        zone=record.zone,
        market=record.market,
        why=Why.PREFERRED_MARKET if preferred else Why.OTHER_MARKET,
        figures={"rank": rank, "market": record.market.value},
    )


def _no_room(job: JobView, present: Counter[Shape], kept: frozenset[str], stalls: "_Stalls") -> Hold:
    need = job.submission.spec.resources
    if any(fits(need, stalls.shape(i)) for i in kept):
        return Hold(job_id=job.job_id, why=Why.KEPT_FOR_CRITICAL)
    large_enough = sum(count for shape, count in present.items() if fits(need, shape))
    return Hold(job_id=job.job_id, why=Why.NO_FREE_INSTANCE, figures={"present": large_enough})


@dataclass(frozen=True, slots=True, order=True)
class _Kind:
    """Instances between which a job is indifferent."""

    shape: Shape
    market: Market
    shaky: bool


class _Stalls:
    """The free instances, by kind, so that choosing costs by the number of kinds and not of instances."""

    def __init__(self, free: Iterable[InstanceView]) -> None:
        self._by_kind: dict[_Kind, dict[str, InstanceView]] = defaultdict(dict)
        self._kind: dict[str, _Kind] = {}
        for instance in sorted(free, key=lambda i: i.instance_id):
            assert instance.record is not None  # noqa: S101 - a free instance has one
            kind = _Kind(Shape.of(instance.record), instance.record.market, instance.recommended_away)
            self._by_kind[kind][instance.instance_id] = instance
            self._kind[instance.instance_id] = kind

    def shape(self, instance_id: str) -> Shape:
        """The shape of a free instance."""
        return self._kind[instance_id].shape

    def take(self, instance: InstanceView) -> None:
        """The instance is free no more."""
        kind = self._kind.pop(instance.instance_id)
        del self._by_kind[kind][instance.instance_id]
        if not self._by_kind[kind]:
            del self._by_kind[kind]

    def kept_for(self, critical: list[JobView]) -> frozenset[str]:
        """Free on-demand instances, one for each waiting critical job that has one it fits."""
        kept: set[str] = set()
        if not any(k.market is Market.ON_DEMAND for k in self._by_kind):
            return frozenset()
        for job in critical:
            need = job.submission.spec.resources
            for kind in sorted(k for k in self._by_kind if k.market is Market.ON_DEMAND and fits(need, k.shape)):
                spare = next((i for i in self._by_kind[kind] if i not in kept), None)
                if spare is not None:
                    kept.add(spare)
                    break
        return frozenset(kept)

    def choose(self, job: JobView, kept: frozenset[str]) -> InstanceView | None:
        """The free instance that suits the job best, but none of `kept`; None if nothing fits."""
        need, priority = job.submission.spec.resources, job.submission.spec.priority
        record = job.record
        preempted = record is not None and record.last_reason is not None and record.last_reason.preemption
        last = record.last_owner if record is not None and preempted else None
        best: tuple[tuple[bool | _Kind, ...], InstanceView] | None = None
        for kind, members in self._by_kind.items():
            if not fits(need, kind.shape):
                continue
            for instance in _first_two(members, kept, last):
                again, other = instance.instance_id == last, kind.market is not PREFERRED[priority]
                # A critical job would rather return to on-demand than stray to spot; a normal one rather moves on.
                order = (other, again) if priority is Priority.CRITICAL else (again, other)
                key = (kind.shaky, *order, kind)
                if best is None or key < best[0]:
                    best = (key, instance)
        return best[1] if best is not None else None


def _first_two(members: dict[str, InstanceView], kept: frozenset[str], last: str | None) -> Iterable[InstanceView]:
    """The first usable member, and the first one that is not the last owner."""
    usable = (i for n, i in members.items() if n not in kept)
    for instance in usable:
        yield instance
        if instance.instance_id != last:
            return
