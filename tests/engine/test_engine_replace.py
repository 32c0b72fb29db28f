"""A cluster that is protected, guarded, put right and destroyed, through the real engine.

The tests share one cluster and run in this order.
"""

from datetime import UTC, datetime
from typing import Any

import pytest
from everspot_core.records import InstanceRecord, InstanceState, JobRecord, JobState, Market, Role
from everspot_store import Store
from pulumi import automation

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1800)]

SPOT, ON_DEMAND = "everspot-local-fleet-spot", "everspot-local-fleet-on-demand"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module", autouse=True)
def protected(rig: Any) -> None:
    rig.up("account")
    rig.settings("protect", True)
    rig.up()


def test_protect_refuses_to_replace_the_fleet(rig: Any) -> None:
    allocation = rig.declared()["capacity"]["standing"]
    rig.settings("capacity.standing.spotAllocation", "capacity-optimized")
    assert "protect" in rig.refused()
    rig.settings("capacity.standing", allocation)


def test_what_was_deleted_behind_its_back_is_found_and_made_again(rig: Any) -> None:
    rule = next(r["Name"] for r in rig.client("events").list_rules()["Rules"] if "rebalance" in r["Name"])
    events = rig.client("events")
    events.remove_targets(Rule=rule, Ids=[t["Id"] for t in events.list_targets_by_rule(Rule=rule)["Targets"]])
    events.delete_rule(Name=rule)
    # The same update lifts the protection and guards jobs instead, which the next test needs.
    rig.settings("protect", False)
    rig.settings("guardJobs", True)
    rig.up("local", "--refresh")
    assert any("rebalance" in r["Name"] for r in rig.client("events").list_rules()["Rules"])


def test_replacing_a_fleet_says_what_it_does_to_running_jobs_and_waits_for_them(
    rig: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleets = rig.outputs["onDemandFleetId"], rig.outputs["spotFleetId"]
    for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, rig.env[name])
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    store = Store.open(rig.outputs["controlUrl"])
    record, version = works_on(store, "vision-1", Market.SPOT)
    works_on(store, "speech-1", Market.ON_DEMAND)
    rig.settings("capacity.standing.spotAllocation", "capacity-optimized")
    told = rig.preview().told
    assert f"{SPOT}: replaced or deleted, it ends its instances; 1 job runs on its instances now: vision-1. " in told
    assert "agents get SIGTERM and 80 s to checkpoint, which EC2 does not promise" in told
    assert "speech-1" not in told and f"{ON_DEMAND}: replaced" not in told
    with pytest.raises(automation.CommandError, match=r"1 job would be ended: vision-1\. `everspot drain --wait`"):
        rig.up()
    assert rig.fleet()["FleetState"] == "active"
    assert {f["FleetId"] for f in rig.client("ec2").describe_fleets()["Fleets"]} == set(fleets)  # nothing was made
    drained = record.model_copy(update={"state": JobState.PENDING, "owner": None})
    assert store.records.replace(record.job_id, version, drained) is not None
    rig.up()
    assert rig.outputs["onDemandFleetId"] == fleets[0] and rig.outputs["spotFleetId"] != fleets[1]
    rig.settings("capacity.standing", {"target": 5, "onDemandBase": 1})
    rig.settings("guardJobs", False)
    rig.up()  # and back, unguarded: whatever runs


def works_on(store: Store, job: str, market: Market) -> tuple[JobRecord, Any]:
    """A job that runs on an instance of a market, as its agent would have written it."""
    instance = InstanceRecord(
        instance_id=f"i-of-{job}", cluster="everspot-local", role=Role.AGENT, instance_type="c6i.large",
        zone="eu-west-1a", market=market, vcpus=2, memory_gib=4, state=InstanceState.BUSY,
        booted_at=NOW, updated_at=NOW,
    )  # fmt: skip
    record = JobRecord(job_id=job, state=JobState.RUNNING, owner=instance.instance_id, changed_at=NOW)
    assert store.instances.create(instance.instance_id, instance) is not None
    version = store.records.create(job, record)
    assert version is not None
    return record, version


def test_destroy_leaves_nothing(rig: Any) -> None:
    rig.destroy()
    rig.destroy("account")
    ec2 = rig.client("ec2")
    living = [{"Name": "instance-state-name", "Values": ["pending", "running", "stopping", "stopped"]}]
    assert ec2.describe_instances(Filters=living)["Reservations"] == []
    assert [f for f in ec2.describe_fleets()["Fleets"] if f["FleetState"] == "active"] == []
    assert ec2.describe_launch_templates()["LaunchTemplates"] == []
    assert [v for v in ec2.describe_vpcs()["Vpcs"] if not v["IsDefault"]] == []
    assert rig.client("s3").list_buckets()["Buckets"] == []
    assert rig.client("sqs").list_queues().get("QueueUrls", []) == []
    assert rig.client("events").list_rules()["Rules"] == []
    assert rig.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"] == []
    mine = [r for r in rig.client("iam").list_roles()["Roles"] if r["RoleName"].startswith("everspot")]
    assert mine == []


def test_whoever_deploys_needs_nothing_that_is_not_in_the_table(rig: Any) -> None:
    assert {"ec2:CreateFleet", "iam:PassRole", "s3:PutEncryptionConfiguration"} <= rig.asked["deploy"]
    assert rig.unlisted() == set()
