"""Invalid reports of one program, and documents that cannot be written, do not stop the tick for other jobs."""

from datetime import timedelta

import pytest
from everspot_core.jobs.records import JobState, Market, Progress, Reason
from everspot_scheduler.speeds import Speeds
from everspot_store import ManualClock, StoreDenied
from everspot_store.testing import FaultScript, MemoryBackend, faulty_store
from scheduler_helpers import Cluster

TOLD = [
    {"total_steps": 10**400, "steps_per_second": 5.0},
    {"step": 10**400, "total_steps": 10**401, "steps_per_second": 5.0},
    {"total_steps": 10**12, "steps_per_second": 1e-300},
    {"total_steps": 200, "steps_per_second": 5e-324},
    {"total_steps": 200, "steps_per_second": 1e308},
    {"total_steps": 200, "steps_per_second": -3.0},
    {"step": -10, "total_steps": -200, "steps_per_second": 3.0},
    {"total_steps": 200, "steps_per_second": 1.0, "stalled_seconds": 1e308},
]


def test_no_progress_that_a_job_tells_keeps_others_from_being_scheduled(cluster: Cluster) -> None:
    cluster.length = 10_000
    cluster.submit("a", expected_duration="100s", deadline="2h")
    cluster.agent("i-1")
    cluster.run(4)
    lease = cluster.agents["i-1"].lease
    for n, figures in enumerate(TOLD):
        lease.renew(Progress(**{"step": 10, **figures}))
        cluster.submit(f"b{n}", deadline="3h", expected_duration="10m")
        cluster.schedulers[0].tick()
    lease.release(Reason.NOTICE)
    cluster.agents["i-1"].lease = None
    cluster.agent("i-2")
    cluster.run(4)
    assert cluster.state("b0") == "RUNNING"


@pytest.mark.parametrize("figures", TOLD)
def test_what_stands_in_a_record_already_is_read_and_is_unknown(cluster: Cluster, figures: dict[str, float]) -> None:
    wild = Progress.model_construct(**{"step": 10, **figures})
    cluster.submit("a")
    cluster.agent("i-1")
    cluster.run(4)
    document = cluster.store.records.get("a")
    assert document is not None
    record = type(document.value).read(document.value.model_copy(update={"progress": wild}).to_json())
    assert record.state is JobState.RUNNING
    progress = record.progress
    assert 0 <= progress.step <= 10
    assert progress.total_steps in (None, 200, 10**12)
    assert progress.steps_per_second in (None, 5.0, 3.0, 1.0)
    assert progress.stalled_seconds is None


def test_a_job_of_which_no_view_can_be_made_is_left_out_alone(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = Speeds.read

    def broken(self, submission, record, instance_type):
        if submission.job_id == "a":
            raise OverflowError("integer division result too large for a float")
        return look(self, submission, record, instance_type)

    monkeypatch.setattr(Speeds, "read", broken)
    cluster.submit("a")
    cluster.submit("b")
    cluster.agent("i-1")
    cluster.run(8)
    assert (cluster.state("a"), cluster.state("b")) == ("PENDING", "SUCCEEDED")


def test_a_critical_job_finds_on_demand_free_after_a_pool_of_spot_took_an_instance(cluster: Cluster) -> None:
    cluster.length = 10_000
    for n in range(3):
        cluster.agent(f"i-s{n}")
    cluster.agent("i-on-demand", Market.ON_DEMAND)
    cluster.run(8)
    cluster.end("i-s0", interrupted=True)
    cluster.run(8)
    cluster.submit("normal")
    cluster.run(3)
    cluster.submit("critical", priority="critical")
    cluster.run(3)
    assert [owner for _, owner in cluster.starts["critical"]] == ["i-on-demand"]
    assert cluster.agents[cluster.starts["normal"][0][1]].record.market is Market.SPOT


def test_notes_that_cannot_be_written_stop_nothing_else(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    class Deny(MemoryBackend):
        def put(self, key, data):
            if key in ("usage.json", "waiting.json"):
                raise StoreDenied(key)
            return super().put(key, data)

    here = Cluster(faulty_store(Deny(), MemoryBackend(), clock, FaultScript()), clock, length=10_000)
    here.agent("i-1")
    here.submit("a", tags={"Team": "ants"})
    here.submit("b")
    here.run(4)
    clock.advance(timedelta(minutes=10))
    here.run(4)
    assert "usage.json" in caplog.text
    assert "waiting.json" in caplog.text
    assert here.store.schedulers.get("s1").value.detail == "1 instances, 1 jobs waiting"


def test_sums_of_a_team_that_cannot_be_are_added_up_anew(cluster: Cluster, tmp_path) -> None:
    text = f'{{"at":"{cluster.clock.now().isoformat()}","dollars":'
    text += '{"a":NaN,"b":Infinity,"c":-5,"d":1e308,"e":7}}'
    (tmp_path / "control" / "usage.json").write_text(text)
    cluster.run(1)
    assert cluster.store.notes.usage.read().dollars == {"e": pytest.approx(7)}
