"""Jobs that cannot be taken as they are offered: half assigned, or impossible to start. Real processes."""

import shutil
import time
from datetime import timedelta
from pathlib import Path

import pytest
from agent_helpers import TOY, Cluster, Proc, eventually
from everspot_core.jobs import lease as transitions
from everspot_core.jobs.records import EventKind, JobState, Order, Reason

SOME_POLLS = 1.0  # seconds


def write_record(cluster: Cluster, job_id: str, instance_id: str) -> None:
    """The second half of an assignment."""
    record = transitions.assign(None, job_id, instance_id, cluster.clock.now())
    assert cluster.store.records.create(job_id, record) is not None


def test_an_assignment_seen_before_its_record_is_taken_up_when_the_record_follows(cluster: Cluster) -> None:
    cluster.submit("job-1", env={"TOY_STEPS": "3"})
    cluster.order("i-1", job_id="job-1", epoch=1)
    agent = cluster.start_agent("i-1")
    cluster.wait_instance("i-1", lambda record: True)
    time.sleep(SOME_POLLS)

    write_record(cluster, "job-1", "i-1")
    record = cluster.wait_state("job-1", JobState.SUCCEEDED)

    assert (record.epoch, record.preemptions) == (1, 0)
    assert "is not assigned to this instance" not in agent.output


def test_a_stop_seen_before_the_record_is_carried_out_when_the_record_follows(cluster: Cluster) -> None:
    cluster.submit("job-1", env={"TOY_STEPS": "3"})
    cluster.order("i-1", job_id="job-1", epoch=1, order=Order.STOP, reason=Reason.DRAIN)
    cluster.start_agent("i-1")
    cluster.wait_instance("i-1", lambda record: True)
    time.sleep(SOME_POLLS)

    write_record(cluster, "job-1", "i-1")
    record = cluster.wait_state("job-1", JobState.PENDING)

    assert record.last_reason is Reason.DRAIN
    assert cluster.trace() == []


def test_an_epoch_that_was_spent_is_not_asked_for_again(cluster: Cluster) -> None:
    cluster.submit("job-1", env={"TOY_STEPS": "3"})
    spent = transitions.pending("job-1", cluster.clock.now()).model_copy(update={"epoch": 1})
    assert cluster.store.records.create("job-1", spent) is not None
    cluster.order("i-1", job_id="job-1", epoch=1)
    agent = cluster.start_agent("i-1")
    eventually("it asked", lambda: "is not assigned to this instance" in agent.output)
    time.sleep(SOME_POLLS)

    assert agent.output.count("is not assigned to this instance") == 1


def test_an_environment_that_no_process_can_have_is_the_jobs_own_error(cluster: Cluster) -> None:
    env = {f"A{number}": "x" * 32_000 for number in range(100)}  # each is in order, all of them are more than one takes
    cluster.submit("job-1", env=env, retries={"errors": 0})
    cluster.submit("job-2", env={"TOY_STEPS": "2"})
    cluster.start_agent("i-1")

    cluster.assign("job-1", "i-1")
    record = cluster.wait_state("job-1", JobState.FAILED)

    assert record.last_reason is Reason.ERROR
    assert "could not be started" in record.detail
    cluster.assign("job-2", "i-1")
    cluster.wait_state("job-2", JobState.SUCCEEDED)


NAME = "d" * 200


@pytest.fixture
def deep_code(tmp_path: Path) -> Path:
    """Code with a path that is in order by itself, but too long in a folder that is deep as well."""
    code = tmp_path / "code"
    shutil.copytree(TOY, code, ignore=shutil.ignore_patterns("__pycache__"))
    deep = code.joinpath(*[NAME] * 13)
    deep.mkdir(parents=True)
    (deep / "file").touch()
    return code


def start_deep(cluster: Cluster, instance_id: str) -> Proc:
    """An agent whose machine cannot unpack that code."""
    folder = cluster.root.joinpath(f"deep-{instance_id}", *[NAME] * 9)
    folder.mkdir(parents=True)
    return cluster.start_agent(instance_id, EVERSPOT_WORK=str(folder))


def test_a_job_that_one_instance_cannot_unpack_waits_a_little_and_runs_on_another(
    cluster: Cluster, deep_code: Path
) -> None:
    start_deep(cluster, "i-1")
    cluster.start_agent("i-2")
    cluster.submit("job-1", deep_code, env={"TOY_STEPS": "3"}, retries={"errors": 0})

    cluster.assign("job-1", "i-1")
    record = cluster.wait_state("job-1", JobState.PENDING)
    assert (record.last_reason, record.errors, record.preemptions) == (Reason.SHUTDOWN, 0, 1)
    assert record.unstarted == ["i-1"]
    assert record.not_before == record.changed_at + timedelta(seconds=10)
    assert record.detail.startswith("i-1 could not start the job: ") and "too long" in record.detail

    cluster.assign("job-1", "i-2")
    record = cluster.wait_state("job-1", JobState.SUCCEEDED)
    assert record.unstarted == []
    assert cluster.kinds("job-1").count("interrupted") == 0


def test_a_job_that_no_instance_can_unpack_fails_and_says_why(cluster: Cluster, deep_code: Path) -> None:
    cluster.submit("job-1", deep_code)
    instances = [f"i-{number}" for number in range(transitions.START_INSTANCES)]
    for instance in instances:
        start_deep(cluster, instance)
    for instance in instances[:-1]:
        cluster.assign("job-1", instance)
        cluster.wait_state("job-1", JobState.PENDING)
    cluster.assign("job-1", instances[-1])
    record = cluster.wait_state("job-1", JobState.FAILED)

    assert record.unstarted == instances
    assert record.detail.startswith("could not be started 4 times in a row, on 4 instances")
    assert "too long" in record.detail
    (failed,) = cluster.events("job-1", EventKind.FAILED)
    assert "too long" in str(failed.data["message"])
    assert cluster.trace() == []
