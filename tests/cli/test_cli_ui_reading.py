"""Readings that all open pages share: their frequency, and the pages while the store fails."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

from everspot_cli.ui.reading import LONGEST, LastRead, Reading, pause
from everspot_store import StoreUnavailable
from hypothesis import given
from hypothesis import strategies as st

LEAST = timedelta(seconds=2)
T0 = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Clockwork:
    """A scripted store, and a reading of it whose clock stands still between the test's steps."""

    def __init__(self) -> None:
        self.seconds, self.count, self.broken, self.took = 0.0, 0, False, 0.0
        self.reading = Reading(
            self._read, self.now, LEAST, monotonic=lambda: self.seconds, start=lambda work: work()
        )  # fmt: skip

    def now(self) -> datetime:
        return T0 + timedelta(seconds=self.seconds)

    def _read(self) -> int:
        self.count += 1
        self.seconds += self.took
        if self.broken:
            raise StoreUnavailable("the bucket does not answer")
        return self.count

    def look(self, after: float = 0) -> LastRead[int]:
        self.seconds += after
        return self.reading.current()


def test_one_reading_serves_everybody_who_looks_within_its_pause() -> None:
    work = Clockwork()
    assert [work.look(0.1).value for _ in range(10)] == [1] * 10
    assert work.look(1.5).value == 2
    assert work.look(3600).value == 3, "nobody looked, and nothing was read"
    assert work.count == 3


def test_after_a_failure_the_last_good_reading_stays_with_its_time_and_pauses_grow() -> None:
    work = Clockwork()
    assert work.look().at == T0
    work.broken = True
    reading = work.look(2)
    assert (reading.value, reading.at, reading.trouble) == (1, T0, "the bucket does not answer")
    tried = []
    for second in range(600):
        before = work.count
        work.look(1)
        tried += [second] if work.count > before else []
    gaps = [later - earlier for earlier, later in pairwise(tried)]
    assert gaps == sorted(gaps) and gaps[0] <= 8 and gaps[-1] == LONGEST.total_seconds()
    work.broken = False
    again = work.look(61)
    assert (again.value, again.at, again.trouble) == (work.count, work.now(), "")


def test_a_long_reading_is_followed_by_a_longer_pause() -> None:
    work = Clockwork()
    work.took = 5
    work.look()
    assert work.look(19).value == 1 and work.look(2).value == 2


def test_what_was_changed_is_read_at_the_next_look() -> None:
    work = Clockwork()
    work.look()
    work.reading.stale()
    assert work.look().value == 2


@given(
    least=st.timedeltas(timedelta(seconds=1), timedelta(minutes=5)),
    took=st.timedeltas(timedelta(0), timedelta(minutes=5)),
    failures=st.integers(0, 10_000),
)
def test_a_pause_is_never_shorter_than_the_least_and_after_failures_bounded(
    least: timedelta, took: timedelta, failures: int
) -> None:
    seconds = pause(least, took, failures)
    assert seconds >= least
    assert not failures or seconds <= max(least, LONGEST)
    assert failures or seconds >= took
