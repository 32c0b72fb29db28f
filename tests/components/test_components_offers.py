"""Previews refuse inputs that AWS does not offer: prices, zones, GPUs, volumes. Nothing is created."""

from collections.abc import Callable
from typing import Any

import grpc
import pulumi
import pytest
from everspot import AwsTrainingCluster

Declare = Callable[..., tuple[Any, dict[str, Any]]]


def declared(declare: Declare, args: Any) -> Any:
    return declare(lambda: {"fleet": AwsTrainingCluster("train", args).spot_fleet_id})[0]


def refused(declare: Declare, args: Any) -> str:
    with pytest.raises(pulumi.InputPropertiesError) as caught:
        declared(declare, args)
    return str(caught.value)


def overrides(recorder: Any) -> set[tuple[str, str]]:
    (config,) = recorder.inputs("train-fleet-spot")["launchTemplateConfigs"]
    return {(o["instanceType"], o["subnetId"]) for o in config["overrides"]}


@pytest.mark.parametrize("region", ["ap-south-1", "eu-west-1"])
def test_a_type_without_a_price_is_refused_with_what_to_declare(declare: Declare, spec: Any, region: str) -> None:
    spec["zones"] = [f"{region}a", f"{region}b"]
    spec["capacity"]["instance_types"] = [{"type": "new1.large", "vcpus": 8, "memory_gib": 32}]
    text = refused(declare, spec)
    assert f"capacity.instanceTypes[0].onDemandUsdPerHour: no price of new1.large in {region} is known" in text
    spec["capacity"]["instance_types"][0]["on_demand_usd_per_hour"] = 0.5
    if region == "eu-west-1":  # where the account that these tests pretend to talk to is
        assert declared(declare, spec)


def test_a_listed_type_in_a_region_without_prices_needs_its_price_only(declare: Declare, spec: Any) -> None:
    spec["zones"] = ["sa-east-1a"]
    spec["capacity"]["instance_types"] = [{"type": "m6i.large"}, {"type": "c6i.large", "on_demand_usd_per_hour": 0.131}]
    text = refused(declare, spec)
    assert "no price of m6i.large in sa-east-1 is known" in text
    assert "c6i.large" not in text


def test_a_region_is_asked_for_where_the_network_exists_already(declare: Declare, spec: Any) -> None:
    del spec["zones"]
    spec.update(vpc_id="vpc-mine", subnet_ids=["eu-west-1a", "eu-west-1b"])
    spec["capacity"]["instance_types"].append({"type": "g6e.48xlarge"})
    text = refused(declare, spec)
    assert "capacity.instanceTypes[3].onDemandUsdPerHour: no price of g6e.48xlarge in eu-west-1 is known" in text


def test_a_price_in_place_wins_over_the_lists(declare: Declare, spec: Any) -> None:
    spec["capacity"]["instance_types"] = [{"type": "m6i.large", "on_demand_usd_per_hour": 0.05}]
    content = declared(declare, spec).inputs("train-manifest")["content"]
    assert '"on_demand_usd_per_hour":0.05' in content
    assert '"memory_gib":8' in content  # the rest is the catalogue's


def test_a_zone_that_lacks_a_type_is_refused_by_name(
    declare: Declare, spec: Any, monkeypatch: pytest.MonkeyPatch, recorder_kind: Any
) -> None:
    monkeypatch.setattr(recorder_kind, "not_offered", {("c6i.large", "eu-west-1b")})
    text = refused(declare, spec)
    assert "capacity.instanceTypes[1].zones: EC2 does not offer c6i.large in eu-west-1b" in text
    assert "zones: [eu-west-1a]" in text
    spec["capacity"]["instance_types"][1]["zones"] = ["eu-west-1a"]
    pools = overrides(declared(declare, spec))
    assert {subnet for kind, subnet in pools if kind == "c6i.large"} == {"train-network-subnet-eu-west-1a-id"}
    assert len(pools) == 2 * 2 + 1


def test_a_type_that_no_zone_has_is_refused(
    declare: Declare, spec: Any, monkeypatch: pytest.MonkeyPatch, recorder_kind: Any
) -> None:
    monkeypatch.setattr(recorder_kind, "not_offered", {("m7i.large", f"eu-west-1{z}") for z in "ab"})
    text = refused(declare, spec)
    assert "capacity.instanceTypes[2].type: EC2 offers m7i.large in none of the zones eu-west-1a, eu-west-1b" in text


def test_a_zone_in_which_the_fleet_has_no_subnet_is_refused(declare: Declare, spec: Any) -> None:
    spec["capacity"]["instance_types"][0]["zones"] = ["eu-west-1c"]
    assert "capacity.instanceTypes[0].zones: eu-west-1c: the fleet has no subnet there" in refused(declare, spec)


def test_where_ec2_does_not_answer_nothing_is_refused(
    declare: Declare, spec: Any, monkeypatch: pytest.MonkeyPatch, recorder_kind: Any
) -> None:
    class Denied(grpc.RpcError):
        """An error in the engine's form for a failed provider call."""

        def code(self) -> grpc.StatusCode:
            return grpc.StatusCode.UNKNOWN

        def details(self) -> str:
            return "UnauthorizedOperation: not authorized to perform ec2:DescribeInstanceTypeOfferings"

    def denied(self: Any, query: Any) -> Any:
        raise Denied

    monkeypatch.setattr(recorder_kind, "offerings", denied)
    assert len(overrides(declared(declare, spec))) == 6


@pytest.mark.parametrize("types", [["m6i.large", "t3.small"], ["t4g.xlarge", "t3.small"]])
def test_burstable_types_of_agents_are_refused(declare: Declare, spec: Any, types: list[str]) -> None:
    """With standard credits a job gets 10 to 40 % of their vCPUs, and the others cost more than the price."""
    spec["capacity"]["instance_types"] = [{"type": name} for name in types]
    assert "capacity.instanceTypes[1].type: t3.small is burstable: a job gets a part" in refused(declare, spec)
    spec["capacity"]["instance_types"] = [{"type": "m6i.large"}]
    spec["scheduler_type"] = "t3.small"
    assert declared(declare, spec)


def test_gpus_that_the_images_torch_does_not_run_on_are_refused(declare: Declare, spec: Any) -> None:
    spec["capacity"]["instance_types"] = [{"type": "g5.xlarge"}, {"type": "p3.2xlarge"}, {"type": "g4dn.xlarge"}]
    spec["scheduler_type"] = "t3.small"
    text = refused(declare, spec)
    assert "capacity.instanceTypes[1].type: p3.2xlarge has V100, compute capability 7.0" in text
    assert text.count("\n  - ") == 1
    spec["gpu_arches"] = ["sm_70", "sm_80", "sm_86"]
    assert declared(declare, spec)
    spec["gpu_arches"] = ["volta"]
    assert "gpuArches: 'volta' is not an architecture, such as sm_80" in refused(declare, spec)


def root(recorder: Any) -> dict[str, Any]:
    (disk,) = recorder.inputs("train-fleet-template")["blockDeviceMappings"]
    return dict(disk["ebs"])


def test_the_root_volume_is_as_large_as_the_image_unless_it_is_told_larger(declare: Declare, spec: Any) -> None:
    assert root(declared(declare, spec))["volumeSize"] == 75
    assert root(declared(declare, {**spec, "volume_gib": 200}))["volumeSize"] == 200


def test_a_volume_smaller_than_the_image_is_refused_with_both_sizes(declare: Declare, spec: Any) -> None:
    text = refused(declare, {**spec, "volume_gib": 60})
    assert "volumeGib: 60 GiB is less than the image's own root volume of 75 GiB" in text


def test_throughput_and_iops_reach_the_volume(declare: Declare, spec: Any) -> None:
    disk = root(declared(declare, {**spec, "volume_iops": 4000, "volume_throughput": 1000}))
    assert (disk["iops"], disk["throughput"], disk["volumeType"]) == (4000, 1000, "gp3")


def test_volumes_are_read_from_the_image_at_a_rate_and_the_preview_says_what_a_launch_costs(
    declare: Declare, spec: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages: list[str] = []
    monkeypatch.setattr("pulumi.log.info", lambda words, *_, **__: messages.append(words))
    args: Any = {**spec, "volume_initialization_rate": 300}
    recorder = declare(lambda: {"fleet": AwsTrainingCluster("train", args).spot_fleet_id}, preview=True)[0]
    assert root(recorder)["volumeInitializationRate"] == 300
    (scheduler,) = recorder.inputs("train-scheduler-template")["blockDeviceMappings"]
    assert "volumeInitializationRate" not in scheduler["ebs"]
    words = "volumeInitializationRate costs at most $0.27 for each instance that is launched (75 GiB"
    assert any(message.startswith(words) for message in messages)


def test_the_schedulers_disk_is_the_images_own_whatever_the_agents_have(declare: Declare, spec: Any) -> None:
    recorder = declared(declare, {**spec, "volume_gib": 200, "volume_iops": 4000, "volume_throughput": 1000})
    (scheduler,) = recorder.inputs("train-scheduler-template")["blockDeviceMappings"]
    assert (scheduler["ebs"]["volumeSize"], "iops" in scheduler["ebs"]) == (75, False)
    assert "monitoring" not in recorder.inputs("train-scheduler-template"), "detailed monitoring, which nobody reads"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"volume_throughput": 1000},
            "volumeThroughput: 1000 MiB/s is more than 750, which is all that 3000 IOPS allow",
        ),
        ({"volume_iops": 60_000, "volume_gib": 100}, "volumeIops: 60000 is more than 50000, which is all that 100 GiB"),
        ({"volume_iops": 60_000}, "volumeIops: 60000 is more than 37500, which is all that 75 GiB"),
        ({"volume_iops": 100}, "volumeIops: has to lie between 3000 and 80000"),
        ({"volume_throughput": 2001}, "volumeThroughput: has to lie between 125 and 2000"),
        ({"volume_initialization_rate": 99}, "volumeInitializationRate: has to lie between 100 and 300"),
    ],
)
def test_volumes_that_ec2_does_not_have_are_refused(declare: Declare, spec: Any, changes: Any, words: str) -> None:
    assert words in refused(declare, {**spec, **changes})


def test_a_change_of_the_image_or_the_limits_refreshes_the_scheduler(declare: Declare, spec: Any) -> None:
    recorder = declared(declare, spec)
    group = recorder.inputs("train-scheduler-group")
    assert group["launchTemplate"]["version"] == "3"  # a number, and not $Latest: a change of it starts the refresh
    assert group["instanceRefresh"]["preferences"] == {
        "minHealthyPercentage": 100, "maxHealthyPercentage": 200, "instanceWarmup": "120", "skipMatching": True,
    }  # fmt: skip
