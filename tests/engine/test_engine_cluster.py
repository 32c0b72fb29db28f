"""The local environment through the real engine: what changes in place, and what comes and goes beside it.

The tests share one cluster and run in this order; each leaves it as its settings say.
"""

import base64
import json
import re
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1800)]

SPOT, ON_DEMAND = "everspot-local-fleet-spot", "everspot-local-fleet-on-demand"
REPLACED = {"replace", "create-replacement", "delete-replaced", "delete"}


@pytest.fixture(scope="module", autouse=True)
def cluster(rig: Any) -> None:
    rig.up("account")
    rig.up()


def test_up_declares_what_the_settings_say(rig: Any) -> None:
    for market, on_demand, spot in (("onDemand", 1, 0), ("spot", 0, 4)):
        fleet = rig.fleet(market)
        assert fleet["FleetState"] == "active"
        assert fleet["Type"] == "maintain"
        assert fleet["TargetCapacitySpecification"]["OnDemandTargetCapacity"] == on_demand
        assert fleet["TargetCapacitySpecification"]["SpotTargetCapacity"] == spot
        overrides = fleet["LaunchTemplateConfigs"][0]["Overrides"]
        assert len({o["InstanceType"] for o in overrides}) >= 4
        assert len({o["SubnetId"] for o in overrides}) == 3
    published = rig.client("s3").get_object(
        Bucket=rig.outputs["controlUrl"].removeprefix("s3://").removesuffix("?region=eu-west-1"), Key="cluster.json"
    )
    manifest = json.loads(published["Body"].read())
    assert manifest["queue_url"] == rig.outputs["queueUrl"]
    assert manifest["data_url"] == rig.outputs["dataUrl"]
    assert (manifest["standing"]["on_demand_units"], manifest["standing"]["spot_units"]) == (1, 4)


def test_instances_carry_the_tags_by_which_they_are_found(rig: Any) -> None:
    filters = [{"Name": "tag:everspot:cluster", "Values": ["everspot-local"]}]
    reservations = rig.client("ec2").describe_instances(Filters=filters)["Reservations"]
    roles = [
        tag["Value"] for r in reservations for i in r["Instances"] for tag in i["Tags"] if tag["Key"] == "everspot:role"
    ]
    assert roles.count("agent") >= 5
    assert roles.count("scheduler") == 1


def test_a_second_up_changes_nothing(rig: Any) -> None:
    rig.up("local", "--expect-no-changes")


def test_without_the_workaround_a_second_up_would_replace_the_fleet(rig: Any) -> None:
    program = rig.project / "stacks" / "__main__.py"
    kept = program.read_text()
    program.write_text("import everspot.aws.fleet\neverspot.aws.fleet.ignored_changes = lambda *_: []\n" + kept)
    try:
        changes = rig.preview().changes
    finally:
        program.write_text(kept)
    assert changes[SPOT] in REPLACED


SIZES = [
    # target, base, percentage, and the two sizes that they come to
    (8, 3, 40, 5, 3),
    (8, 8, 0, 8, 0),
    (6, 0, 0, 0, 6),
]


def test_target_base_and_percentage_change_in_place_and_end_nothing(rig: Any, restored: Callable[[], None]) -> None:
    ids = rig.outputs["onDemandFleetId"], rig.outputs["spotFleetId"]
    rig.wait(lambda: len(rig.agents()) >= 5)
    template = rig.client("ec2").describe_launch_templates(LaunchTemplateIds=[rig.outputs["launchTemplateId"]])
    for target, base, percentage, on_demand, spot in SIZES:
        rig.settings("capacity.standing.target", target)
        rig.settings("capacity.standing.onDemandBase", base)
        rig.settings("capacity.standing.onDemandPercentage", percentage)
        assert set(rig.up()) <= {"same", "update"}
        assert (rig.outputs["onDemandFleetId"], rig.outputs["spotFleetId"]) == ids
        assert (rig.total("onDemand"), rig.total("spot")) == (on_demand, spot)
    # EC2 has launched what each size added, and every agent that ever ran is running still.
    rig.wait(lambda: len(rig.agents()) >= 8 + 6)
    assert set(rig.agents().values()) <= {"pending", "running"}
    assert (
        rig.client("ec2").describe_launch_templates(LaunchTemplateIds=[rig.outputs["launchTemplateId"]])[
            "LaunchTemplates"
        ]
        == template["LaunchTemplates"]
    )  # no new version: a size is nothing that an instance is launched with


# What is declared beside the standing fleets, by what declares it.
ELASTIC = {"everspot-local-elastic", "everspot-local-elastic-template", "everspot-local-elastic-permissions"}


def cluster_json(rig: Any) -> dict[str, Any]:
    bucket = rig.outputs["controlUrl"].removeprefix("s3://").partition("?")[0]
    found = rig.client("s3").get_object(Bucket=bucket, Key="cluster.json")["Body"].read()
    return dict(json.loads(found))


def test_elastic_capacity_and_monitoring_come_change_and_go_without_touching_what_runs(
    rig: Any, restored: Callable[[], None]
) -> None:
    before, agents = cluster_json(rig), set(rig.agents())
    assert before.get("elastic") is None and before.get("monitoring") is None
    topic = rig.client("sns").create_topic(Name="alarms")["TopicArn"]
    rig.settings("capacity.elastic", {"maxInstances": 8, "maxUsdPerHour": 1})
    rig.settings("monitoring.topicArn", topic)
    told = rig.preview().told
    assert "elastic: up to $1.00 more (maxUsdPerHour; 8 instances of m6i.xlarge at" in told
    assert re.search(r"nothing running: at least \$0\.[01]\d\d \(", told) and "standing: $" in told
    assert "monitoring $0.009" in told
    # The scheduler's profile waits for its permission: in a preview its template may change, in `up` it does not.
    rig.up()
    found = cluster_json(rig)
    check_elastic(rig, found["elastic"])
    assert found["generation"] == before["generation"]
    check_monitoring(rig, found["monitoring"], topic)
    # Numbers and the idle limit reach cluster.json and the elastic template, and nothing else.
    rig.settings("capacity.elastic.maxInstances", 3)
    rig.settings("capacity.elastic.idleLimit", "9m")
    assert rig.preview().changes == {
        "everspot-local-manifest": "update", "everspot-local-elastic-template": "update",
    }  # fmt: skip
    rig.up()
    assert cluster_json(rig)["elastic"]["idle_limit"] == 540
    rig.up("local", "--expect-no-changes")
    restored()
    changes = rig.preview().changes
    assert {name: kind for name, kind in changes.items() if name in ELASTIC} == dict.fromkeys(ELASTIC, "delete")
    rig.up()
    assert cluster_json(rig).get("elastic") is None and cluster_json(rig).get("monitoring") is None
    assert rig.client("cloudwatch").describe_alarms()["MetricAlarms"] == []
    assert set(rig.agents()) == agents and set(rig.agents().values()) <= {"pending", "running"}


def check_elastic(rig: Any, elastic: dict[str, Any]) -> None:
    """What the scheduler reads of elastic capacity, and what its instances would be launched with."""
    assert (elastic["max_instances"], elastic["max_usd_per_hour"], elastic["idle_limit"]) == (8, 1, 300)
    assert sorted(elastic["places"]) == ["eu-west-1a", "eu-west-1b", "eu-west-1c"]
    assert set(elastic["places"].values()) == set(rig.outputs["subnetIds"])
    version = rig.client("ec2").describe_launch_template_versions(
        LaunchTemplateId=elastic["template"], Versions=[elastic["template_version"]]
    )["LaunchTemplateVersions"][0]["LaunchTemplateData"]
    assert json.loads(base64.b64decode(version["UserData"]))["limits"]["idle_limit"] == 300 + 900


def check_monitoring(rig: Any, monitoring: dict[str, Any], topic: str) -> None:
    """What the scheduler reads of monitoring, the alarms, and the dashboard that shows them."""
    assert monitoring == {"namespace": "Everspot"}
    cloudwatch = rig.client("cloudwatch")
    alarms = cloudwatch.describe_alarms()["MetricAlarms"]
    assert {alarm["Namespace"] for alarm in alarms} == {"Everspot"}
    assert [alarm["AlarmActions"] for alarm in alarms] == [[topic]] * 4
    board = json.loads(cloudwatch.get_dashboard(DashboardName="everspot-local")["DashboardBody"])
    assert sorted(board["widgets"][0]["properties"]["alarms"]) == sorted(alarm["AlarmArn"] for alarm in alarms)


def scheduler(rig: Any) -> str:
    groups = rig.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
    (group,) = [g for g in groups if g["AutoScalingGroupName"] == rig.outputs["schedulerGroup"]]
    return ",".join(sorted(instance["InstanceId"] for instance in group["Instances"]))


def test_what_an_instance_is_launched_with_reaches_the_scheduler_by_itself_and_types_and_tags_change_in_place(
    rig: Any, restored: Callable[[], None]
) -> None:
    fleet_id, before, agents = rig.outputs["spotFleetId"], scheduler(rig), set(rig.agents())
    rig.settings("limits.stopMargin", "9s")
    changes = rig.preview().changes
    assert changes["everspot-local-scheduler-group"] == changes["everspot-local-scheduler-template"] == "update"
    assert changes[SPOT] == changes["everspot-local-manifest"] == "update"
    restored()
    rig.settings("capacity.instanceTypes", [*rig.declared()["capacity"]["instanceTypes"], "c7i.xlarge"])
    rig.settings("tags.Team", "vision")
    changes = rig.preview().changes
    assert (changes[SPOT], changes[ON_DEMAND]) == ("update", "update")
    # One update carries it all.
    rig.settings("limits.stopMargin", "9s")
    rig.up()
    fleet = rig.fleet()
    assert rig.outputs["spotFleetId"] == fleet_id
    assert "c7i.xlarge" in {o["InstanceType"] for o in fleet["LaunchTemplateConfigs"][0]["Overrides"]}
    assert {t["Key"]: t["Value"] for t in fleet["Tags"]}["Team"] == "vision"
    vpc = rig.client("ec2").describe_vpcs(VpcIds=[rig.outputs["vpcId"]])["Vpcs"][0]
    assert {t["Key"]: t["Value"] for t in vpc["Tags"]}["Team"] == "vision"
    rig.wait(lambda: scheduler(rig) != before and "," not in scheduler(rig))
    assert set(rig.agents()) == agents and set(rig.agents().values()) <= {"pending", "running"}


def test_the_buckets_keep_no_versions_and_the_default_group_lets_nothing_through(rig: Any) -> None:
    bucket = rig.outputs["dataUrl"].removeprefix("s3://").partition("?")[0]
    assert rig.client("s3").get_bucket_versioning(Bucket=bucket)["Status"] == "Suspended"
    filters = [{"Name": "vpc-id", "Values": [rig.outputs["vpcId"]]}, {"Name": "group-name", "Values": ["default"]}]
    (group,) = rig.client("ec2").describe_security_groups(Filters=filters)["SecurityGroups"]
    assert group["IpPermissions"] == group["IpPermissionsEgress"] == []


def test_whoever_deploys_needs_nothing_that_is_not_in_the_table(rig: Any) -> None:
    assert {"cloudwatch:PutMetricAlarm", "ec2:ModifyFleet"} <= rig.asked["deploy"]
    assert rig.unlisted() == set()
