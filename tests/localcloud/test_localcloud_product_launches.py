"""Launches and terminations of the scheduler, with its own policy, which the local cloud enforces."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from everspot.aws.launch_policy import launch_policy
from everspot_clouds.aws import capacity
from everspot_core.capacity.launching import LaunchIntent, LaunchPool, LaunchTrouble
from everspot_core.capacity.market import Market
from everspot_local.options import Options
from localcloud_worker import ARN, Worker, enforcing

MADE_AT = datetime(2026, 3, 1, tzinfo=UTC)
KINDS = ("m6i.large", "c6i.large")


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> Options:
    return enforcing(Path(tmp_path_factory.mktemp("product")))


class Scheduler(Worker):
    """A role with the permissions to launch of a cluster, and what it launches from."""

    def __init__(self, kit: Any) -> None:
        super().__init__(kit)
        subnets = kit.ec2.describe_subnets()["Subnets"]
        self.places = {s["AvailabilityZone"]: s["SubnetId"] for s in subnets if s["AvailabilityZone"][-1] in "ab"}
        group = kit.ec2.describe_security_groups()["SecurityGroups"][0]["GroupId"]
        tags = [{"Key": "everspot:cluster", "Value": "train"}, {"Key": "everspot:role", "Value": "agent"}]
        self.template = kit.template(
            IamInstanceProfile={"Arn": "arn:aws:iam::123456789012:instance-profile/workers"},
            MetadataOptions={"HttpTokens": "required"},
            NetworkInterfaces=[{"DeviceIndex": 0, "Groups": [group]}],
            TagSpecifications=[{"ResourceType": kind, "Tags": tags} for kind in ("instance", "volume")],
        )
        policy = launch_policy(
            cluster="train",
            template_arn=f"{ARN}:launch-template/{self.template}",
            image_id="ami-12c6146b",
            agent_role_arn="arn:aws:iam::123456789012:role/worker",
            agent_profile_arn="arn:aws:iam::123456789012:instance-profile/workers",
            subnet_ids=list(self.places.values()),
            security_group_ids=[group],
        )
        kit.client("iam").put_role_policy(RoleName="worker", PolicyName="all", PolicyDocument=json.dumps(policy))
        self.ec2 = self.client("ec2")

    def intent(self, seq: int, jobs: int, market: Market = Market.SPOT, **more: Any) -> LaunchIntent:
        pools = [
            LaunchPool(instance_type=kind, zone=zone, market=market, place=place)
            for zone, place in sorted(self.places.items())
            for kind in KINDS
        ]
        fields = {"ordered": False, "whole": False, "pools": tuple(pools), **more}
        return LaunchIntent(
            seq=seq,
            token=f"{seq:032x}",
            jobs=tuple(f"job-{n}" for n in range(jobs)),
            template=self.template,
            template_version="1",
            usd_per_hour=9,
            made_at=MADE_AT,
            scheduler_id="s",
            **fields,
        )


@pytest.fixture
def scheduler(kit: Any) -> Scheduler:
    return Scheduler(kit)


@pytest.mark.parametrize("market", list(Market))
@pytest.mark.parametrize("more", [{}, {"ordered": True}, {"whole": True}], ids=["any", "ordered", "whole"])
def test_what_is_launched_once_is_ended_by_the_same_role(scheduler: Scheduler, market: Market, more: Any) -> None:
    for kind in KINDS:
        scheduler.kit.do("depth", pool=f"{kind}/us-east-1a", instances=4)
    intent = scheduler.intent(1, 3, market, **more)
    answer = capacity.launch(scheduler.ec2, "train", intent)
    assert (len(answer.instances), answer.errors) == (3, ())
    assert capacity.launch(scheduler.ec2, "train", intent) == answer
    if more.get("whole"):
        assert len({(i.instance_type, i.zone) for i in answer.instances}) == 1
    if more.get("ordered") and market is Market.ON_DEMAND:
        assert {(i.instance_type, i.zone) for i in answer.instances} == {("m6i.large", "us-east-1a")}
    capacity.terminate(scheduler.ec2, [i.instance_id for i in answer.instances])
    assert len(scheduler.kit.log("end")) == 3


def test_refusals_are_sorted_by_what_can_be_done(scheduler: Scheduler) -> None:
    kit = scheduler.kit
    kit.do("drought", pool="m6i.large/us-east-1a")
    kit.do("price", pool="c6i.large/us-east-1a", usd=0.05)
    pools = [
        LaunchPool(instance_type=kind, zone=zone, market=Market.SPOT, place=scheduler.places[zone], max_price=most)
        for kind, zone, most in (
            ("m6i.large", "us-east-1a", None), ("c6i.large", "us-east-1a", 0.01), ("g5.xlarge", "us-east-1b", None),
        )
    ]  # fmt: skip
    pools.append(pools[0].model_copy(update={"zone": "us-east-1b", "place": "subnet-00000000000000000"}))
    kit.do("quota", code="L-3819A6DF", value=0)
    answer = capacity.launch(scheduler.ec2, "train", scheduler.intent(2, 1, pools=tuple(pools)))
    assert answer.instances == ()
    assert {(e.instance_type, e.zone): (e.code, e.kind) for e in answer.errors} == {
        ("m6i.large", "us-east-1a"): ("InsufficientInstanceCapacity", LaunchTrouble.CAPACITY),
        ("c6i.large", "us-east-1a"): ("SpotMaxPriceTooLow", LaunchTrouble.PRICE),
        ("g5.xlarge", "us-east-1b"): ("MaxSpotInstanceCountExceeded", LaunchTrouble.QUOTA),
        ("m6i.large", "us-east-1b"): ("InvalidSubnetID.NotFound", LaunchTrouble.REQUEST),
    }


def test_nothing_of_another_cluster_is_launched_or_ended(scheduler: Scheduler) -> None:
    (error,) = capacity.launch(scheduler.ec2, "other", scheduler.intent(3, 1)).errors
    assert (error.kind, error.code) == (LaunchTrouble.CREDENTIALS, "UnauthorizedOperation")
    foreign = scheduler.kit.run()
    with pytest.raises(Exception, match="UnauthorizedOperation"):
        capacity.terminate(scheduler.ec2, [foreign])
    assert scheduler.kit.log("end") == []


def test_a_template_that_went_away_is_asked_for_wrongly(scheduler: Scheduler) -> None:
    intent = scheduler.intent(4, 1).model_copy(update={"template_version": "7"})
    (error,) = capacity.launch(scheduler.ec2, "train", intent).errors
    assert (error.kind, error.code) == (LaunchTrouble.REQUEST, "InvalidLaunchTemplateId.VersionNotFound")
