"""Programs of two ranks go on after an interruption: a plain one, and one that uses the trainer library."""

import re
from pathlib import Path

import program_forks
import pytest
from agent_helpers import Cluster, eventually, market_in
from everspot_core.jobs.records import EventKind, JobState, Reason

FRAMEWORKS = Path(__file__).parent / "programs" / "frameworks"
TORCHTOY = Path(__file__).parent / "programs" / "torchtoy"
LONG = 300.0


@pytest.mark.torch
@pytest.mark.timeout(900)
def test_two_ranks_go_on_from_the_last_checkpoint_after_one_was_killed(cluster: Cluster, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    spec = {"checkpoint": {"every": "5s"}, "retries": {"errors": 2, "backoff": "1s"}, "resources": {"vcpus": 2}}
    env = {"NOTES": str(notes), "OMP_NUM_THREADS": "1"}
    cluster.submit("job-1", FRAMEWORKS, name="ranks", entrypoint=["ranks.py"], env=env, processes=2, **spec)
    cluster.assign("job-1", "i-1")
    cluster.start_agent("i-1", EVERSPOT_LAUNCHER=program_forks.launcher(2))
    eventually("it is kept", lambda: cluster.store.data.list("jobs/job-1/checkpoints/"), LONG)
    (notes / "kept").touch()
    record = cluster.wait_state("job-1", JobState.PENDING, JobState.FAILED, seconds=LONG)
    assert record.state is JobState.PENDING
    cluster.assign("job-1", "i-1")
    record = cluster.wait_state("job-1", JobState.SUCCEEDED, JobState.FAILED, JobState.PENDING, seconds=LONG)
    text = b"".join(chunk.data for chunk in cluster.store.read_logs("job-1") if chunk.epoch == 2).decode()
    assert record.state is JobState.SUCCEEDED, text
    # Both ranks print into one pipe, and `print` writes the end of a line by itself: lines may run into each other.
    assert sorted(re.findall(r"rank \d begins at \d+", text)) == ["rank 0 begins at 10", "rank 1 begins at 10"]


def await_steps(cluster: Cluster, job_id: str, count: int) -> None:
    """Wait until the program has printed so many steps, on whichever machine."""

    def furthest() -> bool:
        logs = [path for agent in cluster.agents for path in agent.home.glob(f"runs/{job_id}-*/output.log")]
        lines = [line for path in logs for line in path.read_text().splitlines()]
        return any(line.startswith(f"step {count} ") for line in lines)

    eventually(f"step {count}", furthest, LONG)


@pytest.mark.nightly  # nine starts of torch; tests/trainer/test_trainer_ranks.py stops and resumes two ranks, too
@pytest.mark.torch
@pytest.mark.timeout(900)
def test_two_processes_without_a_gpu_stop_at_a_notice_and_end_with_the_weights_of_the_undisturbed_run(
    cluster: Cluster,
) -> None:
    digests = {}
    for name in ("calm", "rough"):
        digests[name] = cluster.root / f"{name}.sha256"
        env = {"FIT_STEPS": "40", "FIT_STEP_SECONDS": "0.1", "FIT_OUT": str(digests[name])}
        cluster.submit(name, TORCHTOY, entrypoint=["fit.py"], env=env, processes=2, resources={"vcpus": 2})
    cluster.start_agent("i-1", EVERSPOT_LAUNCHER=program_forks.launcher(2))
    cluster.assign("rough", "i-1")
    await_steps(cluster, "rough", 8)
    cluster.stop("i-1", Reason.NOTICE, cordoned=True, deadline=market_in(60))
    assert cluster.wait_state("rough", JobState.PENDING, seconds=LONG).last_reason is Reason.NOTICE
    (interrupted,) = cluster.events("rough", EventKind.INTERRUPTED)
    assert interrupted.data["durable_step"] == interrupted.data["step"] >= 8
    cluster.start_agent("i-2", EVERSPOT_LAUNCHER=program_forks.launcher(2))
    for name in ("rough", "calm"):
        cluster.assign(name, "i-2")
        assert cluster.wait_state(name, JobState.SUCCEEDED, seconds=LONG).errors == 0
    assert digests["rough"].read_text() == digests["calm"].read_text()
    starts = [event.data["from_step"] for event in cluster.events("rough", EventKind.TRAINING)]
    assert starts == [0, interrupted.data["step"]]
