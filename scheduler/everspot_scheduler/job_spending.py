"""The used amounts of budgets in dollars or GPU-hours, of each job, at home and at peers."""

from datetime import timedelta

from everspot_core.clock import Clock
from everspot_core.federation.migration import sum_trips
from everspot_core.jobs.records import JobState
from everspot_core.schedule import Spent

from everspot_scheduler.backoff import Backoff
from everspot_scheduler.ledger import Ledger
from everspot_scheduler.observer import Observation

READ_EVERY = timedelta(seconds=10)
"""The least time between two readings of the jobs' events; two ticks, where these take longer."""


class SpentMeter:
    """Remembers the used amounts of jobs, and computes them again when due. Only events of jobs with a budget are read.

    `jobs`: by id, as of the last reading.
    """

    def __init__(self, clock: Clock, ledger: Ledger, tick: timedelta) -> None:
        self._clock, self._ledger = clock, ledger
        self._backoff = Backoff(max(READ_EVERY, 2 * tick))
        self.jobs: dict[str, Spent] = {}

    def look(self, observation: Observation) -> None:
        """Read the used amounts of the jobs, if due."""
        if not self._backoff.take(self._clock.monotonic()):
            return
        limited = []
        for name, job in observation.jobs.items():
            budget = job.value.spec.budget
            state = observation.records[name].value.state if name in observation.records else JobState.PENDING
            if not state.final and (budget.dollars is not None or budget.gpu_hours is not None):
                limited.append((job.value, observation.records[name].value if name in observation.records else None))
        abroad = {job.job_id: sum_trips(record.trips) for job, record in limited if record is not None}
        self.jobs = {job: _sum(own, abroad[job]) for job, own in self._ledger.spent(limited).items()}


def _sum(own: Spent, abroad: tuple[float, float]) -> Spent:
    return Spent(dollars=own.dollars + abroad[0], gpu_hours=own.gpu_hours + abroad[1])
