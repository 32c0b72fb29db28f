"""Finds the largest batch whose training step fits the memory of this process's device.

Only sizes that divide the global batch are tried, so that accumulation makes up the same global batch on every device.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import torch
from everspot_core.jobs.lower_precision import HEADROOM

from everspot_train.trainer.errors import TrainerError
from everspot_train.trainer.randomness import GlobalRandomness
from everspot_train.trainer.ranks import Ranks

GIB = 2**30
_PROCESS = Path("/proc/self")
_GROUPS = Path("/sys/fs/cgroup")


class StepMemory(Protocol):
    """The memory of a device, and the memory of one training step on it."""

    limit_gib: float

    def peak_gib(self, batch_size: int) -> float | None:
        """Make a training step and return its peak memory in GiB, or None if it ran out of memory."""
        ...


def fit_batch_size(
    global_batch: int, ranks: Ranks, try_step: Callable[[int], None], gradient_bytes: Callable[[], int] = lambda: 0
) -> int:
    """Return the samples per batch and process, as `Run.fit_batch_size` explains them. All ranks call it.

    Args:
        global_batch: samples per optimizer step of all processes together.
        ranks: the processes.
        try_step: as of `Run.fit_batch_size`.
        gradient_bytes: returns the bytes of the gradients of the model of the last trial step. With several ranks
            DistributedDataParallel holds a second copy of them, which a trial step on one rank does not.

    Raises:
        ValueError: if the processes cannot share the global batch evenly.
        TrainerError: if not even the smallest batch fits.
    """
    sizes = batch_sizes(global_batch, ranks.world_size)
    random_state = GlobalRandomness()
    state = random_state.state_dict()
    measure = DeviceMeasure(ranks.device, ranks.world_size, try_step, gradient_bytes)
    fitting: list[int | None] = ranks.gather(largest_fitting(sizes, measure))
    random_state.load_state_dict(state)
    size = min(fitting, key=lambda fit: fit or 0)  # ranks on other hardware may have less memory
    if size is None:
        raise TrainerError(
            f"a step with {sizes[0]} samples does not fit {measure.limit_gib:.1f} GiB of memory: use a smaller "
            "model, activation checkpointing, or an instance with more memory"
        )
    return size


def batch_sizes(global_batch: int, world_size: int) -> list[int]:
    """Return the samples per batch and process that make up the global batch, ascending.

    Raises:
        ValueError: if the processes cannot share the global batch evenly.
    """
    each, remainder = divmod(global_batch, world_size)
    if remainder or each < 1:
        raise ValueError(f"a global batch of {global_batch} samples cannot be shared evenly by {world_size} processes")
    low = [size for size in range(1, math.isqrt(each) + 1) if each % size == 0]
    return sorted({*low, *(each // size for size in low)})


def largest_fitting(sizes: list[int], measure: StepMemory) -> int | None:
    """Return the largest of the ascending sizes whose step fits with headroom, by bisection; None: not even the first.

    On a processor a step that takes too much memory ends the process. So a size is tried only if the memory that it is
    expected to take, in proportion to the sizes before, is there.
    """
    peaks: dict[int, float] = {}

    def fits(size: int) -> bool:
        if _expected_gib(peaks, size) > measure.limit_gib:
            return False
        peak = measure.peak_gib(size)
        if peak is None:
            return False
        peaks[size] = peak
        return peak * HEADROOM <= measure.limit_gib

    if not fits(sizes[0]):
        return None
    low, high, stride = 0, len(sizes), 1  # sizes[low] fits, sizes[high] does not
    while high - low > 1:
        middle = min(low + stride, high - 1) if high == len(sizes) else (low + high) // 2
        if fits(sizes[middle]):
            low, stride = middle, 2 * stride
        else:
            high = middle
    return sizes[low]


def _expected_gib(peaks: dict[int, float], size: int) -> float:
    """Return the memory that a step of this size is expected to take: a constant, and a part in proportion to it."""
    if len(peaks) < 2:
        return max(peaks.values(), default=0.0)
    (first, first_gib), (second, second_gib) = sorted(peaks.items())[-2:]
    return second_gib + max(0.0, second_gib - first_gib) * (size - second) / (second - first)


class DeviceMeasure:
    """Measures training steps on the GPU of this process, or on the processor.

    Args:
        device: the device of this process.
        ranks: processes that share the memory of a processor.
        try_step: makes a training step with a batch of so many samples, on a model of its own.
        gradient_bytes: as of `fit_batch_size`.
    """

    def __init__(
        self,
        device: torch.device,
        ranks: int,
        try_step: Callable[[int], None],
        gradient_bytes: Callable[[], int] = lambda: 0,
    ) -> None:
        self._device, self._try_step = device, try_step
        self._bucket_bytes = gradient_bytes if ranks > 1 else lambda: 0
        if device.type == "cuda":
            free, _ = torch.cuda.mem_get_info(device)
            self.limit_gib = (free + torch.cuda.memory_reserved(device)) / GIB
        else:
            self.limit_gib = _processor_limit_gib() / ranks

    def peak_gib(self, batch_size: int) -> float | None:
        """Make a training step, and return the most memory that it holds with several ranks, GiB; None: it ran out of
        memory.

        Raises:
            TrainerError: if the kernel does not measure this process's memory.
        """
        alone = self._peak_alone_gib(batch_size)
        return alone + self._bucket_bytes() / GIB if alone is not None else None

    def _peak_alone_gib(self, batch_size: int) -> float | None:
        if self._device.type == "cuda":
            return self._gpu_peak_gib(batch_size)
        try:
            (_PROCESS / "clear_refs").write_text("5")  # resets the peak: proc_pid_clear_refs(5)
            self._try_step(batch_size)
            return _field_gib(_PROCESS / "status", "VmHWM")
        except OSError as error:
            raise TrainerError(f"the memory of a step cannot be measured here ({error}): give a batch size") from error

    def _gpu_peak_gib(self, batch_size: int) -> float | None:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(self._device)
        try:
            self._try_step(batch_size)
            torch.cuda.synchronize(self._device)
        except torch.OutOfMemoryError:
            return None
        return torch.cuda.max_memory_reserved(self._device) / GIB


def _processor_limit_gib() -> float:
    """Return the memory that this process and its siblings may hold: the machine's, or less if a control group says
    so."""
    limits = [_field_gib(Path("/proc/meminfo"), "MemTotal")]
    path = next((line[3:] for line in _lines(_PROCESS / "cgroup") if line.startswith("0::")), "/")
    group = _GROUPS / path.lstrip("/")
    for folder in (group, *group.parents):
        limits += [int(line) / GIB for line in _lines(folder / "memory.max") if line.isdigit()]
        if folder == _GROUPS:
            break
    return min(limits)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def _field_gib(path: Path, field: str) -> float:
    """Return a figure of a file of the kernel with lines such as `VmHWM:  1024 kB`, in GiB."""
    line = next(line for line in path.read_text().splitlines() if line.startswith(f"{field}:"))
    return int(line.split()[1]) * 1024 / GIB
