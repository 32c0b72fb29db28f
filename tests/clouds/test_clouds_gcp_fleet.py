"""A fleet's neutral shape in Compute Engine's terms, names of types, and quotas."""

from datetime import timedelta

import pytest
from everspot_clouds.gcp.fleet import GcpCapacity, GcpShape, capacity_problems, scheduling, selections
from everspot_clouds.gcp.machines import Machine, described, description, parse_type, type_name
from everspot_clouds.gcp.quotas import find_quota, list_metrics, reaches
from everspot_core.capacity.catalogue import builtin
from everspot_core.capacity.fleet import TypeChoice
from everspot_core.capacity.market import Market
from everspot_core.validation.problems import Problems

KNOWN = builtin()


def spec(*names: str, **fields: object) -> GcpCapacity:
    return GcpCapacity.model_validate({"target": 4, "types": [{"name": name} for name in names], **fields})


def test_types_of_one_rank_are_one_selection() -> None:
    assert selections({"g2-standard-4": 0, "a2-highgpu-1g": 1, "g2-standard-8": 0}) == {
        "rank-0": {"rank": "0", "machineTypes": ["g2-standard-4", "g2-standard-8"]},
        "rank-1": {"rank": "1", "machineTypes": ["a2-highgpu-1g"]},
    }


def test_spot_says_all_of_its_words_and_what_it_asks_for() -> None:
    spot = scheduling(Market.SPOT, gpus=False, notice=timedelta(seconds=120))
    assert spot == {
        "automaticRestart": False, "onHostMaintenance": "TERMINATE", "provisioningModel": "SPOT", "preemptible": True,
        "instanceTerminationAction": "DELETE", "preemptionNoticeDuration": {"seconds": 120},
    }  # fmt: skip
    assert "preemptionNoticeDuration" not in scheduling(Market.SPOT, gpus=True, notice=timedelta(0))
    standard = scheduling(Market.ON_DEMAND, gpus=False, notice=timedelta(seconds=120), max_run=timedelta(days=2))
    assert standard == {
        "automaticRestart": False, "onHostMaintenance": "MIGRATE", "provisioningModel": "STANDARD",
        "preemptible": False, "instanceTerminationAction": "DELETE", "maxRunDuration": {"seconds": 172800},
    }  # fmt: skip
    assert scheduling(Market.ON_DEMAND, gpus=True)["onHostMaintenance"] == "TERMINATE"


def test_what_compute_engine_cannot_do_is_refused_by_name() -> None:
    problems = Problems()
    capacity = GcpCapacity(
        target=3000, on_demand_base=4000, on_demand_percentage=120, shape=GcpShape.EVEN,
        types=(
            TypeChoice(name="n1-standard-8+t4"), TypeChoice(name="a4-highgpu-8g", zones=("us-central1-a",)),
            TypeChoice(name="g2-standard-4", priority=-1), TypeChoice(name="g2-standard-4+t9"),
            *(TypeChoice(name=f"t{n}-standard-1") for n in range(8)),
        ),
    )  # fmt: skip
    capacity_problems(problems, capacity, KNOWN.types)
    assert {problem.path for problem in problems.collected} == {
        "standing.target", "standing.onDemandBase", "standing.onDemandPercentage", "standing.shape", "standing.prefer",
        "instanceTypes", "instanceTypes[0].type", "instanceTypes[1].type", "instanceTypes[1].zones",
        "instanceTypes[2].priority", "instanceTypes[3].type",
    }  # fmt: skip


@pytest.mark.parametrize("shape", list(GcpShape))
def test_a_type_that_stands_alone_may_have_every_shape(shape: GcpShape) -> None:
    problems = Problems()
    capacity_problems(problems, spec("n1-standard-8+t4", shape=shape), KNOWN.types)
    assert not problems.collected


def test_only_a_choice_of_types_cannot_be_spread_evenly() -> None:
    problems = Problems()
    capacity_problems(problems, spec("g2-standard-4", "g2-standard-8", shape="EVEN"), KNOWN.types)
    (problem,) = problems.collected
    assert str(problem) == (
        "standing.shape: EVEN goes with one instance type only, not with 2: a group that may choose between types is "
        "ANY, BALANCED or ANY_SINGLE_ZONE"
    )


@pytest.mark.parametrize(
    ("name", "machine"),
    [
        ("g2-standard-4", Machine("g2-standard-4")),
        ("n1-standard-8+t4", Machine("n1-standard-8", "nvidia-tesla-t4", 1)),
        ("n1-standard-16+2xv100", Machine("n1-standard-16", "nvidia-tesla-v100", 2)),
    ],
)
def test_a_type_and_its_machine_map_both_ways(name: str, machine: Machine) -> None:
    assert parse_type(name) == machine
    assert type_name(machine.machine, machine.accelerator, machine.count) == name
    assert described(description(name), machine.machine) == name


def test_built_in_gpus_are_no_part_of_a_name_and_another_description_is_none() -> None:
    assert type_name("g2-standard-4", "nvidia-l4", 1) == "g2-standard-4"
    assert described("", "n1-standard-8") == described("a web server", "n1-standard-8") == "n1-standard-8"
    with pytest.raises(ValueError, match="is not a type such as"):
        parse_type("G2!")


def test_every_type_of_the_catalogue_has_a_machine_and_a_quota() -> None:
    names = {name for region in ("us-central1", "europe-west4") for name in KNOWN.offered(region)}
    assert names
    for name in names:
        assert parse_type(name).machine
        assert all(metric.isupper() for market in Market for metric in list_metrics(name, market))


@pytest.mark.parametrize(
    ("name", "market", "metrics"),
    [
        ("g2-standard-4", Market.SPOT, ("PREEMPTIBLE_NVIDIA_L4_GPUS", "NVIDIA_L4_GPUS")),
        ("a2-highgpu-1g", Market.ON_DEMAND, ("NVIDIA_A100_GPUS",)),
        ("n1-standard-8+t4", Market.SPOT, ("PREEMPTIBLE_NVIDIA_T4_GPUS", "NVIDIA_T4_GPUS")),
        ("n2-standard-8", Market.ON_DEMAND, ("N2_CPUS",)),
        ("e2-standard-4", Market.SPOT, ("PREEMPTIBLE_CPUS", "CPUS")),
        ("a3-highgpu-8g", Market.SPOT, ("PREEMPTIBLE_NVIDIA_H100_GPUS",)),
    ],
)
def test_an_instance_counts_towards_the_quota_of_its_gpus_or_vcpus(name, market, metrics) -> None:
    assert list_metrics(name, market) == metrics
    assert find_quota(name, market) == metrics[0]


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("a3-megagpu-8g", "NVIDIA_H100_MEGA_GPUS"),
        ("a3-ultragpu-8g", "NVIDIA_H200_GPUS"),
        ("a3-ultragpu-8g", "NVIDIA_H200_141GB_GPUS"),
        ("a4-highgpu-8g", "NVIDIA_B200_GPUS"),
        ("g4-standard-48", "NVIDIA_RTX_PRO_6000_GPUS"),
    ],
)
def test_newer_gpus_count_towards_what_the_region_states_and_never_towards_vcpus_or_other_gpus(name, own) -> None:
    assert [list_metrics(name, market) for market in Market] == [(), ()]
    others = {"CPUS": 1.0, "NVIDIA_H100_GPUS": 8.0, "PREEMPTIBLE_NVIDIA_H100_GPUS": 8.0, "NVIDIA_GB200_GPUS": 8.0}
    assert list_metrics(name, Market.SPOT, others) == ()
    assert reaches(1, [name], KNOWN.types, Market.SPOT, others) == []
    stated = {**others, own: 16.0, f"PREEMPTIBLE_{own}": 8.0}
    assert list_metrics(name, Market.ON_DEMAND, stated) == (own,)
    assert list_metrics(name, Market.SPOT, stated) == (f"PREEMPTIBLE_{own}", own)
    (reach,) = reaches(2, [name], KNOWN.types, Market.SPOT, stated)
    assert (reach.metric, reach.limit, reach.least) == (f"PREEMPTIBLE_{own}", 8.0, 2.0 * KNOWN.types[name].gpus)
    assert find_quota(name, Market.SPOT) == name.partition("-")[0]


@pytest.mark.parametrize("name", ["a3-highgpu-8g", "c4-standard-8"])
def test_families_that_a_region_states_no_quota_of_count_towards_no_other(name) -> None:
    """They count towards GPUS_PER_GPU_FAMILY and CPUS_PER_VM_FAMILY, which only a refusal names."""
    assert list_metrics(name, Market.ON_DEMAND, {"CPUS": 1.0, "NVIDIA_A100_GPUS": 1.0}) == ()
    assert find_quota(name, Market.ON_DEMAND) == name.partition("-")[0]


def test_spot_without_a_quota_of_its_own_uses_the_standard_one() -> None:
    limits = {"NVIDIA_L4_GPUS": 4.0, "PREEMPTIBLE_NVIDIA_L4_GPUS": 0.0}
    (reach,) = reaches(8, ["g2-standard-4"], KNOWN.types, Market.SPOT, limits)
    assert (reach.metric, reach.limit, reach.least, reach.enough) == ("NVIDIA_L4_GPUS", 4.0, 8.0, False)
    (own,) = reaches(8, ["g2-standard-4"], KNOWN.types, Market.SPOT, {**limits, "PREEMPTIBLE_NVIDIA_L4_GPUS": 8.0})
    assert (own.metric, own.enough) == ("PREEMPTIBLE_NVIDIA_L4_GPUS", True)
