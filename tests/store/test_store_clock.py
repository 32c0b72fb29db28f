"""The clocks."""

import re
import time
from datetime import UTC, datetime, timedelta

import pytest
from everspot_store import ManualClock, SystemClock


def test_without_the_variable_market_time_is_real_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EVERSPOT_CLOCK", raising=False)
    clock = SystemClock.from_environment()
    assert abs(clock.now() - datetime.now(UTC)) < timedelta(seconds=5)
    assert clock.to_real(timedelta(seconds=60)) == timedelta(seconds=60)


def test_market_time_runs_faster_from_its_epoch_on(monkeypatch: pytest.MonkeyPatch) -> None:
    epoch = time.time() - 100
    monkeypatch.setenv("EVERSPOT_CLOCK", f"12@{epoch}")
    clock = SystemClock.from_environment()
    since = (clock.now() - datetime.fromtimestamp(epoch, UTC)).total_seconds()
    assert 1200 <= since < 1300
    assert clock.to_real(timedelta(seconds=120)) == timedelta(seconds=10)


@pytest.mark.parametrize(
    ("text", "problem"),
    [(text, 'is not "<scale>@<epoch seconds>"') for text in ("fast", "12", "12@", "@1")]
    + [(text, "the market's time scale must be above zero") for text in ("0@1", "-1@1", "nan@1")],
)
def test_a_variable_that_cannot_be_read_is_an_error(monkeypatch: pytest.MonkeyPatch, text: str, problem: str) -> None:
    monkeypatch.setenv("EVERSPOT_CLOCK", text)
    with pytest.raises(ValueError, match=f"EVERSPOT_CLOCK='{text}'.*{re.escape(problem)}"):
        SystemClock.from_environment()


def test_waits_are_real_and_comparable_between_processes() -> None:
    clock = SystemClock(scale=1000, epoch=0)
    before = clock.monotonic()
    clock.sleep(timedelta(milliseconds=20))
    clock.sleep(timedelta(seconds=-1))
    assert timedelta(milliseconds=20) <= clock.monotonic() - before < timedelta(seconds=5)
    assert abs(clock.monotonic().total_seconds() - time.monotonic()) < 5


def test_a_manual_clock_moves_only_by_calls() -> None:
    heard: list[timedelta] = []
    clock = ManualClock(scale=10, on_sleep=heard.append)
    start = clock.now()
    clock.sleep(timedelta(seconds=2))
    clock.advance(timedelta(seconds=1))
    assert clock.now() - start == timedelta(seconds=30)
    assert clock.monotonic() == timedelta(seconds=3)
    assert clock.slept == heard == [timedelta(seconds=2)]
