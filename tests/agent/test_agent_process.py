"""Real agent processes on a folder store: what they do with a job, from outside."""

import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from agent_helpers import TOY, Cluster, MetadataServer, eventually, market_in
from everspot_core.costs.attempts import attempts, interruptions
from everspot_core.jobs.records import EventKind, InstanceState, JobState, Market, Reason

sys.path.insert(0, str(TOY))
from toy_train import expected


def test_a_job_is_taken_trained_and_finished(cluster: Cluster) -> None:
    cluster.submit("job-1", env={"TOY_STEPS": "12", "OMP_NUM_THREADS": "99"})
    cluster.assign("job-1", "i-1")
    agent = cluster.start_agent("i-1")

    record = cluster.wait_state("job-1", JobState.SUCCEEDED)

    assert (record.epoch, record.owner, record.last_owner, record.exit_code) == (1, None, "i-1", 0)
    assert cluster.final_state("job-1") == {"step": 12, "weight": expected(12)}
    kinds = cluster.kinds("job-1")
    assert kinds[:3] == ["assigned", "started", "training"]
    assert kinds[-1] == "finished"
    finished = cluster.events("job-1", EventKind.FINISHED)[0]
    assert finished.data["step"] == 12
    assert finished.instance_id == "i-1"
    log = b"".join(chunk.data for chunk in cluster.store.read_logs("job-1")).decode()
    assert "step 0\n" in log
    assert "step 11\n" in log
    assert log.count("everspot: OMP_NUM_THREADS=99 in each of 1 process is more than the job's share of 1 vCPU") == 1
    eventually("its run directory is removed", lambda: not list((agent.home / "runs").iterdir()))


def test_it_boots_from_the_metadata_service_alone_and_registers_what_it_measured(cluster: Cluster) -> None:
    server = cluster.metadata_server("i-0abc")
    server.failures = [503, None, 429]
    agent = cluster.start_with_metadata(server, "i-0abc")

    record = cluster.wait_instance("i-0abc", lambda record: record.state is InstanceState.READY)

    assert (record.instance_type, record.zone, record.market) == ("m5.large", "us-east-1a", Market.SPOT)
    assert record.vcpus == len(os.sched_getaffinity(0))
    assert record.memory_gib > 0
    assert record.agent_version
    modules = Path(f"/proc/{agent.popen.pid}/maps").read_text()
    assert "libtorch" not in modules
    assert "/pulumi" not in modules


def test_a_real_agent_process_never_imports_torch(cluster: Cluster) -> None:
    code = "import sys, everspot_train.agent.main; print([m for m in sys.modules if m.split('.')[0] == 'torch'])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


def training_with_notices_by(cluster: Cluster, source: str) -> MetadataServer:
    """A long job that has made some steps, on an agent that hears of interruptions in one way only."""
    server = cluster.metadata_server("i-1")
    cluster.submit("job-1", env={"TOY_STEPS": "1000", "TOY_EVERY": "500"})
    cluster.assign("job-1", "i-1")
    cluster.start_with_metadata(server, "i-1", EVERSPOT_NOTICE_SOURCES=source)
    cluster.wait_steps(5)
    return server


def test_a_notice_of_the_metadata_service_alone_saves_every_step_and_gives_the_job_back(cluster: Cluster) -> None:
    server = training_with_notices_by(cluster, "metadata")

    action_at = market_in(20)
    server.announce_interruption(action_at)
    record = cluster.wait_state("job-1", JobState.PENDING)

    assert datetime.now(UTC) < action_at
    assert (record.last_reason, record.preemptions, record.errors) == (Reason.NOTICE, 1, 0)
    executed = max(fact["step"] for fact in cluster.trace()) + 1
    assert cluster.final_state("job-1") == {"step": executed, "weight": expected(executed)}
    interrupted = cluster.events("job-1", EventKind.INTERRUPTED)[0].data
    assert interrupted["step"] == interrupted["durable_step"] == executed
    assert 0 < interrupted["notice_to_durable_seconds"] < 10
    assert cluster.events("job-1", EventKind.STOP_DEMANDED)[0].data["source"] == "metadata"
    instance_record = cluster.wait_instance("i-1", lambda record: record.state is InstanceState.DRAINING)
    assert instance_record.notice.source == "metadata"
    # It takes nothing more: what is put there is handed back unstarted.
    cluster.assign("job-1", "i-1")
    record = cluster.wait_state("job-1", JobState.PENDING)
    assert record.epoch == 2
    assert len({fact["epoch"] for fact in cluster.trace()}) == 1


def test_a_notice_by_the_assignment_alone_saves_every_step(cluster: Cluster) -> None:
    server = training_with_notices_by(cluster, "queue")
    server.announce_interruption(market_in(20))

    cluster.stop("i-1", Reason.NOTICE, cordoned=True, deadline=market_in(20))
    record = cluster.wait_state("job-1", JobState.PENDING)

    assert record.last_reason is Reason.NOTICE
    executed = max(fact["step"] for fact in cluster.trace()) + 1
    assert cluster.final_state("job-1")["step"] == executed
    assert cluster.events("job-1", EventKind.STOP_DEMANDED)[0].data["source"] == "queue"
    polls = [path for _, path in server.requests if "spot" in path or "rebalance" in path]
    assert polls == []
    instance_record = cluster.wait_instance("i-1", lambda record: record.state is InstanceState.DRAINING)
    assert instance_record.notice.source == "queue"


def test_a_rebalance_recommendation_checkpoints_and_goes_on(cluster: Cluster) -> None:
    server = cluster.metadata_server("i-1")
    cluster.submit("job-1", env={"TOY_STEPS": "80", "TOY_EVERY": "500", "TOY_STEP_SECONDS": "0.05"})
    cluster.assign("job-1", "i-1")
    cluster.start_with_metadata(server, "i-1")
    cluster.wait_steps(5)

    server.recommend_rebalance(market_in(0))
    record = cluster.wait_state("job-1", JobState.SUCCEEDED)

    assert record.preemptions == 0
    triggers = [event.data["trigger"] for event in cluster.events("job-1", EventKind.CHECKPOINTED)]
    assert triggers == ["rebalance", "final"]
    assert len(cluster.events("job-1", EventKind.REBALANCE)) == 1


@pytest.mark.parametrize(
    ("reason", "state", "kind"),
    [
        (Reason.CANCEL, JobState.CANCELLED, EventKind.CANCELLED),
        (Reason.DRILL, JobState.PENDING, EventKind.INTERRUPTED),
        (Reason.BUDGET, JobState.FAILED, EventKind.FAILED),
        (Reason.UNDERUSED, JobState.FAILED, EventKind.FAILED),
    ],
)
def test_orders_stop_the_job_after_a_checkpoint_and_the_instance_takes_the_next(
    cluster: Cluster, reason: Reason, state: JobState, kind: EventKind
) -> None:
    cluster.submit("job-1", env={"TOY_STEPS": "1000", "TOY_EVERY": "500"})
    cluster.assign("job-1", "i-1")
    cluster.start_agent("i-1")
    cluster.wait_steps(3)

    cluster.stop("i-1", reason)
    record = cluster.wait_state("job-1", state)

    assert record.last_reason is reason
    executed = max(fact["step"] for fact in cluster.trace()) + 1
    assert cluster.final_state("job-1")["step"] == executed
    assert cluster.events("job-1")[-1].kind is kind
    cluster.submit("job-2", env={"TOY_STEPS": "2"})
    cluster.assign("job-2", "i-1")
    cluster.wait_state("job-2", JobState.SUCCEEDED)


def test_an_error_of_the_program_is_told_with_its_words_and_counted(cluster: Cluster) -> None:
    cluster.submit("job-1", env={"TOY_FAIL_AT": "7"}, retries={"errors": 1, "backoff": "1s"})
    cluster.assign("job-1", "i-1")
    cluster.start_agent("i-1")

    record = cluster.wait_state("job-1", JobState.PENDING)
    assert (record.errors, record.preemptions, record.last_reason) == (1, 0, Reason.ERROR)
    assert record.not_before is not None
    assert "not a number at step 7" in record.detail
    assert "Traceback" in record.detail
    error = cluster.events("job-1", EventKind.ERROR)[0].data
    assert error["exit_code"] == 1
    assert error["attempt"] == 1
    assert "ArithmeticError" in error["message"]

    cluster.assign("job-1", "i-1")
    record = cluster.wait_state("job-1", JobState.FAILED)
    assert record.errors == 2
    assert cluster.kinds("job-1")[-2:] == ["error", "failed"]


def test_code_that_was_never_uploaded_is_an_error_of_the_job(cluster: Cluster) -> None:
    submission = cluster.submit("job-1", retries={"errors": 0})
    cluster.store.data.delete(f"code/{submission.code_digest}.tar.gz")
    cluster.assign("job-1", "i-1")
    cluster.start_agent("i-1")
    record = cluster.wait_state("job-1", JobState.FAILED)
    assert "could not be started" in record.detail


def test_a_program_that_heeds_nothing_is_killed_before_the_instance_is_taken(cluster: Cluster) -> None:
    server = cluster.metadata_server("i-1")
    cluster.submit("job-1", env={"TOY_STEPS": "5000", "TOY_EVERY": "4", "TOY_DEAF": "1"})
    cluster.assign("job-1", "i-1")
    cluster.start_with_metadata(server, "i-1")
    cluster.wait_steps(6)

    action_at = market_in(5)
    server.announce_interruption(action_at)
    record = cluster.wait_state("job-1", JobState.PENDING)

    assert datetime.now(UTC) < action_at
    assert record.last_reason is Reason.NOTICE
    interrupted = cluster.events("job-1", EventKind.INTERRUPTED)[0].data
    assert interrupted["durable_step"] <= interrupted["step"]


def test_sigterm_to_the_agent_saves_the_job_and_says_gone(cluster: Cluster) -> None:
    cluster.submit("job-1", env={"TOY_STEPS": "1000", "TOY_EVERY": "500"})
    cluster.assign("job-1", "i-1")
    agent = cluster.start_agent("i-1")
    cluster.wait_steps(5)

    agent.popen.send_signal(signal.SIGTERM)

    assert agent.wait() == 0
    record = cluster.record("job-1")
    assert record is not None
    assert (record.state, record.last_reason) == (JobState.PENDING, Reason.SHUTDOWN)
    executed = max(fact["step"] for fact in cluster.trace()) + 1
    assert cluster.final_state("job-1")["step"] == executed
    document = cluster.store.instances.get("i-1")
    assert document is not None
    assert document.value.state is InstanceState.GONE
    assert not (agent.home / "powered-off").exists()


def test_the_training_process_dies_with_its_agent_and_the_next_agent_adopts_the_job(cluster: Cluster) -> None:
    cluster.submit("job-1", env={"TOY_STEPS": "60", "TOY_STEP_SECONDS": "0.05"})
    cluster.assign("job-1", "i-1")
    agent = cluster.start_agent("i-1")
    cluster.wait_steps(5)

    agent.popen.kill()
    eventually("the trainer is dead", lambda: not agent.tree())
    cluster.start_agent("i-1")
    record = cluster.wait_state("job-1", JobState.SUCCEEDED)

    assert (record.epoch, record.preemptions, record.incarnation) == (1, 0, 2)
    assert cluster.final_state("job-1") == {"step": 60, "weight": expected(60)}
    head = cluster.store.checkpoints("job-1").head()
    assert head is not None
    assert (head.epoch, head.incarnation) == (1, 2)
    executed = [fact["step"] for fact in cluster.trace()]
    (interruption,) = interruptions(attempts(cluster.events("job-1"), {1: 60}))
    assert interruption.steps_redone is not None
    assert interruption.steps_redone <= len(executed) - 60  # as far as it had been reported
    log = b"".join(chunk.data for chunk in cluster.store.read_logs("job-1")).decode()
    assert "step 59\n" in log


def test_the_agents_of_a_run_of_tests_that_is_killed_end_with_it(tmp_path: Path) -> None:
    code = (
        "import os, pathlib, sys\n"
        "from agent_helpers import FAST, Cluster\n"
        "cluster = Cluster(pathlib.Path(sys.argv[1]), FAST)\n"
        "agent = cluster.start_agent('i-1')\n"
        "cluster.wait_instance('i-1', lambda record: True)\n"
        "print(agent.popen.pid, flush=True)\n"
        "os._exit(1)\n"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True)
    agent = Path("/proc", done.stdout.strip())
    eventually("the agent has ended", lambda: not agent.exists() or ") Z " in (agent / "stat").read_text())
