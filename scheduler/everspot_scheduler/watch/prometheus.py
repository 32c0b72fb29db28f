"""Serves the figures to Prometheus, as text over HTTP, on this machine alone by default."""

import logging
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from threading import Thread
from wsgiref.simple_server import WSGIServer

from everspot_core.capacity.launching import LaunchIntent
from everspot_core.jobs.records import JobState, Market
from prometheus_client import CollectorRegistry, Counter, Histogram, Info, disable_created_metrics, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from everspot_scheduler.watch.figures import MetricFigures

TICK_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 20, 60)
_Sample = tuple[tuple[str, ...], float]
disable_created_metrics()  # type: ignore[no-untyped-call] # moments at which counters began, one series for each of them
_log = logging.getLogger(__name__)


class PrometheusWatcher:
    """Keeps the answer to a scrape. `registry`: the figures of this scheduler, and none of the process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._now = _Now()
        self.registry.register(self._now)
        self._seconds = Histogram(
            "everspot_tick_seconds", "Real time that a tick took.", buckets=TICK_BUCKETS, registry=self.registry
        )
        self._failed = Counter("everspot_tick_failures", "Ticks that were given up.", registry=self.registry)
        self._launches = Counter(
            "everspot_launches",
            "Launch requests by what came of them since this scheduler began: all, some or none of the instances.",
            ["outcome", "market"],
            registry=self.registry,
        )
        self._refusals = Counter(
            "everspot_refusals",
            "Refusals of single pools within launches, since this scheduler began.",
            ["kind", "market"],
            registry=self.registry,
        )
        Info("everspot", "The release that runs.", registry=self.registry).info({"version": version("everspot")})

    @property
    def awake(self) -> bool:
        """See `Watcher`. Always, because the time of the next scrape is not known."""
        return True

    def figures(self, figures: MetricFigures) -> None:
        """See `Watcher`."""
        self._now.figures = figures

    def ticked(self, seconds: float, *, failed: bool) -> None:
        """See `Watcher`."""
        self._seconds.observe(seconds)
        if failed:
            self._failed.inc()

    def launched(self, intent: LaunchIntent) -> None:
        """See `Watcher`."""
        if intent.outcome is None:
            return
        brought = len(intent.outcome.instances)
        outcome = "all" if brought >= intent.count else "some" if brought else "none"
        self._launches.labels(outcome, intent.market.value).inc()
        for error in intent.outcome.errors:
            self._refusals.labels(error.kind.value, error.market.value).inc()

    def serve(self, host: str, port: int) -> tuple[WSGIServer, Thread]:
        """Answer scrapes in a thread of its own. Port 0: any free port.

        Raises:
            OSError: if the address cannot be used.
        """
        server, thread = start_http_server(port, host, self.registry)
        _log.info("metrics at http://%s:%d/metrics", host, server.server_port)
        return server, thread


class _Now(Collector):
    """The newest figures in the form of Prometheus. Each scrape reads the figures of that moment."""

    def __init__(self) -> None:
        self.figures: MetricFigures | None = None

    def collect(self) -> Iterable[Metric]:
        """See `Collector`."""
        return iter(()) if self.figures is None else _families(self.figures)


def _families(now: MetricFigures) -> Iterator[Metric]:
    yield from _job_metrics(now)
    yield from _capacity_metrics(now)
    yield from _of_pools(now)
    yield _gauge("anomalies", "Open anomalies, by kind.", ("kind",),
                 (((kind,), count) for kind, count in now.anomalies.items()))  # fmt: skip
    yield from _gpu_metrics(now)
    yield _gauge(
        "budget_used_ratio", "Part of a budget that is spent in its present period.",
        ("scope", "team", "period", "unit"), now.budgets.items(),
    )  # fmt: skip
    yield _gauge("last_count_timestamp_seconds", "When these figures were counted, market time.", (),
                 [((), now.at.timestamp())])  # fmt: skip


def _job_metrics(now: MetricFigures) -> Iterator[Metric]:
    states = ((state.value.lower(),) for state in JobState)
    yield _gauge(
        "jobs", "Jobs by state; those that have ended, until they are archived.", ("state",),
        ((state, now.jobs.get(state[0], 0)) for state in states),
    )  # fmt: skip
    yield _gauge("waiting_jobs", "Jobs that wait, by the code of the reason.", ("why",),
                 (((reason,), count) for reason, count in now.waiting.items()))  # fmt: skip
    yield _gauge("pending_seconds", "For how long jobs wait for an instance now: the longest, and the mean.", ("of",),
                 (((measure,), span.total_seconds()) for measure, span in now.pending.items()))  # fmt: skip
    yield _gauge("job_cost_usd", "What each running job has cost so far.", ("job_id", "team", "project"),
                 now.job_usd.items())  # fmt: skip
    slack = [((), now.slack.total_seconds())] if now.slack is not None else []
    yield _gauge(
        "deadline_slack_seconds", "Market time to spare of the job with the least, to its deadline.", (), slack
    )
    yield _gauge("late_jobs", "Jobs that have not ended and whose deadline has passed.", (), [((), now.late)])
    yield _gauge("jobs_over_estimate", "Jobs that have held instances for far longer than expected.", (),
                 [((), now.over_estimate)])  # fmt: skip


def _gpu_metrics(now: MetricFigures) -> Iterator[Metric]:
    labels = ("team", "project")
    yield _gauge(
        "gpu_utilization_ratio", "Part of the last minute in which the GPUs of running jobs computed.", labels,
        ((key, share) for key, (share, _) in now.gpu_use.items()),
    )  # fmt: skip
    yield _gauge(
        "wasted_gpu_usd_per_hour", "What an hour of running jobs costs, times the part in which GPUs do not compute.",
        labels, ((key, usd) for key, (_, usd) in now.gpu_use.items()),
    )  # fmt: skip


def _capacity_metrics(now: MetricFigures) -> Iterator[Metric]:
    yield _gauge("instances", "Agents that live: coming, idle, busy or leaving.", ("market", "type", "phase"),
                 now.instances.items())  # fmt: skip
    yield _gauge("usd_per_hour", "What everything that lives costs an hour.", ("role", "market"),
                 now.usd_per_hour.items())  # fmt: skip
    use = now.elastic
    figures: tuple[tuple[str, str, float | None], ...] = (
        ("elastic_instances", "Launched instances, running or coming.", use.instances if use else None),
        ("elastic_max_instances", "The most that may be launched at once.", use.max_instances if use else None),
        ("elastic_usd_per_hour", "What launched instances cost an hour.", use.usd_per_hour if use else None),
        ("elastic_max_usd_per_hour", "The most that they may cost an hour.", use.max_usd_per_hour if use else None),
    )
    for name, help_text, value in figures:
        yield _gauge(name, help_text, (), [((), value)] if value is not None else [])


def _of_pools(now: MetricFigures) -> Iterator[Metric]:
    labels = ("type", "zone", "market")
    yield _gauge("pool_usd_per_hour", "What an hour of an instance costs now, by pool.", labels,
                 ((tuple(pool), usd) for pool, (usd, _) in now.pools.items()))  # fmt: skip
    yield _gauge("pool_placement_score", "The cloud's own score, 1 to 10, while one is fresh.", labels,
                 ((tuple(pool), score) for pool, (_, score) in now.pools.items() if score is not None))  # fmt: skip
    yield _counter("pool_instances", "Instances that a pool has given, since the cluster began.", labels,
                   ((tuple(pool), count) for pool, count in now.launched.items()))  # fmt: skip
    spot = ((pool, now.interrupted.get(pool, 0)) for pool in now.launched if pool.market is Market.SPOT)
    yield _counter("pool_interruptions", "Instances that the cloud took, since the cluster began.", labels,
                   ((tuple(pool), count) for pool, count in spot))  # fmt: skip
    yield _counter("pool_instance_hours", "Hours that instances of a pool have lived, since the cluster began.", labels,
                   ((tuple(pool), hours) for pool, hours in now.hours.items()))  # fmt: skip
    yield _gauge("pools_over_norm", "Spot pools in use that do worse than they use to.", ("norm",),
                 (((norm,), count) for norm, count in now.over_norm.items()))  # fmt: skip


def _gauge(name: str, help_text: str, labels: tuple[str, ...], samples: Iterable[_Sample]) -> Metric:
    family = GaugeMetricFamily(f"everspot_{name}", help_text, labels=labels)
    for values, number in samples:
        family.add_metric(values, number)
    return family


def _counter(name: str, help_text: str, labels: tuple[str, ...], samples: Iterable[_Sample]) -> Metric:
    family = CounterMetricFamily(f"everspot_{name}", help_text, labels=labels)
    for values, number in samples:
        family.add_metric(values, number)
    return family
