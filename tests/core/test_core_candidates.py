from datetime import timedelta

from everspot_core.capacity.catalogue import InstanceType, builtin
from everspot_core.jobs.candidates import candidates, misfits, nearest
from everspot_core.jobs.job import Resources


def test_only_types_that_fit_are_offered_cheapest_spot_first():
    choices = candidates(Resources(vcpus=4, memory_gib=16, gpus=1), builtin(), ["us-east-1"])
    assert choices[0].instance_type.name == "g4dn.xlarge"
    assert all(c.instance_type.gpus >= 1 and c.region == "us-east-1" for c in choices)
    lows = [c.spot[0].usd_per_hour for c in choices if c.spot]
    assert lows == sorted(lows)


def test_the_gpu_model_is_honoured_in_any_case():
    choices = candidates(Resources(gpus=1, gpu="a10g"), builtin(), ["us-east-1"])
    assert {c.instance_type.gpu for c in choices} == {"A10G"}


def test_expected_duration_gives_costs():
    (first, *_) = candidates(Resources(gpus=1, gpu="T4"), builtin(), ["us-east-1"], timedelta(hours=2))
    assert first.on_demand_cost == 2 * 0.526
    assert first.spot_cost == (2 * 0.2, 2 * 0.2158)


def test_without_expected_duration_there_are_prices_but_no_costs():
    choices = candidates(Resources(), builtin(), ["us-east-1"])
    assert choices and all(c.spot_cost is None and c.on_demand_cost is None for c in choices)


def test_a_type_without_any_spot_price_is_still_a_candidate():
    choices = candidates(Resources(gpus=1, gpu="H100"), builtin(), ["us-east-1"])
    only = next(c for c in choices if c.instance_type.name == "p5.4xlarge")
    assert only.spot is None and only.on_demand is not None


def test_a_type_declared_in_place_is_a_candidate_at_its_own_price():
    own = InstanceType(name="own.huge", vcpus=512, memory_gib=64, on_demand_usd_per_hour=9)
    (only,) = candidates(Resources(vcpus=500), builtin().with_types([own]), ["us-east-1"], timedelta(hours=2))
    assert (only.instance_type.name, only.spot, only.on_demand_cost) == ("own.huge", None, 18)


def test_all_regions_are_searched_when_none_is_named():
    assert {c.region for c in candidates(Resources(), builtin())} == set(builtin().regions)


def test_every_lack_is_named():
    kind = builtin().get("g4dn.xlarge")
    assert misfits(kind, Resources(vcpus=8, memory_gib=64, gpus=2, gpu_memory_gib=80, gpu="H100")) == [
        "vCPUs 4 of 8",
        "GiB of memory 16 of 64",
        "GPUs 1 of 2",
        "GiB of GPU memory 16 of 80",
        "GPU T4 instead of H100",
    ]


def test_the_nearest_types_of_an_impossible_job_say_what_they_lack():
    impossible = Resources(gpus=32)
    assert candidates(impossible, builtin()) == []
    lacking = [lacks for _, lacks in nearest(impossible, builtin())]
    assert lacking[0] == ["GPUs 16 of 32"] and all(lacks in (["GPUs 16 of 32"], ["GPUs 8 of 32"]) for lacks in lacking)
