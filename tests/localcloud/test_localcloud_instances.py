"""Instances through boto3: states, times, reasons, templates, prices, and the market's own log."""

from datetime import timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError
from everspot_local.market.clock import stamp


def test_states_follow_one_another_and_the_log_agrees_to_the_second(kit: Any, helpers: Any) -> None:
    with kit.still() as move:
        instance_id = kit.run()
        move(3)
        assert kit.instance(instance_id)["State"]["Name"] == "pending"
    running = kit.reaches(instance_id, "running")
    assert "InstanceLifecycle" not in running
    answer = kit.ec2.terminate_instances(InstanceIds=[instance_id])["TerminatingInstances"][0]
    assert answer["PreviousState"]["Name"] == "running"
    ended = kit.reaches(instance_id, "terminated")
    assert ended["StateReason"]["Code"] == "Client.UserInitiatedShutdown"
    (launch,), (end,) = kit.log("launch"), kit.log("end")
    assert launch["at"] == helpers.text(ended["LaunchTime"])
    assert ended["StateTransitionReason"] == f"User initiated ({end['at'][:10]} {end['at'][11:19]} GMT)"
    assert (launch["id"], launch["type"], launch["zone"]) == (instance_id, "m6i.large", "us-east-1a")
    assert (launch["market"], launch["usd_per_hour"], end["interrupted"]) == ("on-demand", 0.096, False)


def test_an_interruption_comes_after_its_notice_and_says_so(kit: Any, helpers: Any) -> None:
    (instance_id,) = kit.spot()
    kit.reaches(instance_id, "running")
    before = kit.cloud.market.clock.now()
    assert kit.do("interrupt", instance=instance_id) == {"instance": instance_id}
    ended = kit.reaches(instance_id, "terminated")
    assert ended["InstanceLifecycle"] == "spot"
    assert ended["StateReason"]["Code"] == "Server.SpotInstanceTermination"
    end = kit.log("end")[0]
    assert end["interrupted"] is True
    assert end["at"] >= stamp(before + timedelta(seconds=120))
    assert f"({end['at'][:10]} {end['at'][11:19]} GMT)" in ended["StateTransitionReason"]
    assert "usd_per_hour" not in kit.log("launch")[0]


def test_on_demand_instances_get_no_notice_but_may_fail(kit: Any) -> None:
    instance_id = kit.run()
    with pytest.raises(ValueError, match="on-demand"):
        kit.do("interrupt", instance=instance_id)
    kit.do("interrupt", instance=instance_id, notice=False)
    kit.reaches(instance_id, "terminated")
    assert kit.log("end")[0]["interrupted"] is False


def test_an_instance_that_is_named_twice_is_described_once(kit: Any) -> None:
    instance_id = kit.reaches(kit.run(), "running")["InstanceId"]
    answer = kit.ec2.describe_instances(InstanceIds=[instance_id, instance_id])
    assert [i["InstanceId"] for r in answer["Reservations"] for i in r["Instances"]] == [instance_id]


def test_what_a_template_says_is_what_an_instance_has(kit: Any) -> None:
    iam = kit.client("iam")
    trust = '{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Service":"ec2.amazonaws.com"},"Action":"sts:AssumeRole"}]}'  # noqa: E501
    iam.create_role(RoleName="worker", AssumeRolePolicyDocument=trust)
    profile = iam.create_instance_profile(InstanceProfileName="workers")["InstanceProfile"]["Arn"]
    iam.add_role_to_instance_profile(InstanceProfileName="workers", RoleName="worker")
    kit.wait_for_profile("workers")
    template = kit.template(
        IamInstanceProfile={"Arn": profile},
        MetadataOptions={"HttpTokens": "required", "HttpPutResponseHopLimit": 2},
        InstanceInitiatedShutdownBehavior="terminate",
        BlockDeviceMappings=[
            {"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 20, "VolumeType": "gp3", "Encrypted": True}}
        ],
        TagSpecifications=[{"ResourceType": "instance", "Tags": [{"Key": "everspot:cluster", "Value": "c"}]}],
    )
    (instance_id,) = kit.spot(template=template)
    instance = kit.instance(instance_id)
    assert instance["IamInstanceProfile"]["Arn"] == profile
    assert instance["MetadataOptions"]["HttpTokens"] == "required"
    tags = {t["Key"]: t["Value"] for t in instance["Tags"]}
    assert tags["everspot:cluster"] == "c"
    assert tags["aws:ec2:fleet-id"].startswith("fleet-")
    assert tags["aws:ec2launchtemplate:version"] == "1"
    volumes = kit.ec2.describe_volumes()["Volumes"]
    assert [(v["Size"], v["VolumeType"], v["Encrypted"]) for v in volumes] == [(20, "gp3", True)]
    kit.ec2.terminate_instances(InstanceIds=[instance_id])
    kit.reaches(instance_id, "terminated")
    assert kit.ec2.describe_volumes()["Volumes"] == []
    assert kit.ec2.describe_network_interfaces()["NetworkInterfaces"] == []


def test_stopping_an_instance_that_shutdown_terminates_is_refused_by_name(kit: Any) -> None:
    instance_id = kit.run(InstanceInitiatedShutdownBehavior="terminate")
    kit.reaches(instance_id, "running")
    with pytest.raises(ClientError, match="does not support stopping instances") as caught:
        kit.ec2.stop_instances(InstanceIds=[instance_id])
    assert caught.value.response["Error"]["Code"] == "UnsupportedOperation"


def test_what_is_offered_in_a_zone_is_what_can_be_launched_there(kit: Any) -> None:
    answer = kit.ec2.describe_instance_type_offerings(
        LocationType="availability-zone", Filters=[{"Name": "instance-type", "Values": ["g6e.xlarge", "m6i.large"]}]
    )["InstanceTypeOfferings"]
    offered = {(o["InstanceType"], o["Location"]) for o in answer}
    zones = [z["ZoneName"] for z in kit.ec2.describe_availability_zones()["AvailabilityZones"]]
    launched = set()
    for kind in ("g6e.xlarge", "m6i.large"):
        for zone in zones:
            try:
                kit.run(InstanceType=kind, Placement={"AvailabilityZone": zone})
                launched.add((kind, zone))
            except ClientError as error:
                assert error.response["Error"]["Code"] == "Unsupported"
    assert launched == offered
    assert 0 < len(offered) < 2 * len(zones)


def test_prices_move_and_their_history_is_what_the_log_says(kit: Any, helpers: Any) -> None:
    def history(**more: Any) -> list[dict[str, Any]]:
        answer = kit.ec2.describe_spot_price_history(
            InstanceTypes=["m6i.large"], AvailabilityZone="us-east-1a", ProductDescriptions=["Linux/UNIX"], **more
        )
        return list(answer["SpotPriceHistory"])

    with kit.still():
        first = history()
        assert len(first) == 1
        assert 0.0352 <= float(first[0]["SpotPrice"]) <= 0.0397
        kit.do("price", pool="m6i.large/us-east-1a", usd=0.05)
        kit.do("price", pool="m6i.large/us-east-1a", factor=2)
    # Two prices of one second would be one price in records by the second: the second one holds a second later.
    points = helpers.until(lambda: [entries for entries in [history()] if len(entries) == 3])[0]
    assert [float(p["SpotPrice"]) for p in points][:2] == [0.1, 0.05]
    answered = [(helpers.text(p["Timestamp"]), float(p["SpotPrice"])) for p in reversed(points)]
    logged = [(p["at"], p["usd"]) for p in kit.log("price") if (p["type"], p["zone"]) == ("m6i.large", "us-east-1a")]
    assert answered == logged
    last = points[0]["Timestamp"]
    assert [p["Timestamp"] for p in history(StartTime=last + timedelta(seconds=1))] == [last], "the price that holds"
    assert history(EndTime=points[-1]["Timestamp"] - timedelta(seconds=1)) == []


def test_prices_walk_by_themselves_and_equally_for_one_seed(kit: Any) -> None:
    def walk() -> list[float]:
        kit.cloud.reset()
        market = kit.cloud.market
        with market.lock:
            pool = market.pools.get("g5.xlarge", "us-east-1a")
            for _ in range(30):
                market.pools.walk(market.clock.now())
            low, high = pool.spot_bounds
            assert all(low * 0.79 <= usd <= min(high * 1.21, pool.on_demand_usd) for _, usd in pool.prices)
            assert [at for at, _ in pool.prices] == sorted({at for at, _ in pool.prices})
            return [usd for _, usd in pool.prices]

    first = walk()
    assert len(set(first)) > 20
    assert walk() == first


def test_pages_of_prices_give_each_once(kit: Any) -> None:
    pages = kit.ec2.get_paginator("describe_spot_price_history").paginate(
        InstanceTypes=["m6i.large", "c6i.large", "m7i.large"], PaginationConfig={"PageSize": 4}
    )
    points = [(p["InstanceType"], p["AvailabilityZone"]) for page in pages for p in page["SpotPriceHistory"]]
    assert len(points) == len(set(points)) > 8


def test_prices_are_told_by_zone_id_and_of_every_pool_that_had_one(kit: Any) -> None:
    kit.do("price", pool="m6i.large/us-east-1a", usd=0.05)
    kit.do("drought", pool="c6i.large/us-east-1b")
    history = kit.ec2.describe_spot_price_history()["SpotPriceHistory"]
    pools = {(p["InstanceType"], p["AvailabilityZone"]) for p in history}
    assert {("m6i.large", "us-east-1a"), ("c6i.large", "us-east-1b")} <= pools
    zone_id = kit.cloud.market.zone_ids["us-east-1a"]
    by_id = {"AvailabilityZoneId": zone_id}, {"Filters": [{"Name": "availability-zone-id", "Values": [zone_id]}]}
    for selector in by_id:
        matching = kit.ec2.describe_spot_price_history(InstanceTypes=["m6i.large"], **selector)["SpotPriceHistory"]
        assert {p["AvailabilityZone"] for p in matching} == {"us-east-1a"}
    with pytest.raises(ClientError, match="InvalidParameterCombination"):
        kit.ec2.describe_spot_price_history(AvailabilityZone="us-east-1a", AvailabilityZoneId=zone_id)


@pytest.mark.parametrize(
    ("name", "values", "zones"),
    [
        ("availability-zone", ["us-east-1a", "us-east-1b"], {"us-east-1a"}),
        ("availability-zone", ["us-east-1b"], set()),
        ("availability-zone-id", ["use1-az99"], set()),
        ("instance-type", ["c6i.large"], set()),
        ("product-description", ["Windows"], set()),
    ],
)
def test_prices_are_those_that_meet_every_filter_of_a_request(
    kit: Any, name: str, values: list[str], zones: set[str]
) -> None:
    query = {"InstanceTypes": ["m6i.large"], "AvailabilityZone": "us-east-1a", "ProductDescriptions": ["Linux/UNIX"]}
    answer = kit.ec2.describe_spot_price_history(**query, Filters=[{"Name": name, "Values": values}])
    assert {p["AvailabilityZone"] for p in answer["SpotPriceHistory"]} == zones


@pytest.mark.parametrize("zone_selector", [{"AvailabilityZone": "us-east-1z"}, {"AvailabilityZoneId": "use1-az99"}])
def test_prices_of_a_zone_that_the_region_lacks_are_refused(kit: Any, zone_selector: dict[str, str]) -> None:
    (zone,) = zone_selector.values()
    with pytest.raises(ClientError, match=rf"InvalidParameterValue.*Invalid availability zone: \[{zone}\]"):
        kit.ec2.describe_spot_price_history(InstanceTypes=["m6i.large"], **zone_selector)


def test_depth_below_what_runs_interrupts_the_newest(kit: Any, helpers: Any) -> None:
    kit.do("depth", pool="m6i.large/us-east-1a", instances=5)
    only = helpers.override("m6i.large", "a")
    answer = kit.fleet(3, only, Type="instant")
    ids = [i for group in answer["Instances"] for i in group["InstanceIds"]]
    assert kit.do("depth", pool="m6i.large/us-east-1a", instances=1)["instances"] == ids[1:]
    for instance_id in ids[1:]:
        kit.reaches(instance_id, "terminated")
    assert kit.instance(ids[0])["State"]["Name"] == "running"


@pytest.mark.parametrize(
    ("action", "fields", "words"),
    [
        ("explode", {}, "unknown action"),
        ("drought", {"pool": "m6i.large/mars-1a"}, "no pool"),
        ("drought", {"pool": "m6i.large", "until": "1m"}, "until"),
        ("price", {"pool": "m6i.large"}, "usd or factor"),
        ("interrupt", {"instance": "i-0"}, "no pending or running"),
        ("interrupt", {"instance": "oldest"}, "no Spot instance"),
    ],
)
def test_a_bad_action_is_refused(kit: Any, action: str, fields: dict[str, Any], words: str) -> None:
    with pytest.raises((ValueError, KeyError), match=words):
        kit.do(action, **fields)


def test_reset_leaves_an_empty_account(kit: Any) -> None:
    kit.run()
    kit.client("s3").create_bucket(Bucket="kept-or-not")
    kit.cloud.reset()
    assert kit.instances() == []
    assert kit.client("s3").list_buckets()["Buckets"] == []
    assert kit.cloud.market.log.read() == []


def test_types_in_use_are_described_fast(kit: Any) -> None:
    types = ["m6i.large", "g5.xlarge", "t3.small"]
    described = kit.ec2.describe_instance_types(InstanceTypes=types)["InstanceTypes"]
    assert sorted(t["InstanceType"] for t in described) == sorted(types)
