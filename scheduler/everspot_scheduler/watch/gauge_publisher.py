"""Sends a few figures of the cluster to the cloud, for alarms and dashboards, once a minute and beside the loop."""

import logging
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime, timedelta

from everspot_clouds.base import Cloud
from everspot_core.capacity.launching import LaunchIntent
from everspot_core.clock import Clock
from everspot_core.cluster.gauges import Gauge
from everspot_core.jobs.records import JobState

from everspot_scheduler.backoff import Backoff
from everspot_scheduler.manifest_watch import ManifestWatch
from everspot_scheduler.watch.figures import MetricFigures

PUT_EVERY = timedelta(minutes=1)
"""Market time between two requests, since alarms use market time and each request costs money; but at least a second
of real time."""
_RUNNING = (JobState.ASSIGNED.value.lower(), JobState.RUNNING.value.lower())
_log = logging.getLogger(__name__)


class GaugePublisher:
    """A watcher that hands figures on to the cloud, where the settings say so."""

    def __init__(self, cloud: Cloud, manifest_watch: ManifestWatch, clock: Clock) -> None:
        self._cloud, self._manifest_watch, self._clock = cloud, manifest_watch, clock
        interval = max(timedelta(seconds=1), clock.to_real(PUT_EVERY))
        self._backoff, self._ticks = Backoff(interval), 0
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="everspot-figures")
        self._putting: Future[None] | None = None

    @property
    def awake(self) -> bool:
        """See `Watcher`."""
        return self._manifest_watch.manifest.monitoring is not None

    def figures(self, figures: MetricFigures) -> None:
        """See `Watcher`. While the last request is under way nothing is put: the next one has newer figures."""
        settings, now = self._manifest_watch.manifest.monitoring, self._clock.monotonic()
        if settings is None or not self._backoff.due(now) or (self._putting is not None and not self._putting.done()):
            return
        self._backoff.called(now)
        gauges = {**select_gauges(figures), Gauge.TICKS: float(self._ticks)}
        self._ticks = 0
        self._putting = self._pool.submit(self._put, settings.namespace, gauges, figures.at)

    def ticked(self, seconds: float, *, failed: bool) -> None:
        """See `Watcher`. A tick that failed is no sign of life."""
        self._ticks += not failed

    def launched(self, intent: LaunchIntent) -> None:
        """See `Watcher`. The cloud knows of launches anyway."""

    def _put(self, namespace: str, gauges: Mapping[Gauge, float], at: datetime) -> None:
        try:
            self._cloud.publish_gauges(namespace, gauges, at)
        except Exception as error:
            kind = self._cloud.trouble(error).value
            _log.warning("the cloud did not take the figures of the cluster (%s): %s", kind, error)


def select_gauges(figures: MetricFigures) -> dict[Gauge, float]:
    """Return the few figures that a cloud keeps."""
    return {
        Gauge.JOBS_WAITING: float(figures.jobs.get(JobState.PENDING.value.lower(), 0)),
        Gauge.JOBS_RUNNING: float(sum(figures.jobs.get(state, 0) for state in _RUNNING)),
        Gauge.JOBS_OVER_ESTIMATE: float(figures.over_estimate),
        Gauge.INSTANCES: float(sum(figures.instances.values())),
        Gauge.USD_PER_HOUR: sum(figures.usd_per_hour.values()),
        Gauge.POOLS_OVER_NORM: float(sum(figures.over_norm.values())),
        Gauge.BUDGET_USED: figures.budget_used,
    }
