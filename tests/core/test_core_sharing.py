"""The changes of an assignment, for exclusive and shared instances, as tables."""

from datetime import UTC, datetime, timedelta
from fractions import Fraction

import pytest
from everspot_core.capacity.instances import InstanceRecord, InstanceState, Role
from everspot_core.jobs import sharing
from everspot_core.jobs.job import Resources
from everspot_core.jobs.records import Assignment, Market, Order, Reason
from hypothesis import given
from hypothesis import strategies as st

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
LATER = NOW + timedelta(minutes=2)


def machine(vcpus: int = 8, memory_gib: float = 32, gpus: int = 4) -> InstanceRecord:
    return InstanceRecord(
        instance_id="i", cluster="c", role=Role.AGENT, instance_type="t", zone="z", market=Market.SPOT, vcpus=vcpus,
        memory_gib=memory_gib, gpus=gpus, gpu_memory_gib=24 if gpus else 0, state=InstanceState.READY, booted_at=NOW,
        updated_at=NOW,
    )  # fmt: skip


def seated(*needs: dict, record: InstanceRecord | None = None, old: Assignment | None = None) -> Assignment | None:
    """Seat jobs with these needs in turn, as a, b, …; return None if one of them has no room."""
    for n, need in enumerate(needs):
        old = sharing.seat(old, record or machine(), "abcdefgh"[n], 1, Resources(shared=True, **need), NOW)
        if old is None:
            return None
    return old


def test_each_has_gpus_of_its_own_and_pays_its_largest_part():
    assignment = seated(
        {"gpus": 1, "vcpus": 1}, {"gpus": 2, "vcpus": 2, "memory_gib": 24}, {"vcpus": 1, "memory_gib": 1}
    )
    assert [(s.job_id, s.gpus, s.vcpus, s.memory_gib) for s in assignment.seats] == [
        ("a", (0,), 1, 1.0),
        ("b", (1, 2), 2, 24.0),
        ("c", (), 1, 1.0),
    ]
    # The third needs an eighth, and the first two have left nothing.
    assert [s.share for s in assignment.seats] == [0.25, 0.75, 0.0]
    assert (assignment.job_id, assignment.jobs) == (None, ("a", "b", "c"))


def test_what_one_leaves_the_next_one_gets():
    assignment = sharing.remove_job(seated({"gpus": 1}, {"gpus": 1}, {"gpus": 2}), "b", 1, LATER)
    again = sharing.seat(assignment, machine(), "d", 3, Resources(gpus=1, shared=True), LATER)
    assert [(s.job_id, s.gpus) for s in again.seats] == [("a", (0,)), ("c", (2, 3)), ("d", (1,))]
    assert sharing.remove_job(again, "d", 2, LATER).jobs == ("a", "c", "d"), "an older epoch is another ownership"


@pytest.mark.parametrize(
    "needs",
    [
        [{"vcpus": 5}, {"vcpus": 4}],
        [{"memory_gib": 16.5}, {"memory_gib": 16}],
        [{"gpus": 3}, {"gpus": 2}],
        [{"gpus": 1, "gpu_memory_gib": 40}],
        [{"gpus": 1, "gpu": "A100"}],
    ],
)
def test_nobody_is_seated_without_room(needs):
    assert seated(*needs) is None


def test_alone_or_beside_others_and_never_both():
    alone = sharing.assign_alone(None, "i", "a", 2, NOW)
    assert (alone.job_id, alone.epoch, alone.seats) == ("a", 2, ())
    assert sharing.seat(alone, machine(), "b", 1, Resources(shared=True), NOW) is None
    shared_assignment = seated({})
    assert sharing.assign_alone(shared_assignment, "i", "b", 1, NOW) is None
    assert sharing.seat(shared_assignment, machine(), "a", 2, Resources(shared=True), NOW) is None, "nobody sits twice"


def test_an_order_to_one_leaves_the_others_alone_and_a_notice_reaches_all():
    two = seated({}, {})
    after_stop = sharing.stop(two, "a", 1, Reason.CANCEL, None, LATER)
    assert [(s.order, s.reason) for s in after_stop.seats] == [(Order.STOP, Reason.CANCEL), (Order.RUN, None)]
    assert after_stop.for_job("b") == two.for_job("b")
    assert sharing.stop(two, "a", 7, Reason.CANCEL, None, LATER).seats == two.seats
    after_notice = sharing.cordon(two, "i", LATER, NOW)
    assert after_notice.cordoned and after_notice.order is Order.RUN
    assert {(h.order, h.reason, h.deadline, h.cordoned) for h in after_notice.seat_assignments} == {
        (Order.STOP, Reason.NOTICE, LATER, True)
    }
    leaving = sharing.leave(two, "i", Reason.ROLL, NOW)
    assert {(h.order, h.reason) for h in leaving.seat_assignments} == {(Order.LEAVE, Reason.ROLL)}
    assert sharing.remove_job(sharing.remove_job(leaving, "a", 1, NOW), "b", 1, NOW).order is Order.LEAVE


@pytest.mark.parametrize("is_shared", [False, True])
def test_who_is_named_again_keeps_the_order_of_the_instance(is_shared):
    def name_again(old: Assignment | None) -> Assignment:
        need = Resources(shared=True)
        if is_shared:
            again = sharing.seat(old, machine(), "a", 1, need, NOW)
        else:
            again = sharing.assign_alone(old, "i", "a", 1, NOW)
        return sharing.restored(again, old, "a", 1).for_job("a")

    empty = Assignment(instance_id="i", changed_at=NOW)
    assert name_again(None).order is Order.RUN
    assert name_again(sharing.cordon(empty, "i", None, NOW)).reason is Reason.NOTICE
    assert name_again(sharing.leave(empty, "i", Reason.ROLL, NOW)).order is Order.LEAVE


NEEDS = st.fixed_dictionaries({"vcpus": st.integers(1, 8), "memory_gib": st.floats(0.1, 32), "gpus": st.integers(0, 4)})


@given(st.lists(st.one_of(NEEDS, st.integers(0, 7)), max_size=20))
def test_whoever_comes_and_goes_nothing_is_given_twice_and_no_more_than_the_whole_is_paid(moves):
    record, old = machine(), Assignment(instance_id="i", changed_at=NOW)
    for n, move in enumerate(moves):
        if isinstance(move, int):
            old = sharing.remove_job(old, old.seats[move].job_id, 1, NOW) if move < len(old.seats) else old
        else:
            old = sharing.seat(old, record, f"j{n}", 1, Resources(shared=True, **move), NOW) or old
        given_away = [index for s in old.seats for index in s.gpus]
        assert len(given_away) == len(set(given_away)) and set(given_away) <= set(range(record.gpus))
        assert sum(s.vcpus for s in old.seats) <= record.vcpus
        assert sum(s.memory_gib for s in old.seats) <= record.memory_gib + 1e-5
        assert all(s.share >= 0 for s in old.seats)
        assert sum(Fraction(s.share) for s in old.seats) <= 1 + Fraction(1, 10**9)
