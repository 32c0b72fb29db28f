"""Hands the figures of a scheduler to its watchers. An error of a watcher never stops a tick."""

import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from functools import partial
from typing import Protocol

from everspot_core.capacity.launching import LaunchIntent
from everspot_core.clock import Clock
from everspot_core.costs.baselines import Norm, over_norm
from everspot_core.schedule import ClusterView, Hold

from everspot_scheduler.anomalies import AS_USUAL, Unusual
from everspot_scheduler.backoff import Backoff
from everspot_scheduler.cloud_facts import Facts
from everspot_scheduler.ledger import Ledger
from everspot_scheduler.watch.figures import FigureCounter, MetricFigures, TickSummary

COUNT_EVERY = timedelta(seconds=10)
"""The least market time between two countings, but at least a second of real time."""
NORMS_EVERY = timedelta(minutes=1)
_log = logging.getLogger(__name__)


class Watcher(Protocol):
    """A receiver of a scheduler's figures."""

    @property
    def awake(self) -> bool:
        """Whether it wants figures at all."""
        ...

    def figures(self, figures: MetricFigures) -> None:
        """Take the present figures."""
        ...

    def ticked(self, seconds: float, *, failed: bool) -> None:
        """Take note of a tick that has ended. `seconds`: its length in real time."""
        ...

    def launched(self, intent: LaunchIntent) -> None:
        """Note a launch whose outcome is known. It is called once for each."""
        ...


class Watch:
    """All watchers of one scheduler. Without any it costs nothing."""

    def __init__(self, clock: Clock, watchers: Iterable[Watcher] = ()) -> None:
        self._clock, self._watchers = clock, tuple(watchers)
        self._counter = FigureCounter()
        self._backoff, self._norms_backoff = _backoff(clock, COUNT_EVERY), _backoff(clock, NORMS_EVERY)
        self._norms: Mapping[str, int] = {}
        self._reported: set[int] | None = None

    def look(
        self, view: ClusterView, waiting: Iterable[Hold], facts: Facts, ledger: Ledger, unusual: Unusual = AS_USUAL
    ) -> None:
        """Count if it is due, and hand on the figures. `view`, `waiting`: of the last plan of the tick."""
        now = self._clock.monotonic()
        if not any(watcher.awake for watcher in self._watchers) or not self._backoff.take(now):
            return
        if self._norms_backoff.take(now):
            over = over_norm(ledger.launches, ledger.ends, ledger.points(), self._clock.now())
            self._norms = {norm.value: sum(norm in worse for worse in over.values()) for norm in Norm}
        tick = TickSummary(
            view=view, waiting=tuple(waiting), instances=tuple(facts.described.values()), ledger=ledger,
            now=self._clock.now(), unusual=unusual,
        )  # fmt: skip
        figures = self._counter.figures(tick, self._norms)
        self._notify(lambda watcher: watcher.figures(figures))

    def ticked(self, took: timedelta, *, failed: bool = False) -> None:
        """Tell the watchers that a tick has ended."""
        self._notify(lambda watcher: watcher.ticked(took.total_seconds(), failed=failed))

    def launches(self, settled: Iterable[LaunchIntent]) -> None:
        """Report launches whose outcome has become known since the last call to the watchers; none at the first
        call."""
        if not any(watcher.awake for watcher in self._watchers):
            return
        intents = {intent.seq: intent for intent in settled}
        news = sorted(intents.keys() - self._reported) if self._reported is not None else []
        self._reported = set(intents)
        for intent in (intents[seq] for seq in news):
            self._notify(partial(_launched, intent))

    def _notify(self, call: Callable[[Watcher], None]) -> None:
        for watcher in self._watchers:
            try:
                call(watcher)
            except Exception:
                _log.exception("somebody who watches this scheduler could not be told")


def _launched(intent: LaunchIntent, watcher: Watcher) -> None:
    watcher.launched(intent)


def _backoff(clock: Clock, interval: timedelta) -> Backoff:
    return Backoff(max(timedelta(seconds=1), clock.to_real(interval)))
