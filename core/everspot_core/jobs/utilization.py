"""A job's utilization of its machine over a span of real time: totals, and the rates that follow from them.

Totals and not rates are stored, because totals of two spans have an exact sum, and a figure that could not be measured
in one span does not distort the other.
"""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Annotated

from pydantic import BeforeValidator, Field

from everspot_core.documents import Document, Stored, Utc
from everspot_core.jobs.reported_values import Gib, Seconds, Total, keep_within

UTILIZATION = "utilization"
"""The key for the utilization of an attempt in the data of the event that ends it."""
MOST_XIDS = 16
"""The most different Xids of one span."""
MOST_CELSIUS = 200.0

_WINDOWS = (
    (timedelta(minutes=10), timedelta(seconds=20)),
    (timedelta(hours=1), timedelta(minutes=1)),
    (timedelta(hours=12), timedelta(minutes=5)),
)
_LAST_WINDOW = timedelta(minutes=30)
WINDOWS_PER_CHUNK = 12
"""The most windows in one object of the store. So an attempt writes 6 objects in its first hour, one an hour in the
next eleven, and then one every 6 hours."""

_SUMS = (
    "seconds", "cpu_seconds", "read_bytes", "written_bytes", "io_wait_seconds", "received_bytes", "sent_bytes",
    "gpu_seconds", "gpu_busy_seconds", "gpu_joules", "ecc_errors", "steps", "loop_seconds", "data_wait_seconds",
)  # fmt: skip
_GREATEST = ("vcpus", "memory_gib", "gpu_memory_gib", "gpu_celsius")
_LEAST = ("gpu_memory_total_gib",)


class Utilization(Stored):
    """The use of a machine by one job in a span of time. None: not measured."""

    seconds: Annotated[float, BeforeValidator(keep_within(0, 1e9, 0))] = Field(
        default=0, description="Real time that was measured."
    )
    vcpus: Total = Field(default=None, description="Processors that the job may use.")
    cpu_seconds: Total = Field(default=None, description="Processor time of the job's processes.")
    memory_gib: Gib = Field(default=None, description="The highest measured memory, without file cache.")
    read_bytes: Total = Field(default=None, description="Read from disks by the job.")
    written_bytes: Total = Field(default=None, description="Written to disks by the job.")
    io_wait_seconds: Total = Field(
        default=None, description="Time in which at least one of its threads waited for a disk."
    )
    received_bytes: Total = Field(default=None, description="By the machine's network interfaces.")
    sent_bytes: Total = Field(default=None, description="By the machine's network interfaces.")
    gpu_seconds: Total = Field(default=None, description="Measured time, times the number of the job's GPUs.")
    gpu_busy_seconds: Total = Field(default=None, description="The part of it in which a kernel ran on the GPU.")
    gpu_memory_gib: Gib = Field(default=None, description="The most memory in use on one of its GPUs.")
    gpu_memory_total_gib: Gib = Field(default=None, description="The memory of one of its GPUs.")
    gpu_joules: Total = Field(default=None, description="Energy of its GPUs.")
    gpu_celsius: Annotated[float | None, BeforeValidator(keep_within(0, MOST_CELSIUS))] = Field(
        default=None, description="The highest temperature of one of its GPUs."
    )
    ecc_errors: Total = Field(default=None, description="Uncorrected memory errors of its GPUs.")
    xids: tuple[int, ...] = Field(default=(), description="Xids that the driver reported for its GPUs.")
    steps: Total = Field(default=None, description="Optimizer steps of the trainer.")
    loop_seconds: Seconds = Field(default=None, description="Time that the trainer's loop took for these steps.")
    data_wait_seconds: Seconds = Field(
        default=None, description="The part of it in which the loop waited for the next batch."
    )

    @property
    def busy_vcpus(self) -> float | None:
        """The processors that the job kept busy, on average."""
        return _ratio(self.cpu_seconds, self.seconds)

    @property
    def cpu_share(self) -> float | None:
        """The fraction of its processors that the job kept busy, from 0 to 1."""
        busy = self.busy_vcpus
        return _share(busy, self.vcpus) if busy is not None else None

    @property
    def io_wait_share(self) -> float | None:
        """The fraction of the time in which a thread waited for a disk, from 0 to 1."""
        return _share(self.io_wait_seconds, self.seconds)

    @property
    def gpu_share(self) -> float | None:
        """The fraction of the time in which its GPUs computed, from 0 to 1."""
        return _share(self.gpu_busy_seconds, self.gpu_seconds)

    @property
    def gpu_memory_share(self) -> float | None:
        """The fraction of a GPU's memory that was in use at most, from 0 to 1."""
        return _share(self.gpu_memory_gib, self.gpu_memory_total_gib)

    @property
    def gpu_watts(self) -> float | None:
        """The mean power of one of its GPUs."""
        return _ratio(self.gpu_joules, self.gpu_seconds)

    @property
    def data_wait_share(self) -> float | None:
        """The fraction of the loop's time in which it waited for the next batch, from 0 to 1."""
        return _share(self.data_wait_seconds, self.loop_seconds)

    @property
    def step_seconds(self) -> float | None:
        """The mean time of a step."""
        return _ratio(self.loop_seconds, self.steps)

    def per_second(self, total: float | None) -> float | None:
        """Return one of its totals per second of real time."""
        return _ratio(total, self.seconds)


class UtilizationWindow(Document):
    """The use of a machine in one window of an attempt: a line of the stream `utilization` in the data bucket."""

    at: Utc = Field(description="Its end, market time.")
    utilization: Utilization


def combine(spans: Iterable[Utilization]) -> Utilization:
    """Return the utilization of several spans together. The order of the spans does not matter."""
    parts = list(spans)
    fields: dict[str, float | tuple[int, ...] | None] = {"xids": merge_xids(x for part in parts for x in part.xids)}
    for names, total in ((_SUMS, sum), (_GREATEST, max), (_LEAST, min)):
        for name in names:
            values = [value for part in parts if (value := getattr(part, name)) is not None]
            if values:
                fields[name] = total(values)
    return Utilization.model_validate(fields)


def merge_xids(xids: Iterable[int]) -> tuple[int, ...]:
    """Return each Xid once, the smallest first, at most `MOST_XIDS`."""
    return tuple(sorted(set(xids))[:MOST_XIDS])


def window_length(age: timedelta) -> timedelta:
    """Return the length of the windows of an attempt that has this age, real time.

    The windows of a long attempt are long, so that its history stays small: see `WINDOWS_PER_CHUNK`.
    """
    return next((length for until, length in _WINDOWS if age < until), _LAST_WINDOW)


def downsample(windows: Sequence[UtilizationWindow], most: int) -> list[UtilizationWindow]:
    """Return at most `most` windows with the same totals, combined from neighbors. `windows`: in order of time."""
    if len(windows) <= most:
        return list(windows)
    bounds = [number * len(windows) // most for number in range(most + 1)]
    groups = [windows[begin:end] for begin, end in pairwise(bounds)]
    return [UtilizationWindow(at=group[-1].at, utilization=combine(w.utilization for w in group)) for group in groups]


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def _share(part: float | None, whole: float | None) -> float | None:
    ratio = _ratio(part, whole)
    return min(1.0, ratio) if ratio is not None else None
