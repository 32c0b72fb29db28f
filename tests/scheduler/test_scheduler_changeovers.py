"""The parts of a changeover are measured once for each ownership and stored in the ledger, where the next scheduler
reads them."""

from datetime import timedelta

from everspot_core.jobs.changeover import Changeovers, PartTimes
from everspot_core.jobs.records import EventKind, JobState, Market
from everspot_core.schedule import PoolKey
from everspot_scheduler.changeovers import WRITE_EVERY, ChangeoverLog
from everspot_scheduler.cloud_facts import Facts
from everspot_scheduler.elastic.manager import ElasticManager
from everspot_scheduler.ledger import Ledger
from everspot_scheduler.manifest_watch import ManifestWatch
from everspot_scheduler.observer import Observer
from scheduler_helpers import Cluster

PAUSE = timedelta(seconds=7)


def run_once(cluster: Cluster, job: str, *, data: timedelta = PAUSE, restore: float = 3.0) -> None:
    """A job that begins `data` after its assignment, and is ready after so many seconds more."""
    cluster.submit(job)
    cluster.run(1)
    record = cluster.store.records.get(job).value
    assert record.state.owned
    cluster.clock.advance(data + timedelta(seconds=restore))
    writer = cluster.store.event_writer(job, record.epoch, f"trainer-{record.owner}", record.owner)
    writer.emit(EventKind.TRAINING, from_step=0, restored=False, seconds=restore)
    cluster.run(12)
    assert cluster.store.records.get(job).value.state is JobState.SUCCEEDED


def written(cluster: Cluster) -> dict[str, list[float]]:
    """Return the stored measurements, by part."""
    cluster.clock.advance(WRITE_EVERY)
    cluster.run(1)
    changeovers = cluster.store.notes.changeovers.read()
    assert changeovers is not None
    assert {(t.instance_type, t.zone, t.market.value) for t in changeovers.times} <= {
        ("c6i.large", "us-east-1a", "spot")
    }
    return {t.part: t.seconds for t in changeovers.times}


def test_an_attempt_that_has_ended_is_measured_and_written_down(cluster: Cluster) -> None:
    cluster.agent("i-1")
    run_once(cluster, "j")
    seconds_by_part = written(cluster)
    assert seconds_by_part["restore"] == [3.0]
    assert PAUSE.total_seconds() <= seconds_by_part["data"][0] <= PAUSE.total_seconds() + 2
    assert set(seconds_by_part) == {"data", "restore"}  # it was not launched for the job


def test_nothing_is_counted_twice_neither_by_the_same_scheduler_nor_by_the_next(cluster: Cluster) -> None:
    cluster.agent("i-1")
    run_once(cluster, "j")
    before = written(cluster)
    cluster.run(5)
    cluster.schedulers = [cluster.scheduler("s2")]
    cluster.run(5)
    run_once(cluster, "k", restore=5.0)
    after = written(cluster)
    assert after["restore"] == [3.0, 5.0]
    assert after["data"][:1] == before["data"]


def test_the_plan_uses_measured_changeovers(cluster: Cluster) -> None:
    log = ChangeoverLog(cluster.store)
    assert (log.for_job("j"), log.to(PoolKey("t", "z", Market.SPOT))) == (None, None)
    times = [PartTimes(part="boot", instance_type="t", zone="z", market="spot", seconds=[2000.0] * 9)]
    cluster.store.notes.changeovers.write(Changeovers(updated_at=cluster.clock.now(), times=times))
    log.load()
    changeover = log.for_job("j")
    assert changeover is not None
    assert changeover.expected > timedelta(seconds=1500)
    assert changeover.upper > timedelta(seconds=2000)
    assert log.for_job("k") is changeover  # a thousand jobs ask
    pools = [PoolKey(kind, "z", Market.SPOT) for kind in ("t", "other")]
    slow, usual = (log.to(pool) for pool in pools)
    assert slow is not None and usual is not None
    assert slow.expected > usual.expected, "where it was measured it counts for more than where it was not"
    assert log.to(pools[0]) is slow


def test_a_document_that_cannot_be_read_is_begun_anew(cluster: Cluster) -> None:
    cluster.store.control.put("ledger/changeovers.json", b"{")
    cluster.agent("i-1")
    run_once(cluster, "j")
    assert written(cluster)["restore"] == [3.0]


def test_a_jobs_own_data_counts_for_its_next_changeover_and_for_no_others(cluster: Cluster) -> None:
    cluster.length = 500
    cluster.agent("i-1")
    cluster.submit("j")
    cluster.run(1)
    record = cluster.store.records.get("j").value
    cluster.run(40)
    writer = cluster.store.event_writer("j", record.epoch, f"trainer-{record.owner}", record.owner)
    writer.emit(EventKind.TRAINING, from_step=0, restored=False, seconds=1.0)
    cluster.end("i-1", interrupted=True)
    cluster.run(20)
    assert cluster.store.records.get("j").value.state is JobState.PENDING
    log = looking(cluster)
    own, others = log.for_job("j"), log.for_job("k")
    assert own is not None and others is not None
    assert own.expected < others.expected  # it takes 40 s where a minute is expected, and restores in one


def looking(cluster: Cluster) -> ChangeoverLog:
    """Return a scheduler's log of changeovers after its first tick."""
    store, facts, manifest_watch = cluster.store, Facts(), ManifestWatch(cluster.store, cluster.manifest)
    ledger, log = Ledger(store, cluster.manifest), ChangeoverLog(store)
    manager = ElasticManager(store, cluster.cloud, manifest_watch, facts, ledger, "s")
    log.look(Observer(store, manifest_watch).look(), ledger, manager)
    return log
