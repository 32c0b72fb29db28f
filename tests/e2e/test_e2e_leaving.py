"""A smaller target and a new generation on a whole cluster: the instances that are ordered to leave end themselves, and
no others end."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from e2e_helpers import CLUSTER, PLAIN, LiveCluster, everspot, everspot_output
from everspot_core.costs.attempts import Interruption, attempts, interruptions
from everspot_core.costs.ledger import FaultKind
from everspot_core.jobs.records import InstanceState, JobState, Reason, Role

pytestmark = pytest.mark.timeout(1800)


def agents(live: LiveCluster) -> dict[str, dict[str, Any]]:
    """Every agent's instance that EC2 has launched, as it describes it."""
    tags = {"everspot:cluster": CLUSTER, "everspot:role": Role.AGENT.value}
    filters = [{"Name": f"tag:{key}", "Values": [value]} for key, value in tags.items()]
    pages = live.client("ec2").get_paginator("describe_instances").paginate(Filters=filters)
    return {i["InstanceId"]: i for page in pages for r in page["Reservations"] for i in r["Instances"]}


def ended(live: LiveCluster) -> dict[str, str]:
    """Return for each instance who ended it."""
    return {n: i["StateReason"]["Code"] for n, i in agents(live).items() if i["State"]["Name"] == "terminated"}


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    """One cluster, which the tests below lead from one state to the next."""
    with LiveCluster(tmp_path_factory.mktemp("e2e"), agent_env=PLAIN, generation="g1") as cluster:
        yield cluster


def test_a_lower_target_frees_the_idle_instance_and_leaves_the_busy_one(live: LiveCluster) -> None:
    job = live.submit_toy("walked", steps=1_000_000, seconds=1)
    live.until(lambda: len(live.store.instances.scan()) == 2 or None)
    busy = live.until(lambda: live.trains(job))
    live.declare("g1", target=1)
    ended_states = live.until(lambda: ended(live))
    assert ended_states == {next(n for n in agents(live) if n != busy): "Client.InstanceInitiatedShutdown"}
    assert reasons(live, *ended_states) == [Reason.RELEASE]
    record = live.store.records.get(job).value
    assert (record.owner, record.preemptions) == (busy, 0)
    assert len(agents(live)) == 2  # no replacement was launched


def test_a_machine_with_fewer_gpus_than_its_type_gets_no_job_and_leaves(live: LiveCluster) -> None:
    """The one other instance is busy: the job that comes then has the broken one, or none, to wait for."""
    broken = live.launch("g4dn.xlarge")  # the machine below all of this has none to show
    reason = "0 of the 1 GPUs that its type has are seen"
    # It is cordoned only for a moment; a later read shows the same reason.
    assert reason in live.until(lambda: find_row(broken, "CORDONED", "ENDED"))["detail"]
    job = live.submit_toy("second", steps=1_000_000, seconds=1)
    assert live.until(lambda: ended(live).get(broken)) == "Client.InstanceInitiatedShutdown"
    assert reasons(live, broken) == [Reason.CORDON]
    fault = live.store.faults.get(broken).value
    assert (fault.kind, fault.instance_type) == (FaultKind.GPUS, "g4dn.xlarge")
    assert reason in live.until(lambda: find_row(broken, "ENDED"))["detail"]
    checks = json.loads(everspot_output("doctor", "--json"))["checks"]
    (check,) = (c for c in checks if c["name"] == "faults")
    assert check["verdict"] == "warn"
    assert broken in check["detail"]
    assert reason in check["detail"]

    assert live.trains(job) is None
    live.declare("g1", target=2)
    assert live.until(lambda: live.trains(job)) not in (broken, live.trains("walked"), None)
    assert all(e.instance_id != broken for j in (job, "walked") for e in live.store.events(j))
    everspot("cancel", job)
    assert live.until(lambda: live.ended(job)) is JobState.CANCELLED


def test_a_new_generation_replaces_the_idle_instance_by_itself_and_the_busy_one_on_request(live: LiveCluster) -> None:
    before = set(ended(live))
    job = "walked"
    busy = live.until(lambda: live.trains(job))
    (idle,) = live.until(lambda: idle_instances(live, "g1"))
    live.declare("g2", target=2)
    (fresh,) = live.until(lambda: idle_instances(live, "g2"))
    assert set(ended(live)) - before == {idle}
    assert reasons(live, idle) == [Reason.ROLL]
    record = live.store.records.get(job).value
    assert (record.owner, record.preemptions) == (busy, 0)

    assert json.loads(everspot("roll", "--json"))["old"] == [busy]
    live.until(lambda: ended(live).get(busy))
    # The record names its new owner before anything is trained there: what was resumed from is in the trainer's word.
    moved = live.until(lambda: resumed(live, job))
    assert (moved.attempt.instance_id, moved.attempt.reason, moved.resumed_on) == (busy, Reason.ROLL, fresh)
    assert moved.resumed_step is not None and moved.resumed_step > 0
    assert (moved.steps_redone, moved.steps_redone_is_least) == (0, False)
    assert live.until(lambda: live.trains(job, moved.resumed_step + 1)) == fresh
    assert set(ended(live)) - before == {idle, busy}
    assert json.loads(everspot("roll", "--show", "--json"))["old"] == []


def find_row(name: str, *states: str) -> dict[str, Any] | None:
    """An instance as `everspot instances` shows it, once it is in one of these states."""
    rows = json.loads(everspot("instances", "--all", "--json"))
    return next((row for row in rows if row["instance_id"] == name and row["state"] in states), None)


def resumed(live: LiveCluster, job: str) -> Interruption | None:
    """The one interruption of a job, once it trains again."""
    (interruption,) = interruptions(attempts(live.store.events(job))) or [None]
    return interruption if interruption is not None and interruption.resumed_step is not None else None


def idle_instances(live: LiveCluster, generation: str) -> list[str] | None:
    """The instances of a generation that wait for a job, once there is one."""
    alive = [doc.value for doc in live.store.instances.scan().values()]
    return [i.instance_id for i in alive if i.generation == generation and i.state is InstanceState.READY] or None


def reasons(live: LiveCluster, *names: str) -> list[Reason | None]:
    """Return the reasons of the orders to leave."""
    return [live.store.assignments.get(name).value.reason for name in names]
