"""Jobs with torch and the trainer library under real agents, with and without torchrun, are interrupted and killed."""

import sys
from pathlib import Path

import program_forks
import pytest
from agent_helpers import Cluster, Proc, eventually, market_in
from everspot_core.cluster.manifest import Limits
from everspot_core.jobs.records import EventKind, JobState, Reason

PROGRAM = Path(__file__).parents[1] / "agent" / "programs" / "torchtoy"
STEPS = 120
SLOW = 180.0
TORCHRUN = f"{sys.executable} -m everspot_train.launcher --standalone --nproc-per-node=1"

pytestmark = pytest.mark.torch


@pytest.fixture
def cluster(tmp_path: Path):  # type: ignore[no-untyped-def]
    limits = Limits.model_validate(
        {"lease_ttl": "12s", "beat_every": "5s", "poll_every": "0.2s", "tick_every": "0.5s", "notice_poll": "0.2s"}
    )
    cluster = Cluster(tmp_path, limits)
    yield cluster
    cluster.close()


def start(cluster: Cluster, name: str, launcher: str = "") -> Proc:
    return cluster.start_agent(name, EVERSPOT_LAUNCHER=launcher)


def submit(cluster: Cluster, job_id: str) -> Path:
    out = cluster.root / f"{job_id}.sha256"
    env = {"FIT_STEPS": str(STEPS), "FIT_STEP_SECONDS": "0.1", "FIT_OUT": str(out), "OMP_NUM_THREADS": "1"}
    cluster.submit(job_id, PROGRAM, entrypoint=["fit.py"], env=env, checkpoint={"every": "5s"})
    return out


def furthest_step(cluster: Cluster, job_id: str) -> int:
    """The furthest step that the program printed, on whichever machine."""
    steps = [0]
    for agent in cluster.agents:
        for log in (agent.home / "runs").glob(f"{job_id}-*/output.log"):
            steps += [int(line.split()[1]) for line in log.read_text().splitlines() if line.startswith("step ")]
    return max(steps)


def test_a_notice_and_a_sigkill_leave_the_weights_of_the_undisturbed_run(cluster: Cluster) -> None:
    start(cluster, "i-calm", program_forks.launcher())
    calm = submit(cluster, "job-calm")
    cluster.assign("job-calm", "i-calm")
    rough = submit(cluster, "job-rough")
    first = start(cluster, "i-1")
    cluster.assign("job-rough", "i-1")
    eventually("a dozen steps", lambda: furthest_step(cluster, "job-rough") >= 12, SLOW)

    mapped = {pid: "libtorch" in Path(f"/proc/{pid}/maps").read_text() for pid in first.tree()}
    assert mapped.pop(first.popen.pid) is False, "the agent has imported torch"
    assert any(mapped.values())

    cluster.stop("i-1", Reason.NOTICE, cordoned=True, deadline=market_in(30))
    record = cluster.wait_state("job-rough", JobState.PENDING)
    assert record.last_reason is Reason.NOTICE
    interrupted = cluster.events("job-rough", EventKind.INTERRUPTED)[0].data
    assert interrupted["step"] == interrupted["durable_step"]
    assert interrupted["notice_to_durable_seconds"] is not None
    eventually("no torch process is left on the first machine", lambda: first.tree() == [first.popen.pid])

    second = start(cluster, "i-2", TORCHRUN)
    cluster.assign("job-rough", "i-2")
    eventually("a checkpoint of the second owner", lambda: _published_by(cluster, "job-rough", 2), SLOW)
    second.popen.kill()  # the agent alone: torchrun and its workers, in sessions of their own, must die too
    eventually("no torch process is left on the second machine", lambda: not second.tree())

    cluster.expire("job-rough")
    start(cluster, "i-3", program_forks.launcher())
    cluster.assign("job-rough", "i-3")
    record = cluster.wait_state("job-rough", JobState.SUCCEEDED, seconds=SLOW)
    assert (record.epoch, record.preemptions, record.errors) == (3, 2, 0)
    cluster.wait_state("job-calm", JobState.SUCCEEDED, seconds=SLOW)

    assert rough.read_text() == calm.read_text()
    trainings = [event.data for event in cluster.events("job-rough", EventKind.TRAINING)]
    assert trainings[1]["from_step"] == interrupted["step"], "no step was redone after the notice"
    assert [training["restored"] for training in trainings] == [False, True, True]


def _published_by(cluster: Cluster, job_id: str, epoch: int) -> bool:
    head = cluster.store.heads.get(job_id)
    return head is not None and any(checkpoint.epoch == epoch for checkpoint in head.value.checkpoints)
