"""Real processes are killed: agents, training processes, whole machines, the scheduler."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from agent_helpers import Cluster, Proc, eventually
from everspot_core.cluster.manifest import Limits
from everspot_core.jobs.records import EventKind, JobState
from everspot_store.folder import FolderBackend
from fault_helpers import check_single_owner, expected

STEPS = 120
EVERY = 10
TOY_ENV = {"TOY_STEPS": str(STEPS), "TOY_EVERY": str(EVERY), "TOY_STEP_SECONDS": "0.04"}


@pytest.fixture
def limits() -> Limits:
    return Limits.model_validate(
        {"lease_ttl": "11s", "beat_every": "5s", "poll_every": "0.2s", "tick_every": "0.5s", "notice_poll": "1s"}
    )


@pytest.fixture
def cluster(tmp_path: Path, limits: Limits):  # type: ignore[no-untyped-def]
    cluster = Cluster(tmp_path, limits)
    yield cluster
    cluster.close()


def trainer_pid(agent: Proc) -> int:
    """The first process of the training tree."""
    children = Path(f"/proc/{agent.popen.pid}/task/{agent.popen.pid}/children").read_text().split()
    assert len(children) == 1
    return int(children[0])


def wait_for_owner(cluster: Cluster, job_id: str) -> str:
    record = cluster.wait_state(job_id, JobState.RUNNING)
    assert record.owner is not None
    return record.owner


def check(cluster: Cluster, job_id: str, steps: int = STEPS, *, but: Sequence[dict[str, Any]] = ()) -> None:
    """`but`: executed steps that are accounted for elsewhere."""
    assert cluster.final_state(job_id) == {"step": steps, "weight": expected(steps)}
    check_single_owner([fact for fact in cluster.trace() if fact["job"] == job_id and fact not in but], steps)


def halted(pid: int) -> bool:
    """Stopped with every thread, or over."""
    try:
        threads = [task / "stat" for task in Path(f"/proc/{pid}/task").iterdir()]
        return all(stat.read_text().rpartition(")")[2].split()[0] in "TZ" for stat in threads)
    except OSError:
        return not Path(f"/proc/{pid}").exists()


def stopped(proc: Proc) -> bool:
    """Signals what a process may have started meanwhile, too."""
    proc.signal_tree(signal.SIGSTOP)
    return all(halted(pid) for pid in proc.tree())


def between_checkpoints(cluster: Cluster) -> bool:
    """Return whether the toy program's last reported step is not one that a checkpoint follows."""
    return cluster.trace()[-1]["step"] % EVERY != EVERY - 1


def freeze(cluster: Cluster, proc: Proc, fits: Callable[[], bool] = lambda: True) -> None:
    """Stop the whole machine where it fits, but never within a write of a folder store: it would hold that key's lock
    for ever, which no bucket does."""
    folders = [FolderBackend(cluster.root / name, cluster.store.clock) for name in ("control", "data")]
    for _ in range(200):
        eventually("it has stopped", lambda: stopped(proc))
        if fits() and not any(folder.locked() for folder in folders):
            return
        proc.signal_tree(signal.SIGCONT)
        time.sleep(0.01)
    raise AssertionError("the machine was never met outside a write")


def test_an_agent_killed_alone_takes_its_trainer_along_and_the_job_goes_on(cluster: Cluster) -> None:
    agents = {name: cluster.start_agent(name) for name in ("i-1", "i-2")}
    cluster.start_scheduler()
    cluster.submit("job-1", env=TOY_ENV)
    cluster.wait_steps(27)
    victim = agents[wait_for_owner(cluster, "job-1")]

    victim.popen.kill()
    eventually("its trainer is dead too", lambda: not victim.tree())
    record = cluster.wait_state("job-1", JobState.SUCCEEDED)

    check(cluster, "job-1")
    assert (record.epoch, record.preemptions, record.errors) == (2, 1, 0)
    assert cluster.events("job-1", EventKind.LOST)
    assert len(cluster.trace()) - STEPS <= EVERY


def test_a_training_process_killed_alone_is_an_error_that_is_tried_again(cluster: Cluster) -> None:
    agent = cluster.start_agent("i-1")
    cluster.start_scheduler()
    cluster.submit("job-1", env=TOY_ENV, retries={"errors": 1, "backoff": "1s"})
    cluster.wait_steps(25)

    os.kill(trainer_pid(agent), signal.SIGKILL)
    record = cluster.wait_state("job-1", JobState.SUCCEEDED)

    check(cluster, "job-1")
    history = [(event.epoch, event.kind.value, str(event.at), event.data) for event in cluster.events("job-1")]
    assert (record.epoch, record.errors, record.preemptions) == (2, 1, 0), (history, agent.output)
    assert cluster.events("job-1", EventKind.ERROR)[0].data["exit_code"] == -signal.SIGKILL


def test_a_whole_machine_killed_loses_at_most_one_checkpoint_interval(cluster: Cluster) -> None:
    agents = {name: cluster.start_agent(name) for name in ("i-1", "i-2")}
    cluster.start_scheduler()
    for job in ("job-1", "job-2"):
        cluster.submit(job, env=TOY_ENV)
    cluster.wait_steps(60)

    agents[wait_for_owner(cluster, "job-1")].signal_tree(signal.SIGKILL)
    cluster.wait_state("job-1", JobState.SUCCEEDED)
    cluster.wait_state("job-2", JobState.SUCCEEDED)

    for job in ("job-1", "job-2"):
        check(cluster, job)
    assert len(cluster.trace()) - 2 * STEPS <= EVERY


def test_a_scheduler_killed_over_and_over_disturbs_no_running_job(cluster: Cluster) -> None:
    for name in ("i-1", "i-2"):
        cluster.start_agent(name)
    for job in ("job-1", "job-2", "job-3"):
        cluster.submit(job, env=TOY_ENV)
    for _ in range(4):
        scheduler = cluster.start_scheduler()
        time.sleep(1.5)
        scheduler.popen.kill()
    cluster.start_scheduler()

    for job in ("job-1", "job-2", "job-3"):
        record = cluster.wait_state(job, JobState.SUCCEEDED)
        check(cluster, job)
        assert (record.epoch, record.preemptions, record.errors) == (1, 0, 0)
    assert len(cluster.trace()) == 3 * STEPS


def test_everything_killed_at_once_goes_on_from_the_store(cluster: Cluster) -> None:
    procs = [cluster.start_agent("i-1"), cluster.start_agent("i-2"), cluster.start_scheduler()]
    for job in ("job-1", "job-2", "job-3"):
        cluster.submit(job, env=TOY_ENV)
    cluster.wait_steps(50)
    for proc in procs:
        proc.signal_tree(signal.SIGKILL)

    for name in ("i-3", "i-4"):
        cluster.start_agent(name)
    cluster.start_scheduler()

    for job in ("job-1", "job-2", "job-3"):
        cluster.wait_state(job, JobState.SUCCEEDED, seconds=60)
        check(cluster, job)


def test_a_machine_stopped_past_its_lease_and_continued_changes_nothing(cluster: Cluster) -> None:
    agents = {name: cluster.start_agent(name) for name in ("i-1", "i-2")}
    scheduler = cluster.start_scheduler()
    cluster.submit("job-1", env={**TOY_ENV, "TOY_STEPS": "260"})
    cluster.wait_steps(30)
    name = wait_for_owner(cluster, "job-1")
    victim = agents[name]

    # A part whose upload has begun is written when it wakes, under its own epoch (test_faults_frozen.py): not here.
    freeze(cluster, victim, lambda: between_checkpoints(cluster))
    last = cluster.trace()[-1]["epoch"]
    eventually(
        "the successor published",
        lambda: any(c.epoch > last for c in cluster.store.heads.get("job-1").value.checkpoints),
    )
    # Hold the others too, so that every change from here on is the sleeper's.
    other = agents["i-2" if name == "i-1" else "i-1"]
    freeze(cluster, other)
    freeze(cluster, scheduler)
    before, executed = cluster.keys(), len(cluster.trace())
    victim.signal_tree(signal.SIGCONT)
    eventually("its training process is over", lambda: victim.tree() == [victim.popen.pid])
    eventually(
        "the agent is well", lambda: cluster.keys()[f"control/instances/{name}.json"] != before[instance_key(name)]
    )
    after = cluster.keys()

    assert {key for key in before if after.get(key) != before[key]} == {instance_key(name)}
    assert set(after) == set(before)
    # The step that it was stopped in may end in its own memory; a next one is not begun.
    overrun = cluster.trace()[executed:]
    assert [fact["epoch"] for fact in overrun] in ([], [last])
    other.signal_tree(signal.SIGCONT)
    scheduler.signal_tree(signal.SIGCONT)
    cluster.wait_state("job-1", JobState.SUCCEEDED, seconds=60)
    check(cluster, "job-1", 260, but=overrun)


def instance_key(name: str) -> str:
    return f"control/instances/{name}.json"


def test_what_was_killed_leaves_no_process_behind(cluster: Cluster) -> None:
    agent = cluster.start_agent("i-1")
    cluster.submit("job-1", env=TOY_ENV)
    cluster.assign("job-1", "i-1")
    cluster.wait_steps(5)
    agent.popen.kill()
    eventually("nothing is left", lambda: not agent.tree())
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(agent.home) not in listed
