"""A scheduler's Prometheus metrics: the figures of a cluster, over HTTP, and from the real process."""

import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from elastic_helpers import TYPE, ZONE, ElasticCluster
from everspot_clouds.base import PlacementScore
from everspot_core.capacity.launching import LaunchTrouble
from everspot_core.cluster.manifest import Metrics
from everspot_core.costs.bill import Bill, bill
from everspot_core.costs.team_budgets import Budgets
from everspot_core.governance.thresholds import Thresholds
from everspot_core.jobs.records import Market, Role
from everspot_core.jobs.utilization import Utilization
from everspot_core.schedule import PoolKey
from everspot_scheduler import main
from everspot_scheduler.anomalies import LOOK_EVERY
from everspot_scheduler.loop import Scheduler
from everspot_scheduler.watch.listen import address
from everspot_scheduler.watch.prometheus import PrometheusWatcher
from everspot_store import ManualClock
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from scheduler_helpers import Cluster, folder_store

HOUR = timedelta(hours=1)
POOL = (("market", "spot"), ("type", TYPE), ("zone", ZONE))
Scrape = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def parsed(text: str) -> Scrape:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.fixture
def scrape(here: ElasticCluster) -> Callable[[], Scrape]:
    """Return the metrics after ten more seconds of scheduler time, when they are computed again."""
    watcher = PrometheusWatcher()
    here.schedulers = [Scheduler(here.store, here.manifest, here.cloud, "s1", watchers=[watcher])]

    def read() -> Scrape:
        here.later(seconds=10)
        here.run(1)
        return parsed(generate_latest(watcher.registry).decode())

    return read


def test_jobs_instances_and_dollars_are_counted(here: ElasticCluster, scrape: Callable[[], Scrape]) -> None:
    assert scrape()["everspot_jobs", (("state", "pending"),)] == 0
    here.length = 10_000
    here.submit("runs")
    here.run(6)
    here.cloud.capacity[PoolKey(TYPE, ZONE, Market.SPOT)] = 0
    here.cloud.capacity[PoolKey(TYPE, ZONE, Market.ON_DEMAND)] = 0
    here.submit("waits")
    samples = scrape()
    assert samples["everspot_jobs", (("state", "running"),)] == 1
    assert samples["everspot_jobs", (("state", "pending"),)] == 1
    assert samples["everspot_instances", (("market", "spot"), ("phase", "busy"), ("type", TYPE))] == 1
    usd = samples["everspot_usd_per_hour", (("market", "spot"), ("role", "agent"))]
    assert usd == samples["everspot_pool_usd_per_hour", POOL] > 0
    assert samples["everspot_usd_per_hour", (("market", "on-demand"), ("role", "agent"))] == 0
    assert (samples["everspot_elastic_instances", ()], samples["everspot_elastic_max_instances", ()]) == (1, 8)
    assert ("everspot_elastic_max_usd_per_hour", ()) not in samples  # there is no such cap
    assert sum(n for (name, _), n in samples.items() if name == "everspot_waiting_jobs") <= 1
    assert samples["everspot_info", (("version", "0.1.0"),)] == 1


def test_idle_gpus_are_counted_by_team_and_project(here: ElasticCluster, scrape: Callable[[], Scrape]) -> None:
    here.length = 10_000
    here.submit("idle", tags={"Team": "ants", "Project": "hill"})
    here.submit("unmeasured", tags={"Team": "bees"})
    here.run(6)
    document = here.store.records.get("idle")
    assert document is not None
    use = Utilization(seconds=60, gpu_seconds=60, gpu_busy_seconds=15)
    progress = document.value.progress.model_copy(update={"recent_use": use})
    here.store.records.put("idle", document.value.model_copy(update={"progress": progress}))
    samples = scrape()
    (labels,) = (labels for name, labels in samples if name == "everspot_gpu_utilization_ratio")
    assert labels == (("project", "hill"), ("team", "ants"))
    assert samples["everspot_gpu_utilization_ratio", labels] == 0.25
    price = samples["everspot_pool_usd_per_hour", POOL]
    assert samples["everspot_wasted_gpu_usd_per_hour", labels] == pytest.approx(0.75 * price)


def test_launches_and_refusals_are_counted_from_when_the_scheduler_began(
    here: ElasticCluster, scrape: Callable[[], Scrape]
) -> None:
    scrape()
    spot = PoolKey(TYPE, ZONE, Market.SPOT)
    here.submit("first")
    here.run(3)
    here.cloud.capacity[spot] = 0
    here.cloud.refuses[spot] = LaunchTrouble.CAPACITY
    here.submit("second")
    samples = scrape()
    outcomes = {labels: n for (name, labels), n in samples.items() if name == "everspot_launches_total"}
    assert outcomes[("market", "spot"), ("outcome", "all")] == 1
    assert outcomes[("market", "spot"), ("outcome", "none")] >= 1
    assert samples["everspot_refusals_total", (("kind", "capacity"), ("market", "spot"))] >= 1
    assert scrape()["everspot_pool_instances_total", POOL] == 1  # EC2 has described it by then
    successor = PrometheusWatcher()
    here.schedulers = [Scheduler(here.store, here.manifest, here.cloud, "s2", watchers=[successor])]
    here.run(1)
    later = parsed(generate_latest(successor.registry).decode())
    assert not any(name == "everspot_launches_total" for name, _ in later)


def test_interruptions_scores_deadlines_and_budgets(here: ElasticCluster, scrape: Callable[[], Scrape]) -> None:
    here.cloud.scores = [
        PlacementScore(types=(TYPE,), region="us-east-1", zone=ZONE, count=1, score=7, at=here.clock.now())
    ]
    here.length = 10_000
    here.submit("long", expected_duration="1h", deadline="10h", tags={"Team": "ants"})
    budgets = Budgets.model_validate({"teams": {"ants": {"day": {"dollars": 1000}}, "bees": {"day": {"dollars": 0}}}})
    here.store.change_budgets(lambda before: budgets)
    here.run(8)
    samples = scrape()
    assert samples["everspot_pool_placement_score", POOL] == 7
    assert samples["everspot_pool_interruptions_total", POOL] == 0
    budget = (("period", "day"), ("scope", "team"), ("team", "ants"), ("unit", "dollars"))
    assert 0 <= samples["everspot_budget_used_ratio", budget] < 0.01
    nothing = (("period", "day"), ("scope", "team"), ("team", "bees"), ("unit", "dollars"))
    assert samples["everspot_budget_used_ratio", nothing] == 1, "nothing may be spent, so all of it is used up"
    (name,) = here.cloud.alive
    here.cloud.end_one(name, interrupted=True)
    here.run(8)
    assert scrape()["everspot_pool_interruptions_total", POOL] == 1


def test_slack_lateness_and_jobs_that_run_too_long(here: ElasticCluster, scrape: Callable[[], Scrape]) -> None:
    here.length = 100_000
    job = here.submit("j", expected_duration="1h")
    dated = job.model_copy(update={"deadline_at": here.clock.now() + 3 * HOUR})
    here.store.jobs.put("j", dated)
    here.run(8)
    first = scrape()
    assert 1.5 * 3600 < first["everspot_deadline_slack_seconds", ()] < 2 * 3600
    assert (first["everspot_late_jobs", ()], first["everspot_jobs_over_estimate", ()]) == (0, 0)
    record = here.store.records.get("j")
    here.store.records.put("j", record.value.model_copy(update={"held_seconds": 2 * 3600.0}))
    here.store.jobs.put("j", dated.model_copy(update={"deadline_at": here.clock.now() - HOUR}))
    second = scrape()
    assert (second["everspot_late_jobs", ()], second["everspot_jobs_over_estimate", ()]) == (1, 1)
    assert second["everspot_deadline_slack_seconds", ()] < 0
    assert first["everspot_anomalies", (("kind", "job-over-estimate"),)] == 0
    here.clock.advance(LOOK_EVERY)
    here.run(2)
    third = scrape()
    assert third["everspot_anomalies", (("kind", "job-over-estimate"),)] == 1
    assert third["everspot_anomalies", (("kind", "pool-price"),)] == 0
    here.declare(anomalies=Thresholds(job_times=1000))
    here.run(8)
    assert scrape()["everspot_jobs_over_estimate", ()] == 0


def test_nobody_who_watches_can_stop_a_tick(here: ElasticCluster, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(PrometheusWatcher):
        def figures(self, figures: Any) -> None:
            raise ValueError("broken")

    here.schedulers = [Scheduler(here.store, here.manifest, here.cloud, "s1", watchers=[Broken()])]
    here.submit("j")
    here.run(12)
    assert here.state("j") == "SUCCEEDED"
    assert "could not be told" in caplog.text


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("127.0.0.1:9494", ("127.0.0.1", 9494)),
        ("0", ("127.0.0.1", 0)),
        ("0.0.0.0:80", ("0.0.0.0", 80)),
        ("[::1]:80", ("::1", 80)),
        ("off", None),
    ],
)
def test_where_metrics_are_read(text: str, where: tuple[str, int] | None) -> None:
    assert address(text) == where


@pytest.mark.parametrize(
    ("command", "port", "where"),
    [
        ("", None, ("127.0.0.1", 9494)),
        ("", 9500, ("0.0.0.0", 9500)),
        ("--metrics off", 9500, None),
        ("--metrics 80", 9500, ("127.0.0.1", 80)),
        ("--once", 9500, None),
    ],
)
def test_the_command_line_says_where_and_the_manifest_else(
    tmp_path: Path, command: str, port: int | None, where: tuple[str, int] | None
) -> None:
    manifest = Cluster(folder_store(tmp_path, ManualClock()), ManualClock()).manifest
    metrics = None if port is None else Metrics(port=port)
    address = main._metrics(
        main._parse(["--manifest", "m", *command.split()]), manifest.model_copy(update={"metrics": metrics})
    )
    assert address == where


@pytest.fixture
def process(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """The real scheduler, on a folder."""
    cluster = Cluster(folder_store(tmp_path, ManualClock()), ManualClock())
    manifest = tmp_path / "manifest.json"
    manifest.write_bytes(cluster.manifest.model_copy(update={"cloud": "folder"}).to_json())
    command = [sys.executable, "-m", "everspot_scheduler.main", "--manifest", str(manifest), "--metrics", "0"]
    child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    yield child
    child.kill()
    child.communicate()


def test_the_process_answers_on_loopback_and_ends_when_it_is_told_to(process: subprocess.Popen[str]) -> None:
    assert process.stderr is not None
    announcement = next(line for line in process.stderr if "metrics at " in line)
    url = re.search(r"http://127\.0\.0\.1:\d+/metrics", announcement)
    assert url is not None
    samples: Scrape = {}
    while samples.get(("everspot_tick_seconds_count", ()), 0) < 1:  # by its own pace; the suite's timeout ends it
        with urllib.request.urlopen(url[0]) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain")
            samples = parsed(answer.read().decode())
    assert samples["everspot_jobs", (("state", "pending"),)] == 0
    process.terminate()
    assert process.wait(timeout=60) == 0


def test_an_address_that_is_none_is_refused_before_anything_begins(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "everspot_scheduler.main", "--manifest", "m", "--metrics", "nowhere"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert "'nowhere' is neither HOST:PORT, such as 127.0.0.1:9494, nor a port, nor off" in done.stderr


def billed(here: ElasticCluster, at: datetime) -> Bill:
    store, ledger = here.store, here.schedulers[0].services.ledger
    records = [[doc.value for doc in table.scan().values()] for table in (store.launches, store.ends)]
    events = store.events_by_job(["runs"])
    return bill(
        *records, points=store.prices(), events=events, catalogue=ledger.catalogue, as_of=at, rules=ledger.billing
    )


def test_a_pools_preemption_rate_the_cost_of_jobs_and_their_wait_are_metrics(
    here: ElasticCluster, scrape: Callable[[], Scrape]
) -> None:
    here.length = 10_000
    here.submit("runs", tags={"Team": "ants", "Project": "hill"})
    here.run(6)
    here.cloud.capacity[PoolKey(TYPE, ZONE, Market.SPOT)] = 0
    here.cloud.capacity[PoolKey(TYPE, ZONE, Market.ON_DEMAND)] = 0
    here.submit("waits")
    here.submit("tonight", window="22:00-23:00")
    first = scrape()
    job = ("everspot_job_cost_usd", (("job_id", "runs"), ("project", "hill"), ("team", "ants")))
    hours = ("everspot_pool_instance_hours_total", POOL)
    passed = timedelta(minutes=30)
    here.clock.advance(passed)
    here.submit("waits-too")
    later = scrape()
    counted_at = datetime.fromtimestamp(later["everspot_last_count_timestamp_seconds", ()], UTC)
    assert later[hours] - first[hours] == pytest.approx(0.5, abs=0.02)
    assert later[job] > first[job] > 0
    assert later[job] == pytest.approx(float(billed(here, counted_at).jobs[0].cost))
    longest = later["everspot_pending_seconds", (("of", "longest"),)]
    mean = later["everspot_pending_seconds", (("of", "mean"),)]
    assert passed.total_seconds() <= longest <= passed.total_seconds() + 60
    assert mean == pytest.approx(longest / 2, abs=30)
    record = here.store.jobs.get("waits")
    assert record is not None and longest == (counted_at - record.value.submitted_at).total_seconds()
    assert [labels for name, labels in later if name == "everspot_job_cost_usd"] == [job[1]]
    # Prometheus keeps its own `job` and `instance`, and renames those of the exposed text.
    assert {name for name, labels in later if dict(labels).keys() & {"job", "instance"}} == set()


def test_the_hours_of_a_pool_do_not_fall_when_an_end_is_recorded_late(
    here: ElasticCluster, scrape: Callable[[], Scrape]
) -> None:
    here.length = 10_000
    here.submit("runs")
    here.run(6)
    hours = ("everspot_pool_instance_hours_total", POOL)
    here.clock.advance(HOUR / 2)
    before = scrape()
    ledger = here.schedulers[0].services.ledger
    (instance_id,) = (name for name, launch in ledger.launches.items() if launch.role is Role.AGENT)
    counted_at = datetime.fromtimestamp(before["everspot_last_count_timestamp_seconds", ()], UTC)
    ledger.write_end(instance_id, counted_at - HOUR / 3, interrupted=True, source="describe")
    assert scrape()[hours] >= before[hours] > 0.4
