"""Jobs that share a machine: real processes under one agent, and none of them is another's concern."""

import os
import signal
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import program_forks
import pytest
from agent_helpers import Cluster, Proc, eventually, market_in
from everspot_core.capacity.instances import InstanceRecord
from everspot_core.jobs import lease as transitions
from everspot_core.jobs import sharing
from everspot_core.jobs.records import Assignment, EventKind, InstanceState, JobState, Order, Reason
from everspot_train.rundir import RUN_DIR_VARIABLE

LONG = {"TOY_STEPS": "100000", "TOY_EVERY": "1000000", "TOY_STEP_SECONDS": "0.05"}
NAMES = ("a", "b", "c", "d")


@pytest.fixture
def launcher() -> str:
    """Most tests start four programs, which spend their time on imports."""
    return program_forks.launcher()


def sit(cluster: Cluster, host: InstanceRecord, *names: str) -> None:
    """As a scheduler does: all seats by one write, then each job's record."""
    document = cluster.store.assignments.get(host.instance_id)
    assignment = document.value if document is not None else None
    records = []
    for name in names:
        old, job = cluster.store.records.get(name), cluster.store.jobs.get(name)
        record = transitions.assign(old.value if old else None, name, host.instance_id, cluster.clock.now())
        need = job.value.spec.resources
        assignment = sharing.seat(assignment, host, name, record.epoch, need, cluster.clock.now())
        assert assignment is not None, f"no room for {name}"
        records.append((name, old, record))
    cluster.store.assignments.put(host.instance_id, assignment)
    for name, old, record in records:
        table = cluster.store.records
        assert (table.replace(name, old, record) if old else table.create(name, record)) is not None


def change(cluster: Cluster, how: Callable[[Assignment], Assignment]) -> None:
    document = cluster.store.assignments.get("i-1")
    cluster.store.assignments.put("i-1", how(document.value))


def machine(cluster: Cluster, vcpus: int = 8, gpus: int = 4) -> InstanceRecord:
    """What the scheduler takes the instance for: as large as the test needs it."""
    machine_record = cluster.wait_instance("i-1", lambda record: record.state is InstanceState.READY)
    return machine_record.model_copy(update={"vcpus": vcpus, "memory_gib": 32.0, "gpus": gpus})


def begin(cluster: Cluster, *names: str, env: dict[str, str] | None = None, **resources: Any) -> Proc:
    agent = cluster.start_agent("i-1")
    for name in names:
        need = {"vcpus": 1, "memory_gib": 1, "shared": True, **resources}
        cluster.submit(name, env={**LONG, **(env or {})}, resources=need)
    sit(cluster, machine(cluster), *names)
    for name in names:
        cluster.wait_state(name, JobState.RUNNING, JobState.SUCCEEDED)
    return agent


def steps(cluster: Cluster, name: str) -> list[int]:
    return [fact["step"] for fact in cluster.trace() if fact["job"] == name]


def goes_on(cluster: Cluster, *names: str) -> None:
    for name in names:
        before = len(steps(cluster, name))
        eventually(f"{name} goes on", lambda name=name, before=before: len(steps(cluster, name)) > before)


@pytest.mark.parametrize("launcher", [sys.executable], ids=["python"])
def test_four_jobs_run_beside_each_other_and_each_has_its_own_of_everything(cluster: Cluster) -> None:
    agent = begin(cluster, *NAMES, gpus=1)
    machine_record = cluster.wait_instance("i-1", lambda r: len(r.residents) == 4)
    assert (machine_record.state, machine_record.job_id) == (InstanceState.BUSY, None)
    goes_on(cluster, *NAMES)
    for name in NAMES:
        change(cluster, lambda old, name=name: sharing.stop(old, name, 1, Reason.DRILL, None, cluster.clock.now()))
    for name in NAMES:
        record = cluster.wait_state(name, JobState.PENDING)
        assert (record.epoch, record.incarnation, record.last_owner) == (1, 1, "i-1")
        (interruption,) = cluster.events(name, EventKind.INTERRUPTED)
        assert steps(cluster, name) == list(range(interruption.data["step"]))
        assert cluster.final_state(name)["step"] == interruption.data["durable_step"] == interruption.data["step"]
        assert cluster.kinds(name)[0] == "started"
    assert agent.output.count("sets no limits") == 1, "said once, not once a job"
    cluster.wait_instance("i-1", lambda r: r.state is InstanceState.READY and not r.residents)
    eventually("nothing of them is left", lambda: not list((agent.home / "runs").iterdir()))


def test_who_is_done_leaves_and_the_others_run_on(cluster: Cluster) -> None:
    begin(cluster, "a")
    cluster.submit("b", env={"TOY_STEPS": "20"}, resources={"vcpus": 1, "memory_gib": 1, "shared": True})
    sit(cluster, read_machine(cluster), "b")
    assert cluster.wait_state("b", JobState.SUCCEEDED).epoch == 1
    assert (steps(cluster, "b"), cluster.final_state("b")["step"]) == (list(range(20)), 20)
    goes_on(cluster, "a")


@pytest.mark.parametrize("launcher", [sys.executable], ids=["python"])
def test_each_sees_its_own_gpus_and_runs_behind_the_agent(cluster: Cluster) -> None:
    agent = begin(cluster, *NAMES, gpus=1)
    goes_on(cluster, *NAMES)
    limits_by_run = {}
    for pid in agent.tree():
        environ_lines = Path(f"/proc/{pid}/environ").read_text().split("\0")
        environ = dict(line.split("=", 1) for line in environ_lines if "=" in line)
        if RUN_DIR_VARIABLE in environ:
            run = Path(environ[RUN_DIR_VARIABLE]).name
            limits_by_run[run] = (
                environ["CUDA_VISIBLE_DEVICES"],
                environ["OMP_NUM_THREADS"],
                os.getpriority(os.PRIO_PROCESS, pid),
            )
    assert limits_by_run == {
        f"{name}-000001": (str(n), "1", os.getpriority(os.PRIO_PROCESS, 0) + 5) for n, name in enumerate(NAMES)
    }


@pytest.mark.parametrize("reason", [Reason.CANCEL, Reason.DRILL])
def test_what_is_wanted_of_one_leaves_the_others_alone(cluster: Cluster, reason: Reason) -> None:
    begin(cluster, "a", "b", "c")
    goes_on(cluster, "a", "b", "c")
    change(cluster, lambda old: sharing.stop(old, "b", 1, reason, None, cluster.clock.now()))
    cluster.wait_state("b", JobState.CANCELLED, JobState.PENDING)
    assert cluster.record("b").last_reason is reason
    goes_on(cluster, "a", "c")
    change(cluster, lambda old: sharing.remove_job(old, "b", 1, cluster.clock.now()))
    cluster.wait_instance("i-1", lambda r: [s.job_id for s in r.residents] == ["a", "c"])
    if reason is Reason.DRILL:  # and it may come back to its own place
        sit(cluster, read_machine(cluster), "b")
        assert cluster.wait_state("b", JobState.RUNNING).epoch == 2
    for name in ("a", "c"):
        record = cluster.record(name)
        assert (record.epoch, record.incarnation, record.preemptions) == (1, 1, 0)


def read_machine(cluster: Cluster) -> InstanceRecord:
    document = cluster.store.instances.get("i-1")
    return document.value.model_copy(update={"vcpus": 8, "memory_gib": 32.0, "gpus": 4})


def test_an_error_of_one_is_its_own(cluster: Cluster) -> None:
    begin(cluster, "a", "b")
    cluster.submit("bad", env={**LONG, "TOY_FAIL_AT": "3"}, resources={"shared": True}, retries={"errors": 0})
    sit(cluster, read_machine(cluster), "bad")
    assert cluster.wait_state("bad", JobState.FAILED).last_reason is Reason.ERROR
    goes_on(cluster, "a", "b")
    assert cluster.wait_instance("i-1", lambda r: len(r.residents) == 2).state is InstanceState.BUSY


def test_at_a_notice_all_of_them_checkpoint_at_once_and_lose_nothing(cluster: Cluster) -> None:
    server = cluster.metadata_server("i-1")
    agent = cluster.start_with_metadata(server, "i-1")
    for name in NAMES:
        cluster.submit(name, env=LONG, resources={"vcpus": 1, "memory_gib": 1, "shared": True})
    sit(cluster, machine(cluster), *NAMES)
    goes_on(cluster, *NAMES)
    server.announce_interruption(market_in(20))
    for name in NAMES:
        record = cluster.wait_state(name, JobState.PENDING)
        assert record.last_reason is Reason.NOTICE
        (interruption,) = cluster.events(name, EventKind.INTERRUPTED)
        assert interruption.data["step"] == interruption.data["durable_step"] == cluster.final_state(name)["step"]
        assert steps(cluster, name) == list(range(interruption.data["step"]))
    ends = [cluster.events(name, EventKind.INTERRUPTED)[0].at for name in NAMES]
    assert max(ends) - min(ends) < timedelta(seconds=5)
    cluster.wait_instance("i-1", lambda r: r.state is InstanceState.DRAINING and not r.residents)
    assert agent.popen.poll() is None


def test_an_agent_that_is_killed_and_started_again_takes_all_of_them_up(cluster: Cluster) -> None:
    agent = begin(cluster, *NAMES, env={"TOY_EVERY": "10"})
    goes_on(cluster, *NAMES)
    agent.signal_tree(signal.SIGKILL)
    agent.wait()
    cluster.start_agent("i-1")
    for name in NAMES:
        record = eventually(
            f"{name} is taken up", lambda name=name: (r := cluster.record(name)).incarnation == 2 and r, 60
        )
        assert (record.state, record.epoch, record.preemptions) == (JobState.RUNNING, 1, 0)
    goes_on(cluster, *NAMES)


def test_the_machine_is_left_when_the_last_of_them_has_given_its_job_back(cluster: Cluster) -> None:
    agent = begin(cluster, "a", "b")
    goes_on(cluster, "a", "b")
    change(cluster, lambda old: sharing.leave(old, "i-1", Reason.ROLL, cluster.clock.now()))
    assert agent.wait() == 0
    assert (agent.home / "powered-off").exists()
    for name in ("a", "b"):
        record = cluster.record(name)
        assert (record.state, record.last_reason) == (JobState.PENDING, Reason.ROLL)
        assert cluster.final_state(name)["step"] == len(steps(cluster, name))


def test_a_sigterm_to_the_agent_gives_all_of_them_back(cluster: Cluster) -> None:
    agent = begin(cluster, "a", "b", "c")
    goes_on(cluster, "a", "b", "c")
    agent.popen.send_signal(signal.SIGTERM)
    assert agent.wait() == 0
    for name in ("a", "b", "c"):
        record = cluster.record(name)
        assert (record.state, record.last_reason) == (JobState.PENDING, Reason.SHUTDOWN)
        assert cluster.final_state(name)["step"] == len(steps(cluster, name))


def test_a_job_that_has_the_machine_alone_waits_for_the_last_of_them(cluster: Cluster) -> None:
    begin(cluster, "a", env={"TOY_STEPS": "200"})
    cluster.submit("x", env={"TOY_STEPS": "5"})
    goes_on(cluster, "a")
    cluster.assign("x", "i-1")  # which no scheduler does before a has left
    cluster.wait_state("a", JobState.SUCCEEDED)
    cluster.wait_state("x", JobState.SUCCEEDED)
    last = max(f["at"] for f in cluster.trace() if f["job"] == "a")
    assert last < min(f["at"] for f in cluster.trace() if f["job"] == "x")


def test_a_seat_of_an_instance_that_is_leaving_is_given_back_unstarted(cluster: Cluster) -> None:
    begin(cluster, "a")
    cluster.submit("b", env=LONG, resources={"shared": True})
    change(cluster, lambda old: old.model_copy(update={"cordoned": True}))
    cluster.wait_instance("i-1", lambda r: r.state is InstanceState.DRAINING)
    sit(cluster, read_machine(cluster), "b")
    record = cluster.wait_state("b", JobState.PENDING)
    assert (record.last_reason, cluster.events("b", EventKind.STARTED)) == (Reason.NOTICE, [])
    assert cluster.store.assignments.get("i-1").value.for_job("a").order is Order.RUN
    goes_on(cluster, "a")
