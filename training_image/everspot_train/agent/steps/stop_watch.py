"""Decides when the job's `stop` ends a program that does not use the trainer library, by its reported metrics."""

from collections.abc import Iterator

from everspot_core.jobs.curves import read_metric
from everspot_core.jobs.early_stop import EarlyStop, StopRule, StopTracker
from everspot_store import Store

from everspot_train.agent.actions import JobKey


class StopWatch:
    """The evaluations of one attempt, and before them those of earlier attempts, which are read from the store. `add`
    and `look` are called by one thread at a time.

    Attributes:
        early_stop: why the program has to end; None while it continues.
    """

    def __init__(self, store: Store, job: JobKey, rule: StopRule) -> None:
        self.rule = rule
        self.early_stop: EarlyStop | None = None
        self._store, self._job = store, job
        self._tracker = StopTracker(rule)
        self._new: list[tuple[int, float]] = []
        self._loaded = False

    @property
    def has_evaluations(self) -> bool:
        """Whether the program has ever reported the metric."""
        return bool(self._new) or self._tracker.has_evaluations

    def add(self, step: int, value: float) -> None:
        """Add an evaluation, which need not be finite."""
        self._new.append((step, value))

    def look(self, total_steps: int | None) -> None:
        """Judge the added evaluations. A program at its last step is not ended early.

        Raises:
            StoreError: if earlier evaluations cannot be read. The next call tries again.
        """
        if not self._new:
            return
        if not self._loaded:
            earlier = list(self._read_earlier())
            for step, value in earlier:
                self._tracker.add(step, value)
            self._loaded = True
        while self._new:
            self._tracker.add(*self._new.pop(0))
        early_stop = self._tracker.early_stop
        is_over = early_stop is not None and total_steps is not None and early_stop.step >= total_steps
        self.early_stop = None if is_over else early_stop

    def _read_earlier(self) -> Iterator[tuple[int, float]]:
        for chunk in self._store.metrics.read(self._job.job_id):
            yield from read_metric(chunk.data, self.rule.metric)
