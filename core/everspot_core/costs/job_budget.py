"""Computes how much of its own budget a job has used so far, by the rules of the bill."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction

from everspot_core.capacity.catalogue import Catalogue
from everspot_core.costs.attempts import Attempt, attempts
from everspot_core.costs.billing import BillingRules
from everspot_core.costs.ledger import EndRecord, LaunchRecord
from everspot_core.costs.nodes import billed_record
from everspot_core.costs.prices import HOUR, PriceBook, exact, seconds_between
from everspot_core.jobs.records import Event, JobRecord, Role


@dataclass(frozen=True)
class BudgetUse:
    """The used part of a job's budget. The seconds from assignment to release count, without boot and idle time."""

    dollars: float
    gpu_hours: float
    wall_clock: timedelta


def spent(
    events: Sequence[Event],
    *,
    submitted_at: datetime,
    now: datetime,
    launches: Mapping[str, LaunchRecord],
    ends: Mapping[str, EndRecord],
    prices: PriceBook,
    catalogue: Catalogue,
    rules: BillingRules,
    alive_at: Mapping[str, datetime] | None = None,
    record: JobRecord | None = None,
) -> BudgetUse:
    """Return the amount that the job of these events has used up to `now`, by the rules of the bill.

    An instance that has no launch record yet is priced by the type and zone in its assignment.

    Args:
        alive_at: The moment up to which each instance without an end is known to have lived. Later time does not count:
            the instance may have ended long ago. An instance that is not named counts up to `now`.
        record: The job's record, which may know the end of the last attempt before the events do.
    """
    dollars, gpu_seconds = Fraction(0), Fraction(0)
    for attempt in attempts(events, record=record):
        launch = launches.get(attempt.instance_id or "") or _launch_record(attempt)
        if launch is None:
            continue
        ended = ends.get(launch.instance_id)
        known_until = ended.ended_at if ended else (alive_at or {}).get(launch.instance_id, now)
        end = min(attempt.end or now, known_until, now)
        billed = billed_record(launch, launches)
        start = max(attempt.start, launch.launched_at, billed.launched_at)
        if not _is_waived(billed, ends.get(billed.instance_id), rules):
            share = attempt.share * exact(billed.node_share)
            dollars += prices.cost(billed.instance_type, billed.zone, billed.market, start, end) * share
        kind = catalogue.types.get(launch.instance_type)
        gpus = attempt.gpus if attempt.gpus is not None else kind.gpus if kind else 0
        gpu_seconds += max(Fraction(0), seconds_between(start, end)) * gpus
    return BudgetUse(float(dollars), float(gpu_seconds / HOUR), now - submitted_at)


def _is_waived(launch: LaunchRecord, ended: EndRecord | None, rules: BillingRules) -> bool:
    return ended is not None and ended.interrupted and rules.is_free(launch, ended.ended_at - launch.launched_at)


def _launch_record(attempt: Attempt) -> LaunchRecord | None:
    if not attempt.instance_id or attempt.pool is None:
        return None
    instance_type, zone, market = attempt.pool
    return LaunchRecord(
        instance_id=attempt.instance_id,
        instance_type=instance_type,
        zone=zone,
        market=market,
        role=Role.AGENT,
        launched_at=attempt.start,
    )
