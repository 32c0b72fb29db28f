"""A smaller target and a new generation on the whole road: who is told to leave ends itself, and nothing else does."""

from typing import Any

import pytest
from everspot_core.manifest import Standing
from everspot_core.records import Reason, Role
from road_kit import CLUSTER, Road

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


def test_a_lower_target_frees_the_idle_instance_and_leaves_the_busy_one(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with Road(tmp_path_factory.mktemp("road")) as road:
        job = road.submit("walked", epochs=5_000)
        road.until(lambda: len(road.store.instances.scan()) == 2 or None)
        busy = road.until(lambda: road.trains(job))
        ec2 = road.client("ec2")
        (fleet,) = ec2.describe_fleets()["Fleets"]
        ec2.modify_fleet(
            FleetId=fleet["FleetId"],
            TargetCapacitySpecification={"TotalTargetCapacity": 1},
            ExcessCapacityTerminationPolicy="no-termination",
        )
        manifest = road.store.manifest().model_copy(update={"standing": Standing(spot_units=1)})
        road.store.write_manifest(manifest)
        gone = road.until(lambda: ended(road))
        assert gone == {next(n for n in agents(road) if n != busy): "Client.InstanceInitiatedShutdown"}
        (told,) = (road.store.assignments.get(name).value for name in gone)
        assert told.reason is Reason.RELEASE
        record = road.store.records.get(job).value
        assert (record.owner, record.preemptions) == (busy, 0)
        assert len(agents(road)) == 2  # nothing was launched in its place
