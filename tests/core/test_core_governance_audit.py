"""The facts of an audit add up to the bill, and the value of each measure follows from the month's rows."""

from datetime import UTC, datetime
from fractions import Fraction

import pytest
from cost_helpers import LISTED, T0, TYPE, at, compute, end, event, interrupted_job, launch, price
from everspot_core.capacity.catalogue import builtin
from everspot_core.costs.prices import HOUR
from everspot_core.governance.audit import month_facts
from everspot_core.governance.measures import (
    Measure,
    best,
    checkpoint_more_often,
    end_idle_instances,
    move_to_spot,
    oversized,
    set_on_demand_floor,
    small_on_gpus,
)
from everspot_core.governance.month import Month
from everspot_core.governance.usage import Sums, UsageKind, usage_rows
from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_core.jobs.records import EventKind, JobRecord, JobState, Market, Progress, Role
from hypothesis import given
from hypothesis import strategies as st

MONTH = Month(datetime(2026, 3, 1, tzinfo=UTC))


def job(job_id="job-1", **spec) -> JobSubmission:
    written = JobSpec(name="j", recipe="image-classification", **spec)
    return JobSubmission(job_id=job_id, spec=written, submitted_at=T0)


def record(job_id="job-1", state=JobState.SUCCEEDED, **progress) -> JobRecord:
    return JobRecord(job_id=job_id, state=state, epoch=1, changed_at=T0, progress=Progress(**progress))


def worked(job_id: str, iid: str, market: Market, start: float, until: float, instance_type=TYPE):
    place = {"instance_type": instance_type, "zone": "us-east-1a", "market": market.value}
    return [
        event(EventKind.ASSIGNED, start, iid=iid, job=job_id, **place),
        event(EventKind.TRAINING, start, iid=iid, job=job_id, from_step=0, restored=False),
        event(EventKind.FINISHED, until, iid=iid, job=job_id, step=1),
    ]


@given(st.integers(1500, 200_000), st.floats(0.01, 0.2).map(lambda x: round(x, 4)), st.booleans())
def test_facts_add_up_to_the_bill(until, usd, interrupted):
    launches = [launch(), launch("i-2", seconds=640), launch("i-3", Market.ON_DEMAND, role=Role.SCHEDULER)]
    bill = compute(launches, [end(620, interrupted=interrupted)], [price(usd)], interrupted_job(), as_of=until)
    rows = usage_rows(bill)
    facts = month_facts(rows, bill.jobs, {"job-1": record(state=JobState.FAILED)}, MONTH)
    assert facts.usd == bill.cost == sum(k.usd for k in facts.kinds)
    assert sum(k.share for k in facts.kinds) == 1
    scheduler = next(k.usd for k in facts.kinds if k.kind is UsageKind.SCHEDULER)
    assert sum(p.usd for p in facts.pools) + scheduler == bill.cost
    assert facts.lost.failed_usd == bill.jobs[0].cost
    assert (facts.lost.interruptions, facts.lost.with_notice, facts.lost.cancelled_usd) == (1, 1, 0)
    assert 0 <= facts.utilisation <= 1


def test_whole_idle_hours_are_what_an_idle_instance_costs_too_much():
    """Work until 13:00 and again from 16:30: the hours from 13 to 16 are idle, the half hour is a pause."""
    events = {"job-1": worked("job-1", "i-1", Market.ON_DEMAND, 0, HOUR)}
    events["job-2"] = worked("job-2", "i-1", Market.ON_DEMAND, 4.5 * HOUR, 5 * HOUR)
    bill = compute([launch(market=Market.ON_DEMAND)], [end(5 * HOUR)], events=events)
    measure = end_idle_instances(usage_rows(bill))
    assert measure.saving_usd == 3 * LISTED


def test_on_demand_work_of_jobs_that_can_wait_is_worth_what_spot_took_all_in():
    """Two hours on Spot at $0.04 an hour, half an hour of boot beside them: 0.05 for an hour of work."""
    events = {
        "spot": worked("spot", "i-1", Market.SPOT, HOUR / 2, 2.5 * HOUR),
        "waits": worked("waits", "i-2", Market.ON_DEMAND, 0, 3 * HOUR),
        "late": worked("late", "i-3", Market.ON_DEMAND, 0, 3 * HOUR),
        "first": worked("first", "i-4", Market.ON_DEMAND, 0, 3 * HOUR),
    }
    launches = [launch(), *(launch(f"i-{n}", Market.ON_DEMAND) for n in (2, 3, 4))]
    ends = [end(2.5 * HOUR), *(end(3 * HOUR, f"i-{n}") for n in (2, 3, 4))]
    bill = compute(launches, ends, [price(0.04)], events)
    jobs = {
        "spot": job("spot"),
        "waits": job("waits"),
        "late": job("late").model_copy(update={"deadline_at": at(4 * HOUR)}),
        "first": job("first", priority="critical"),
    }
    measure = move_to_spot(usage_rows(bill), jobs)
    assert measure.jobs == ("waits",)
    assert measure.saving_usd == 3 * (LISTED - Fraction("0.05"))
    unknown = move_to_spot([r for r in usage_rows(bill) if r.launch.market is Market.ON_DEMAND], jobs)
    assert (unknown.saving_usd, unknown.recommended) == (None, False)


def test_an_on_demand_floor_pays_where_an_hour_of_work_on_spot_costs_more_than_the_list_price():
    """Two hours of work on Spot at $0.08 with an hour of boot cost $0.24, and $0.192 on-demand."""
    events = {"job-1": worked("job-1", "i-1", Market.SPOT, HOUR, 3 * HOUR)}
    expensive = compute([launch()], [end(3 * HOUR)], [price(0.08)], events)
    measure = set_on_demand_floor(usage_rows(expensive), Fraction(4), builtin())
    assert measure.saving_usd == 3 * Fraction("0.08") - 2 * LISTED > 0
    assert "on average 0.5 of m6i.large in us-east-1" in measure.description
    cheap = compute([launch()], [end(3 * HOUR)], [price(0.05)], events)
    assert set_on_demand_floor(usage_rows(cheap), Fraction(4), builtin()).saving_usd is None
    idle = set_on_demand_floor(usage_rows(compute([launch()], [end(HOUR)], [price(0.5)])), Fraction(4), builtin())
    assert idle.saving_usd is None and "not enough work on Spot" in idle.how


@pytest.mark.parametrize(
    ("requested_gib", "used", "allowed", "would_do"),
    [
        (8, 3.0, {"c6i.large"}, "c6i.large"),
        (8, 3.3, {"c6i.large"}, None),  # with a quarter more it is over 4 GiB
        (4, 3.0, {"c6i.large"}, None),  # its request allowed the smaller type
        (8, 3.0, {"m6i.large", "c6i.xlarge", "g4dn.xlarge"}, None),  # other processors, or none that is cheaper
        (8, None, {"c6i.large"}, None),
    ],
)
def test_a_job_is_oversized_for_its_memory_alone(requested_gib, used, allowed, would_do):
    bill = compute([launch(market=Market.ON_DEMAND)], [end(HOUR)],
                   events={"job-1": worked("job-1", "i-1", Market.ON_DEMAND, 0, HOUR)})  # fmt: skip
    jobs = {"job-1": job(resources={"vcpus": 2, "memory_gib": requested_gib})}
    oversized_jobs = oversized(usage_rows(bill), jobs, {"job-1": record(memory_gib=used)}, builtin(), allowed)
    assert [o.would_do for o in oversized_jobs] == ([would_do] if would_do else [])
    if would_do:
        assert oversized_jobs[0].usd == LISTED
        assert oversized_jobs[0].saving_usd == LISTED - Fraction("0.085")
    shared = {"job-1": job(resources={"vcpus": 2, "memory_gib": 8, "shared": True})}
    assert oversized(usage_rows(bill), shared, {"job-1": record(memory_gib=1.0)}, builtin(), {"c6i.large"}) == []


@pytest.mark.parametrize(("used", "is_reported"), [(6.4, True), (6.5, False), (None, False)])
def test_a_job_that_needs_at_most_half_of_its_gpu_is_told_without_a_saving(used, is_reported):
    """A T4 has 16 GiB; with a quarter more 6.4 are 8."""
    bill = compute([launch(market=Market.ON_DEMAND, instance_type="g4dn.xlarge")], [end(HOUR)],
                   events={"job-1": worked("job-1", "i-1", Market.ON_DEMAND, 0, HOUR, "g4dn.xlarge")})  # fmt: skip
    small_jobs = small_on_gpus(usage_rows(bill), {"job-1": record(gpu_memory_gib=used)}, builtin())
    assert [(s.job_id, s.gpu, s.memory_gib, s.usd) for s in small_jobs] == (
        [("job-1", "T4", 16, Fraction("0.526"))] if is_reported else []
    )
    cpu = compute([launch()], [end(HOUR)], events={"job-1": worked("job-1", "i-1", Market.SPOT, 0, HOUR)})
    assert small_on_gpus(usage_rows(cpu), {"job-1": record(gpu_memory_gib=1.0)}, builtin()) == []


@pytest.mark.parametrize(("took", "saves"), [(10.0, 100.0), (109.0, 1.0), (111.0, None), (None, None)])
def test_more_checkpoints_are_worth_half_of_what_was_lost_less_what_they_take(took, saves):
    """440 s of work until the last checkpoint, and 220 s more that were lost without notice; two were written."""

    def checkpoint(seconds: float, step: int):
        data = {"step": step, "trigger": "interval"} | ({} if took is None else {"seconds": took / 2})
        return event(EventKind.CHECKPOINTED, seconds).model_copy(update={"data": data})

    events = [
        event(EventKind.ASSIGNED, 100, instance_type=TYPE, zone="us-east-1a", market="spot"),
        event(EventKind.TRAINING, 100, from_step=0, restored=False),
        checkpoint(300, 1),
        checkpoint(540, 2),
        event(EventKind.LOST, 800, cause="expired", step=3),
        event(EventKind.ASSIGNED, 900, epoch=2, iid="i-2"),
        event(EventKind.TRAINING, 900, epoch=2, iid="i-2", from_step=2, restored=True),
        event(EventKind.FINISHED, 1100, epoch=2, iid="i-2", step=9),
    ]
    launches = [launch(market=Market.ON_DEMAND), launch("i-2", Market.ON_DEMAND, 840)]
    bill = compute(launches, [end(760), end(1100, "i-2")], events={"job-1": events})
    measure = checkpoint_more_often(usage_rows(bill), bill, {"job-1": events}, MONTH, 1.0)
    if saves is None:
        assert not measure.recommended
    else:
        assert measure.saving_usd == Fraction(str(saves)) * LISTED / HOUR
        assert measure.jobs == ("job-1",)


def test_the_best_three_are_those_with_a_known_saving():
    measures = [Measure(str(n), "", Fraction(n) if n is not None else None, "") for n in (1, None, 5, 0, -3, 2, 4)]
    assert [m.name for m in best(measures)] == ["5", "4", "2"]
    assert best([Measure("a", "", None, ""), Measure("b", "", Fraction(0), "")]) == []


def test_a_month_has_what_came_in_it():
    bill = compute([launch(), launch("i-2", seconds=640)], [end(620)], [price(0.04)], interrupted_job())
    april = Month(datetime(2026, 4, 1, tzinfo=UTC))
    rows = usage_rows(bill, since=april.begin, until=april.end)
    facts = month_facts(rows, bill.jobs, {}, april)
    assert (facts.usd, facts.utilisation, facts.lost.interruptions) == (Sums.sum_rows(rows).cost, None, 0)
