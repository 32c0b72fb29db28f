"""Real trainers of other makers are struck by real signals, inside a save and elsewhere, and go on from a whole
checkpoint."""

import os
import signal
from pathlib import Path

import program_forks
import pytest
from agent_helpers import Cluster, eventually, market_in
from everspot_core.jobs.records import EventKind, JobState, Reason

FRAMEWORKS = Path(__file__).parent / "programs" / "frameworks"
LONG = 300.0
NOTICE_SECONDS = 15.0
"""The market's time from a notice to the interruption: long enough for a busy machine to hear of it before its end."""

CASES = [
    pytest.param("transformers", "inside", "term", 20),
    pytest.param("lightning", "inside", "kill", 20),
    pytest.param("accelerate", "inside", "term", 20),
    pytest.param("dcp", "inside", "kill", 20),
    pytest.param("transformers", "inside", "kill", 20, marks=pytest.mark.nightly),
    pytest.param("transformers", "between", "lost", 40, marks=pytest.mark.nightly),
    pytest.param("lightning", "inside", "term", 20, marks=pytest.mark.nightly),
    pytest.param("lightning", "between", "lost", 40, marks=pytest.mark.nightly),
    pytest.param("accelerate", "between", "lost", 40, marks=pytest.mark.nightly),
    pytest.param("accelerate", "between", "kill", 40, marks=pytest.mark.nightly),
    pytest.param("dcp", "inside", "term", 20, marks=pytest.mark.nightly),
    pytest.param("dcp", "between", "lost", 40, marks=pytest.mark.nightly),
]


@pytest.fixture
def launcher() -> str:
    return program_forks.launcher()


def printed(cluster: Cluster, epoch: int) -> str:
    chunks = cluster.store.read_logs("job-1")
    return b"".join(chunk.data for chunk in chunks if chunk.epoch == epoch).decode()


@pytest.mark.torch
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("framework", "where", "how", "step"), CASES)
def test_a_real_trainer_goes_on_from_its_newest_whole_checkpoint(
    cluster: Cluster, tmp_path: Path, framework: str, where: str, how: str, step: int
) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    env = {"FRAMEWORK": framework, "STRIKE": where, "OMP_NUM_THREADS": "1", "NOTES": str(notes)}
    spec = {"checkpoint": {"every": "5s"}, "retries": {"errors": 2, "backoff": "1s"}}
    cluster.submit("job-1", FRAMEWORKS, name="fit", entrypoint=["fit.py"], env=env, **spec)
    cluster.assign("job-1", "i-1")
    agent = cluster.start_agent("i-1")
    if framework == "dcp":
        eventually("it is kept", lambda: cluster.store.data.list("jobs/job-1/checkpoints/"), LONG)
        (notes / "kept").touch()
    outputs = lambda: list(cluster.root.glob("instances/*/runs/job-1-000001/output.log"))  # noqa: E731
    eventually("it is there", lambda: any("here\n" in file.read_text() for file in outputs()), LONG)
    if how == "term":
        # Lightning answers SIGTERM once its save is over, which it never is: the program lives until the deadline.
        cluster.stop("i-1", Reason.NOTICE, cordoned=True, deadline=market_in(NOTICE_SECONDS))
        record = cluster.wait_state("job-1", JobState.PENDING, seconds=LONG)
        assert (record.last_reason, record.errors) == (Reason.NOTICE, 0)
    elif how == "kill":
        _kill_program(agent.tree(), "fit.py")
        cluster.wait_state("job-1", JobState.PENDING, seconds=LONG)
    else:  # the machine is lost without a word, some time after a save
        eventually("it is kept", lambda: _is_kept(cluster, f"{step}"), LONG)
        agent.end()
        cluster.expire("job-1")

    cluster.assign("job-1", "i-2")
    cluster.start_agent("i-2")
    record = cluster.wait_state("job-1", JobState.SUCCEEDED, JobState.FAILED, JobState.PENDING, seconds=LONG)

    text = printed(cluster, 2)
    assert record.state is JobState.SUCCEEDED, text
    began = [line for line in text.splitlines() if line.startswith("began at ")]
    # Lightning's file is complete before the link that the strike hinders; the link still leads to the one before.
    assert began == [f"began at {step}"], (text, cluster.events("job-1", EventKind.SKIPPED))
    checkpoints_line = next(line for line in text.splitlines() if line.startswith("left "))
    if framework == "transformers":
        assert checkpoints_line == "left ['checkpoint-40', 'checkpoint-60']"
    if framework == "lightning":
        assert "last.ckpt" in checkpoints_line and "step=20" in checkpoints_line and "step=60" in checkpoints_line


def _is_kept(cluster: Cluster, step: str) -> bool:
    """Whether the newest checkpoint in the store holds a step."""
    head = cluster.store.checkpoints("job-1").head()
    if head is None or not head.checkpoints:
        return False
    part = next(part for part in head.checkpoints[0].parts if part.name == "tree.json")
    stored = cluster.store.data.get(part.key)
    text = stored.value.decode() if stored is not None else ""
    return step in text or ("last/.metadata" in text and head.checkpoints[0].step >= 2)


def _kill_program(pids: list[int], program: str) -> None:
    for pid in pids:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        if program.encode() in command and b"agent.main" not in command:
            os.kill(pid, signal.SIGKILL)
            return
    raise AssertionError(f"{program} does not run")


@pytest.mark.torch
@pytest.mark.timeout(900)
@pytest.mark.parametrize("save_last", [pytest.param("copy", marks=pytest.mark.nightly), "link"])
def test_lightning_keeps_one_last_checkpoint_over_all_attempts(cluster: Cluster, save_last: str) -> None:
    env = {"SAVE_LAST": save_last, "PAUSES": "12 27", "OMP_NUM_THREADS": "1"}
    spec = {"checkpoint": {"every": "5s"}, "retries": {"errors": 3, "backoff": "1s"}}
    cluster.submit("job-1", FRAMEWORKS, name="last", entrypoint=["last.py"], env=env, **spec)
    for epoch in (1, 2):  # each on a machine of its own
        cluster.assign("job-1", f"i-{epoch}")
        agent = cluster.start_agent(f"i-{epoch}")
        pattern = f"instances/*/runs/job-1-{epoch:06d}/output.log"
        reached = lambda p=pattern: any("here\n" in file.read_text() for file in cluster.root.glob(p))  # noqa: E731
        eventually("it is there", reached, LONG)
        _kill_program(agent.tree(), "last.py")
        cluster.wait_state("job-1", JobState.PENDING, seconds=LONG)
    cluster.assign("job-1", "i-3")
    cluster.start_agent("i-3")
    record = cluster.wait_state("job-1", JobState.SUCCEEDED, JobState.FAILED, JobState.PENDING, seconds=LONG)

    lines = [printed(cluster, epoch).splitlines() for epoch in (1, 2, 3)]
    assert record.state is JobState.SUCCEEDED, lines[-1]
    assert [line for attempt in lines for line in attempt if line.startswith("began at ")] == [
        "began at 0", "began at 10", "began at 25",
    ]  # fmt: skip
    assert len({line for attempt in lines for line in attempt if line.startswith("in ")}) == 1
    (files_line,) = (line for line in lines[-1] if line.startswith("left "))
    assert files_line == "left ['best-step=40.ckpt', 'last.ckpt']"


@pytest.mark.torch
@pytest.mark.timeout(900)
def test_what_a_program_on_the_library_writes_itself_is_put_back_too(cluster: Cluster) -> None:
    cluster.submit("job-1", FRAMEWORKS, name="best", entrypoint=["best.py"], checkpoint={"steps": 5, "every": "5s"})
    cluster.assign("job-1", "i-1")
    agent = cluster.start_agent("i-1")
    logs = lambda: list(cluster.root.glob("instances/*/runs/job-1-000001/output.log"))  # noqa: E731
    eventually("it trains", lambda: any("at 8\n" in file.read_text() for file in logs()), LONG)
    cluster.stop("i-1", Reason.DRILL)
    cluster.wait_state("job-1", JobState.PENDING, seconds=LONG)
    assert agent.popen.poll() is None
    cluster.assign("job-1", "i-1")
    record = cluster.wait_state("job-1", JobState.SUCCEEDED, JobState.FAILED, seconds=LONG)
    assert record.state is JobState.SUCCEEDED, printed(cluster, 2)
    assert "best is 3 1000 best/best.pt" in printed(cluster, 2)
