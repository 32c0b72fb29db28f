"""The GPUs that a build of torch runs on."""

from pathlib import Path

import pytest
from everspot_core.capacity.catalogue import InstanceType, builtin
from everspot_core.capacity.gpus import CAPABILITIES, IMAGE_BUILD, Families, runs_on, unfit

FAMILIES = Families(models={"k8": "K80", "t4": "T4"}, without_cuda={"trn1": "Trainium"})


@pytest.mark.parametrize(
    ("capability", "runs"),
    [("3.7", False), ("5.2", False), ("7.0", False), ("7.5", True), ("8.0", True), ("8.6", True), ("8.9", True),
     ("9.0", True), ("10.0", True), ("10.3", True), ("11.0", False), ("12.0", True)],
)  # fmt: skip
def test_the_images_build_runs_on_what_it_has_code_for_and_on_later_minors(capability: str, runs: bool) -> None:
    assert runs_on(capability, IMAGE_BUILD.arches) is runs


def test_every_gpu_of_the_catalogue_has_a_capability() -> None:
    models = {kind.gpu for kind in builtin().types.values() if kind.gpu}
    assert models <= set(CAPABILITIES)


@pytest.mark.parametrize("name", ["p3.2xlarge", "p3dn.24xlarge", "n1-standard-8+v100"])
def test_volta_is_refused_by_a_cuda_13_build(name: str) -> None:
    reason = unfit(builtin().types[name], IMAGE_BUILD.arches, FAMILIES)
    assert reason is not None and "compute capability 7.0" in reason and "sm_75" in reason
    assert unfit(builtin().types[name], ["sm_70", "sm_80"], FAMILIES) is None


@pytest.mark.parametrize(
    ("name", "words"),
    [("k8.xlarge", "K80"), ("trn1.2xlarge", "Trainium")],
)
def test_old_and_other_accelerators_are_known_by_their_family(name: str, words: str) -> None:
    assert words in str(unfit(InstanceType(name=name, vcpus=4, memory_gib=61), IMAGE_BUILD.arches, FAMILIES))


def test_what_nobody_knows_is_not_refused() -> None:
    unknown = InstanceType(name="x9.large", vcpus=4, memory_gib=16, gpus=1, gpu="Z1")
    for kind in (unknown, builtin().types["m6i.large"]):
        assert unfit(kind, IMAGE_BUILD.arches, FAMILIES) is None


def test_the_table_is_what_the_pinned_wheel_says() -> None:
    import torch  # here and not above: it takes seconds

    pinned = (Path(__file__).resolve().parents[2] / "pyproject.toml").read_text()
    assert f'"torch=={IMAGE_BUILD.version.partition("+")[0]}"' in pinned
    assert torch.__version__ == IMAGE_BUILD.version
    assert tuple(torch._C._cuda_getArchFlags().split()) == IMAGE_BUILD.arches
