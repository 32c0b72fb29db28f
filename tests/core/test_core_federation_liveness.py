"""Liveness of a peer's schedulers, and the offset of its clock, from their heartbeats."""

from datetime import UTC, datetime, timedelta

import pytest
from everspot_core.federation.liveness import SILENT, update_liveness
from hypothesis import given
from hypothesis import strategies as st

T0 = datetime(2026, 3, 1, 12, tzinfo=UTC)
LEASE, BEAT, LOOK = timedelta(seconds=60), timedelta(seconds=20), timedelta(seconds=20)


def looks(offset: timedelta, count: int, *, scale: float = 1.0, dies_after: int | None = None):
    """Return the liveness after this many observations, 20 s apart, of a scheduler whose clock is off by this market
    time."""
    heard = None
    for number in range(count):
        real = LOOK * number
        alive = number if dies_after is None else min(number, dies_after)
        beats = {"s1": T0 + offset + (alive * LOOK - timedelta(seconds=7)) * scale}
        heard = update_liveness(heard, beats, T0 + real * scale, real, LEASE, lambda span: span / scale)
        lag = (T0 + real * scale - heard.newest) / scale
    return heard, heard.alive(lag)


@pytest.mark.parametrize("scale", [1.0, 60.0])
@pytest.mark.parametrize(
    ("real", "is_reported"),
    [
        (0, 0), (45, 0), (-45, 0), (90, 1), (-120, -1), (3 * 3600, 1), (-3 * 3600, -1),
        # A heartbeat is 7 s old when it is seen: a whole lease ahead of this look, and behind the look before it.
        (67, 0), (68, 1), (-73, 0), (-74, -1),
    ],
)  # fmt: skip
def test_clocks_more_than_a_lease_apart_are_reported(real, is_reported, scale):
    heard, alive = looks(timedelta(seconds=real) * scale, 3, scale=scale)
    assert alive, "a heartbeat that changes is one of a living scheduler, whatever its clock says"
    if not is_reported:
        assert heard.apart is None
    else:
        assert heard.apart is not None
        assert abs(heard.apart - timedelta(seconds=real) * scale) <= (LOOK + BEAT) * scale


@given(st.integers(-86400, 86400))
def test_a_scheduler_that_stopped_is_silent_whatever_its_clock_says(offset):
    after = int(SILENT / LOOK) + 3
    heard, alive = looks(timedelta(seconds=offset), 2 + after, dies_after=1)
    assert not alive and heard.silent_since == T0 + LOOK


def test_one_that_was_dead_at_the_first_look_is_not_believed_for_long():
    assert not looks(-SILENT, 1)[1]
    assert looks(timedelta(hours=5), 1, dies_after=0)[1], "a first look cannot tell"
    assert not looks(timedelta(hours=5), 17, dies_after=0)[1]
    nobody = update_liveness(None, {}, T0, LOOK, LEASE, lambda span: span)
    assert (nobody.alive(LOOK), nobody.silent_since) == (False, None)


def test_a_clock_that_was_mended_is_right_again():
    first = update_liveness(None, {"s1": T0 + timedelta(hours=3)}, T0, timedelta(0), LEASE, lambda span: span)
    assert first.apart == timedelta(hours=3)
    beats = {"s1": T0 + timedelta(hours=3), "s2": T0 + LOOK}
    second = update_liveness(first, beats, T0 + LOOK, LOOK, LEASE, lambda span: span)
    assert second.apart is None and second.newest == T0 + LOOK
