"""Measures the cost of this run's checkpoints, chooses their interval, and announces the interval and the cost of a
notice."""

import logging
from collections.abc import Callable, Mapping
from datetime import timedelta

from everspot_core.clock import Clock
from everspot_core.documents import format_duration
from everspot_core.jobs.checkpoint_interval import (
    CheckpointCost,
    IntervalChoice,
    NoticeTime,
    choose_interval,
    describe_choice,
    describe_loss,
    keep_interval,
    steps_at_notice,
)
from everspot_core.jobs.records import EventKind
from everspot_core.jobs.reported_values import MOST_SECONDS, parse_count, parse_number
from pydantic import JsonValue

from everspot_train.rundir import RunContext

log = logging.getLogger("everspot.trainer")

INTERVAL = "interval"
"""Key of a checkpoint's `info`: the cost of earlier checkpoints, and the announced interval."""


class CheckpointInterval:
    """The interval between the checkpoints of one run: its author's, or the one that fits what they cost.

    Args:
        context: with the job's policy, the rate of interruptions and the length of a notice, which are market time.
        note: writes an event without waiting for it.

    Attributes:
        interval: the present time between two checkpoints; None if the job counts in steps only.
    """

    def __init__(self, context: RunContext, clock: Clock, note: Callable[..., None]) -> None:
        self._policy = context.submission.spec.checkpoint
        self._market_per_real = timedelta(seconds=1) / clock.to_real(timedelta(seconds=1))
        self._between = timedelta(hours=context.hours_between_interruptions)
        self._notice = context.notice
        self._notice_time = (
            NoticeTime(clock.to_real(context.notice), context.notice_reserve) if context.notice is not None else None
        )
        self._note = note
        self._cost: CheckpointCost | None = None
        self._stall: tuple[int, timedelta] | None = None
        self._steps_per_second: float | None = None
        self._announced: tuple[timedelta | None, bool | None] | None = None
        self.interval = self._choose().interval

    def resume(self, info: Mapping[str, JsonValue]) -> None:
        """Continue with the measurements of earlier attempts. `info`: the restored checkpoint's."""
        stored = info.get(INTERVAL)
        if not isinstance(stored, dict):
            return
        stall, durable = (parse_number(stored.get(name), 0, MOST_SECONDS) for name in ("stall", "durable"))
        size_bytes, announced = parse_count(stored.get("bytes")), parse_number(stored.get("every"), 0, MOST_SECONDS)
        if stall is not None and durable is not None and size_bytes is not None:
            self._cost = CheckpointCost(timedelta(seconds=stall), timedelta(seconds=durable), size_bytes)
            self.interval = self._choose().interval
        fits = stored.get("fits")
        interval = timedelta(seconds=announced) if announced is not None else None
        self._announced = interval, fits if isinstance(fits, bool) else None

    def info(self) -> dict[str, JsonValue]:
        """Return the measurements to store with the next checkpoint; empty before the first one."""
        if self._cost is None:
            return {}
        stored: dict[str, JsonValue] = {
            "stall": round(self._cost.stall.total_seconds(), 3),
            "durable": round(self._cost.durable.total_seconds(), 3),
            "bytes": self._cost.size_bytes,
        }
        if self._announced is not None:
            interval, stored["fits"] = self._announced
            stored["every"] = interval.total_seconds() if interval is not None else None
        return {INTERVAL: stored}

    def stalled(self, step: int, stall: timedelta, steps_per_second: float | None) -> None:
        """Record how long the checkpoint of `step` stalled training, and the speed of the steps before it."""
        self._stall = step, stall
        self._steps_per_second = steps_per_second or self._steps_per_second

    def published(self, step: int, durable: timedelta, size_bytes: int) -> None:
        """Choose the next interval by a checkpoint that was published beside training. Publications after the end of
        training are not measured.

        Args:
            durable: the time from its beginning until it was durable.
        """
        if self._stall is None or self._stall[0] != step:
            return
        cost = CheckpointCost(self._stall[1], durable, size_bytes)
        self._cost = self._cost.blended(cost) if self._cost is not None else cost
        choice = self._choose()
        self.interval = choice.interval
        if self._has_news(choice):
            self._announce(choice, self._cost)

    def _choose(self) -> IntervalChoice:
        if self._policy.is_auto:
            return choose_interval(self._cost, self._between / self._market_per_real, self._notice_time)
        return keep_interval(self._policy.interval, self._cost, self._notice_time)

    def _has_news(self, choice: IntervalChoice) -> bool:
        if self._announced is None:
            return self._policy.is_auto or choice.fits_notice is False
        interval, fits = self._announced
        return choice.differs_from(interval, fits_notice=fits)

    def _announce(self, choice: IntervalChoice, cost: CheckpointCost) -> None:
        self._announced = choice.interval, choice.fits_notice
        market_cost = cost.scaled(self._market_per_real)  # in market time, as all times that people are shown
        reason = describe_choice(choice, market_cost, self._between)
        data: dict[str, JsonValue] = {"cause": choice.cause.value, "reason": reason}
        if choice.interval is not None:
            data["seconds"] = round(choice.interval.total_seconds(), 1)
            log.info("a checkpoint every %s: %s", format_duration(_whole(choice.interval)), reason)
        if choice.fits_notice is False and self._notice is not None:
            rate = self._steps_per_second
            lost = steps_at_notice(cost, choice.interval, rate, self._policy.steps) if rate is not None else None
            data["lost_steps"] = lost
            interval = choice.interval * self._market_per_real if choice.interval is not None else None
            data["notice"] = describe_loss(market_cost, self._notice, interval, lost)
            log.warning("%s", data["notice"])
        self._note(EventKind.CHECKPOINT_INTERVAL, **data)


def _whole(span: timedelta) -> timedelta:
    return timedelta(seconds=round(span.total_seconds()))
