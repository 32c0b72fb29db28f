"""Estimates of resources with unusual or unknown values, and of types without prices."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from everspot_clouds.aws import fixed_prices
from everspot_clouds.aws.alarms import USD_A_MONTH
from everspot_clouds.aws.endpoints import NAT_USD_PER_HOUR
from everspot_clouds.estimating import environment, estimated
from everspot_clouds.gcp.hourly import MONITORING_USD_A_MONTH
from everspot_core.cluster.declared import SECRET, UNKNOWN, DeclaredResource
from everspot_core.estimate.model import Estimate

STACKS = Path(__file__).resolve().parents[2] / "stacks"
SPOT = "aws:ec2/fleet:Fleet"


def resources(stack: str) -> list[DeclaredResource]:
    config: Any = yaml.safe_load((STACKS / f"Pulumi.{stack}.yaml").read_text())["config"]
    return list(environment(stack, config, "everspot").resources)


def declare(kind: str, **inputs: Any) -> DeclaredResource:
    return DeclaredResource(f"urn:pulumi:dev::mine::{kind}::it", kind, inputs)


def priced(*declared: DeclaredResource) -> Estimate:
    return estimated([], declared, regions={"aws": "us-east-1", "gcp": "us-central1"})


def expected(*declared: DeclaredResource) -> float:
    after = priced(*declared).after
    assert after is not None
    return after.total.expected


def corrupt_inputs(declared: list[DeclaredResource]) -> Iterator[list[DeclaredResource]]:
    """The resources with one input after the other replaced by what nobody expects there."""
    for index, resource in enumerate(declared):
        for key in resource.inputs:
            for value in (UNKNOWN, SECRET, None, [], {}, -1, True, [{}], {"a": []}):
                inputs = {**resource.inputs, key: value}
                yield [*declared[:index], DeclaredResource(resource.urn, resource.type, inputs), *declared[index + 1 :]]


@pytest.mark.parametrize("stack", ["aws-dev", "gcp-dev"])
def test_no_input_makes_an_estimate_fail(stack: str) -> None:
    for changed in corrupt_inputs(resources(stack)):
        assert priced(*changed).after is not None


def test_what_is_not_known_is_named_and_is_no_zero() -> None:
    fleet = declare(SPOT, targetCapacitySpecification=UNKNOWN, tags={"Team": "ml"})
    assert priced(fleet).unknown == ("it: its target is not known before the update",)
    database = declare("aws:rds/instance:Instance")
    assert priced(database).unknown == ("it: aws:rds/instance:Instance has no price here",)
    assert estimated([], [declare("aws:autoscaling/group:Group", minSize=1)]).unknown != ()


LIMITLESS = {"instanceTypes": ["c6i.large"], "elastic": {"maxInstances": UNKNOWN, "maxUsdPerHour": 5}}
"""The elastic capacity of a component whose limit only the update will know."""


@pytest.mark.parametrize(
    "resource",
    [
        declare(SPOT, targetCapacitySpecification=UNKNOWN),
        declare("aws:rds/instance:Instance"),
        declare("aws:autoscaling/group:Group", desiredCapacity=UNKNOWN, minSize=0),
        declare("aws:ec2/vpcEndpoint:VpcEndpoint", vpcEndpointType=UNKNOWN, subnetIds=["a"]),
        declare("everspot:index:AwsElasticCapacity", capacity=LIMITLESS),
        declare("everspot:index:GcpElasticCapacity", capacity=LIMITLESS),
    ],
    ids=lambda resource: resource.type,
)
def test_what_has_no_price_is_told_beside_the_figures_and_alone_makes_them_unknown(resource: DeclaredResource) -> None:
    alone, combined = (priced(resource, *more).after for more in ((), (declare("aws:kms/key:Key"),)))
    assert alone is not None and (alone.unpriced, alone.nothing_known) == (("it",), True)
    assert combined is not None and (combined.unpriced, combined.nothing_known) == (("it",), False)


def test_the_public_address_of_each_instance_costs_as_long_as_it_runs() -> None:
    face = {"associatePublicIpAddress": "true"}
    template = declare("aws:ec2/launchTemplate:LaunchTemplate", instanceType="c6i.large", networkInterfaces=[face])
    group = declare("aws:autoscaling/group:Group", desiredCapacity=2)
    after = priced(template, group).after
    assert after is not None
    assert {p.kind: p.range.expected for p in after.parts}["public addresses"] == 7.30


@pytest.mark.parametrize(
    ("scheduling", "expected_usd"), [({}, 7.30), ({"provisioningModel": "SPOT"}, 3.65)], ids=["standard", "Spot"]
)
def test_the_external_address_of_each_machine_costs_less_on_spot(scheduling: Any, expected_usd: float) -> None:
    faces = [{"accessConfigs": [{"networkTier": "PREMIUM"}]}, {"accessConfigs": []}, {}]
    kinds = ("gcp:compute/instanceTemplate:InstanceTemplate", "gcp:compute/instanceGroupManager:InstanceGroupManager")
    template = declare(kinds[0], machineType="g2-standard-4", networkInterfaces=faces, scheduling=scheduling)
    after = priced(template, declare(kinds[1], targetSize=2, zone="us-central1-a")).after
    assert after is not None
    (addresses,) = [part.range for part in after.parts if part.kind == "public addresses"]
    assert (addresses.expected, addresses.on_demand) == (expected_usd, 7.30)


def test_external_addresses_that_are_not_known_are_named() -> None:
    kinds = ("gcp:compute/instanceTemplate:InstanceTemplate", "gcp:compute/instanceGroupManager:InstanceGroupManager")
    template = declare(kinds[0], machineType="g2-standard-4", networkInterfaces=[{"accessConfigs": UNKNOWN}])
    unknown = priced(template, declare(kinds[1], targetSize=2, zone="us-central1-a")).unknown
    assert "it: whether its machines have external addresses is not known: they are not counted" in unknown


@pytest.mark.parametrize(("public", "count"), [(True, 1), (UNKNOWN, 1), (False, 0), (None, 0)])
def test_public_addresses_by_a_subnet_are_named(public: Any, count: int) -> None:
    unknown = priced(declare("aws:ec2/subnet:Subnet", mapPublicIpOnLaunch=public)).unknown
    assert len(unknown) == count
    assert all("mapPublicIpOnLaunch gives a public address, $3.65 a month" in words for words in unknown)


def test_conditions_of_alert_policies_may_cost_nothing_yet_and_what_they_read_is_named() -> None:
    estimate = priced(declare("gcp:monitoring/alertPolicy:AlertPolicy", conditions=[{}, {}]))
    assert estimate.after is not None
    assert (estimate.after.total.low, estimate.after.total.expected, estimate.after.total.high) == (0, 3, 3)
    assert estimate.by_use == ("alert policies also by the time series that they read: it",)


def test_a_part_without_a_price_leaves_a_resource_its_figures() -> None:
    (after,) = [priced(*resources("aws-dev")).after]
    assert after is not None and after.unpriced == ()


@pytest.mark.parametrize(
    ("resource", "usd"),
    [
        (declare("aws:kms/key:Key"), 1),
        (declare("aws:ec2/natGateway:NatGateway"), 32.85),
        (declare("aws:ec2/eip:Eip"), 3.65),
        (declare("aws:cloudwatch/dashboard:Dashboard"), 3),
        (declare("aws:cloudwatch/metricAlarm:MetricAlarm", period=60), 0.10),
        (declare("aws:cloudwatch/metricAlarm:MetricAlarm", period=10), 0.30),
        (declare("aws:cloudwatch/metricAlarm:MetricAlarm", metricQueries=[{"metric": {}}, {"metric": {"a": 1}}]), 0.10),
        (declare("aws:ec2/vpcEndpoint:VpcEndpoint", vpcEndpointType="Interface", subnetIds=[UNKNOWN] * 3), 21.90),
        (declare("aws:ec2/vpcEndpoint:VpcEndpoint", vpcEndpointType="Gateway"), 0),
        (declare("gcp:kms/cryptoKey:CryptoKey"), 0.06),
        (declare("gcp:compute/address:Address"), 3.65),
        (declare("gcp:monitoring/alertPolicy:AlertPolicy", conditions=[{}, {}]), 3),
    ],
)
def test_fixed_prices(resource: DeclaredResource, usd: float) -> None:
    assert expected(resource) == usd


def test_a_key_that_rotates_may_cost_as_much_again_twice() -> None:
    after = priced(declare("aws:kms/key:Key", enableKeyRotation=True)).after
    assert after is not None and (after.total.low, after.total.high) == (1, 3)


def test_a_volume_costs_its_size_and_what_is_beyond_its_free_speed() -> None:
    disk = {"volumeType": "gp3", "volumeSize": 100, "iops": 4000, "throughput": 225}
    template = DeclaredResource(
        "urn:pulumi:dev::mine::aws:ec2/launchTemplate:LaunchTemplate::it-template",
        "aws:ec2/launchTemplate:LaunchTemplate",
        {"blockDeviceMappings": [{"ebs": disk}]},
    )
    overrides = [{"instanceType": "m6i.large"}]
    fleet = declare(
        SPOT,
        launchTemplateConfigs=[{"overrides": overrides}],
        targetCapacitySpecification={"totalTargetCapacity": 2, "defaultTargetCapacityType": "on-demand"},
    )
    # Two of $0.096 an hour, 100 GiB, 1,000 IOPS and 100 MiB/s beyond what is free
    assert expected(template, fleet) == pytest.approx(2 * (70.08 + 8 + 5 + 4))


def test_what_previews_print_is_of_the_same_table() -> None:
    assert pytest.approx(0.05) == NAT_USD_PER_HOUR
    assert pytest.approx(8 * 0.30 + 4 * 0.10 + 3 + 0.438) == USD_A_MONTH
    assert MONITORING_USD_A_MONTH == 6
    assert fixed_prices.GP3_GIB.source and fixed_prices.AS_OF.year == 2025
