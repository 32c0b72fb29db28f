"""Chooses how often a job with `checkpoint: {every: auto}` checkpoints, and computes the cost of a notice.

The interval is Young's: sqrt(2 x stall x time between interruptions). It balances the time for which training waits for
checkpoints against the work that is redone after an interruption, half an interval on average (J. W. Young, "A first
order approximation to the optimum checkpoint interval", CACM 17(9), 1974; J. T. Daly, "A higher order estimate of the
optimum checkpoint interval for restart dumps", FGCS 22(3), 2006, whose bound for long stalls is the time between
interruptions itself). Only the stall counts: the upload runs beside the training loop.

A notice costs nothing if a checkpoint becomes durable within it. If a checkpoint takes longer, a notice costs the work
since the beginning of the newest durable checkpoint: up to an interval and the time of a checkpoint. The interval is
then short enough to bound this loss. All durations are real time, unless a name says otherwise.
"""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from math import ceil, sqrt

from everspot_core.counting import size
from everspot_core.documents import format_duration

SHORTEST = timedelta(minutes=1)
"""The shortest interval that is chosen. Each checkpoint is about ten requests to the store, which cost more than the
work that they save if there are many of them: at one a minute about 0.07 USD a day, at the 0.005 USD that object
stores take for 1,000 writes."""
LONGEST = timedelta(hours=1)
"""The longest interval that is chosen: the most work that is lost if the rate of interruptions was misjudged."""
UNMEASURED = SHORTEST
"""The interval before the first checkpoint of a job, which measures what the next ones cost."""
LOSS_AT_NOTICE = timedelta(minutes=10)
"""The most work that a notice may cost, if a checkpoint takes longer than the notice. A state that takes more than
half of this to become durable costs twice its time, since one checkpoint begins when the one before is durable."""
CHANGED = 1.25
"""A new interval is announced if it differs from the announced one by at least this factor."""
_WEIGHT = 0.5  # of the newest measurement: a change of the state's size shows after two or three checkpoints


class IntervalCause(StrEnum):
    """The reason for an interval."""

    CHOSEN = "chosen"  # by the job's author
    UNMEASURED = "unmeasured"  # no checkpoint has been measured yet
    BALANCED = "balanced"  # stalls against redone work
    SHORTEST = "shortest"
    LONGEST = "longest"
    UPLOAD = "upload"  # the checkpoint before has to be durable first
    NOTICE = "notice"  # bounds the cost of a notice


@dataclass(frozen=True, slots=True)
class NoticeTime:
    """The time before an interruption.

    Attributes:
        length: from the notice to the interruption.
        reserve: the part of it in which no checkpoint can be written: until the agent finds the notice, and after it
            kills the remaining processes.
    """

    length: timedelta
    reserve: timedelta = timedelta(0)

    @property
    def usable(self) -> timedelta:
        """The part in which a checkpoint can be written."""
        return max(timedelta(0), self.length - self.reserve)


@dataclass(frozen=True, slots=True)
class CheckpointCost:
    """The measured cost of a job's checkpoint.

    Attributes:
        stall: the time for which training waits.
        durable: the time from the beginning of the checkpoint until it is durable; the stall is part of it.
        size_bytes: bytes of all of its parts.
    """

    stall: timedelta
    durable: timedelta
    size_bytes: int

    def scaled(self, factor: float) -> "CheckpointCost":
        """Return the cost with its times multiplied by `factor`."""
        return CheckpointCost(self.stall * factor, self.durable * factor, self.size_bytes)

    def blended(self, newer: "CheckpointCost") -> "CheckpointCost":
        """Return the mean after new measurements. `newer`: the newest measurement."""
        return CheckpointCost(
            self.stall + (newer.stall - self.stall) * _WEIGHT,
            self.durable + (newer.durable - self.durable) * _WEIGHT,
            newer.size_bytes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalChoice:
    """A chosen interval, and whether a notice suffices for a checkpoint.

    Attributes:
        interval: None if the job's author counts in steps only.
        cause: the reason for the interval.
        fits_notice: whether a checkpoint is durable within the notice; None if that is not known.
    """

    interval: timedelta | None
    cause: IntervalCause
    fits_notice: bool | None

    def differs_from(self, interval: timedelta | None, *, fits_notice: bool | None) -> bool:
        """Return whether this choice differs enough from the announced one to be announced."""
        if (self.fits_notice is False) != (fits_notice is False) or (self.interval is None) != (interval is None):
            return True
        if self.interval is None or interval is None:
            return False
        return max(self.interval, interval) > CHANGED * min(self.interval, interval)


def choose_interval(
    cost: CheckpointCost | None, between_interruptions: timedelta, notice: NoticeTime | None
) -> IntervalChoice:
    """Choose the interval of a job with `every: auto`.

    Args:
        cost: the cost of its checkpoints; None before the first.
        between_interruptions: the mean time between two interruptions of an instance of its pool.
        notice: the time before an interruption; None if that is not known.
    """
    if cost is None:
        return IntervalChoice(interval=UNMEASURED, cause=IntervalCause.UNMEASURED, fits_notice=None)
    fits = fits_notice(cost, notice)
    seconds = sqrt(2 * max(0.0, cost.stall.total_seconds()) * between_interruptions.total_seconds())
    balanced = min(timedelta(seconds=seconds), between_interruptions)
    candidates = [(balanced, IntervalCause.BALANCED), (LONGEST, IntervalCause.LONGEST)]
    if fits is False:
        candidates.append((max(timedelta(0), LOSS_AT_NOTICE - cost.durable), IntervalCause.NOTICE))
    interval, cause = min(candidates, key=lambda candidate: candidate[0])
    for least, reason in ((SHORTEST, IntervalCause.SHORTEST), (cost.durable, IntervalCause.UPLOAD)):
        if interval < least:
            interval, cause = least, reason
    return IntervalChoice(interval=interval, cause=cause, fits_notice=fits)


def keep_interval(interval: timedelta | None, cost: CheckpointCost | None, notice: NoticeTime | None) -> IntervalChoice:
    """Return the interval of the job's author (None if only steps count), and whether the notice suffices."""
    fits = fits_notice(cost, notice) if cost is not None else None
    return IntervalChoice(interval=interval, cause=IntervalCause.CHOSEN, fits_notice=fits)


def fits_notice(cost: CheckpointCost, notice: NoticeTime | None) -> bool | None:
    """Return whether a checkpoint that begins at a notice is durable before the instance is taken; None: not known."""
    return None if notice is None else cost.durable <= notice.usable


def loss_at_notice(cost: CheckpointCost, interval: timedelta | None) -> timedelta:
    """Return the most work that a notice costs if a checkpoint takes longer: the work since the beginning of the newest
    durable checkpoint. `interval`: None if the job checkpoints by steps; an interval in steps is not counted here."""
    return max(interval or timedelta(0), cost.durable) + cost.durable


def steps_at_notice(
    cost: CheckpointCost, interval: timedelta | None, steps_per_second: float, every_steps: int | None = None
) -> int:
    """Return `loss_at_notice` in optimizer steps. `every_steps`: the job's interval in steps, if it has one."""
    by_time = ceil(loss_at_notice(cost, interval).total_seconds() * steps_per_second)
    if every_steps is None:
        return by_time
    by_steps = every_steps + ceil(cost.durable.total_seconds() * steps_per_second)
    return by_steps if interval is None else min(by_time, by_steps)


def describe_choice(choice: IntervalChoice, cost: CheckpointCost | None, between_interruptions: timedelta) -> str:
    """Return the reason of an interval, as a part of a sentence with figures."""
    if cost is None or choice.cause is IntervalCause.UNMEASURED:
        return "no checkpoint has been measured yet"
    stall = f"a checkpoint of {size(cost.size_bytes)} stalls training for {in_seconds(cost.stall)}"
    rate = f"an interruption comes about every {_hours(between_interruptions)}"
    match choice.cause:
        case IntervalCause.CHOSEN:
            return "as the job says"
        case IntervalCause.SHORTEST:
            return f"the shortest, since {stall}, and {rate}"
        case IntervalCause.LONGEST:
            return f"the longest, since {stall}, and {rate}"
        case IntervalCause.UPLOAD:
            return f"a checkpoint of {size(cost.size_bytes)} takes {in_seconds(cost.durable)} to be durable"
        case IntervalCause.NOTICE:
            return f"a notice then costs at most {format_duration(LOSS_AT_NOTICE)} of work"
        case _:
            return f"{stall}, and {rate}"


def describe_loss(cost: CheckpointCost, length: timedelta, interval: timedelta | None, lost_steps: int | None) -> str:
    """Return the message for a notice of this length that is too short for a checkpoint. `lost_steps`: None if the time
    of a step is unknown."""
    loss = in_minutes(loss_at_notice(cost, interval))
    lost = f"{loss} of work" if lost_steps is None else f"{lost_steps:,} steps ({loss})"
    return (
        f"a checkpoint of {size(cost.size_bytes)} takes {in_seconds(cost.durable)} to be durable, longer than a notice "
        f"of {in_seconds(length)} leaves: an interruption costs up to {lost}"
    )


def in_seconds(span: timedelta) -> str:
    """Return a span in seconds, with two digits at least: `0.04 s`, `240 s`, `1,500 s`."""
    seconds = span.total_seconds()
    return f"{seconds:,.0f} s" if seconds >= 10 else f"{seconds:.2g} s"


def in_minutes(span: timedelta) -> str:
    """Return a span in minutes, with three digits: `10 min`, `8.59 min`."""
    return f"{span.total_seconds() / 60:.3g} min"


def _hours(span: timedelta) -> str:
    hours = span.total_seconds() / 3600
    return f"{hours:,.0f} h" if hours >= 10 else f"{hours:.2g} h"
