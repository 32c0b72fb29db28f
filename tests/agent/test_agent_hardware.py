"""What the agent measures of its machine."""

import pytest
from everspot_train.agent.hardware import measure, nominal, parse_gpus


def test_gpus_are_named_as_the_catalogue_names_them() -> None:
    listing = "Tesla T4, 15360\nNVIDIA A10G, 23028\nNVIDIA A100-SXM4-80GB, 81920\nNVIDIA A100-SXM4-40GB, 40960\n"
    assert parse_gpus(listing) == [("T4", 16.0), ("A10G", 24.0), ("A100-80GB", 80.0), ("A100", 40.0)]
    assert parse_gpus("No devices were found\n") == []


@pytest.mark.parametrize(("measured", "sold"), [(15.4, 16), (7.63, 8), (61.8, 64), (60.0, 61), (3.75, 4), (17, 17)])
def test_memory_is_stated_as_it_is_sold(measured: float, sold: float) -> None:
    assert nominal(measured) == sold


def test_this_machine_can_be_measured() -> None:
    hardware = measure()
    assert hardware.vcpus >= 1
    assert hardware.memory_gib > 0.4
