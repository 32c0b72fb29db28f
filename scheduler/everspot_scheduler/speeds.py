"""Measured speeds: how fast each job ran on each instance type, relative to its author's expectation."""

from collections.abc import Container, Mapping
from types import MappingProxyType

from everspot_core.clock import Clock
from everspot_core.jobs.job import JobSubmission
from everspot_core.jobs.records import JobRecord

SLOWEST, FASTEST = 1e-3, 1e3
_NONE: Mapping[str, float] = MappingProxyType({})


class Speeds:
    """Remembers the last speed of each job on each type that it ran on.

    At speed 1 all steps of a job take its author's `expected_duration`. So a speed is known only for a job with an
    expected duration, a number of steps, and a rate. A speed outside of `SLOWEST` and `FASTEST` is ignored, because one
    of these must be wrong. After a restart only the last speed is known, from the job's record.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._speeds: dict[str, Mapping[str, float]] = {}

    def read(
        self, submission: JobSubmission, record: JobRecord | None, instance_type: str | None
    ) -> Mapping[str, float]:
        """Return the known speeds of the job, by type. `instance_type`: the type of its record's progress."""
        speeds, job = self._speeds.get(submission.job_id, _NONE), submission.job_id
        speed = self._measured(submission, record)
        if speed is None or instance_type is None or speeds.get(instance_type) == speed:
            return speeds
        self._speeds[job] = MappingProxyType({**speeds, instance_type: speed})
        return self._speeds[job]

    def forget(self, jobs: Container[str]) -> None:
        """Forget all jobs but these."""
        self._speeds = {name: speeds for name, speeds in self._speeds.items() if name in jobs}

    def _measured(self, submission: JobSubmission, record: JobRecord | None) -> float | None:
        expected = submission.spec.expected_duration
        if expected is None or record is None:
            return None
        rate, steps = record.progress.steps_per_second, record.progress.total_steps
        if not rate or not steps:
            return None
        speed = rate * self._clock.to_real(expected).total_seconds() / steps
        return speed if SLOWEST <= speed <= FASTEST else None
