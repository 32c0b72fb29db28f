"""Invalid inputs of components: one error names all of them, before anything is created."""

import json
from collections.abc import Callable
from typing import Any

import everspot
import pulumi
import pytest
from everspot import AwsTrainingCluster, AwsTrainingClusterArgs

Declare = Callable[..., tuple[Any, dict[str, Any]]]


def refusal(declare: Declare, args: Any, name: str = "train") -> pulumi.InputPropertiesError:
    with pytest.raises(pulumi.InputPropertiesError) as refused:
        declare(lambda: {"fleet": AwsTrainingCluster(name, args).spot_fleet_id})
    return refused.value


def test_every_problem_is_told_at_once_and_nothing_is_made(declare: Declare, spec: AwsTrainingClusterArgs) -> None:
    args: Any = {
        **spec,
        "tags": {"Project": "vision", "aws:x": "no"},
        "vpc_cidr": "10.0.0.0/8",
        "peer_cidrs": ["10.0.0.0/16", "nonsense"],
        "zones": ["eu-west-1a", "eu-west-1a"],
        "image_parameter": "/both",
        "scheduler_type": "t4g.small",
        "volume_gib": 2,
        "limits": {"beat_every": "1s"},
        "capacity": {
            "standing": {
                "target": 3,
                "on_demand_base": 4,
                "on_demand_percentage": 101,
                "spot_allocation": "cheapest",
                "lowest_price_pools": 2,
                "capacity_rebalance": {"termination_delay": 10},
            },
            "elastic": {
                "max_instances": -1,
                "idle_limit": "soon",
            },
            "instance_types": [
                {"type": "m6i.larg"},
                {"type": "m6i.large", "weight": 0},
                {"type": "odd.large", "vcpus": 0, "memory_gib": 8},
            ],
        },
    }
    error = refusal(declare, args)
    assert error.errors is not None
    paths = {detail["property_path"] for detail in error.errors}
    assert paths == {
        "tags", "tags.aws:x", "vpcCidr", "peerCidrs[1]", "zones", "imageId", "schedulerType", "volumeGib",
        "limits.beatEvery", "capacity.standing.onDemandBase", "capacity.standing.onDemandPercentage",
        "capacity.standing.spotAllocation", "capacity.standing.lowestPricePools",
        "capacity.standing.capacityRebalance.terminationDelay", "capacity.elastic.maxInstances",
        "capacity.elastic.idleLimit", "capacity.instanceTypes[0].type",
        "capacity.instanceTypes[1].weight", "capacity.instanceTypes[2].vcpus",
    }  # fmt: skip
    text = str(error)
    assert all(detail["reason"] in text for detail in error.errors)
    assert "price-capacity-optimized, capacity-optimized," in text  # allowed values
    assert "did you mean m6i.large" in text
    assert "Team, Environment" in text


def test_nothing_but_the_component_itself_is_registered_when_it_is_refused(declare: Declare, spec: Any) -> None:
    outcomes: list[Any] = []

    def program() -> dict[str, Any]:
        try:
            AwsTrainingCluster("train", {**spec, "zones": []})
        except pulumi.InputPropertiesError:
            outcomes.append("refused")
        return {}

    recorder, _ = declare(program)
    assert outcomes == ["refused"]
    assert recorder.types_by_name() == {"train": "everspot:index:AwsTrainingCluster"}


@pytest.mark.parametrize("name", ["Train", "t", "x" * 33, "train_1", "1train"])
def test_a_cluster_needs_a_name_that_fits_every_resource(declare: Declare, spec: Any, name: str) -> None:
    assert "cluster:" in str(refusal(declare, spec, name))


def test_more_pools_than_ec2_allows_are_refused_by_their_number(declare: Declare, spec: Any) -> None:
    zones = [f"eu-west-1{z}" for z in "abcdef"]
    types = [{"type": f"own{n}.large", "vcpus": 2, "memory_gib": 8} for n in range(51)]
    text = str(
        refusal(declare, {**spec, "zones": zones, "capacity": {"standing": {"target": 1}, "instance_types": types}})
    )
    assert "51 types in 6 subnets are 306 pools; EC2 allows 300" in text


def test_types_of_two_architectures_are_refused(declare: Declare, spec: Any) -> None:
    spec["capacity"]["instance_types"].append({"type": "c7g.xlarge"})
    assert "arm64 and x86_64" in str(refusal(declare, spec))


def test_a_type_declared_in_place_reaches_fleet_and_manifest(declare: Declare, spec: Any) -> None:
    own = {"type": "new1.large", "vcpus": 8, "memory_gib": 32, "gpus": 1, "on_demand_usd_per_hour": 0.9}
    spec["capacity"]["instance_types"].append(own)
    recorder, _ = declare(lambda: {"fleet": AwsTrainingCluster("train", spec).spot_fleet_id})
    overrides = recorder.inputs("train-fleet-spot")["launchTemplateConfigs"][0]["overrides"]
    assert "new1.large" in {o["instanceType"] for o in overrides}
    assert '"name":"new1.large"' in recorder.inputs("train-manifest")["content"]


def test_overlapping_addresses_are_named(declare: Declare, spec: Any) -> None:
    text = str(refusal(declare, {**spec, "vpc_cidr": "10.1.0.0/16", "peer_cidrs": ["10.0.0.0/12"]}))
    assert "vpcCidr: 10.1.0.0/16 overlaps peerCidrs[0] (10.0.0.0/12)" in text


def test_an_existing_network_and_a_new_one_are_not_mixed(declare: Declare, spec: Any) -> None:
    text = str(refusal(declare, {**spec, "vpc_id": "vpc-1"}))
    assert "subnetIds: vpcId and subnetIds belong together" in text
    assert "zones: is for a new network" in text


def declare_fleet(declare: Declare, spec: Any, market: str = "spot", *, capacity: Any = None, **standing: Any) -> Any:
    standing = {**spec["capacity"]["standing"], **standing}
    args = {**spec, "capacity": {**spec["capacity"], **(capacity or {}), "standing": standing}}
    recorder, _ = declare(lambda: {"fleet": AwsTrainingCluster("train", args).spot_fleet_id})
    return recorder.inputs(f"train-fleet-{market}")


@pytest.mark.parametrize(("market", "size"), [("on-demand", 1), ("spot", 4)])
def test_each_fleet_asks_for_what_the_design_says(declare: Declare, spec: Any, market: str, size: int) -> None:
    fleet = declare_fleet(declare, spec, market)
    assert fleet["type"] == "maintain"
    assert fleet["terminateInstances"] is True
    assert fleet["excessCapacityTerminationPolicy"] == "no-termination"
    # No part of the total is stated: those would replace the fleet when they change.
    assert fleet["targetCapacitySpecification"] == {"defaultTargetCapacityType": market, "totalTargetCapacity": size}
    assert (
        fleet.get("spotOptions")
        == {
            "on-demand": None,
            "spot": {"allocationStrategy": "price-capacity-optimized", "instanceInterruptionBehavior": "terminate"},
        }[market]
    )
    (config,) = fleet["launchTemplateConfigs"]
    assert config["launchTemplateSpecification"] == {"launchTemplateId": "train-fleet-template-id", "version": "3"}
    assert len(config["overrides"]) == 3 * 2
    assert all(o["weightedCapacity"] == 1 for o in config["overrides"])


def test_both_fleets_exist_at_every_size(declare: Declare, spec: Any) -> None:
    sizes = [
        declare_fleet(declare, spec, market, on_demand_base=0, target=0)["targetCapacitySpecification"][
            "totalTargetCapacity"
        ]
        for market in ("on-demand", "spot")
    ]
    assert sizes == [0, 0]


@pytest.mark.parametrize("strategy", list(everspot.AwsSpotAllocation))
def test_every_spot_strategy_is_passed_through(declare: Declare, spec: Any, strategy: str) -> None:
    options = declare_fleet(declare, spec, spot_allocation=strategy)["spotOptions"]
    assert options["allocationStrategy"] == {"lowest-price": "lowestPrice"}.get(str(strategy), strategy)


def test_options_of_the_spot_fleet_are_passed_through(declare: Declare, spec: Any) -> None:
    fleet = declare_fleet(
        declare,
        spec,
        capacity={"max_price": 0.25},
        on_demand_allocation="prioritized",
        capacity_rebalance={"termination_delay": 300},
    )
    assert fleet["spotOptions"]["maintenanceStrategies"]["capacityRebalance"] == {
        "replacementStrategy": "launch-before-terminate", "terminationDelay": 300,
    }  # fmt: skip
    assert "onDemandOptions" not in fleet
    overrides = fleet["launchTemplateConfigs"][0]["overrides"]
    assert {o["maxPrice"] for o in overrides} == {"0.25"}
    assert [o["priority"] for o in overrides] == [0, 0, 1, 1, 2, 2]


def test_options_of_the_on_demand_fleet_are_passed_through(declare: Declare, spec: Any) -> None:
    changes = {"on_demand_percentage": 50, "on_demand_allocation": "prioritized"}
    fleet = declare_fleet(declare, spec, "on-demand", capacity={"max_price": 0.25}, **changes)
    assert fleet["targetCapacitySpecification"]["totalTargetCapacity"] == 1 + 2
    assert fleet["onDemandOptions"] == {"allocationStrategy": "prioritized"}
    assert not any("maxPrice" in o for o in fleet["launchTemplateConfigs"][0]["overrides"])


def test_a_limit_for_an_instance_is_told_to_ec2_per_unit(declare: Declare, spec: Any) -> None:
    types = [
        {"type": "c6i.large", "weight": 1},
        {"type": "c6i.2xlarge", "weight": 4},
        {"type": "m6i.large", "weight": 3},
    ]
    fleet = declare_fleet(declare, spec, capacity={"max_price": 0.2, "instance_types": types})
    overrides = fleet["launchTemplateConfigs"][0]["overrides"]
    prices = {o["instanceType"]: o["maxPrice"] for o in overrides}
    assert prices == {"c6i.large": "0.2", "c6i.2xlarge": "0.05", "m6i.large": "0.066667"}


def test_a_limit_that_ec2_would_not_take_is_refused_with_both_figures(declare: Declare, spec: Any) -> None:
    spec["capacity"].update(
        max_price=0.01, instance_types=[{"type": "c6i.large"}, {"type": "c6i.2xlarge", "weight": 10}]
    )
    error = refusal(declare, spec)
    assert "capacity.instanceTypes[1].maxPrice: 0.01 for an instance of weight 10 is 0.001 per unit hour" in str(error)


def test_an_idle_limit_belongs_to_what_comes_and_goes(declare: Declare, spec: Any) -> None:
    spec["limits"] = {"idle_limit": "10m"}
    text = str(refusal(declare, spec))
    assert "limits.idleLimit: belongs to capacity.elastic: standing instances stay when they have no work" in text


def test_a_cluster_in_which_nothing_could_ever_run_is_refused(declare: Declare, spec: Any) -> None:
    del spec["capacity"]["standing"]
    error = refusal(declare, spec)
    assert error.errors is not None
    assert [detail["property_path"] for detail in error.errors] == ["capacity"]
    assert "capacity: neither standing nor elastic is given, so that nothing would ever run" in str(error)


@pytest.mark.parametrize("standing", [{}, {"standing": {"target": 0}}], ids=["none", "zero"])
def test_where_nothing_stands_both_fleets_are_there_with_no_size(declare: Declare, spec: Any, standing: Any) -> None:
    spec["capacity"] = {
        "instance_types": spec["capacity"]["instance_types"], "elastic": {"max_instances": 8}, **standing
    }  # fmt: skip
    recorder, _ = declare(lambda: {"fleet": AwsTrainingCluster("train", spec).spot_fleet_id})
    sizes = {
        fleet.name: fleet.inputs["targetCapacitySpecification"]["totalTargetCapacity"]
        for fleet in recorder.of_type("aws:ec2/fleet:Fleet")
    }
    assert sizes == {"train-fleet-on-demand": 0, "train-fleet-spot": 0}
    published = json.loads(recorder.inputs("train-manifest")["content"])
    assert (published["standing"]["on_demand_units"], published["standing"]["spot_units"]) == (0, 0)
    assert published["fleet"]["markets"] == ["on-demand", "spot"]


@pytest.mark.parametrize(
    ("elastic", "path", "reason"),
    [
        ({"max_instances": True}, "maxInstances", "has to be a whole number, not True"),
        ({"max_instances": 2.5}, "maxInstances", "has to be a whole number, not 2.5"),
        ({"max_instances": 10_001}, "maxInstances", "has to lie between 0 and 10000, not 10001"),
        ({"max_usd_per_hour": 0}, "maxUsdPerHour", "has to lie between 0.0001 and 1000000, not 0"),
        ({"max_usd_per_hour": float("inf")}, "maxUsdPerHour", "has to be a number, not inf"),
        ({"markets": []}, "markets", "is empty; there is spot, on-demand"),
        ({"markets": ["on_demand"]}, "markets[0]", "'on_demand' is not allowed (did you mean on-demand?)"),
        ({"zones": []}, "zones", "is empty; leave it out for those of all subnets"),
        ({"zones": ["eu-west-1z"]}, "zones", "eu-west-1z: the cluster has no subnet there, but in eu-west-1a, eu-"),
        ({"idle_limit": [1]}, "idleLimit", "must be a duration such as 45s, 10m or 1h30m"),
        ({"idle_limit": "5s"}, "idleLimit", "has to lie between 10s and 7d, not 5s"),
    ],
)
def test_what_comes_and_goes_is_bounded(declare: Declare, spec: Any, elastic: Any, path: str, reason: str) -> None:
    spec["capacity"]["elastic"] = {"max_instances": 8, **elastic}
    error = refusal(declare, spec)
    assert error.errors is not None
    (detail,) = error.errors
    assert detail["property_path"] == f"capacity.elastic.{path}"
    assert detail["reason"].startswith(reason)
