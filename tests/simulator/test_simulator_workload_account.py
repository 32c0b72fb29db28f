"""The result of a workload: the simulator's bill compared with an independent sum, and with a cluster's account."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from everspot_core.capacity.catalogue import Catalogue, InstanceType
from everspot_core.costs.bill import bill
from everspot_core.costs.billing import BillingRules
from everspot_core.costs.ledger import EndRecord, LaunchRecord, PricePoint
from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_core.jobs.records import Event, EventKind, Market, Role
from everspot_core.schedule import plan
from everspot_simulator.account import Account, differences, of_bill, of_run, simulated
from everspot_simulator.drive import simulate
from hypothesis import given, settings
from hypothesis import strategies as st
from test_simulator_workload_properties import jobs, traces
from workload_helpers import drive, offer, standing, trace, workload

HOUR = timedelta(hours=1)
AT = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)


class Meter:
    """A plan beside which somebody notes what is there at each moment, and what that costs."""

    def __init__(self, prices) -> None:
        self.prices, self.usd = prices, 0.0
        self.at, self.rate = None, 0.0

    def __call__(self, view, now):
        self.until(now)
        self.rate = sum(self.prices[i.pool] for i in view.instances)
        return plan(view, now)

    def until(self, now) -> None:
        if self.at is not None:
            self.usd += self.rate * ((now - self.at) / HOUR)
        self.at = now


@given(
    drawn_jobs=jobs(st.sampled_from([None, 0.6, 1.5, 5])),
    market=traces(),
    base=st.integers(0, 2),
    idle=st.sampled_from([0, 600]),
    notice=st.sampled_from([0, 120]),
    most=st.sampled_from([None, 4]),
)
@settings(max_examples=settings.default.max_examples * 3 // 10, deadline=None)
def test_the_simulated_bill_is_the_sum_of_what_was_seen_to_be_there(drawn_jobs, market, base, idle, notice, most):
    """The capacity between two moments is what the plan saw last at the first one, because the plan runs until it has
    no further actions."""
    parts = [standing(base)] if base else []
    pools = [offer(), offer("spot", 1.0, availability="t")]
    terms = {"idle_limit_seconds": idle, "notice_seconds": notice, "max_instances": most}
    read = workload(drawn_jobs, {"t"}, standing=parts, pools=pools, horizon=40, **terms)
    meter = Meter({o.key: o.usd_per_hour for o in read.fleet.offers().values()})
    run = simulate(read, {"t": market}, meter)
    meter.until(run.ended_at)
    assert of_run(run).usd == pytest.approx(meter.usd, abs=1e-6)


def test_under_the_cap_a_gang_gives_spot_back_once_and_moves_in_time():
    """Four instances at most: two spot ones of a gang that has to move, and two of others."""
    job_values = [
        {"id": "before", "arrival_hours": 3.8, "hours": 1.8, "nodes": 2},
        {"id": "beside", "arrival_hours": 5.6, "hours": 1.1},
        {"id": "critical", "arrival_hours": 5.0, "hours": 2.3, "priority": "critical"},
        {"id": "gang", "arrival_hours": 6.1, "hours": 0.1, "hours_upper": 0.125, "nodes": 2, "deadline_hours": 0.725},
    ]
    pools = [offer(), offer("spot", 1.0, availability="t")]
    read = workload(job_values, {"t"}, pools=pools, horizon=40, idle_limit_seconds=0, max_instances=4)
    meter = Meter({o.key: o.usd_per_hour for o in read.fleet.offers().values()})
    run = simulate(read, {"t": trace((600, 3))}, meter)
    meter.until(run.ended_at)
    assert "gang" in of_run(run).met
    assert len([a for a in run.attempts if a.job_id == "gang"]) == 2
    assert of_run(run).usd == pytest.approx(meter.usd, abs=1e-6)


def test_the_account_of_a_workload_by_hand():
    """Spot ends after an hour: `a` waits and moves to on-demand; `b` cannot finish in time; `c` has no deadline."""
    job_values = [
        {"id": "a", "hours": 2, "deadline_hours": 6},
        {"id": "b", "hours": 5, "deadline_hours": 2},
        {"id": "c", "hours": 0.25},
    ]
    market = {"t": trace((12, 2), (600, 0))}
    fleet = {"pools": [offer("spot", 1.0, availability="t"), offer(usd=3.0)]}
    account = simulated(workload(job_values, market, **fleet), market)
    assert (account.met, account.late, account.refused) == ({"a"}, set(), {"b"})
    assert account.failovers == {"a": 1}
    _, all_of_it = drive(job_values, market, **fleet)
    assert (account.usd, account.idle_usd_share) == (all_of_it.cost.total, all_of_it.idle_usd_share)


def test_spot_that_is_taken_within_its_first_hour_is_free_where_the_cloud_has_it_so():
    """Spot is there for three quarters of an hour."""
    job_values, market = [{"id": "a", "hours": 3, "deadline_hours": 9}], {"t": trace((9, 1), (600, 0))}
    pools = [offer("spot", 1.0, availability="t"), offer(usd=3.0)]
    paid = simulated(workload(job_values, market, pools=pools), market)
    free = simulated(workload(job_values, market, pools=pools, free_within_hours=1), market)
    assert paid.usd - free.usd == pytest.approx(0.75)
    long = simulated(workload(job_values, market, pools=pools, free_within_hours=0.75), market)
    assert long.usd == paid.usd


# A cluster's own account

POOL = {"instance_type": "t", "zone": "z"}
TYPES = Catalogue([], []).with_types([InstanceType(name="t", vcpus=1, memory_gib=1, on_demand_usd_per_hour=3.0)])


def at(hours) -> datetime:
    return AT + hours * HOUR


def event(job, kind, hours, epoch, instance, **data) -> Event:
    return Event(job_id=job, kind=kind, at=at(hours), epoch=epoch, writer="w", instance_id=instance, data=data)


def lived(finished=3.0) -> Account:
    """A job on spot for an hour, then on-demand; an instance that has nothing to do for an hour of its three."""
    machines = [("i-spot", Market.SPOT, 0, 1), ("i-od", Market.ON_DEMAND, 1, 4), ("i-brain", Market.ON_DEMAND, 0, 9)]
    launches = [
        LaunchRecord(
            instance_id=name,
            market=market,
            launched_at=at(begun),
            role=Role.SCHEDULER if name == "i-brain" else Role.AGENT,
            **POOL,
        )
        for name, market, begun, _ in machines
    ]
    ends = [EndRecord(instance_id=name, ended_at=at(end), interrupted=False) for name, _, _, end in machines]
    points = [PricePoint(market=Market.SPOT, at=AT - HOUR, usd_per_hour=1.0, source="s", **POOL)]
    events = [
        event("j-1", EventKind.ASSIGNED, 0, 1, "i-spot", market="spot", **POOL),
        event("j-1", EventKind.TRAINING, 0, 1, "i-spot", from_step=0),
        event("j-1", EventKind.INTERRUPTED, 1, 1, "i-spot", reason="notice"),
        event("j-1", EventKind.ASSIGNED, 1, 2, "i-od", market="on-demand", **POOL),
        event("j-1", EventKind.FINISHED, finished, 2, "i-od", step=9),
    ]
    spec, late = JobSpec(name="a", recipe="r"), JobSpec(name="b", recipe="r")
    submissions = {
        "j-1": JobSubmission(job_id="j-1", spec=spec, submitted_at=AT, deadline_at=at(3.5)),
        "j-2": JobSubmission(job_id="j-2", spec=late, submitted_at=AT, deadline_at=at(0.1)),
    }
    rules = BillingRules(minimum=timedelta(0), free_within=None, left_out=())
    computed_bill = bill(launches, ends, points, {"j-1": events}, TYPES, at(9), rules=rules)
    return of_bill(computed_bill, submissions, refused=["j-2"])


def test_a_clusters_account_is_told_in_the_same_terms():
    """Spot $1 for an hour; on-demand $3 for three, one of them idle. The scheduler's instance is not in it."""
    account = lived()
    assert account.usd == pytest.approx(10.0)
    assert account.idle_usd_share == pytest.approx(3.0 * (4 - 3.0) / 10)
    assert (account.met, account.late, account.refused) == ({"a"}, set(), {"b"})
    assert account.failovers == {"a": 1}
    assert lived(finished=3.75).late == {"a"}


def test_what_differs_is_told_by_name_and_small_differences_are_none():
    account = lived()
    assert differences(account, replace(account, usd=10.9, failovers={"a": 2})) == []
    assert differences(account, replace(account, usd=11.1)) == ["it cost $11.10 instead of $10.00"]
    other = replace(account, met=frozenset(), late=frozenset({"a"}), failovers={})
    assert differences(account, other, failovers=0) == [
        "done in time: none instead of a",
        "late: a instead of none",
        "0 failovers instead of 1",
    ]
