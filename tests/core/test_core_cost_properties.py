"""Properties of every bill."""

from datetime import timedelta
from fractions import Fraction

from cost_helpers import T0, at, end, event, launch, price
from everspot_clouds.aws.rules import BILLING
from everspot_core.capacity.catalogue import builtin
from everspot_core.costs.bill import bill
from everspot_core.jobs.records import Event, EventKind, Market
from hypothesis import given, settings
from hypothesis import strategies as st

moments = st.integers(0, 20_000).map(lambda tenths: tenths / 10)


@st.composite
def worlds(draw):
    """Random fleets, prices and jobs, with clocks that may contradict each other."""
    ids = [f"i-{n}" for n in range(draw(st.integers(1, 4)))]
    launches = [launch(i, draw(st.sampled_from(list(Market))), draw(moments)) for i in ids]
    ends = [
        end(
            (launch_record.launched_at - T0).total_seconds() + draw(moments) * 4,
            launch_record.instance_id,
            draw(st.booleans()),
        )
        for launch_record in launches
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


@settings(max_examples=settings.default.max_examples * 3 // 2, deadline=None)
@given(worlds(), moments)
def test_the_parts_add_up_to_the_total_exactly(world, as_of):
    computed_bill = bill(*world, catalogue=builtin(), as_of=at(as_of), rules=BILLING)
    parts = sum((j.cost for j in computed_bill.jobs), Fraction(0)) + sum(
        (u.cost for u in computed_bill.idle), Fraction(0)
    )
    assert parts == computed_bill.cost
    listed = sum((j.on_demand_cost for j in computed_bill.jobs), Fraction(0))
    assert listed + sum((u.on_demand_cost for u in computed_bill.idle), Fraction(0)) == computed_bill.on_demand_cost
    for instance in computed_bill.instances:
        life = Fraction((instance.end - instance.launch.launched_at) // timedelta(microseconds=1), 10**6)
        assert sum(u.seconds for u in instance.usages) == max(life, 60)
    for job in computed_bill.jobs:
        assert all(u.useful_seconds <= u.seconds for u in job.usages)


@settings(max_examples=settings.default.max_examples, deadline=None)
@given(worlds(), moments, moments)
def test_without_interruptions_by_the_cloud_a_later_bill_is_never_smaller(world, moment, other):
    launches, ends, points, events = world
    uninterrupted_ends = [e.model_copy(update={"interrupted": False}) for e in ends]
    early, late = sorted((moment, other))
    sums = [
        bill(launches, uninterrupted_ends, points, events, builtin(), at(t), rules=BILLING).cost for t in (early, late)
    ]
    assert sums[0] <= sums[1]
