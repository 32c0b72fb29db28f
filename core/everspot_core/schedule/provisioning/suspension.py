"""Decides which instance types are no longer launched, because several machines in a row were unusable.

A launched machine that finds itself unfit leaves, and its job gets another launch. If the type or the image is at
fault, every next machine is broken, too, and its boot is paid. After SEVERAL equal faults the type is suspended, for
RETRY_AFTER from the last one. A new image or other settings make a new generation, whose machines have no faults yet
and can be launched.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from everspot_core.capacity.instances import AGENT_FAULT, InstanceRecord, InstanceState
from everspot_core.cluster.suspects import FAULT_WORDS, SEVERAL, WINDOW
from everspot_core.costs.ledger import FaultKind, FaultRecord
from everspot_core.schedule.actions import ReasonFigures
from everspot_core.schedule.view import ClusterView, InstanceView

RETRY_AFTER = timedelta(hours=6)
"""Market time from the last fault until one more machine of the type is tried."""
CLOSE_TOGETHER = timedelta(hours=2)
"""Faults that are further apart are bad luck: each machine worked, or none was needed, in between."""
PROVEN = timedelta(minutes=10)
"""Market time after which a healthy machine shows that its type works. A fault may take a while to show."""

SUSPENDED = (
    "no {instance_type} is launched: {faults} instances of it {words} ({detail}); the next one is tried at {until}, or "
    "at once after a new image or changed settings"
)
"""The sentence of the reason `Why.TYPE_SUSPENDED`."""


@dataclass(frozen=True, slots=True)
class Suspension:
    """An instance type that is not launched.

    Attributes:
        faults: the number of equal faults in the last day.
        kind: their kind.
        detail: the newest machine's own words.
        until: when one more machine is tried.
    """

    instance_type: str
    faults: int
    kind: FaultKind
    detail: str
    until: datetime

    @property
    def figures(self) -> ReasonFigures:
        """The figures of the reason `Why.TYPE_SUSPENDED`."""
        return {
            "instance_type": self.instance_type,
            "faults": self.faults,
            "words": FAULT_WORDS[self.kind],
            "detail": self.detail,
            "until": f"{self.until:%Y-%m-%d %H:%M} UTC",
        }

    @property
    def message(self) -> str:
        """The reason as a sentence."""
        return SUSPENDED.format(**self.figures)


def suspensions_in(view: ClusterView, now: datetime) -> dict[str, Suspension]:
    """Return the suspended types of a view, by name. Machines that are unfit now count, whose faults are yet to be
    written: otherwise their replacement would be launched in the same plan."""
    faults = [*view.faults, *_unwritten_faults(view, now)]
    return suspended_types(faults, proven_types(view.instances, now), view.generation, now)


def suspended_types(
    faults: Iterable[FaultRecord], proven: Collection[str], generation: str, now: datetime
) -> dict[str, Suspension]:
    """Return the suspended types, by name.

    Args:
        faults: the fault records of the cluster.
        proven: the types with a working machine now (`proven_types`).
        generation: the declared generation; faults of others do not count. Empty: all count.
        now: market time.
    """
    alike: dict[tuple[str, FaultKind], list[FaultRecord]] = defaultdict(list)
    for fault in sorted(faults, key=lambda f: f.at):
        same_image = not generation or fault.generation in ("", generation)
        if fault.kind is not FaultKind.JOBS and same_image and now - fault.at < WINDOW:
            alike[fault.instance_type, fault.kind].append(fault)
    suspensions = dict[str, Suspension]()
    for (name, kind), own in sorted(alike.items()):
        until = own[-1].at + RETRY_AFTER
        close = any(own[n + SEVERAL - 1].at - own[n].at <= CLOSE_TOGETHER for n in range(len(own) - SEVERAL + 1))
        if close and now < until and name not in proven:
            suspensions[name] = Suspension(name, len(own), kind, own[-1].detail or kind.value, until)
    return suspensions


def fault_kind(record: InstanceRecord) -> FaultKind:
    """Return the kind of fault of an instance that found itself unfit, by its own words."""
    words = record.detail.lower()
    if words.startswith(AGENT_FAULT):
        return FaultKind.AGENT
    return FaultKind.GPUS if "gpu" in words or "cuda" in words else FaultKind.DISK


def _unwritten_faults(view: ClusterView, now: datetime) -> Iterator[FaultRecord]:
    written = {fault.instance_id for fault in view.faults}
    for instance in view.instances:
        record = instance.record
        if record is None or record.state is not InstanceState.CORDONED or instance.instance_id in written:
            continue
        yield FaultRecord(
            instance_id=instance.instance_id,
            instance_type=record.instance_type,
            zone=record.zone,
            market=record.market,
            kind=fault_kind(record),
            generation=record.generation,
            detail=record.detail,
            at=min(record.updated_at, now),
        )


def proven_types(instances: Iterable[InstanceView], now: datetime) -> frozenset[str]:
    """Return the types with a machine that has been healthy for long enough to show that the type works."""
    return frozenset(
        i.record.instance_type
        for i in instances
        if i.healthy and i.record is not None and now - i.record.booted_at >= PROVEN
    )
