"""A fleet's neutral shape in Compute Engine's terms, names of types, and quotas."""

import pytest
from everspot_clouds.gcp.fleet import capacity_problems, ranks, selections, sizes
from everspot_clouds.gcp.machines import Machine, described, description, machine_of, type_name
from everspot_clouds.gcp.quotas import metrics_of, quota_of, reaches
from everspot_core.catalogue import builtin
from everspot_core.fleet import CapacitySpec, Prefer, TypeChoice, WeightBy
from everspot_core.market import Market
from everspot_core.problems import Problems

KNOWN = builtin()
TYPES = ("g2-standard-8", "g2-standard-4", "g2-standard-12")


def spec(*names: str, **fields: object) -> CapacitySpec:
    return CapacitySpec.model_validate({"target": 4, "types": [{"name": name} for name in names], **fields})


@pytest.mark.parametrize(
    ("prefer", "found"),
    [
        (Prefer.ORDER, {"g2-standard-8": 1, "g2-standard-4": 2, "g2-standard-12": 3}),
        (Prefer.PRICE, {"g2-standard-8": 2, "g2-standard-4": 1, "g2-standard-12": 3}),
        (Prefer.DEPTH, {"g2-standard-8": 1, "g2-standard-4": 1, "g2-standard-12": 1}),
        (Prefer.BALANCE, {"g2-standard-8": 2, "g2-standard-4": 1, "g2-standard-12": 3}),
    ],
)
def test_what_a_fleet_prefers_becomes_ranks(prefer: Prefer, found: dict[str, int]) -> None:
    assert ranks(spec(*TYPES, prefer=prefer), KNOWN, "europe-west4", Market.SPOT) == found


def test_types_of_about_the_same_price_share_a_rank_so_that_the_deeper_one_is_taken() -> None:
    # Per vCPU: 0.0394, 0.0484 and 0.0382 dollars on Spot.
    capacity = spec("g2-standard-24", "g2-standard-8", "g2-standard-48", prefer=Prefer.BALANCE, weight_by=WeightBy.VCPU)
    assert ranks(capacity, KNOWN, "europe-west4", Market.SPOT) == {
        "g2-standard-24": 1, "g2-standard-8": 2, "g2-standard-48": 1,
    }  # fmt: skip


def test_a_type_without_a_price_comes_last_and_given_priorities_count() -> None:
    assert ranks(spec("x9-huge", "g2-standard-4", prefer=Prefer.PRICE), KNOWN, "europe-west4", Market.SPOT) == {
        "x9-huge": 2, "g2-standard-4": 1,
    }  # fmt: skip
    capacity = CapacitySpec(
        target=1, prefer=Prefer.ORDER,
        types=(TypeChoice(name="a-1", priority=5), TypeChoice(name="b-1", priority=1),
               TypeChoice(name="c-1", priority=1)),
    )  # fmt: skip
    found = ranks(capacity, KNOWN, "europe-west4", Market.SPOT)
    assert found == {"a-1": 2, "b-1": 1, "c-1": 1}
    assert selections(found) == {
        "rank-1": {"rank": "1", "machineTypes": ["b-1", "c-1"]},
        "rank-2": {"rank": "2", "machineTypes": ["a-1"]},
    }


def test_a_target_in_units_becomes_a_number_of_vms() -> None:
    assert sizes(spec(*TYPES, on_demand_base=1), KNOWN.types) == (1, 3)
    gpus = spec("g2-standard-48", "g2-standard-8", target=8, weight_by=WeightBy.GPU, on_demand_percentage=50)
    assert sizes(gpus, KNOWN.types) == (1, 1)


def test_what_compute_engine_cannot_do_is_refused_by_name() -> None:
    problems = Problems()
    capacity = CapacitySpec(
        target=3000, on_demand_base=4000, on_demand_percentage=120, max_price=1.0,
        types=(
            TypeChoice(name="n1-standard-8+t4"), TypeChoice(name="a4-highgpu-8g", max_price=2.0),
            TypeChoice(name="g2-standard-4", priority=1.5), TypeChoice(name="g2-standard-4+t9"),
            *(TypeChoice(name=f"t{n}-standard-1") for n in range(8)),
        ),
    )  # fmt: skip
    capacity_problems(problems, capacity, KNOWN.types)
    paths = [problem.path for problem in problems.found]
    assert {
        "standing.target", "standing.onDemandBase", "standing.onDemandPercentage", "maxPrice", "instanceTypes",
        "instanceTypes[0].type", "instanceTypes[1].type", "instanceTypes[1].maxPrice", "instanceTypes[2].priority",
        "instanceTypes[3].type",
    } <= set(paths)  # fmt: skip
    alone = Problems()
    capacity_problems(alone, spec("n1-standard-8+t4"), KNOWN.types)
    assert not alone.found


@pytest.mark.parametrize(
    ("name", "machine"),
    [
        ("g2-standard-4", Machine("g2-standard-4")),
        ("n1-standard-8+t4", Machine("n1-standard-8", "nvidia-tesla-t4", 1)),
        ("n1-standard-16+2xv100", Machine("n1-standard-16", "nvidia-tesla-v100", 2)),
    ],
)
def test_a_type_and_its_machine_map_both_ways(name: str, machine: Machine) -> None:
    assert machine_of(name) == machine
    assert type_name(machine.machine, machine.accelerator, machine.count) == name
    assert described(description(name), machine.machine) == name


def test_built_in_gpus_are_no_part_of_a_name_and_another_description_is_none() -> None:
    assert type_name("g2-standard-4", "nvidia-l4", 1) == "g2-standard-4"
    assert described("", "n1-standard-8") == described("a web server", "n1-standard-8") == "n1-standard-8"
    with pytest.raises(ValueError, match="is not a type such as"):
        machine_of("G2!")


def test_every_type_of_the_catalogue_has_a_machine_and_a_quota() -> None:
    names = {name for region in ("us-central1", "europe-west4") for name in KNOWN.offered(region)}
    assert names
    for name in names:
        assert machine_of(name).machine
        assert all(metric.isupper() for market in Market for metric in metrics_of(name, market))


@pytest.mark.parametrize(
    ("name", "market", "metrics"),
    [
        ("g2-standard-4", Market.SPOT, ("PREEMPTIBLE_NVIDIA_L4_GPUS", "NVIDIA_L4_GPUS")),
        ("a2-highgpu-1g", Market.ON_DEMAND, ("NVIDIA_A100_GPUS",)),
        ("n1-standard-8+t4", Market.SPOT, ("PREEMPTIBLE_NVIDIA_T4_GPUS", "NVIDIA_T4_GPUS")),
        ("n2-standard-8", Market.ON_DEMAND, ("N2_CPUS",)),
        ("e2-standard-4", Market.SPOT, ("PREEMPTIBLE_CPUS", "CPUS")),
    ],
)
def test_an_instance_counts_towards_the_quota_of_its_gpus_or_vcpus(name, market, metrics) -> None:
    assert metrics_of(name, market) == metrics
    assert quota_of(name, market) == metrics[0]


def test_spot_without_a_quota_of_its_own_uses_the_standard_one() -> None:
    limits = {"NVIDIA_L4_GPUS": 4.0, "PREEMPTIBLE_NVIDIA_L4_GPUS": 0.0}
    (found,) = reaches(8, ["g2-standard-4"], KNOWN.types, Market.SPOT, limits)
    assert (found.metric, found.limit, found.least, found.enough) == ("NVIDIA_L4_GPUS", 4.0, 8.0, False)
    (own,) = reaches(8, ["g2-standard-4"], KNOWN.types, Market.SPOT, {**limits, "PREEMPTIBLE_NVIDIA_L4_GPUS": 8.0})
    assert (own.metric, own.enough) == ("PREEMPTIBLE_NVIDIA_L4_GPUS", True)
