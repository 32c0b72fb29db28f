"""A smaller target and a new generation on the whole road: who is told to leave ends itself, and nothing else does."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from everspot_core.records import InstanceState, Reason, Role
from road_kit import CLUSTER, Road, everspot

pytestmark = [pytest.mark.torch, pytest.mark.timeout(1800)]


def agents(road: Road) -> dict[str, dict[str, Any]]:
    """Every agent's instance that EC2 has launched, as it describes it."""
    tags = {"everspot:cluster": CLUSTER, "everspot:role": Role.AGENT.value}
    filters = [{"Name": f"tag:{key}", "Values": [value]} for key, value in tags.items()]
    pages = road.client("ec2").get_paginator("describe_instances").paginate(Filters=filters)
    return {i["InstanceId"]: i for page in pages for r in page["Reservations"] for i in r["Instances"]}


def ended(road: Road) -> dict[str, str]:
    """By instance, who ended it."""
    return {n: i["StateReason"]["Code"] for n, i in agents(road).items() if i["State"]["Name"] == "terminated"}


@pytest.fixture(scope="module")
def road(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Road]:
    """One cluster, which the tests below lead from one state to the next."""
    with Road(tmp_path_factory.mktemp("road"), generation="g1") as made:
        yield made


def test_a_lower_target_frees_the_idle_instance_and_leaves_the_busy_one(road: Road) -> None:
    job = road.submit("walked", epochs=5_000)
    road.until(lambda: len(road.store.instances.scan()) == 2 or None)
    busy = road.until(lambda: road.trains(job))
    road.declare("g1", target=1)
    gone = road.until(lambda: ended(road))
    assert gone == {next(n for n in agents(road) if n != busy): "Client.InstanceInitiatedShutdown"}
    assert reasons(road, *gone) == [Reason.RELEASE]
    record = road.store.records.get(job).value
    assert (record.owner, record.preemptions) == (busy, 0)
    assert len(agents(road)) == 2  # nothing was launched in its place


def test_a_new_generation_replaces_the_idle_instance_by_itself_and_the_busy_one_when_asked_to(road: Road) -> None:
    before = set(ended(road))
    job = "walked-1"
    busy = road.until(lambda: road.trains(job))
    road.declare("g1", target=2)
    (idle,) = road.until(lambda: idle_of(road, "g1"))
    road.declare("g2", target=2)
    (fresh,) = road.until(lambda: idle_of(road, "g2"))
    assert set(ended(road)) - before == {idle}
    assert reasons(road, idle) == [Reason.ROLL]
    record = road.store.records.get(job).value
    assert (record.owner, record.preemptions) == (busy, 0)

    assert json.loads(everspot("roll", "--json"))["old"] == [busy]
    road.until(lambda: ended(road).get(busy))
    assert road.until(lambda: road.trains(job, road.store.records.get(job).value.progress.step)) == fresh
    assert set(ended(road)) - before == {idle, busy}


def idle_of(road: Road, generation: str) -> list[str] | None:
    """The instances of a generation that wait for a job, once there is one."""
    alive = [doc.value for doc in road.store.instances.scan().values()]
    return [i.instance_id for i in alive if i.generation == generation and i.state is InstanceState.READY] or None


def reasons(road: Road, *names: str) -> list[Reason | None]:
    """Why each was told to leave."""
    return [road.store.assignments.get(name).value.reason for name in names]
