"""How long jobs keep an instance: as declared, as jobs of the same program did, or as assumed.

These lengths decide one question only: whether a launch would provide an instance that then has nothing to do.
Deadlines are judged by `job_outlook`, and never by an assumption.
"""

from collections import defaultdict
from collections.abc import Hashable, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from statistics import median
from typing import NamedTuple

from everspot_core.jobs.records import JobState
from everspot_core.schedule.jobs import CHANGEOVER, CHANGEOVER_UPPER, job_outlook
from everspot_core.schedule.view import ClusterView, JobView

ASSUMED = 1 / 50
"""The assumed length of an unknown job, as a fraction of an expected changeover. Too short an assumption costs such a
job a bounded wait; too long a one launches instances that nobody needs."""
HANDOVER = 1 / 25
"""The time from the end of one job on an instance to the start of the next, as a fraction of an expected changeover."""
LONG = 0.3
"""A job that has run for this fraction of an expected changeover, and longer than anybody expected, is long."""
AS_LONG_AGAIN = 2
"""A job of unknown length is expected to take this many times as long in all as it has run. After this many times the
expected length the history of its program is ignored."""
SCRIPTS = (".py", ".sh")
NO_TIME = timedelta(0)


class Length(NamedTuple):
    """The time for which a job is expected to keep an instance. `assumed`: nothing is known about the job."""

    time: timedelta
    assumed: bool = False


class Lengths:
    """The lengths of the jobs of one view."""

    def __init__(self, view: ClusterView, now: datetime) -> None:
        self._view, self._now = view, now

    def estimate(self, job: JobView) -> Length | None:
        """Return the length of a waiting job. None: the job is long, so that nobody should wait behind it."""
        changeover, record = expected_changeover(job), job.record
        handover = HANDOVER * changeover
        ran = (record.held_time(self._now) if record is not None else None) or NO_TIME
        if (known_length := self._length_estimate(job)) is not None and self._overdue.get(
            _program(job), NO_TIME
        ) <= known_length:
            return Length(known_length + handover)
        oldest = max(self._running.get(_program(job), NO_TIME), ran)
        if oldest > LONG * changeover:
            return None
        return Length(max(ASSUMED * changeover, AS_LONG_AGAIN * oldest) + handover, assumed=True)

    def remaining(self, job: JobView) -> timedelta | None:
        """Return the time until a job that holds an instance ends. None: it is long, so that nobody should wait for it.

        A job that runs longer than expected is expected to run as long again, until it counts as long.
        """
        work, changeover = job.outlook, expected_changeover(job)
        if work is not None:
            return work.changing + work.remaining
        record, elapsed = job.record, self._elapsed(job)
        known_length = self._length_estimate(job)
        has_steps = record is not None and record.progress.total_steps and not self._is_overdue(job)
        if has_steps and (declared := job_outlook(job)) is not None:
            return declared.remaining
        if known_length is not None and elapsed < known_length:
            return known_length - elapsed
        return max(ASSUMED * changeover, elapsed) if elapsed <= LONG * changeover else None

    def _length_estimate(self, job: JobView) -> timedelta | None:
        """Return the length that the driver measured, that jobs of the same program had, or that the author
        declared."""
        work = job_outlook(job)
        if job.outlook is None and (learnt := self._learnt.get(_program(job))) is not None:
            return learnt
        return work.remaining if work is not None else None

    def _elapsed(self, job: JobView) -> timedelta:
        record = job.record
        since = record.assigned_at if record is not None else None
        return max(NO_TIME, self._now - since) if since is not None else NO_TIME

    @cached_property
    def _learnt(self) -> dict[Hashable, timedelta]:
        """By program, for how long its jobs that have succeeded held an instance: the median."""
        seconds: dict[Hashable, list[float]] = defaultdict(list)
        for job in self._view.jobs:
            record = job.record
            if record is not None and record.state is JobState.SUCCEEDED and record.held_seconds:
                seconds[_program(job)].append(record.held_seconds)
        return {program: timedelta(seconds=median(of_program)) for program, of_program in seconds.items()}

    def _is_overdue(self, job: JobView) -> bool:
        """Return whether a job that holds an instance has had it for much longer than was expected."""
        expected = job.submission.spec.expected_duration
        if job.outlook is None:
            expected = self._learnt.get(_program(job), expected)
        if expected is None:
            return False
        return self._elapsed(job) > AS_LONG_AGAIN * (expected + HANDOVER * expected_changeover(job))

    @cached_property
    def _overdue(self) -> dict[Hashable, timedelta]:
        """By program, for how long the oldest of its overdue jobs has held its instance."""
        oldest: dict[Hashable, timedelta] = {}
        for job in self._view.jobs:
            if job.state.owned and self._is_overdue(job):
                program = _program(job)
                oldest[program] = max(oldest.get(program, NO_TIME), self._elapsed(job))
        return oldest

    @cached_property
    def _running(self) -> dict[Hashable, timedelta]:
        """By program, for how long the oldest of its running jobs has held its instance."""
        oldest: dict[Hashable, timedelta] = {}
        for job in self._view.jobs:
            if job.state.owned:
                program = _program(job)
                oldest[program] = max(oldest.get(program, NO_TIME), self._elapsed(job))
        return oldest


def expected_changeover(job: JobView) -> timedelta:
    """Return the expected length of the job's next changeover."""
    work = job_outlook(job)
    if work is not None:
        return work.changeover
    return job.changeover.expected if job.changeover is not None else CHANGEOVER


def changeover_bound(job: JobView) -> timedelta:
    """Return the upper bound of the job's next changeover."""
    work = job_outlook(job)
    if work is not None:
        return work.changeover_upper
    return job.changeover.upper if job.changeover is not None else CHANGEOVER_UPPER


def _program(job: JobView) -> Hashable:
    """Return the common facts of jobs that run about equally long."""
    spec = job.submission.spec
    return job.team, spec.recipe, _script(spec.entrypoint or ()), job.submission.code_digest


def _script(entrypoint: Sequence[str]) -> tuple[str, ...]:
    """Return the words up to the script or the module: those after it are its arguments, and differ in a sweep."""
    for n, argument in enumerate(entrypoint):
        if argument.endswith(SCRIPTS) or (n and entrypoint[n - 1] == "-m"):
            return tuple(entrypoint[: n + 1])
    return tuple(entrypoint[:1])
