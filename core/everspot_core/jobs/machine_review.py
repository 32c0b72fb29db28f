"""Finds the bottleneck of a job by its measured utilization, and the changes that would help most."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from pydantic import ValidationError

from everspot_core.capacity.catalogue import Catalogue, InstanceType
from everspot_core.jobs.job_parts import Resources
from everspot_core.jobs.records import Event, JobRecord
from everspot_core.jobs.smaller_types import Footprint, smaller_types
from everspot_core.jobs.utilization import UTILIZATION, Utilization, combine

LEAST_SECONDS = 60.0
"""A shorter time is not judged, because it is mostly start-up."""
BUSY = 0.85
"""The least share of busy processors or GPUs that counts as good use."""
LONG_WAIT = 0.2
"""The share of time from which on a wait for data or disks is the main bottleneck."""
HALF = 0.5
"""Below this share a smaller machine is proposed, or a larger batch if GPU memory is free."""
FULL_MEMORY = 0.9
"""The share of a GPU's memory that a larger batch may take."""
MOST_CHANGES = 2
_UNKNOWN_SPEED = "list prices; the time of a step there is not known"


class Bottleneck(StrEnum):
    """The resource that limits a job. The values appear in `everspot job --json`."""

    NONE = "none"  # its GPUs, or without GPUs its processors, are well used
    DATA = "data"  # the loop waits for batches, though processors and disks are not busy
    PROCESSORS = "processors"
    DISK = "disk"
    BATCH = "batch"  # the GPU computes too little at a time, and has memory for more
    UNEXPLAINED = "unexplained"


class ChangeKind(StrEnum):
    """The changes that a review may propose. The values appear in `everspot cost audit --json`."""

    LOADER_WORKERS = "loader-workers"
    PREPARE_DATA = "prepare-data"
    PACK_DATA = "pack-data"
    LARGER_BATCH = "larger-batch"
    MORE_PROCESSORS = "more-processors"
    SMALLER_TYPE = "smaller-type"
    PROFILE = "profile"


@dataclass(frozen=True, slots=True)
class MachineChange:
    """A change that would help.

    Attributes:
        action: what to do.
        gain: the effect by the measured figures and the list prices; empty if no figure is known.
        assumes: the unmeasured assumption behind `gain`; empty if it has none.
    """

    kind: ChangeKind
    action: str
    gain: str = ""
    assumes: str = ""

    def __str__(self) -> str:
        return f"{self.action}: {self.gain}" if self.gain else self.action


@dataclass(frozen=True, slots=True)
class MachineReview:
    """The result of a review of a job's utilization.

    Attributes:
        bottleneck: the resource that limits the job.
        reason: a sentence with the figures.
        changes: the most helpful changes, the best first; at most `MOST_CHANGES`.
    """

    bottleneck: Bottleneck
    reason: str
    changes: tuple[MachineChange, ...] = ()


@dataclass(frozen=True, slots=True)
class _Case:
    """The input of the rules: the utilization, the declared resources, the current type and the catalogue."""

    use: Utilization
    declared: Resources
    current: InstanceType | None
    catalogue: Catalogue
    region: str

    @property
    def on_gpus(self) -> bool:
        return self.use.gpu_share is not None

    @property
    def share(self) -> float | None:
        """The share of the time in which its GPUs, or without GPUs its processors, were busy."""
        return self.use.gpu_share if self.on_gpus else self.use.cpu_share

    @property
    def waited(self) -> str:
        waits = self.use.data_wait_share or 0
        return f", and the loop waited for data for {waits:.0%} of it" if waits >= LONG_WAIT else ""

    @property
    def processors(self) -> str:
        return f"{self.use.busy_vcpus or 0:.1f} of {self.use.vcpus or 0:g} processors"

    @property
    def gpu_memory(self) -> str:
        return f"{self.use.gpu_memory_gib or 0:.1f} of {self.use.gpu_memory_total_gib or 0:.0f} GiB"

    def usd_per_hour(self, name: str) -> float | None:
        """Return the list price of a type."""
        price = self.catalogue.on_demand(name, self.region)
        return price.usd_per_hour if price is not None else None


class _Rule(NamedTuple):
    """A bottleneck with its condition, its explanation, and the helpful changes, the best first."""

    bottleneck: Bottleneck
    applies: Callable[[_Case], bool]
    explain: Callable[[_Case], str]
    changes: tuple[Callable[[_Case], MachineChange | None], ...] = ()


def job_use(record: JobRecord | None, events: Iterable[Event]) -> Utilization | None:
    """Return the utilization of a job's machines over all its attempts; None if nothing was measured.

    Ended attempts count by their last event, the present attempt by the record.
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
    """Return the review of a job; None if too little was measured.

    Args:
        use: the job's utilization.
        declared: the resources in its job file.
        current: the type that it ran on last; None: unknown, so that no other type is proposed.
        catalogue: types and prices.
        region: the region of proposed types.
    """
    case = _Case(use, declared, current, catalogue, region)
    if case.share is None or use.seconds < LEAST_SECONDS:
        return None
    rule = next(rule for rule in _RULES if rule.applies(case))
    changes = [change for propose in rule.changes if (change := propose(case)) is not None]
    if case.share < HALF and (smaller := _smaller_type(case)) is not None:
        # Without GPUs only a smaller machine saves money, unless the job waits.
        changes = [*changes[: MOST_CHANGES - 1], smaller]
    subject = "its GPUs computed" if case.on_gpus else "its processors were busy"
    reason = f"{subject} for {case.share:.0%} of the time{rule.explain(case)}"
    return MachineReview(rule.bottleneck, reason, tuple(changes[:MOST_CHANGES]))


def _prepare_data(case: _Case) -> MachineChange:
    action = "prepare the data once, before training, or move augmentation to the GPU"
    return _without_wait(case, ChangeKind.PREPARE_DATA, action)


def _pack_data(case: _Case) -> MachineChange:
    return _without_wait(
        case, ChangeKind.PACK_DATA, "pack the data into few large files, and read them into memory once"
    )


def _loader_workers(case: _Case) -> MachineChange:
    idle = max(1, math.floor((case.use.vcpus or 0) - (case.use.busy_vcpus or 0)))
    action = f"{idle} more workers of the loader (num_workers), with prefetch_factor"
    return _without_wait(case, ChangeKind.LOADER_WORKERS, action)


def _read_ahead(case: _Case) -> MachineChange:
    return MachineChange(
        ChangeKind.LOADER_WORKERS, "more workers of the loader, so that reading goes on while the GPU computes"
    )


def _without_wait(case: _Case, kind: ChangeKind, action: str) -> MachineChange:
    """Return a change with its largest possible gain: the time of a step without the wait for data."""
    step, waits = case.use.step_seconds, case.use.data_wait_share
    if step is None or waits is None or waits < LONG_WAIT:
        return MachineChange(kind, action)
    gain = f"without the wait a step takes {step * (1 - waits):.3g} s instead of {step:.3g} s"
    return MachineChange(kind, action, gain, "no wait is left, so that this is the most that can be gained")


def _larger_batch(case: _Case) -> MachineChange:
    share = case.use.gpu_memory_share
    if not share or share > FULL_MEMORY / 2:
        return MachineChange(ChangeKind.PROFILE, "profile a few steps, to see which operations take the time")
    times = 2 ** int(math.log2(FULL_MEMORY / share))
    action = f"a batch up to {times} times as large (batch_size: auto finds it)"
    return MachineChange(
        ChangeKind.LARGER_BATCH, action, f"{case.gpu_memory} of GPU memory are used",
        "memory grows with the batch, and the model learns as well with it",
    )  # fmt: skip


def _more_processors(case: _Case) -> MachineChange:
    """Return the cheapest type with the same GPUs and more processors, and the speed at which it pays off."""
    general = MachineChange(
        ChangeKind.MORE_PROCESSORS, "take a type with more processors for each GPU (resources.vcpus)"
    )
    current, usd = case.current, case.usd_per_hour(case.current.name) if case.current is not None else None
    if current is None or usd is None:
        return general
    larger = [
        (price, kind)
        for kind in map(case.catalogue.types.__getitem__, case.catalogue.offered(case.region))
        if (kind.gpu, kind.gpus, kind.arch) == (current.gpu, current.gpus, current.arch)
        and kind.vcpus >= 2 * current.vcpus
        and kind.memory_gib >= case.declared.memory_gib
        and (price := case.usd_per_hour(kind.name)) is not None
    ]
    if not larger:
        return general
    price, kind = min(larger, key=lambda pair: (pair[0], pair[1].name))
    action = (
        f"{kind.name} (resources.vcpus: {kind.vcpus}) with the same GPU at ${price:.3f} an hour instead of "
        f"{current.name} at ${usd:.3f}"
    )
    gain = f"it costs less if a step takes less than {usd / price:.0%} of the present time"
    return MachineChange(ChangeKind.MORE_PROCESSORS, action, gain, _UNKNOWN_SPEED)


def _smaller_type(case: _Case) -> MachineChange | None:
    """Return the cheapest type that satisfies the measured use, with its price and the running time at which it costs
    the same."""
    use, declared, current = case.use, case.declared, case.current
    price = case.usd_per_hour(current.name) if current is not None else None
    if current is None or price is None:
        return None
    vcpus = min(declared.vcpus, max(1, math.ceil((use.busy_vcpus or declared.vcpus) / BUSY)))
    footprint = Footprint(use.memory_gib, use.gpu_memory_gib)
    needs = declared.model_copy(update={"vcpus": vcpus})
    types = smaller_types(case.catalogue, case.region, current, needs, footprint, footprint, None)
    if not types:
        return None
    cheapest = types[0]
    setting = f" (resources.vcpus: {vcpus})" if vcpus < declared.vcpus else ""
    action = (
        f"{cheapest.instance_type}{setting} at ${cheapest.usd_per_hour:.3f} an hour instead of {current.name} at "
        f"${price:.3f} holds what was used"
    )
    if current.gpus:
        gain = f"it costs less as long as it takes less than {price / cheapest.usd_per_hour:.1f} times as long"
        return MachineChange(ChangeKind.SMALLER_TYPE, action, gain, _UNKNOWN_SPEED)
    gain = f"it has the processors that were busy, for {1 - cheapest.usd_per_hour / price:.0%} less"
    return MachineChange(ChangeKind.SMALLER_TYPE, action, gain, "list prices; its processors are as fast")


_RULES: tuple[_Rule, ...] = (
    _Rule(
        Bottleneck.NONE,
        lambda case: (case.share or 0) >= BUSY,
        lambda case: f": the machine is well used{case.waited}",
    ),
    _Rule(
        Bottleneck.PROCESSORS,
        lambda case: (case.use.cpu_share or 0) >= BUSY,
        lambda case: f"{case.waited}: {case.processors} were busy",
        (_prepare_data, _more_processors),
    ),
    _Rule(
        Bottleneck.DISK,
        lambda case: (case.use.io_wait_share or 0) >= LONG_WAIT,
        lambda case: f"{case.waited}: a thread waited for a disk for {case.use.io_wait_share or 0:.0%} of the time",
        (_pack_data, _read_ahead),
    ),
    _Rule(
        Bottleneck.DATA,
        lambda case: (case.use.data_wait_share or 0) >= LONG_WAIT,
        lambda case: f"{case.waited}, while {case.processors} were busy",
        (_loader_workers, _larger_batch),
    ),
    _Rule(
        Bottleneck.BATCH,
        lambda case: case.on_gpus and case.use.gpu_memory_share is not None and case.use.gpu_memory_share < HALF,
        lambda case: f": it waited neither for data nor for disks, and used {case.gpu_memory} of GPU memory",
        (_larger_batch,),
    ),
    _Rule(
        Bottleneck.UNEXPLAINED,
        lambda _: True,
        lambda case: (
            ("" if case.on_gpus else f", {case.processors}")
            + ": it did not wait for data or disks, as far as that was measured"
        ),
    ),
)
"""The bottlenecks. The first rule that applies is the result."""
