"""Whether a job fits an instance, and which resources are lacking if not."""

from dataclasses import dataclass

from everspot_core.capacity.catalogue import InstanceType
from everspot_core.jobs.job import Resources
from everspot_core.jobs.records import InstanceRecord

Size = tuple[int, float, int, float, str]
"""GPUs, memory of each GPU in GiB, vCPUs, memory in GiB, GPU model."""


@dataclass(frozen=True, slots=True, order=True)
class Shape:
    """The resources of a machine, and its type. Shapes are ordered from small to large, by the most expensive resource
    first."""

    gpus: int
    gpu_memory_gib: float
    vcpus: int
    memory_gib: float
    gpu: str
    instance_type: str

    @property
    def size(self) -> Size:
        """The resources alone, by which shapes are ordered."""
        return self.gpus, self.gpu_memory_gib, self.vcpus, self.memory_gib, self.gpu

    @classmethod
    def from_machine(cls, machine: InstanceRecord | InstanceType) -> "Shape":
        """Return the shape of an instance, or of any instance of a type."""
        name = machine.name if isinstance(machine, InstanceType) else machine.instance_type
        return cls(machine.gpus, machine.gpu_memory_gib, machine.vcpus, machine.memory_gib, machine.gpu or "", name)


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
    if need.instance_types and shape.instance_type not in need.instance_types:
        lacks.append("instance_types")
    return tuple(lacks)


def fits(need: Resources, shape: Shape) -> bool:
    """Return whether the shape satisfies the resources."""
    return not lacking(need, shape)
