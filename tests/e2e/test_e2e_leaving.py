"""A smaller target and a new generation on a whole cluster: who is told to leave ends itself, and nothing else does."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from e2e_helpers import CLUSTER, LiveCluster, everspot
from everspot_core.records import InstanceState, Reason, Role

pytestmark = [pytest.mark.torch, pytest.mark.timeout(1800)]


def agents(live: LiveCluster) -> dict[str, dict[str, Any]]:
    """Every agent's instance that EC2 has launched, as it describes it."""
    tags = {"everspot:cluster": CLUSTER, "everspot:role": Role.AGENT.value}
    filters = [{"Name": f"tag:{key}", "Values": [value]} for key, value in tags.items()]
    pages = live.client("ec2").get_paginator("describe_instances").paginate(Filters=filters)
    return {i["InstanceId"]: i for page in pages for r in page["Reservations"] for i in r["Instances"]}


def ended(live: LiveCluster) -> dict[str, str]:
    """By instance, who ended it."""
    return {n: i["StateReason"]["Code"] for n, i in agents(live).items() if i["State"]["Name"] == "terminated"}


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    """One cluster, which the tests below lead from one state to the next."""
    with LiveCluster(tmp_path_factory.mktemp("e2e"), generation="g1") as made:
        yield made


def test_a_lower_target_frees_the_idle_instance_and_leaves_the_busy_one(live: LiveCluster) -> None:
    job = live.submit("walked", epochs=5_000)
    live.until(lambda: len(live.store.instances.scan()) == 2 or None)
    busy = live.until(lambda: live.trains(job))
    live.declare("g1", target=1)
    gone = live.until(lambda: ended(live))
    assert gone == {next(n for n in agents(live) if n != busy): "Client.InstanceInitiatedShutdown"}
    assert reasons(live, *gone) == [Reason.RELEASE]
    record = live.store.records.get(job).value
    assert (record.owner, record.preemptions) == (busy, 0)
    assert len(agents(live)) == 2  # nothing was launched in its place


def test_a_new_generation_replaces_the_idle_instance_by_itself_and_the_busy_one_on_request(live: LiveCluster) -> None:
    before = set(ended(live))
    job = "walked-1"
    busy = live.until(lambda: live.trains(job))
    live.declare("g1", target=2)
    (idle,) = live.until(lambda: idle_of(live, "g1"))
    live.declare("g2", target=2)
    (fresh,) = live.until(lambda: idle_of(live, "g2"))
    assert set(ended(live)) - before == {idle}
    assert reasons(live, idle) == [Reason.ROLL]
    record = live.store.records.get(job).value
    assert (record.owner, record.preemptions) == (busy, 0)

    assert json.loads(everspot("roll", "--json"))["old"] == [busy]
    live.until(lambda: ended(live).get(busy))
    assert live.until(lambda: live.trains(job, live.store.records.get(job).value.progress.step)) == fresh
    assert set(ended(live)) - before == {idle, busy}


def idle_of(live: LiveCluster, generation: str) -> list[str] | None:
    """The instances of a generation that wait for a job, once there is one."""
    alive = [doc.value for doc in live.store.instances.scan().values()]
    return [i.instance_id for i in alive if i.generation == generation and i.state is InstanceState.READY] or None


def reasons(live: LiveCluster, *names: str) -> list[Reason | None]:
    """Why each was told to leave."""
    return [live.store.assignments.get(name).value.reason for name in names]
