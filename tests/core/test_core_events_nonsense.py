"""Events with arbitrary content from programs: the history, measurements and a budget's use can still be computed."""

from datetime import UTC, datetime, timedelta
from fractions import Fraction

from everspot_core.costs.attempts import attempts, interruptions
from everspot_core.jobs.records import Event, EventKind
from everspot_core.schedule.changeover_samples import measurements
from hypothesis import example, given, settings
from hypothesis import strategies as st

T0 = datetime(2026, 1, 1, tzinfo=UTC)
KEYS = ("seconds", "next_seconds", "step", "from_step", "share", "gpus", "reason", "seen_at", "reclaimed", "market",
        "notice_to_durable_seconds", "instance_type", "zone", "source", "trigger", "by")  # fmt: skip
WILD = st.sampled_from(
    [None, "", "x", True, -1, 0, 0.5, 10**400, -(10**400), 1e308, -1e308, float("inf"), float("-inf"), [], {}, "spot",
     "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"]
)  # fmt: skip
PLACE = {"instance_type": "t", "zone": "z", "market": "spot"}


def event(number: int, kind: EventKind, data: dict[str, object]) -> Event:
    return Event.model_construct(
        version=1, job_id="j", kind=kind, at=T0 + timedelta(seconds=number), epoch=1, writer="w", seq=number,
        instance_id="i", data=data,
    )  # fmt: skip


def begun(*more: tuple[EventKind, dict[str, object]]) -> list[tuple[EventKind, dict[str, object]]]:
    return [(EventKind.ASSIGNED, {}), (EventKind.STARTED, {}), *more]


@example(begun((EventKind.TRAINING, {"seconds": -1e300})))
@example(begun((EventKind.STEPPED, {"seconds": 10**400, "next_seconds": 1})))
@example(begun((EventKind.INTERRUPTED, {"reason": []})))
@example(begun((EventKind.INTERRUPTED, {"notice_to_durable_seconds": 10**400})))
@example(begun((EventKind.STOP_DEMANDED, {"seen_at": "0001-01-01T00:00:00+14:00"}), (EventKind.CHECKPOINTED, {})))
@settings(max_examples=150)
@given(
    st.lists(st.tuples(st.sampled_from(list(EventKind)), st.dictionaries(st.sampled_from(KEYS), WILD, max_size=4)),
             min_size=1, max_size=8)
)  # fmt: skip
def test_no_event_keeps_a_history_from_being_read(kinds_and_data: list[tuple[EventKind, dict[str, object]]]) -> None:
    events = [event(n, kind, (PLACE if n == 0 else {}) | data) for n, (kind, data) in enumerate(kinds_and_data)]
    history = attempts(events)
    assert all(0 <= a.share <= 1 and isinstance(a.share, Fraction) for a in history)
    assert len(interruptions(history)) <= len(history)
    for measurement in measurements(events, [1], {}, 60.0):
        assert measurement.length >= timedelta(0)
