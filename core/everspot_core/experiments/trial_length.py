"""The length of a sweep's trials, by past runs of its job."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from statistics import median

from everspot_core.costs.attempts import Attempt
from everspot_core.jobs.changeover import MARGIN, Changeover

WARM = 2
"""How many times as fast as a measured start the next one may be, where the instance has the data already. An
assumption."""


@dataclass(frozen=True, slots=True)
class PastRun:
    """One successful run of the job that nothing interrupted.

    Attributes:
        share: of a run of full size that it had to do.
        length: from its assignment to its end.
        start: the part of it until it trained; None: not known.
    """

    share: float
    length: timedelta
    start: timedelta | None


@dataclass(frozen=True, slots=True)
class TrialLength:
    """The least and the greatest expected length of a trial.

    Attributes:
        work: of full size, without its start.
        start: until it trains, which a trial of any size has in full.
        typical_work: the median of full size.
        runs: past runs that were measured; 0: `work` is the job's `expected_duration`.
    """

    work: tuple[timedelta, timedelta]
    start: tuple[timedelta, timedelta]
    typical_work: timedelta
    runs: int = 0

    def of_share(self, share: float) -> tuple[timedelta, timedelta]:
        """Return the length of a trial that does this share of the work, with its start."""
        least, most = (share * work + start for work, start in zip(self.work, self.start, strict=True))
        return least, most


def time_run(attempts: Sequence[Attempt], share: float) -> PastRun | None:
    """Return the length of a run that has ended, and of its start; None if it had several attempts.

    A program whose output reports its steps is first heard of after some of them. Their time, by the steps that
    followed, is not part of its start.
    """
    if len(attempts) != 1 or attempts[0].end is None:
        return None
    (attempt,) = attempts
    length = attempts[0].end - attempt.start
    start: timedelta | None = None
    if attempt.training_at is not None and attempt.from_step is not None and attempt.reports:
        until_report, first, last = attempt.training_at - attempt.start, attempt.from_step, attempt.last_step or 0
        if first == 0:
            start = until_report
        elif last > first:
            start = until_report - first * (length - until_report) / (last - first)
    if start is not None:
        start = min(max(start, timedelta(0)), length)
    return PastRun(share, length, start)


def measured_starts(runs: Iterable[PastRun]) -> list[timedelta]:
    """Return the starts that are known."""
    return [run.start for run in runs if run.start is not None]


def median_length(lengths: Iterable[timedelta]) -> timedelta:
    """Return the median of lengths."""
    return timedelta(seconds=median(length.total_seconds() for length in lengths))


def estimate_length(runs: Sequence[PastRun], believed_start: Changeover) -> TrialLength | None:
    """Return the length of a trial by past runs; None without any.

    The largest runs tell how long the work takes, and all of them how long a start takes. The next run may be faster or
    slower than those measured by the factor MARGIN, and its start shorter by the factor WARM.

    Args:
        believed_start: of a run whose start is not known.
    """
    if not runs:
        return None
    known_starts = measured_starts(runs)
    full = max(run.share for run in runs)
    believed = min(believed_start.expected, min(run.length for run in runs) / 2)
    typical = median_length(known_starts) if known_starts else believed
    works = [
        (run.length - (typical if run.start is None else run.start)) / run.share for run in runs if run.share == full
    ]
    small = [run for run in runs if run.start is None and run.share < full]
    starts = [*known_starts, *(max(timedelta(0), run.length - run.share * median_length(works)) for run in small)]
    return TrialLength(
        work=(min(works) / MARGIN, max(works) * MARGIN),
        start=(min(starts) / WARM, max(starts) * MARGIN) if starts else (believed / WARM, believed_start.upper),
        typical_work=median_length(works),
        runs=len(runs),
    )
