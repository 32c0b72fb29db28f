"""What the agent measures of its machine."""

from collections.abc import Callable
from pathlib import Path

import pytest
from everspot_core.capacity.catalogue import InstanceType, builtin
from everspot_core.jobs.fit import Shape, lacking
from everspot_core.jobs.job import Resources
from everspot_train.agent.hardware import measure, nominal, parse_gpus

TYPES = sorted(builtin().types.values(), key=lambda kind: kind.name)
NAMES = {
    "A100": "NVIDIA A100-SXM4-40GB", "A100-80GB": "NVIDIA A100-SXM4-80GB", "H100": "NVIDIA H100 80GB HBM3",
    "V100": "Tesla V100-SXM2-16GB", "V100-32GB": "Tesla V100-SXM2-32GB", "T4": "Tesla T4",
    "RTX PRO 4500": "NVIDIA RTX PRO 4500 Blackwell Server Edition",
    "RTX PRO 6000": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
}  # fmt: skip
"""How `nvidia-smi` names models, where it is more than NVIDIA and the catalogue's name."""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Return the root folder of a machine that reports a part of the memory that its type is sold with."""
    (tmp_path / "proc").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def build(kind: InstanceType, part: float = 1.0, name: str | None = None) -> Path:
        name = name or NAMES.get(kind.gpu or "", f"NVIDIA {kind.gpu}")
        lines = f"echo '{name}, {kind.gpu_memory_gib * 1024 * part:.0f}'\n" * kind.gpus
        (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{lines}")
        (tmp_path / "nvidia-smi").chmod(0o755)
        (tmp_path / "proc" / "meminfo").write_text(f"MemTotal: {kind.memory_gib * part * 2**20:.0f} kB\n")
        return tmp_path

    return build


@pytest.mark.parametrize("part", [0.92, 0.965, 0.985, 1.0])
def test_a_machine_of_a_known_type_has_what_the_type_is_sold_with(machine: Callable[..., Path], part: float) -> None:
    for kind in TYPES:
        hardware = measure(kind, machine(kind, part))
        figures = (hardware.gpus, hardware.gpu, hardware.gpu_memory_gib, hardware.memory_gib)
        assert figures == (kind.gpus, kind.gpu, kind.gpu_memory_gib, kind.memory_gib), kind.name


def test_models_with_spaces_are_recognized_without_the_type(machine: Callable[..., Path]) -> None:
    for kind in (kind for kind in TYPES if kind.gpu is not None):
        hardware = measure(None, machine(kind))
        shape = Shape(
            hardware.gpus, hardware.gpu_memory_gib, kind.vcpus, kind.memory_gib, hardware.gpu or "", kind.name
        )
        assert lacking(Resources(gpus=kind.gpus, gpu=kind.gpu), shape) == (), kind.name


def test_a_machine_that_is_not_as_its_type_is_measured(machine: Callable[..., Path]) -> None:
    kind = builtin().types["a2-highgpu-1g"]
    small = measure(kind, machine(kind, 0.5))
    assert (small.memory_gib, small.gpu, small.gpu_memory_gib) == (42.5, "A100", 20.0)
    assert measure(kind, machine(kind.model_copy(update={"gpus": 0}))).gpus == 0
    assert measure(None, machine(kind, name="NVIDIA GeForce RTX 5090")).gpu == "GeForce"


@pytest.mark.parametrize(("limit", "memory_gib"), [("max", 85.0), (str(20 * 2**30), 20.0), (str(2**62), 85.0)])
def test_a_container_has_at_most_its_limit(machine: Callable[..., Path], limit: str, memory_gib: float) -> None:
    kind = builtin().types["a2-highgpu-1g"]
    root = machine(kind, 0.98)
    (root / "sys/fs/cgroup").mkdir(parents=True)
    (root / "sys/fs/cgroup/memory.max").write_text(f"{limit}\n")
    assert measure(kind, root).memory_gib == memory_gib


def test_gpus_are_named_as_the_catalogue_names_them() -> None:
    listing = "Tesla T4, 15360\nNVIDIA A10G, 23028\nNVIDIA A100-SXM4-80GB, 81920\nNVIDIA A100-SXM4-40GB, 40960\n"
    assert parse_gpus(listing) == [("T4", 16.0), ("A10G", 24.0), ("A100-80GB", 80.0), ("A100", 40.0)]
    assert parse_gpus("No devices were found\n") == []


@pytest.mark.parametrize(("measured", "sold"), [(15.4, 16), (7.63, 8), (61.8, 64), (60.0, 61), (3.75, 4), (17, 17)])
def test_memory_is_stated_as_it_is_sold(measured: float, sold: float) -> None:
    assert nominal(measured) == sold


def test_this_machine_can_be_measured() -> None:
    hardware = measure(None)
    assert hardware.vcpus >= 1
    assert hardware.memory_gib > 0.4
