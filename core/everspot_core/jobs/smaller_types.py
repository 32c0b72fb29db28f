"""Finds smaller instance types for an arm of a comparison, by the measured memory of its runs."""

from dataclasses import dataclass

from everspot_core.capacity.catalogue import Catalogue, InstanceType
from everspot_core.jobs.fit import Shape, fits
from everspot_core.jobs.job_parts import Resources
from everspot_core.jobs.lower_precision import HEADROOM


@dataclass(frozen=True, slots=True)
class Footprint:
    """The peak memory of the runs of an arm, GiB; None: not measured. `gpu_gib`: of one GPU, by torch's allocator.
    `memory_gib`: of the machine, by the resident set."""

    memory_gib: float | None = None
    gpu_gib: float | None = None

    @property
    def peak_gib(self) -> float | None:
        """The deciding figure: the GPU's if there is one."""
        return self.gpu_gib if self.gpu_gib is not None else self.memory_gib


@dataclass(frozen=True, slots=True)
class SmallerType:
    """A type that has enough memory for an arm and is cheaper than the type that the arm ran on.

    Attributes:
        new: whether its memory is too small for the first arm.
        epoch_seconds: expected time of an epoch, market seconds; None if the type has another GPU, whose speed is not
            known.
    """

    instance_type: str
    usd_per_hour: float
    new: bool
    epoch_seconds: float | None

    @property
    def epoch_usd(self) -> float | None:
        """Expected price of an epoch, on-demand."""
        return self.usd_per_hour * self.epoch_seconds / 3600 if self.epoch_seconds is not None else None


def needed_resources(declared: Resources, footprint: Footprint) -> Resources:
    """Return the declared resources with the measured memory, plus headroom, in place of the declared memory, and on
    any type."""
    memory, gpu = footprint.memory_gib, footprint.gpu_gib
    return declared.model_copy(
        update={
            "instance_types": (),
            "memory_gib": memory * HEADROOM if memory is not None else declared.memory_gib,
            "gpu_memory_gib": gpu * HEADROOM if gpu is not None and declared.gpus else declared.gpu_memory_gib,
        }
    )


def smaller_types(
    catalogue: Catalogue,
    region: str,
    current: InstanceType,
    declared: Resources,
    arm: Footprint,
    first: Footprint,
    epoch_seconds: float | None,
) -> list[SmallerType]:
    """Return the types of a region that have enough memory for an arm and cost less than the current type, the cheapest
    first.

    Burstable types are left out, because hours of training exceed their burst credits. An epoch is assumed to take the
    same time on another type with the same GPU. The same holds without GPUs, because a job's threads follow from its
    declared vCPUs; differences between processors are unknown.

    Args:
        arm: memory of the arm. Without a figure no type is returned.
        first: memory of the first arm, which decides whether a type is `new`.
        epoch_seconds: of the arm on the current type.
    """
    price = catalogue.on_demand(current.name, region)
    if price is None or arm.peak_gib is None:
        return []
    needed, before = needed_resources(declared, arm), needed_resources(declared, first)
    smaller = []
    for name in catalogue.offered(region):
        kind, listed = catalogue.types[name], catalogue.on_demand(name, region)
        cheaper = listed is not None and listed.usd_per_hour < price.usd_per_hour
        if listed is None or not cheaper or kind.arch != current.arch or not fits(needed, Shape.from_machine(kind)):
            continue
        if bool(kind.gpus) != bool(current.gpus) or kind.is_burstable:
            continue
        seconds = epoch_seconds if kind.gpu == current.gpu else None
        is_new = first.peak_gib is not None and not fits(before, Shape.from_machine(kind))
        smaller.append(SmallerType(name, listed.usd_per_hour, is_new, seconds))
    return sorted(smaller, key=lambda each: (each.usd_per_hour, each.instance_type))
