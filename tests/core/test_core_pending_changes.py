"""A closed month names what may still change its figures, and without such a name they never change."""

import pytest
from cost_helpers import T0, TYPE, ZONE, at, compute, end, event, launch, price
from everspot_clouds.aws.rules import BILLING
from everspot_core.governance.month import Month
from everspot_core.governance.pending_changes import pending_changes
from everspot_core.governance.usage import Sums, UsageKind, usage_rows
from everspot_core.jobs.records import EventKind, JobRecord, JobState, Market

MARCH = Month.parse("2026-03")
END = (MARCH.end - T0).total_seconds()
HOUR = 3600.0
BEGUN = [
    event(EventKind.ASSIGNED, END - 4000, instance_type=TYPE, zone=ZONE, market="spot"),
    event(EventKind.TRAINING, END - 3900, from_step=0),
]
SAVED = [*BEGUN, event(EventKind.CHECKPOINTED, END + 10, step=5, trigger="interval")]
LOST = event(EventKind.LOST, END + 3 * HOUR, cause="expired", step=10)
BACK = event(EventKind.CHECKPOINTED, END + 4 * HOUR, step=20, trigger="interval", reclaimed=True)
FINISHED = event(EventKind.FINISHED, END + 3 * HOUR, step=10)


def march(market, launched, ends, events, as_of):
    """The dollars of March by kind, and what may change them, as they are known at a moment."""
    past_events = [e for e in events if e.at <= at(as_of)]
    past_ends = [e for e in ends if e.ended_at <= at(as_of)]
    prices = [price(0.04, market=market), price(0.096, market=Market.ON_DEMAND)]
    bill = compute([launch(market=market, seconds=launched)], past_ends, prices, {"job-1": past_events}, as_of)
    state = JobState.SUCCEEDED if FINISHED in past_events else JobState.RUNNING
    records = {"job-1": JobRecord(job_id="job-1", state=state, epoch=1, submitted_at=T0, changed_at=at(as_of))}
    rows = usage_rows(bill, records=records, since=MARCH.begin, until=MARCH.end)
    dollars = {kind: Sums.sum_rows(row for row in rows if row.kind is kind).cost for kind in UsageKind}
    return dollars, pending_changes(bill, records, MARCH, BILLING)


@pytest.mark.parametrize(
    ("market", "launched", "now", "ends", "events", "reason", "is_changed"),
    [
        (Market.SPOT, END - 3000, -60, [], [], "2026-03 is not over", True),
        (Market.ON_DEMAND, END - 5000, 120, [], [], "may come until 2026-04-01 01:00 UTC", False),
        (Market.SPOT, END - 3000, 120, [end(END + 300, interrupted=True)], [], "1 instance would be free", True),
        (Market.SPOT, END - 5000, 2 * HOUR, [end(END + 3 * HOUR, interrupted=True)], [], None, False),
        (Market.ON_DEMAND, END - 5000, 2 * HOUR, [], [*BEGUN, LOST], "last checkpoint may become lost, of job-1", True),
        (Market.ON_DEMAND, END - 5000, 2 * HOUR, [], [*SAVED, LOST], None, False),
        (Market.ON_DEMAND, END - 5000, 2 * HOUR, [], [*BEGUN, FINISHED], "may become lost, of job-1", False),
        (Market.ON_DEMAND, END - 5000, 4 * HOUR - 60, [], [*BEGUN, LOST, BACK], "may become lost, of job-1", True),
        (Market.ON_DEMAND, END - 5000, 4 * HOUR, [], [*BEGUN, FINISHED], None, False),
    ],
)
def test_a_month_is_final_only_if_no_later_entry_changes_it(market, launched, now, ends, events, reason, is_changed):
    before, reasons = march(market, launched, ends, events, END + now)
    after, _ = march(market, launched, ends, events, END + 30 * 24 * HOUR)
    assert (before != after) is is_changed
    assert reasons == [] if reason is None else any(reason in each for each in reasons), reasons


def test_a_ledger_that_may_lack_entries_is_not_final():
    bill = compute([launch()], [end(100)], as_of=END + 2 * HOUR)
    assert pending_changes(bill, {}, MARCH, BILLING) == []
    assert pending_changes(bill, {}, MARCH, BILLING, may_lack_entries=True) == ["the ledger may lack entries"]
