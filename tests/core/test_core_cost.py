from datetime import UTC, datetime, timedelta
from fractions import Fraction

import pytest
from everspot_core.catalogue import builtin
from everspot_core.cost import bill, savings_percent, spent
from everspot_core.prices import PriceBook, rounded
from everspot_core.records import EndRecord, Event, EventKind, LaunchRecord, Market, PricePoint, Role
from hypothesis import given, settings
from hypothesis import strategies as st

T0 = datetime(2026, 3, 1, 12, tzinfo=UTC)
TYPE, ZONE = "m6i.large", "us-east-1a"
LISTED = Fraction("0.096")  # m6i.large in us-east-1
ALMOST = timedelta(microseconds=1)


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def launch(iid="i-1", market=Market.SPOT, seconds=0.0, role=Role.AGENT, instance_type=TYPE) -> LaunchRecord:
    return LaunchRecord(
        instance_id=iid, instance_type=instance_type, zone=ZONE, market=market, role=role, launched_at=at(seconds)
    )


def end(seconds: float, iid="i-1", interrupted=False) -> EndRecord:
    return EndRecord(instance_id=iid, ended_at=at(seconds), interrupted=interrupted)


def price(usd: float, seconds: float = 0, market=Market.SPOT) -> PricePoint:
    return PricePoint(instance_type=TYPE, zone=ZONE, market=market, at=at(seconds), usd_per_hour=usd, source="test")


def event(kind: EventKind, seconds: float, epoch=1, iid="i-1", job="job-1", **data) -> Event:
    return Event(job_id=job, kind=kind, at=at(seconds), epoch=epoch, writer="w", instance_id=iid, data=data)


def compute(launches, ends=(), points=(), events=None, as_of=100_000.0):
    return bill(launches, ends, points, events or {}, builtin(), at(as_of))


@pytest.mark.parametrize(
    ("market", "life", "interrupted", "expected"),
    [
        (Market.SPOT, 7200, False, Fraction("0.08")),
        (Market.SPOT, 7200, True, Fraction("0.08")),
        (Market.SPOT, 3600, True, Fraction("0.04")),
        (Market.SPOT, 3599, True, 0),
        (Market.SPOT, 3599, False, Fraction("0.04") * 3599 / 3600),
        (Market.SPOT, 1, True, 0),
        (Market.SPOT, 1, False, Fraction("0.04") / 60),
        (Market.SPOT, 59.5, False, Fraction("0.04") / 60),
        (Market.SPOT, 60, False, Fraction("0.04") / 60),
        (Market.SPOT, 61, False, Fraction("0.04") * 61 / 3600),
        (Market.ON_DEMAND, 1800, True, LISTED / 2),
        (Market.ON_DEMAND, 10, False, LISTED / 60),
    ],
)
def test_an_instance_costs_its_seconds_with_a_minimum_and_a_free_first_hour(market, life, interrupted, expected):
    found = compute([launch(market=market)], [end(life, interrupted=interrupted)], [price(0.04)])
    assert found.cost == expected
    assert found.instances[0].free == (expected == 0)


def test_each_moment_costs_its_own_price():
    found = compute([launch()], [end(3600)], [price(0.01), price(0.04, 900), price(0.02, 2700)])
    assert found.cost == (900 * Fraction("0.01") + 1800 * Fraction("0.04") + 900 * Fraction("0.02")) / 3600


def test_a_price_change_at_launch_or_at_the_end_makes_no_empty_stretch():
    found = compute([launch()], [end(600)], [price(0.03), price(0.9, 600)])
    assert found.cost == Fraction("0.03") / 6
    assert len(found.instances[0].usages[0].paid) == 1


def test_the_minimum_is_paid_at_the_prices_of_the_minute_it_covers():
    found = compute([launch()], [end(10)], [price(0.36), price(0.72, 30)])
    assert found.cost == 30 * Fraction("0.36") / 3600 + 30 * Fraction("0.72") / 3600


def test_assumed_prices_are_named():
    early = compute([launch()], [end(600)], [price(0.03, 60)])
    assert early.cost == Fraction("0.03") / 6
    assert any("taken for the time before it" in note for note in early.notes)
    silent = compute([launch()], [end(3600)])
    highest = builtin().spot_range(TYPE, "us-east-1")[1].usd_per_hour
    assert silent.cost == Fraction(repr(highest))
    assert any("highest spot price" in note for note in silent.notes)
    unknown = compute([launch(instance_type="x1.own")], [end(3600)])
    assert unknown.cost == 0
    assert any("none found" in note for note in unknown.notes)


def test_a_running_instance_is_billed_up_to_the_moment_of_the_bill():
    found = compute([launch()], [end(5000)], [price(0.036)], as_of=1000)
    assert found.cost == Fraction("0.01")
    assert found.instances[0].running
    assert compute([launch(seconds=1000)], [], [], as_of=1000).instances == ()


def interrupted_job():
    """Boot until 100, work until a notice at 600, released at 620, on i-2 from 700, training from 760 to 1260."""
    return {
        "job-1": [
            event(EventKind.SUBMITTED, 0, epoch=0, iid=None),
            event(EventKind.ASSIGNED, 100, instance_type=TYPE, zone=ZONE, market="spot"),
            event(EventKind.TRAINING, 110, from_step=0, restored=False),
            event(EventKind.CHECKPOINTED, 400, step=290, trigger="interval"),
            event(EventKind.NOTICE, 600, source="imds"),
            event(EventKind.CHECKPOINTED, 610, step=495, trigger="notice"),
            event(
                EventKind.INTERRUPTED, 620, reason="notice", step=495, durable_step=495, notice_to_durable_seconds=10
            ),
            event(EventKind.ASSIGNED, 700, epoch=2, iid="i-2"),
            event(EventKind.TRAINING, 760, epoch=2, iid="i-2", from_step=495, restored=True),
            event(EventKind.FINISHED, 1260, epoch=2, iid="i-2", step=1000, metrics={"accuracy": 0.9}),
        ]
    }


def test_a_job_pays_from_assignment_to_release_and_the_fleet_pays_the_rest():
    launches = [launch(), launch("i-2", Market.ON_DEMAND)]
    found = compute(launches, [end(720, interrupted=False), end(1300, "i-2")], [price(0.036)], interrupted_job())
    per_second = Fraction("0.036") / 3600
    job = found.jobs[0]
    assert job.cost == 520 * per_second + 560 * LISTED / 3600
    assert sum(u.cost for u in found.idle) == 200 * per_second + (1300 - 560) * LISTED / 3600
    assert job.cost + sum(u.cost for u in found.idle) == found.cost


def test_on_demand_comparison_leaves_out_the_seconds_lost_to_interruptions():
    found = compute([launch(), launch("i-2")], [end(720), end(1300, "i-2")], [price(0.036)], interrupted_job())
    job = found.jobs[0]
    assert job.lost_seconds == 160  # from the notice at 600 to training at 760
    assert job.on_demand_cost == (500 + 500) * LISTED / 3600
    assert found.on_demand_cost == (1000 + 200 + 740) * LISTED / 3600
    (interruption,) = job.interruptions
    assert interruption.steps_redone == 0
    assert interruption.with_notice
    assert interruption.changeover_seconds == 140
    assert interruption.attempt.notice_to_durable_seconds == 10
    assert interruption.resumed_on == "i-2"


def test_a_hard_kill_loses_the_work_since_the_last_durable_checkpoint():
    events = [
        event(EventKind.ASSIGNED, 0),
        event(EventKind.TRAINING, 10, from_step=0),
        event(EventKind.CHECKPOINTED, 110, step=100, trigger="interval"),
        event(EventKind.LOST, 200, iid=None, cause="expired", step=150),
        event(EventKind.ASSIGNED, 210, epoch=2, iid="i-2"),
        event(EventKind.TRAINING, 230, epoch=2, iid="i-2", from_step=100, restored=True),
    ]
    job = compute([launch(), launch("i-2")], [end(150, interrupted=False)], [price(0.036)], {"job-1": events}).jobs[0]
    (interruption,) = job.interruptions
    assert (interruption.steps_redone, interruption.with_notice) == (50, False)
    assert job.lost_seconds == 120  # from the checkpoint at 110 to training at 230


def test_metrics_may_know_of_more_steps_than_the_events():
    events = {
        "job-1": [
            event(EventKind.ASSIGNED, 0),
            event(EventKind.TRAINING, 10, from_step=0),
            event(EventKind.LOST, 200, step=20),
            event(EventKind.ASSIGNED, 210, epoch=2),
            event(EventKind.TRAINING, 230, epoch=2, from_step=0),
        ]
    }
    known = bill([launch()], [], [], events, builtin(), at(300), {("job-1", 1): 33, ("other", 1): 99})
    assert known.jobs[0].interruptions[0].steps_redone == 33


def test_an_interruption_during_start_up_and_the_next_one_are_not_counted_twice():
    events = [
        event(EventKind.ASSIGNED, 0),
        event(EventKind.TRAINING, 10, from_step=0),
        event(EventKind.CHECKPOINTED, 100, step=90),
        event(EventKind.LOST, 150, step=90),
        event(EventKind.ASSIGNED, 160, epoch=2, iid="i-2"),
        event(EventKind.LOST, 190, epoch=2, iid="i-2"),
        event(EventKind.ASSIGNED, 200, epoch=3, iid="i-3"),
        event(EventKind.TRAINING, 250, epoch=3, iid="i-3", from_step=90),
    ]
    job = compute([launch(), launch("i-2"), launch("i-3")], [], [], {"job-1": events}, as_of=400).jobs[0]
    assert job.lost_seconds == 150
    assert [i.steps_redone for i in job.interruptions] == [0, 0]


def test_a_late_word_of_the_old_owner_does_not_make_a_second_interruption():
    events = interrupted_job()["job-1"]
    late = event(EventKind.INTERRUPTED, 800, reason="fenced", step=500)
    job = compute([launch(), launch("i-2")], [], [], {"job-1": [*events, late]}, as_of=2000).jobs[0]
    assert len(job.interruptions) == 1


def test_a_job_given_back_before_it_started_was_not_interrupted():
    events = [
        event(EventKind.ASSIGNED, 0),
        event(EventKind.ASSIGNED, 30, epoch=2, iid="i-2"),
        event(EventKind.STARTED, 31, epoch=2, iid="i-2"),
        event(EventKind.ASSIGNED, 60, epoch=3, iid="i-3"),
    ]
    job = compute([launch(), launch("i-2"), launch("i-3")], [], [], {"job-1": events}, as_of=400).jobs[0]
    assert [i.attempt.epoch for i in job.interruptions] == [2]
    assert job.interruptions[0].kind == "lost"


def test_the_notice_counts_from_when_it_was_learnt_and_its_checkpoint_even_if_told_late():
    events = [
        event(EventKind.ASSIGNED, 0),
        event(EventKind.TRAINING, 10, from_step=0),
        event(EventKind.NOTICE, 102, source="imds", seen_at=at(100).isoformat()),
        event(EventKind.INTERRUPTED, 110, reason="notice", step=9, durable_step=9),
        event(EventKind.CHECKPOINTED, 111, step=9, trigger="notice"),
        event(EventKind.ASSIGNED, 120, epoch=2, iid="i-2"),
        event(EventKind.TRAINING, 150, epoch=2, iid="i-2", from_step=9),
    ]
    job = compute([launch(), launch("i-2")], [], [], {"job-1": events}, as_of=400).jobs[0]
    assert job.lost_seconds == 50
    assert job.interruptions[0].attempt.notice_to_durable_seconds == 11


def test_a_notice_that_did_not_save_the_work_is_still_a_notice():
    events = [
        event(EventKind.ASSIGNED, 0),
        event(EventKind.TRAINING, 10, from_step=0),
        event(EventKind.CHECKPOINTED, 50, step=40, trigger="interval"),
        event(EventKind.NOTICE, 100, source="imds"),
        event(EventKind.LOST, 220, step=90, cause="terminated"),
        event(EventKind.ASSIGNED, 230, epoch=2, iid="i-2"),
        event(EventKind.TRAINING, 250, epoch=2, iid="i-2", from_step=40),
    ]
    job = compute([launch(), launch("i-2")], [], [], {"job-1": events}, as_of=400).jobs[0]
    (stroke,) = job.interruptions
    assert (stroke.kind, stroke.with_notice, stroke.steps_redone) == ("notice", True, 50)
    assert stroke.attempt.notice_to_durable_seconds is None
    assert job.lost_seconds == 200


def test_an_unfinished_changeover_has_no_redone_steps_yet():
    events = interrupted_job()["job-1"][:7]
    job = compute([launch()], [], [], {"job-1": events}, as_of=900).jobs[0]
    assert job.interruptions[0].steps_redone is None
    assert job.lost_seconds == 300


@pytest.mark.parametrize("kind", [EventKind.CANCELLED, EventKind.FAILED])
def test_a_job_that_ends_while_it_waits_loses_no_time_after_its_end(kind):
    """Cancelled, or out of budget, 300 s after its notice: however late the report is asked for."""
    events = [*interrupted_job()["job-1"][:7], event(kind, 900, iid=None)]
    for as_of in (900, 100_000):
        assert compute([launch()], [], [], {"job-1": events}, as_of=as_of).jobs[0].lost_seconds == 300


def test_an_ending_whose_owner_had_lost_the_job_is_not_its_end():
    events = [
        event(EventKind.ASSIGNED, 0),
        event(EventKind.TRAINING, 10, from_step=0),
        event(EventKind.LOST, 90, step=80, cause="expired"),
        event(EventKind.FINISHED, 95, step=100),
        event(EventKind.ASSIGNED, 100, epoch=2, iid="i-2"),
    ]
    job = compute([launch(), launch("i-2")], [], [], {"job-1": events}, as_of=400).jobs[0]
    assert job.lost_seconds == 390  # nothing was durable, and it is not training again
    second = job.attempts[1]
    assert (second.end, second.reason) == (None, None)


def test_a_job_on_an_instance_that_the_ledger_does_not_know_is_named():
    found = compute([launch()], [], [price(0.036)], {"job-1": [event(EventKind.ASSIGNED, 0, iid="i-9")]}, as_of=400)
    assert found.jobs[0].cost == 0
    assert any("no launch is recorded of i-9" in note for note in found.notes)


def test_steps_of_an_attempt_that_never_trained_are_not_redone_twice():
    """The record still has the step of the attempt before when its successor dies at its start."""
    events = [
        event(EventKind.ASSIGNED, 0),
        event(EventKind.TRAINING, 10, from_step=0),
        event(EventKind.CHECKPOINTED, 60, step=150, trigger="interval"),
        event(EventKind.LOST, 90, step=200, cause="terminated"),
        event(EventKind.ASSIGNED, 100, epoch=2, iid="i-2"),
        event(EventKind.LOST, 120, epoch=2, iid="i-2", step=200, cause="terminated"),
        event(EventKind.ASSIGNED, 130, epoch=3, iid="i-3"),
        event(EventKind.TRAINING, 140, epoch=3, iid="i-3", from_step=150),
    ]
    strokes = compute([launch()], [], [], {"job-1": events}).jobs[0].interruptions
    assert [s.steps_redone for s in strokes] == [50, 0]


def test_what_the_free_first_hour_waives_is_told():
    (usage,) = compute([launch()], [end(1800, interrupted=True)], [price(0.04)]).usages
    assert (usage.cost, usage.waived) == (0, Fraction("0.02"))
    (usage,) = compute([launch()], [end(1800)], [price(0.04)]).usages
    assert (usage.cost, usage.waived) == (Fraction("0.02"), 0)


@pytest.mark.parametrize("said", ["soon", "2026-03-01T12:10:00"])
def test_a_notice_whose_moment_cannot_be_read_counts_from_its_event(said):
    events = interrupted_job()["job-1"]
    odd = [
        e.model_copy(update={"data": {**e.data, "seen_at": said}}) if e.kind is EventKind.NOTICE else e for e in events
    ]
    assert compute([launch()], [], [], {"job-1": odd}).jobs[0].lost_seconds == 160


@pytest.mark.parametrize("kind", [EventKind.CANCELLED, EventKind.FAILED, EventKind.FINISHED, EventKind.ERROR])
def test_what_the_job_does_itself_is_no_interruption(kind):
    events = [event(EventKind.ASSIGNED, 0), event(EventKind.TRAINING, 5, from_step=0), event(kind, 50)]
    job = compute([launch()], [], [], {"job-1": events}).jobs[0]
    assert job.interruptions == ()
    assert job.lost_seconds == 0


def test_two_jobs_never_pay_for_the_same_second():
    first = [event(EventKind.ASSIGNED, 0)]
    second = [event(EventKind.ASSIGNED, 50, job="job-2"), event(EventKind.FINISHED, 80, job="job-2")]
    found = compute([launch()], [end(100)], [price(0.036)], {"job-1": first, "job-2": second})
    assert [float(j.cost) for j in found.jobs] == [0.0005, 0.0003]
    assert found.cost == Fraction("0.001")


def test_savings_may_be_negative_or_undefined():
    assert savings_percent(Fraction(3), Fraction(2)) == -50
    assert savings_percent(Fraction(1), Fraction(4)) == 75
    assert savings_percent(Fraction(1), Fraction(0)) is None


@pytest.mark.parametrize(
    ("amount", "shown"), [("0.005", "0.01"), ("0.0049", "0.00"), ("-0.005", "-0.01"), ("1.455", "1.46"), ("2", "2.00")]
)
def test_money_is_rounded_for_display_only_half_away_from_zero(amount, shown):
    assert str(rounded(Fraction(amount))) == shown


def spent_of(events, **kwargs):
    defaults = {
        "submitted_at": T0,
        "now": at(1000),
        "launches": {"i-1": launch()},
        "ends": {},
        "prices": PriceBook([price(0.036)], builtin()),
        "catalogue": builtin(),
    }
    return spent(events, **(defaults | kwargs))


def test_spent_agrees_with_the_bill_of_the_same_job():
    events, ends = interrupted_job()["job-1"], {"i-1": end(720), "i-2": end(1300, "i-2")}
    launches = {"i-1": launch(), "i-2": launch("i-2", Market.ON_DEMAND)}
    found = spent_of(events, now=at(2000), launches=launches, ends=ends)
    whole = compute(launches.values(), ends.values(), [price(0.036)], {"job-1": events}, as_of=2000)
    assert found.dollars == pytest.approx(float(whole.jobs[0].cost))
    assert found.wall_clock == timedelta(seconds=2000)


def test_spent_counts_gpu_hours_and_reads_the_assignment_where_the_launch_is_not_recorded_yet():
    events = [event(EventKind.ASSIGNED, 0, instance_type="g4dn.12xlarge", zone=ZONE, market="on-demand")]
    found = spent_of(events, launches={}, now=at(1800))
    assert found.gpu_hours == 2
    assert found.dollars == pytest.approx(3.912 / 2)


def test_a_free_instance_costs_the_budget_nothing():
    events = [event(EventKind.ASSIGNED, 0), event(EventKind.LOST, 500)]
    assert spent_of(events, ends={"i-1": end(500, interrupted=True)}).dollars == 0


# --- properties -----------------------------------------------------------------------------------------------------

moments = st.integers(0, 20_000).map(lambda tenths: tenths / 10)


@st.composite
def worlds(draw):
    """Random fleets, prices and jobs, with clocks that may contradict each other."""
    ids = [f"i-{n}" for n in range(draw(st.integers(1, 4)))]
    launches = [launch(i, draw(st.sampled_from(list(Market))), draw(moments)) for i in ids]
    ends = [
        end((one.launched_at - T0).total_seconds() + draw(moments) * 4, one.instance_id, draw(st.booleans()))
        for one in launches
        if draw(st.booleans())
    ]
    points = [price(draw(st.integers(1, 500)) / 1000, draw(moments)) for _ in range(draw(st.integers(0, 5)))]
    events: dict[str, list[Event]] = {}
    for job in ("job-1", "job-2"):
        events[job] = []
        for epoch in range(1, draw(st.integers(1, 4))):
            where, start = draw(st.sampled_from(ids)), draw(moments)
            events[job].append(event(EventKind.ASSIGNED, start, epoch, where, job))
            if draw(st.booleans()):
                events[job].append(event(EventKind.TRAINING, start + 5, epoch, where, job, from_step=epoch))
            if draw(st.booleans()):
                kind = draw(st.sampled_from([EventKind.LOST, EventKind.INTERRUPTED, EventKind.ERROR]))
                events[job].append(event(kind, start + draw(moments), epoch, where, job, step=draw(st.integers(0, 9))))
    return launches, ends, points, events


@settings(max_examples=150, deadline=None)
@given(worlds(), moments)
def test_the_parts_add_up_to_the_total_exactly(world, as_of):
    found = bill(*world, builtin(), at(as_of))
    parts = sum((j.cost for j in found.jobs), Fraction(0)) + sum((u.cost for u in found.idle), Fraction(0))
    assert parts == found.cost
    listed = sum((j.on_demand_cost for j in found.jobs), Fraction(0))
    assert listed + sum((u.on_demand_cost for u in found.idle), Fraction(0)) == found.on_demand_cost
    for instance in found.instances:
        life = Fraction((instance.end - instance.launch.launched_at) // timedelta(microseconds=1), 10**6)
        assert sum(u.seconds for u in instance.usages) == max(life, 60)
    for job in found.jobs:
        assert all(u.useful_seconds <= u.seconds for u in job.usages)


@settings(max_examples=100, deadline=None)
@given(worlds(), moments, moments)
def test_without_interruptions_by_the_cloud_a_later_bill_is_never_smaller(world, one, other):
    launches, ends, points, events = world
    ours = [e.model_copy(update={"interrupted": False}) for e in ends]
    early, late = sorted((one, other))
    sums = [bill(launches, ours, points, events, builtin(), at(t)).cost for t in (early, late)]
    assert sums[0] <= sums[1]
