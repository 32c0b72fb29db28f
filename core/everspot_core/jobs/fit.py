"""Whether a job fits an instance, and which resources are lacking if not."""

from dataclasses import dataclass

from everspot_core.capacity.catalogue import InstanceType
from everspot_core.jobs.job import Resources
from everspot_core.jobs.records import InstanceRecord


@dataclass(frozen=True, slots=True, order=True)
class Shape:
    """The resources of a machine. Shapes are ordered from small to large, by the most expensive resource first."""

    gpus: int
    gpu_memory_gib: float
    vcpus: int
    memory_gib: float
    gpu: str

    @classmethod
    def from_machine(cls, machine: InstanceRecord | InstanceType) -> "Shape":
        """Return the shape of an instance, or of any instance of a type."""
        return cls(machine.gpus, machine.gpu_memory_gib, machine.vcpus, machine.memory_gib, machine.gpu or "")


def lacking(need: Resources, shape: Shape) -> tuple[str, ...]:
    """Return the fields of `resources` that the shape cannot satisfy; empty if the job fits."""
    lacks = []
    if shape.gpus < need.gpus:
        lacks.append("gpus")
    if need.gpu is not None and need.gpu.lower() != shape.gpu.lower():
        lacks.append("gpu")
    if shape.gpu_memory_gib < need.gpu_memory_gib:
        lacks.append("gpu_memory_gib")
    if shape.vcpus < need.vcpus:
        lacks.append("vcpus")
    if shape.memory_gib < need.memory_gib:
        lacks.append("memory_gib")
    return tuple(lacks)


def fits(need: Resources, shape: Shape) -> bool:
    """Return whether the shape satisfies the resources."""
    return not lacking(need, shape)
