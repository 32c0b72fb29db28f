"""What kept a job from using its machine fully, by what was measured, and the changes that would help most."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from pydantic import ValidationError

from everspot_core.capacity.catalogue import Catalogue, InstanceType
from everspot_core.jobs.job_parts import Resources
from everspot_core.jobs.records import Event, JobRecord
from everspot_core.jobs.smaller_types import Footprint, smaller_types
from everspot_core.jobs.utilization import UTILIZATION, Utilization, combine

LEAST_SECONDS = 60.0
"""A shorter time is not judged: it is start-up more than training."""
BUSY = 0.85
"""The share from which on processors or GPUs are well used."""
LONG_WAIT = 0.2
"""The share of time from which on a wait for data or disks is what to look at first."""
HALF = 0.5
"""Below this share a smaller machine is looked for, and a GPU's memory has space for a larger batch."""
FULL_MEMORY = 0.9
"""The share of a GPU's memory that a larger batch may take."""
MOST_CHANGES = 2


class Bottleneck(StrEnum):
    """What a job waits for most. The values are those of `everspot job --json`."""

    NONE = "none"  # its GPUs, or without GPUs its processors, are well used
    DATA = "data"  # the loop waits for batches, and neither processors nor disks are why
    PROCESSORS = "processors"
    DISK = "disk"
    BATCH = "batch"  # the GPU computes too little at a time, and has memory for more
    UNEXPLAINED = "unexplained"


@dataclass(frozen=True, slots=True)
class MachineReview:
    """The judgement of what a job used.

    Attributes:
        bottleneck: what it waits for most.
        reason: a sentence with the figures.
        changes: what would help most, the best first; at most two sentences.
    """

    bottleneck: Bottleneck
    reason: str
    changes: tuple[str, ...] = ()


def job_use(record: JobRecord | None, events: Iterable[Event]) -> Utilization | None:
    """Return what a job used of its machines in all its attempts; None if nothing was measured.

    The attempts that are over count by their last event, the present one by the record.
    """
    by_epoch: dict[int, Utilization] = {}
    for event in events:
        if UTILIZATION in event.data:
            try:
                by_epoch[event.epoch] = Utilization.model_validate(event.data[UTILIZATION])
            except ValidationError:
                continue
    if record is not None and record.progress.attempt_use is not None:
        by_epoch.setdefault(record.epoch, record.progress.attempt_use)
    return combine(by_epoch.values()) if by_epoch else None


def review_machine(
    use: Utilization, declared: Resources, current: InstanceType | None, catalogue: Catalogue, region: str
) -> MachineReview | None:
    """Return what kept a job from using its machine fully; None if too little was measured to say so.

    Args:
        use: what the job used.
        declared: what its file asks for.
        current: the type that it ran on last; None: not known, so that no smaller one is named.
        catalogue: types and prices.
        region: where smaller types are looked for.
    """
    share = use.gpu_share if use.gpu_share is not None else use.cpu_share
    if share is None or use.seconds < LEAST_SECONDS:
        return None
    on_gpus = use.gpu_share is not None
    bottleneck = _find_bottleneck(use, on_gpus=on_gpus)
    changes = _changes(use, bottleneck)
    if share < HALF and current is not None:
        smaller = _smaller_type(use, declared, current, catalogue, region)
        # On processors nothing is gained but by a smaller machine, unless the job waits.
        changes = [*changes[: MOST_CHANGES - 1], *smaller] if smaller else changes
    return MachineReview(bottleneck, _reason(use, bottleneck, share, on_gpus=on_gpus), tuple(changes[:MOST_CHANGES]))


def _find_bottleneck(use: Utilization, *, on_gpus: bool) -> Bottleneck:
    if on_gpus and (use.gpu_share or 0) >= BUSY:
        return Bottleneck.NONE
    if (use.cpu_share or 0) >= BUSY:
        return Bottleneck.PROCESSORS if on_gpus else Bottleneck.NONE
    if (use.io_wait_share or 0) >= LONG_WAIT:
        return Bottleneck.DISK
    if (use.data_wait_share or 0) >= LONG_WAIT:
        return Bottleneck.DATA
    if on_gpus and use.gpu_memory_share is not None and use.gpu_memory_share < HALF:
        return Bottleneck.BATCH
    return Bottleneck.UNEXPLAINED


def _reason(use: Utilization, bottleneck: Bottleneck, share: float, *, on_gpus: bool) -> str:
    subject = "its GPUs computed" if on_gpus else "its processors were busy"
    busy = f"{subject} for {share:.0%} of the time"
    waits = use.data_wait_share
    waited = f", and the loop waited for data for {waits:.0%} of it" if waits is not None and waits >= LONG_WAIT else ""
    match bottleneck:
        case Bottleneck.NONE:
            return f"{busy}: the machine is well used{waited}"
        case Bottleneck.PROCESSORS:
            return f"{busy}{waited}: {use.busy_vcpus or 0:.1f} of {use.vcpus or 0:g} processors were busy"
        case Bottleneck.DISK:
            return f"{busy}{waited}: a thread waited for a disk for {use.io_wait_share or 0:.0%} of the time"
        case Bottleneck.DATA:
            return f"{busy}{waited}, while {use.busy_vcpus or 0:.1f} of {use.vcpus or 0:g} processors were busy"
        case Bottleneck.BATCH:
            memory = f"{use.gpu_memory_gib or 0:.1f} of {use.gpu_memory_total_gib or 0:.0f} GiB"
            return f"{busy}: it waited neither for data nor for disks, and used {memory} of GPU memory"
        case Bottleneck.UNEXPLAINED:
            processors = "" if on_gpus else f", {use.busy_vcpus or 0:.1f} of {use.vcpus or 0:g} processors"
            return f"{busy}{processors}: it did not wait for data or disks, as far as that was measured"


def _changes(use: Utilization, bottleneck: Bottleneck) -> list[str]:
    """Return what would shorten the wait, the best first."""
    gain = _without_wait(use)
    match bottleneck:
        case Bottleneck.PROCESSORS:
            return [
                f"prepare the data once, before training, or move augmentation to the GPU{gain}",
                "take a type with more processors for each GPU (resources.vcpus)",
            ]
        case Bottleneck.DISK:
            return [
                f"pack the data into few large files, and read them into memory once{gain}",
                "more workers of the loader, so that reading goes on while the GPU computes",
            ]
        case Bottleneck.DATA:
            spare = max(1, math.floor((use.vcpus or 0) - (use.busy_vcpus or 0)))
            return [f"{spare} more workers of the loader (num_workers), with prefetch_factor{gain}", _larger_batch(use)]
        case Bottleneck.BATCH:
            return [_larger_batch(use)]
        case Bottleneck.NONE | Bottleneck.UNEXPLAINED:
            return []


def _without_wait(use: Utilization) -> str:
    """Return what is to be gained at most: the time of a step without the wait for data."""
    step, waits = use.step_seconds, use.data_wait_share
    if step is None or waits is None or waits < LONG_WAIT:
        return ""
    return f": without the wait a step takes {step * (1 - waits):.3g} s instead of {step:.3g} s"


def _larger_batch(use: Utilization) -> str:
    share = use.gpu_memory_share
    if not share or share > FULL_MEMORY / 2:
        return "profile a few steps: which operations take the time?"
    times = 2 ** int(math.log2(FULL_MEMORY / share))
    memory = f"{use.gpu_memory_gib or 0:.1f} of {use.gpu_memory_total_gib or 0:.0f} GiB"
    return f"a batch up to {times} times as large (batch_size: auto finds it): {memory} of GPU memory are used"


def _smaller_type(
    use: Utilization, declared: Resources, current: InstanceType, catalogue: Catalogue, region: str
) -> list[str]:
    """Return the cheapest type that holds what was used, with its price and the time at which it costs the same."""
    vcpus = min(declared.vcpus, max(1, math.ceil((use.busy_vcpus or declared.vcpus) / BUSY)))
    footprint = Footprint(use.memory_gib, use.gpu_memory_gib)
    needs = declared.model_copy(update={"vcpus": vcpus})
    types = smaller_types(catalogue, region, current, needs, footprint, footprint, None)
    price = catalogue.on_demand(current.name, region)
    if not types or price is None:
        return []
    cheapest = types[0]
    ratio = price.usd_per_hour / cheapest.usd_per_hour
    saved = 1 - cheapest.usd_per_hour / price.usd_per_hour
    setting = f" (resources.vcpus: {vcpus})" if vcpus < declared.vcpus else ""
    time = (
        f"it costs less as long as it takes less than {ratio:.1f} times as long"
        if current.gpus
        else f"it has the processors that were busy, for {saved:.0%} less"
    )
    return [
        f"{cheapest.instance_type}{setting} at ${cheapest.usd_per_hour:.3f} an hour instead of {current.name} at "
        f"${price.usd_per_hour:.3f} holds what was used: {time}"
    ]
