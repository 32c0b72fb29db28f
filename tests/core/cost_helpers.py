"""Short constructors for ledgers: launches, ends, prices and a job's events, in seconds after T0."""

from datetime import UTC, datetime, timedelta
from fractions import Fraction

from everspot_clouds.aws.rules import BILLING
from everspot_core.capacity.catalogue import builtin
from everspot_core.costs.bill import bill
from everspot_core.costs.ledger import EndRecord, LaunchRecord, PricePoint
from everspot_core.jobs.records import Event, EventKind, Market, Role

T0 = datetime(2026, 3, 1, 12, tzinfo=UTC)
TYPE, ZONE = "m6i.large", "us-east-1a"
LISTED = Fraction("0.096")  # m6i.large in us-east-1


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def launch(iid="i-1", market=Market.SPOT, seconds=0.0, role=Role.AGENT, instance_type=TYPE) -> LaunchRecord:
    return LaunchRecord(
        instance_id=iid, instance_type=instance_type, zone=ZONE, market=market, role=role, launched_at=at(seconds)
    )


def end(seconds: float, iid="i-1", interrupted=False, source="") -> EndRecord:
    return EndRecord(instance_id=iid, ended_at=at(seconds), interrupted=interrupted, source=source)


def price(usd: float, seconds: float = 0, market=Market.SPOT) -> PricePoint:
    return PricePoint(instance_type=TYPE, zone=ZONE, market=market, at=at(seconds), usd_per_hour=usd, source="test")


def event(kind: EventKind, seconds: float, epoch=1, iid="i-1", job="job-1", **data) -> Event:
    return Event(job_id=job, kind=kind, at=at(seconds), epoch=epoch, writer="w", instance_id=iid, data=data)


def compute(launches, ends=(), points=(), events=None, as_of=100_000.0):
    return bill(launches, ends, points, events or {}, builtin(), at(as_of), rules=BILLING)


def interrupted_job():
    """Boot until 100, work until a notice at 600, released at 620, on i-2 from 700, training from 760 to 1260."""
    return {
        "job-1": [
            event(EventKind.SUBMITTED, 0, epoch=0, iid=None),
            event(EventKind.ASSIGNED, 100, instance_type=TYPE, zone=ZONE, market="spot"),
            event(EventKind.TRAINING, 110, from_step=0, restored=False),
            event(EventKind.CHECKPOINTED, 400, step=290, trigger="interval"),
            event(EventKind.STOP_DEMANDED, 600, source="imds"),
            event(EventKind.CHECKPOINTED, 610, step=495, trigger="notice"),
            event(
                EventKind.INTERRUPTED, 620, reason="notice", step=495, durable_step=495, notice_to_durable_seconds=10
            ),
            event(EventKind.ASSIGNED, 700, epoch=2, iid="i-2"),
            event(EventKind.TRAINING, 760, epoch=2, iid="i-2", from_step=495, restored=True),
            event(EventKind.FINISHED, 1260, epoch=2, iid="i-2", step=1000, metrics={"accuracy": 0.9}),
        ]
    }
