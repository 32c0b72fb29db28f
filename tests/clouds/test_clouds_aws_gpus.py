"""The GPUs of EC2's instance families."""

import pytest
from everspot_clouds.aws.gpus import FAMILIES
from everspot_core.capacity.catalogue import InstanceType
from everspot_core.capacity.gpus import CAPABILITIES, IMAGE_BUILD, unfit


def test_every_gpu_of_a_family_has_a_capability() -> None:
    assert set(FAMILIES.models.values()) <= set(CAPABILITIES)


@pytest.mark.parametrize(
    ("name", "words"),
    [("p2.xlarge", "K80"), ("g3.4xlarge", "M60"), ("g4ad.xlarge", "Radeon"), ("trn1.2xlarge", "Trainium")],
)
def test_old_and_other_accelerators_are_known_by_their_family(name: str, words: str) -> None:
    assert words in str(unfit(InstanceType(name=name, vcpus=4, memory_gib=61), IMAGE_BUILD.arches, FAMILIES))
