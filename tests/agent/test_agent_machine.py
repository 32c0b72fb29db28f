"""A machine that is dismissed or unfit gives its job back, or takes none, and says why."""

import pytest
from agent_helpers import Cluster
from everspot_core.jobs.records import InstanceState, JobState, Order, Reason


def test_an_instance_that_is_let_go_gives_its_job_back_and_powers_off(cluster: Cluster) -> None:
    cluster.submit("job-1", env={"TOY_STEPS": "1000", "TOY_EVERY": "500"})
    cluster.assign("job-1", "i-1")
    (cluster.root / "run").mkdir()
    agent = cluster.start_agent("i-1", EVERSPOT_RUNTIME=str(cluster.root / "run"))
    cluster.wait_steps(5)
    assert (cluster.root / "run" / "reported").exists()
    assert (cluster.root / "run" / "boot-deadline").read_text() == "600\n"

    cluster.order("i-1", job_id="job-1", epoch=1, order=Order.LEAVE, reason=Reason.ROLL)
    assert agent.wait() == 0

    record = cluster.record("job-1")
    assert record is not None
    assert (record.state, record.last_reason, record.preemptions) == (JobState.PENDING, Reason.ROLL, 1)
    assert cluster.final_state("job-1")["step"] == max(fact["step"] for fact in cluster.trace()) + 1
    assert (agent.home / "powered-off").exists()
    document = cluster.store.instances.get("i-1")
    assert document is not None
    assert document.value.state is InstanceState.GONE
    pieces = [cluster.store.data.get(entry.key) for entry in cluster.store.data.list("agents/i-1/")]
    log = b"".join(piece.value for piece in pieces if piece is not None)
    assert b"leaving: the scheduler orders this instance to leave: roll" in log


@pytest.mark.parametrize(
    ("instance_type", "deadline"), [("m5.large", "600\n"), ("p4d.24xlarge", "1200\n"), ("g4dn.metal", "1800\n")]
)
def test_an_instance_has_the_boot_deadline_of_its_type(cluster: Cluster, instance_type: str, deadline: str) -> None:
    server = cluster.metadata_server("i-1")
    server.pages["latest/meta-data/instance-type"] = instance_type
    (cluster.root / "run").mkdir()
    cluster.start_with_metadata(server, "i-1", PATH="/usr/bin:/bin", EVERSPOT_RUNTIME=str(cluster.root / "run"))
    cluster.wait_instance("i-1", lambda record: True)
    assert (cluster.root / "run" / "boot-deadline").read_text() == deadline


@pytest.mark.parametrize(
    ("instance_type", "env", "words"),
    [
        ("m5.large", {"EVERSPOT_MIN_FREE_MIB": "1000000000"}, "1000000000 are needed"),
        ("g4dn.12xlarge", {}, "0 of the 4 GPUs that its type has are seen"),
    ],
)
def test_an_unfit_machine_says_why_and_takes_nothing(
    cluster: Cluster, instance_type: str, env: dict[str, str], words: str
) -> None:
    server = cluster.metadata_server("i-1")
    server.pages["latest/meta-data/instance-type"] = instance_type
    cluster.start_with_metadata(server, "i-1", PATH="/usr/bin:/bin", **env)
    instance_record = cluster.wait_instance("i-1", lambda record: record.state is InstanceState.CORDONED)
    assert words in instance_record.detail

    cluster.submit("job-1")
    cluster.assign("job-1", "i-1")
    record = cluster.wait_state("job-1", JobState.PENDING)
    assert (record.last_reason, record.errors) == (Reason.CORDON, 0)
    assert cluster.trace() == []
