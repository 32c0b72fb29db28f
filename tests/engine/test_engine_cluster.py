"""The local environment through the real engine: what changes in place, and what comes and goes beside it.

The tests share one cluster and run in this order.
"""

import base64
import json
import re
from typing import Any

import pytest
from engine_federation import PEERS, check_federation, endpoints, peer_roles, ways_out
from everspot_clouds.aws.endpoints import NAT_COST

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1800)]

SPOT, ON_DEMAND = "everspot-local-fleet-spot", "everspot-local-fleet-on-demand"
KEYS = [f"arn:aws:kms:eu-west-1:123456789012:key/0a1b2c3d-1111-2222-3333-44445555666{n}" for n in range(2)]
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


def test_an_instances_root_volume_is_as_large_as_its_image(rig: Any) -> None:
    ec2 = rig.client("ec2")
    (image,) = ec2.describe_images(ImageIds=[rig.outputs["imageId"]])["Images"]
    sizes = [m["Ebs"]["VolumeSize"] for m in image["BlockDeviceMappings"] if m["DeviceName"] == image["RootDeviceName"]]
    query = {"LaunchTemplateId": rig.outputs["launchTemplateId"], "Versions": ["$Default"]}
    (version,) = ec2.describe_launch_template_versions(**query)["LaunchTemplateVersions"]
    launched = version["LaunchTemplateData"]["BlockDeviceMappings"]
    assert [(m["DeviceName"], m["Ebs"]["VolumeSize"]) for m in launched] == [(image["RootDeviceName"], *sizes)]


def test_instances_carry_the_tags_by_which_they_are_found(rig: Any) -> None:
    rig.wait(lambda: len(rig.agents()) >= 5 and len(scheduler(rig)) > 0)
    filters = [{"Name": "tag:everspot:cluster", "Values": ["everspot-local"]}]
    reservations = rig.client("ec2").describe_instances(Filters=filters)["Reservations"]
    roles = [
        tag["Value"] for r in reservations for i in r["Instances"] for tag in i["Tags"] if tag["Key"] == "everspot:role"
    ]
    assert roles.count("agent") >= 5
    assert roles.count("scheduler") == 1


def test_without_the_workaround_a_second_up_would_replace_the_fleet_and_change_nothing_else(rig: Any) -> None:
    ec2 = rig.client("ec2")
    ec2.modify_ebs_default_kms_key_id(KmsKeyId="alias/aws/ebs")
    # AWS answers its own key by ARN, once one had been chosen.
    assert ec2.get_ebs_default_kms_key_id()["KmsKeyId"].startswith("arn:aws:kms:")
    program = rig.project / "stacks" / "__main__.py"
    original = program.read_text()
    program.write_text("import everspot.aws.fleet\neverspot.aws.fleet.ignored_changes = lambda *_: []\n" + original)
    try:
        run = rig.preview()
    finally:
        program.write_text(original)
    assert run.changes.pop(SPOT) in REPLACED
    assert run.changes.pop("everspot-local-declared") == "update"  # which names the fleets
    assert run.changes == {}
    # It costs what its parts cost while nothing runs: the endpoints of the new network among them.
    assert re.search(
        r"nothing running: at least \$0\.[01]\d\d, \$\d+\.\d\d a month \(scheduler .*, 9 interface endpoints",
        run.output,
    )
    assert "elastic: nothing" in run.output
    assert "customer key" not in run.output and "quotas do not hold" not in run.output


# What is declared beside the standing fleets, by what declares it.
ELASTIC = {"everspot-local-elastic", "everspot-local-elastic-template", "everspot-local-elastic-permissions"}


def cluster_json(rig: Any) -> dict[str, Any]:
    bucket = rig.outputs["controlUrl"].removeprefix("s3://").partition("?")[0]
    body = rig.client("s3").get_object(Bucket=bucket, Key="cluster.json")["Body"].read()
    return dict(json.loads(body))


def sized(rig: Any, target: int, base: int, percentage: int) -> None:
    """Set the size of what stands."""
    rig.settings("capacity.standing.target", target)
    rig.settings("capacity.standing.onDemandBase", base)
    rig.settings("capacity.standing.onDemandPercentage", percentage)


def fleet_ids(rig: Any) -> tuple[str, str]:
    return rig.outputs["onDemandFleetId"], rig.outputs["spotFleetId"]


def template(rig: Any) -> Any:
    """What the fleets launch, with its versions."""
    ids = [rig.outputs["launchTemplateId"]]
    return rig.client("ec2").describe_launch_templates(LaunchTemplateIds=ids)["LaunchTemplates"]


def run_still(rig: Any, agents: set[str]) -> bool:
    """Whether these agents are there, and every agent that ever ran is running still."""
    states = rig.agents()
    return agents <= set(states) and set(states.values()) <= {"pending", "running"}


def check_internet(rig: Any, manifest: dict[str, Any]) -> None:
    """Jobs' instances may open connections to port 443 of everything, and their subnets' route leads to the gateway."""
    ec2 = rig.client("ec2")
    group = rig.outputs["securityGroupId"]
    rules = ec2.describe_security_group_rules(Filters=[{"Name": "group-id", "Values": [group]}])["SecurityGroupRules"]
    out = [(rule["FromPort"], rule["ToPort"]) for rule in rules if rule["IsEgress"] and "CidrIpv4" in rule]
    assert out == [(443, 443)]
    tables = ec2.describe_route_tables(
        Filters=[{"Name": "association.subnet-id", "Values": [rig.outputs["subnetIds"][0]]}]
    )["RouteTables"]
    (gateway,) = [route["NatGatewayId"] for table in tables for route in table["Routes"] if "NatGatewayId" in route]
    (nat,) = ec2.describe_nat_gateways(NatGatewayIds=[gateway])["NatGateways"]
    assert (nat["State"], manifest["internet"]) == ("available", True)


def test_sizes_change_in_place_while_capacity_monitoring_and_peers_come_and_touch_nothing_that_runs(rig: Any) -> None:
    before, agents, ids, launches = cluster_json(rig), set(rig.agents()), fleet_ids(rig), template(rig)
    assert before.get("elastic") is None and before.get("monitoring") is None
    topic = rig.client("sns").create_topic(Name="alarms")["TopicArn"]
    sized(rig, target=8, base=3, percentage=40)
    rig.settings("capacity.elastic", {"maxInstances": 8, "maxUsdPerHour": 1})
    rig.settings("monitoring.topicArn", topic)
    rig.settings("federation", PEERS)
    rig.settings("kmsKeyArn", KEYS[0])
    assert NAT_COST in rig.preview().output
    changes = rig.up().changes
    assert changes[SPOT] == changes[ON_DEMAND] == "update" and set(changes.values()) <= {"update", "create"}
    assert fleet_ids(rig) == ids
    assert (rig.total("onDemand"), rig.total("spot")) == (5, 3)
    assert template(rig) == launches  # no new version: a size is nothing that an instance is launched with
    manifest = cluster_json(rig)
    check_elastic(rig, manifest["elastic"])
    assert manifest["generation"] == before["generation"]
    check_monitoring(rig, manifest["monitoring"], topic)
    check_federation(rig, manifest["federation"])
    rig.wait(lambda: len(rig.agents()) >= 5 + 4)  # on Spot nothing was ended
    assert run_still(rig, agents)


def test_numbers_and_the_idle_limit_reach_cluster_json_and_the_elastic_template_and_then_nothing_changes(
    rig: Any,
) -> None:
    rig.settings("capacity.elastic.maxInstances", 3)
    rig.settings("capacity.elastic.idleLimit", "9m")
    assert rig.up().changes == {
        "everspot-local-manifest": "update", "everspot-local-elastic-template": "update",
        "everspot-local-elastic": "update",  # the component, which tells a preview of its limits
    }  # fmt: skip
    assert cluster_json(rig)["elastic"]["idle_limit"] == 540
    rig.up("local", "--expect-no-changes")


def test_elastic_capacity_goes_without_a_trace_while_types_tags_and_a_limit_change_in_place(rig: Any) -> None:
    ids, before, agents = fleet_ids(rig), scheduler(rig), set(rig.agents())
    rig.settings("capacity.elastic", None)
    rig.settings("monitoring", None)
    rig.settings("federation", PEERS[1:])
    rig.settings("limits.stopMargin", "9s")
    rig.settings("capacity.instanceTypes", [*rig.declared()["capacity"]["instanceTypes"], "c7i.xlarge"])
    rig.settings("tags.Team", "vision")
    rig.settings("tags.Note", "goes")
    rig.settings("kmsKeyArn", KEYS[1])
    lost = f"kmsKeyArn: what is stored under {KEYS[0]} could no longer be read: name that key in formerKmsKeyArns"
    assert lost in rig.refused()
    rig.settings("formerKmsKeyArns", KEYS[:1])
    sized(rig, target=8, base=8, percentage=0)
    changes = rig.up().changes
    assert {name: kind for name, kind in changes.items() if name in ELASTIC} == dict.fromkeys(ELASTIC, "delete")
    assert changes["everspot-local-scheduler-group"] == changes["everspot-local-scheduler-template"] == "update"
    # Jobs' credentials come by it, with or without peers: it gets the tags and stays.
    assert changes["everspot-local-network-endpoint-sts"] == "update"
    assert changes[SPOT] == changes[ON_DEMAND] == changes["everspot-local-manifest"] == "update"
    assert set(changes.values()) <= {"update", "delete"}
    assert fleet_ids(rig) == ids
    assert (rig.total("onDemand"), rig.total("spot")) == (8, 0)
    assert cluster_json(rig).get("elastic") is None and cluster_json(rig).get("monitoring") is None
    assert rig.client("cloudwatch").describe_alarms()["MetricAlarms"] == []
    # A peer that is near is reached by STS's endpoint: the way out is gone, and what it cost.
    assert ways_out(rig) == [] and len(peer_roles(rig)) == len(cluster_json(rig)["federation"]) == 1
    assert "com.amazonaws.eu-west-1.sts" in endpoints(rig)
    check_types_and_tags(rig)
    rig.wait(lambda: scheduler(rig) != before and "," not in scheduler(rig))  # the limit reaches it by itself
    rig.wait(lambda: len(rig.agents()) >= 8 + 4)
    assert run_still(rig, agents)


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


def check_types_and_tags(rig: Any) -> None:
    """What the fleet may launch, and what the fleet and the network are tagged with."""
    fleet = rig.fleet()
    assert "c7i.xlarge" in {o["InstanceType"] for o in fleet["LaunchTemplateConfigs"][0]["Overrides"]}
    assert {t["Key"]: t["Value"] for t in fleet["Tags"]}["Team"] == "vision"
    vpc = rig.client("ec2").describe_vpcs(VpcIds=[rig.outputs["vpcId"]])["Vpcs"][0]
    assert {t["Key"]: t["Value"] for t in vpc["Tags"]}["Team"] == "vision"


# What is declared for jobs' way to the internet.
NAT = {f"everspot-local-network-{end}" for end in (
    "internet", "outside", "outside-routes", "nat", "to-nat", "scheduler", "out-peers", "out-internet",
)}  # fmt: skip


def test_a_tag_goes_from_everything_and_nat_leads_to_the_internet_and_then_nothing_changes(rig: Any) -> None:
    ids, agents = fleet_ids(rig), set(rig.agents())
    rig.settings("tags.Note", None)
    rig.settings("nat", True)
    rig.settings("kmsKeyArn", None)
    rig.settings("formerKmsKeyArns", KEYS)
    sized(rig, target=6, base=0, percentage=0)
    changes = rig.up().changes
    assert (changes[SPOT], changes[ON_DEMAND]) == ("update", "update") and fleet_ids(rig) == ids
    assert (rig.total("onDemand"), rig.total("spot")) == (0, 6)
    changes.pop("everspot-local-network-endpoint-sts", None)  # a federation's goes: the gateway is a way there, too
    assert {name for name, kind in changes.items() if kind == "create"} == NAT
    assert {kind for name, kind in changes.items() if name not in NAT} == {"update"}
    rig.pulumi("preview", "--refresh", "--expect-no-changes", "--color=never", stack="local")
    check_internet(rig, cluster_json(rig))
    tagged = rig.client("ec2").describe_tags(Filters=[{"Name": "key", "Values": ["Note"]}])["Tags"]
    launched = ("instance", "volume", "network-interface")  # which keep the tags that they were launched with
    assert [tag for tag in tagged if tag["ResourceType"] not in launched] == []
    # EC2 has launched what each size added.
    rig.wait(lambda: len(rig.agents()) >= 8 + 6)
    assert run_still(rig, agents)


def test_the_buckets_keep_no_versions_and_the_default_group_lets_nothing_through(rig: Any) -> None:
    bucket = rig.outputs["dataUrl"].removeprefix("s3://").partition("?")[0]
    assert rig.client("s3").get_bucket_versioning(Bucket=bucket)["Status"] == "Suspended"
    filters = [{"Name": "vpc-id", "Values": [rig.outputs["vpcId"]]}, {"Name": "group-name", "Values": ["default"]}]
    (group,) = rig.client("ec2").describe_security_groups(Filters=filters)["SecurityGroups"]
    assert group["IpPermissions"] == group["IpPermissionsEgress"] == []


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
    roles = [r for r in rig.client("iam").list_roles()["Roles"] if r["RoleName"].startswith("everspot")]
    assert roles == []


def test_whoever_deploys_needs_nothing_that_is_not_in_the_table(rig: Any) -> None:
    assert {"cloudwatch:PutMetricAlarm", "ec2:ModifyFleet"} <= rig.requested_actions["deploy"]
    assert rig.unlisted() == set()
