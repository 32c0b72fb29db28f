"""EC2's refusals of fleets: invalid pools, groups, prices and targets, and launches beyond a quota."""

from itertools import product
from typing import Any

import pytest
from everspot_clouds.aws.quotas import QUOTAS, find_quota
from everspot_core.capacity.catalogue import builtin
from everspot_core.jobs.records import Market
from everspot_local.aws.quotas import DEFAULTS, quota_code
from localcloud_refusals import refused


def subnets(rig: Any, zones: str, vpc: str | None = None) -> list[str]:
    vpc = vpc or rig.ec2.create_vpc(CidrBlock="10.8.0.0/16")["Vpc"]["VpcId"]
    return [
        rig.ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.8.{i}.0/24", AvailabilityZone=f"us-east-1{zone}")["Subnet"][
            "SubnetId"
        ]
        for i, zone in enumerate(zones)
    ]


def test_a_fleet_names_a_pool_once(rig: Any) -> None:
    first, second, other = subnets(rig, "aab")
    ways = [{"InstanceType": "m6i.large", "SubnetId": s} for s in (first, second)]
    with refused("InvalidFleetConfig", "duplicate instance pools"):
        rig.fleet(1, *ways, Type="instant")
    with refused("InvalidFleetConfig", "duplicate instance pools"):
        rig.fleet(1, *[{"InstanceType": "m6i.large", "AvailabilityZone": "us-east-1a"}] * 2)
    ways[1] = {"InstanceType": "m6i.large", "SubnetId": other}
    assert rig.fleet(1, *ways, Type="instant")["Errors"] == []


def test_a_group_of_another_vpc(rig: Any) -> None:
    """A fleet over two VPCs: what its groups do not belong to gives nothing."""
    (subnet,) = subnets(rig, "a")
    vpc = rig.ec2.describe_vpcs(Filters=[{"Name": "is-default", "Values": ["true"]}])["Vpcs"][0]["VpcId"]
    group = rig.ec2.create_security_group(GroupName="other", Description="another VPC", VpcId=vpc)["GroupId"]
    template = rig.template(NetworkInterfaces=[{"DeviceIndex": 0, "Groups": [group]}])
    answer = rig.fleet(1, {"InstanceType": "m6i.large", "SubnetId": subnet}, template=template, Type="instant")
    assert [e["ErrorCode"] for e in answer["Errors"]] == ["InvalidParameter"]
    assert "belong to different networks" in answer["Errors"][0]["ErrorMessage"]
    rig.ec2.delete_security_group(GroupId=group)


def test_a_priority_is_a_number_from_zero_on(kit: Any, helpers: Any) -> None:
    for priority in (-1.0, -0.5):
        with refused("InvalidParameterValue", "Priority"):
            kit.fleet(1, helpers.override("m6i.xlarge", "a", Priority=priority), Type="instant")
    for priority in (0.0, 0.5):
        answer = kit.fleet(1, helpers.override("m6i.xlarge", "a", Priority=priority), Type="instant")
        assert len(answer["Instances"]) == 1


def test_a_max_price_is_per_unit_and_has_a_least(kit: Any, helpers: Any) -> None:
    kit.do("price", pool="m6i.xlarge/us-east-1a", usd=0.08)
    for price in ("0.001", "0"):
        with refused("InvalidParameterValue", "MaxPrice"):
            kit.fleet(1, helpers.override("m6i.xlarge", "a", MaxPrice=price), Type="instant")
    low, enough = (helpers.override("m6i.xlarge", "a", MaxPrice=p, WeightedCapacity=2) for p in ("0.039", "0.041"))
    answer = kit.fleet(2, low, Type="instant")
    assert (answer["Instances"], [e["ErrorCode"] for e in answer["Errors"]]) == ([], ["SpotMaxPriceTooLow"])
    assert len(kit.fleet(2, enough, Type="instant")["Instances"]) == 1


def test_only_a_maintain_fleet_may_begin_empty(kit: Any) -> None:
    assert kit.fleet(0)["FleetId"]
    for kind in ("instant", "request"):
        with refused("InvalidTargetCapacitySpecification"):
            kit.fleet(0, Type=kind)


@pytest.mark.parametrize(
    ("kind", "market", "quota", "code"),
    [
        ("m6i.large", "spot", "L-34B43A08", "MaxSpotInstanceCountExceeded"),
        ("m6i.large", "on-demand", "L-1216C47A", "VcpuLimitExceeded"),
        ("g5.xlarge", "spot", "L-3819A6DF", "MaxSpotInstanceCountExceeded"),
        ("g5.xlarge", "on-demand", "L-DB2E81BA", "VcpuLimitExceeded"),
        ("p4d.24xlarge", "on-demand", "L-417A185B", "VcpuLimitExceeded"),
    ],
)
def test_vcpu_quotas_are_per_family_and_market(kit: Any, kind: str, market: str, quota: str, code: str) -> None:
    pools = kit.cloud.market.pools
    zone = next(z for z in pools.zones if pools.get(kind, z) is not None)
    kit.do("depth", pool=f"{kind}/{zone}", instances=9)
    vcpus = pools.catalogue.types[kind].vcpus
    kit.do("quota", code=quota, value=2 * vcpus)
    on_demand = 3 if market == "on-demand" else 0
    way = {"InstanceType": kind, "AvailabilityZone": zone}
    answer = kit.fleet(3, way, Type="instant", on_demand=on_demand)
    assert sum(len(group["InstanceIds"]) for group in answer["Instances"]) == 2
    assert [e["ErrorCode"] for e in answer["Errors"]] == [code]
    more = {"InstanceMarketOptions": {"MarketType": "spot"}} if market == "spot" else {}
    with refused(code):
        kit.run(InstanceType=kind, Placement={"AvailabilityZone": zone}, **more)
    kit.do("quota", code=quota, value=3 * vcpus)
    assert kit.run(InstanceType=kind, Placement={"AvailabilityZone": zone}, **more)


def test_a_fleet_beyond_its_quota_says_so_in_its_history_and_asks_again(kit: Any, helpers: Any) -> None:
    kit.do("quota", code="L-34B43A08", value=0)
    fleet_id = kit.fleet(1)["FleetId"]

    def service_errors() -> list[str]:
        records = kit.ec2.describe_fleet_history(FleetId=fleet_id, StartTime=0)["HistoryRecords"]
        return [r["EventInformation"]["EventSubType"] for r in records if r["EventType"] == "service-error"]

    helpers.until(service_errors)
    assert set(service_errors()) == {"spotInstanceCountLimitExceeded"}
    kit.do("quota", code="L-34B43A08", value=2)
    kit.living(1)


def test_service_quotas_tell_the_values_that_hold(kit: Any) -> None:
    api = kit.client("service-quotas")
    kit.do("quota", code="L-C4BD4855", value=192)
    listed = api.get_paginator("list_service_quotas").paginate(ServiceCode="ec2", PaginationConfig={"PageSize": 5})
    quotas = {quota["QuotaCode"]: quota for page in listed for quota in page["Quotas"]}
    assert quotas["L-34B43A08"]["QuotaName"] == "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests"
    assert quotas["L-C4BD4855"]["Value"] == 192
    assert len(quotas) == 19
    described = api.get_service_quota(ServiceCode="ec2", QuotaCode="L-C4BD4855")["Quota"]
    assert described == quotas["L-C4BD4855"]
    new_account = {"L-C4BD4855": 0, "L-34B43A08": 5, "L-1216C47A": 5, "L-417A185B": 0}
    for code, value in new_account.items():
        assert api.get_aws_default_service_quota(ServiceCode="ec2", QuotaCode=code)["Quota"]["Value"] == value
    with refused("NoSuchResourceException"):
        api.get_service_quota(ServiceCode="ec2", QuotaCode="L-00000000")
    checked = {call["action"] for line in kit.cloud.account.calls.read() for call in line["checked"]}
    assert "servicequotas:GetServiceQuota" in checked, "IAM writes it without a hyphen"
    with pytest.raises(ValueError, match="unknown quota"):
        kit.do("quota", code="L-1", value=3)


def test_the_products_quotas_are_those_of_the_cloud() -> None:
    """Two tables, each from AWS's own pages: the emulator would not show a mistake of a table that it shares."""
    names = {quota.code: quota.name for quota in DEFAULTS}
    assert {quota.code: quota.name for quota in QUOTAS}.items() <= names.items()
    amazon = [kind for kind in builtin().types if "." in kind]
    assert len(amazon) > 40
    for kind, market in product([*amazon, "trn1.2xlarge", "inf2.xlarge", "dl1.24xlarge", "x2idn.metal"], Market):
        quota = find_quota(kind, market)
        if kind.startswith("p6") and market is Market.SPOT:  # AWS's page does not say; the account's own list tells
            assert quota is None
        else:
            assert quota is not None and quota.code == quota_code(kind, market), (kind, market)


def test_a_price_above_the_maximum_takes_an_instance_with_notice(kit: Any, helpers: Any) -> None:
    """EC2 User Guide, "Spot Instance interruptions", reasons: the Spot price is higher than your maximum price."""
    kit.do("price", pool="m6i.xlarge/us-east-1a", usd=0.08)
    low, high, any_price = (
        helpers.override("m6i.xlarge", "a", WeightedCapacity=2, **({"MaxPrice": p} if p else {}))
        for p in ("0.045", "0.06", "")
    )
    ids = [kit.fleet(2, way, Type="instant")["Instances"][0]["InstanceIds"][0] for way in (low, high, any_price)]
    kit.do("price", pool="m6i.xlarge/us-east-1a", usd=0.09)
    assert [m.reclaim_at for m in kit.cloud.machines.living()] == [None] * 3  # as much as the first would pay
    with kit.still():
        kit.do("price", pool="m6i.xlarge/us-east-1a", usd=0.1)
        assert [m.id for m in kit.cloud.machines.living() if m.reclaim_at] == ids[:1]
    assert kit.reaches(ids[0], "terminated")["StateReason"]["Code"] == "Server.SpotInstanceTermination"
    assert kit.log("end") == [{**kit.log("end")[0], "id": ids[0], "interrupted": True}]
