"""Changeovers, part by part: measurement, and the expectation from it."""

from datetime import UTC, datetime, timedelta

import pytest
from everspot_core.jobs.changeover import (
    INITIAL_PRIOR,
    KEPT,
    LONGEST,
    MARGIN,
    PRIOR,
    Changeover,
    ChangeoverPart,
    Experience,
    Measurement,
    PartTimes,
    added,
    estimate,
    robust_upper_bound,
)
from everspot_core.jobs.records import Event, EventKind, Market
from everspot_core.schedule.changeover_samples import Arrival, measurements
from everspot_core.schedule.jobs import CHANGEOVER, CHANGEOVER_UPPER
from hypothesis import given
from hypothesis import strategies as st

AT = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
POOL = {"instance_type": "g5.xlarge", "zone": "a", "market": Market.SPOT}
PRIOR_OF = Changeover(timedelta(seconds=60), timedelta(seconds=300))
SPANS = st.lists(st.floats(0, 3600).map(lambda s: timedelta(seconds=s)), max_size=40)


def s(count) -> timedelta:
    return timedelta(seconds=count)


def times(part, *seconds, **pool) -> PartTimes:
    return PartTimes(part=part, seconds=list(seconds), **POOL | pool)


# Expected changeovers


def test_nothing_measured_is_what_was_believed_and_that_is_what_plans_reckon_with():
    assert estimate([], PRIOR_OF) == PRIOR_OF
    assert Experience([]).whole() == (CHANGEOVER, CHANGEOVER_UPPER)
    assert Experience([]).lasting_bound() == CHANGEOVER_UPPER


def test_measurements_take_over_from_the_prior_by_and_by():
    """The prior weighs as four: after four equal ones half way, after twelve three quarters."""
    for count, share in ((PRIOR, 1 / 2), (3 * PRIOR, 1 / 4), (60 * PRIOR, 1 / 61)):
        belief = estimate([s(20)] * count, PRIOR_OF)
        assert belief.expected.total_seconds() == pytest.approx(20 + 40 * share)
        assert belief.upper.total_seconds() == pytest.approx(20 * MARGIN + (300 - 20 * MARGIN) * share)


def test_one_slow_boot_moves_the_bound_at_once_and_the_expectation_hardly():
    calm = estimate([s(20)] * 10, PRIOR_OF)
    shaken = estimate([s(20)] * 10 + [s(2000)], PRIOR_OF)
    assert shaken.expected - calm.expected <= s(0)
    assert shaken.upper >= s(2000)
    assert estimate([s(20)] * 40 + [s(2000)], PRIOR_OF).upper < s(100)


@given(SPANS)
def test_the_bound_is_never_below_what_is_expected_and_both_lie_where_the_figures_do(lengths):
    belief = estimate(lengths, PRIOR_OF)
    assert timedelta(0) <= belief.expected <= belief.upper
    assert belief.expected <= max([PRIOR_OF.expected, *lengths])
    assert belief.upper <= max([PRIOR_OF.upper, *(MARGIN * x for x in lengths)]) + s(1e-3)


@given(SPANS, st.floats(0, 3600))
def test_what_took_longer_never_lowers_the_bound_below_it_while_it_is_not_rare(lengths, longest):
    few = [x for x in lengths if x <= s(longest)][:18]
    assert estimate([*few, s(longest)], PRIOR_OF).upper >= s(longest)


@given(SPANS, st.data())
def test_no_quarter_of_slow_starts_raises_the_lasting_bound_above_what_the_others_say(lengths, data):
    """Whatever they took: hours as well. One slow start counts for nothing among however few."""
    slow = data.draw(st.lists(st.floats(0, LONGEST.total_seconds()).map(s), max_size=14))
    while slow and len(slow) > max(1, (len(lengths) + len(slow)) // 4):
        slow.pop()
    bound = robust_upper_bound(lengths + slow, PRIOR_OF.upper)
    assert bound <= max([PRIOR_OF.upper, *(MARGIN * x for x in lengths)]) + s(1e-3)


@given(SPANS)
def test_the_lasting_bound_lies_between_what_was_believed_and_what_was_measured(lengths):
    bound = robust_upper_bound(lengths, PRIOR_OF.upper)
    figures = [PRIOR_OF.upper, *(MARGIN * x for x in lengths)]
    assert min(figures) - s(1e-3) <= bound <= max(figures) + s(1e-3)
    experience = Experience([times("boot", *(x.total_seconds() for x in lengths))])
    assert experience.lasting_bound() <= experience.whole().upper


@given(st.lists(st.floats(1, 600), min_size=8, max_size=40), st.floats(0, 6 * 3600))
def test_a_start_that_was_slow_in_every_part_refuses_no_deadline_that_what_was_usual_keeps(usual, slow):
    before = Experience([times(part, *usual) for part in ChangeoverPart])
    after = Experience([times(part, *usual, slow) for part in ChangeoverPart])
    usual_bound = sum((max(INITIAL_PRIOR[part].upper, MARGIN * s(max(usual))) for part in ChangeoverPart), s(0))
    assert before.lasting_bound() <= usual_bound
    assert after.lasting_bound() <= usual_bound + s(1e-3)


def test_starts_that_are_slow_for_good_raise_the_lasting_bound_by_and_by():
    bounds = [robust_upper_bound([s(600)] * count, s(240)) for count in (0, 1, 2, 4, 12, 400)]
    assert bounds[:2] == [s(240), s(240)]
    assert bounds[2:] == sorted(bounds[2:])
    assert bounds[2].total_seconds() == pytest.approx(240 + (750 - 240) * 2 / 6)
    assert s(740) < bounds[-1] < s(750)
    quick = [robust_upper_bound([s(20)] * count, s(240)) for count in (2, 4, 12, 400)]
    assert quick == sorted(quick, reverse=True), "and those that are quick lower it"


def test_a_pool_is_judged_by_its_type_and_a_type_by_all_as_long_as_it_is_not_known():
    experience = Experience(
        [times("boot", *[200.0] * 30), times("boot", *[20.0] * 30, instance_type="fast"), times("launch", 5.0)]
    )
    all_pools, slow, fast = (
        experience.part(ChangeoverPart.BOOT),
        experience.part(ChangeoverPart.BOOT, "g5.xlarge"),
        experience.part(ChangeoverPart.BOOT, "fast"),
    )
    assert fast.expected < all_pools.expected < slow.expected
    here = experience.part(ChangeoverPart.BOOT, "g5.xlarge", "a", Market.SPOT)
    assert here.expected == pytest.approx(slow.expected, rel=0.1)
    assert experience.part(ChangeoverPart.BOOT, "g5.xlarge", "b", Market.SPOT) == slow
    assert experience.part(ChangeoverPart.BOOT, "never-seen") == all_pools
    assert experience.measured(ChangeoverPart.BOOT) == 60
    assert experience.measured(ChangeoverPart.BOOT, "fast") == 30


def test_the_first_step_counts_as_far_as_it_is_longer_than_the_next():
    def with_steps(first, following, pace=1.0):
        return measure_parts(
            [*LIFE, event(EventKind.STEPPED, 250, step=1, seconds=first, next_seconds=following)], pace=pace
        )

    assert with_steps(32.5, 2.5) == {**measure_parts(LIFE), "first-step": 30}
    assert with_steps(2.5, 4.0)["first-step"] == 0, "a first step that is no longer costs nothing"
    assert with_steps(1.5, 0.5, pace=60.0)["first-step"] == 60, "programs count real time"
    assert "first-step" not in with_steps("3", None)
    assert "first-step" not in with_steps(1e9, 0.0), "that was no changeover"
    own = [Measurement(ChangeoverPart.FIRST_STEP, "g5.xlarge", "a", Market.SPOT, s(600))]
    assert Experience([]).whole(own=own).expected > CHANGEOVER, "it is a part of what plans reckon with"


def test_a_jobs_own_data_and_restore_count_and_its_boots_do_not():
    own = [
        Measurement(part, "g5.xlarge", "a", Market.SPOT, s(1000)) for part in (ChangeoverPart.DATA, ChangeoverPart.BOOT)
    ]
    experience = Experience([])
    assert experience.part(ChangeoverPart.DATA, own=own).upper > s(1000)
    assert experience.part(ChangeoverPart.BOOT, own=own) == INITIAL_PRIOR[ChangeoverPart.BOOT]
    assert experience.whole(own=own).upper > experience.whole().upper


def test_saving_is_reckoned_with_and_expected_to_cost_nothing():
    slow = Experience([times("save", *[110.0] * 30)])
    assert slow.whole().expected == CHANGEOVER
    assert slow.whole().upper > CHANGEOVER_UPPER - s(120) + s(110)


def test_what_is_kept_is_bounded_and_nonsense_is_passed_over():
    new = [Measurement(ChangeoverPart.BOOT, "g5.xlarge", "a", Market.SPOT, s(n)) for n in range(KEPT + 8)]
    (stored_times,) = added([times("boot", 1.0)], new)
    assert stored_times.seconds == [float(n) for n in range(8, KEPT + 8)]
    experience = Experience([times("boot", -1.0, 1e12), times("of-tomorrow", 5.0)])
    assert experience.whole() == (CHANGEOVER, CHANGEOVER_UPPER)


# Measured changeovers


def event(kind, at, epoch=1, instance_id="i-1", **data) -> Event:
    return Event(job_id="j", kind=kind, at=AT + s(at), epoch=epoch, writer="w", instance_id=instance_id, data=data)


def assigned(at, epoch=1, instance_id="i-1"):
    return event(EventKind.ASSIGNED, at, epoch, instance_id, **POOL | {"market": "spot"})


def came(asked_after=0, launched=10, booted=100, job_id="j") -> Arrival:
    return Arrival(job_id=job_id, asked_at=AT + s(asked_after), launched_at=AT + s(launched), booted_at=AT + s(booted))


LIFE = [
    event(EventKind.SUBMITTED, -5, 0),
    assigned(115),
    event(EventKind.STARTED, 140),
    event(EventKind.TRAINING, 200, seconds=45.0, from_step=0),
]


def measure_parts(events, arrivals=None, epochs=(1,), pace=1.0) -> dict[str, float]:
    samples = measurements(events, epochs, {"i-1": came()} if arrivals is None else arrivals, pace)
    assert {(m.instance_type, m.zone, m.market) for m in samples} <= {("g5.xlarge", "a", Market.SPOT)}
    assert len({m.part for m in samples}) == len(samples)
    return {m.part.value: m.length.total_seconds() for m in samples}


def test_the_parts_of_a_first_start():
    """Asked at 0, paid from 10, agent at 100, assigned at 115; of the 85 s until training the program had 45."""
    assert measure_parts(LIFE) == {"launch": 10, "boot": 90, "agent": 15, "data": 40, "restore": 45}


def test_the_parts_add_up_from_the_wish_to_the_first_step():
    assert sum(measure_parts(LIFE).values()) == 200


def test_a_programs_own_seconds_are_real_ones():
    assert measure_parts(LIFE, pace=1.5)["restore"] == 67.5
    assert measure_parts(LIFE, pace=1.5)["data"] == 17.5


@pytest.mark.parametrize("arrivals", [{}, {"i-1": came(job_id="other")}, {"i-1": came(job_id=None)}])
def test_an_instance_that_was_there_already_tells_nothing_of_launches(arrivals):
    assert measure_parts(LIFE, arrivals) == {"data": 40, "restore": 45}


def test_the_second_time_on_the_same_instance_tells_nothing_of_launches_either():
    again = [assigned(300, 2), event(EventKind.STARTED, 310, 2), event(EventKind.TRAINING, 330, 2, seconds=10.0)]
    over = event(EventKind.INTERRUPTED, 250, reason="drill")
    assert measure_parts([*LIFE, over, *again], epochs=(2,)) == {"data": 20, "restore": 10}


def test_a_job_that_was_saving_when_its_replacement_was_ready_tells_nothing_of_agents():
    next_life = [assigned(300, 2, "i-2"), event(EventKind.TRAINING, 360, 2, "i-2", seconds=30.0)]
    over = event(EventKind.INTERRUPTED, 290, reason="notice")
    part_seconds = measure_parts([*LIFE, over, *next_life], {"i-2": came(200, 205, 280)}, epochs=(2,))
    assert part_seconds == {"launch": 5, "boot": 75, "data": 30, "restore": 30}


def test_saving_takes_from_the_notice_until_the_job_was_back():
    notice, over = (
        event(EventKind.STOP_DEMANDED, 400, source="imds"),
        event(EventKind.INTERRUPTED, 425, reason="notice"),
    )
    assert measure_parts([*LIFE, notice, over])["save"] == 25
    drill = [event(EventKind.STOP_DEMANDED, 400, source="drill"), event(EventKind.INTERRUPTED, 425, reason="drill")]
    assert "save" not in measure_parts([*LIFE, *drill])


def test_a_silent_program_tells_when_it_was_started_and_no_more():
    silent = [*LIFE[:3], event(EventKind.TRAINING, 140, by="agent", from_step=0)]
    assert measure_parts(silent, {}) == {"data": 25}


def test_what_was_restarted_on_the_way_or_took_for_ever_is_left_out():
    assert measure_parts([*LIFE[:3], event(EventKind.STARTED, 150, again=2), LIFE[3]]) == {}
    assert "boot" not in measure_parts(LIFE, {"i-1": came(booted=10 + LONGEST.total_seconds() + 1)})
    assert measure_parts(LIFE, epochs=(2,)) == {}
    assert measure_parts([LIFE[0], *LIFE[2:]]) == {}  # the pool is unknown
