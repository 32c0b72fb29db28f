"""Reads GPUs by NVML, NVIDIA's management library, through its own binding `nvidia-ml-py`.

Without the library, the binding or a GPU there are no figures. A figure that a GPU does not provide is None. A call may
hang on a broken GPU, so only a thread that nothing else depends on calls `read`.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")

_GIB = 2**30
_MILLIWATTS = 1000
_MOST_EVENTS = 64
"""The most Xids that one call reads from the driver's queue."""

_PROGRAM_XIDS = frozenset((13, 31, 43, 45, 68, 109))
"""Xids that a program causes on a sound GPU (NVIDIA k8s-device-plugin, `internal/rm/health.go`)."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU at one moment.

    Attributes:
        busy: fraction of the driver's last sampling period (1/6 s to 1 s) in which a kernel ran, from 0 to 1.
        memory_gib: memory in use, of all processes.
        memory_total_gib: its memory.
        watts: its power.
        celsius: its temperature.
        ecc_errors: uncorrected memory errors since the driver was loaded.
    """

    busy: float | None = None
    memory_gib: float | None = None
    memory_total_gib: float | None = None
    watts: float | None = None
    celsius: float | None = None
    ecc_errors: int | None = None


class Gpus:
    """Some GPUs of this machine. One thread uses it."""

    def __init__(self, nvml: Any, handles: list[Any]) -> None:
        self._nvml, self._handles = nvml, handles
        self._events = self._watch_xids()

    def read(self) -> list[GpuReading]:
        """Return a reading of each GPU."""
        return [self._read_one(handle) for handle in self._handles]

    def read_xids(self) -> list[int]:
        """Return the Xids that the driver has reported since the last call."""
        xids = list[int]()
        while self._events is not None and len(xids) < _MOST_EVENTS:
            event = self._query(lambda: self._nvml.nvmlEventSetWait_v2(self._events, 0))
            if event is None:  # none waits: NVML reports that as a timeout
                break
            xids.append(int(event.eventData))
        return xids

    def has_fault(self) -> bool:
        """Return whether a GPU does not answer, has uncorrected memory errors, or waits for a repair of its memory."""
        return any(self._is_faulty(handle) for handle in self._handles)

    def _is_faulty(self, handle: Any) -> bool:
        nvml = self._nvml
        try:
            nvml.nvmlDeviceGetMemoryInfo(handle)
        except nvml.NVMLError as error:
            if error.value != nvml.NVML_ERROR_NOT_SUPPORTED:
                return True
        rows = self._query(lambda: nvml.nvmlDeviceGetRemappedRows(handle))
        pending, failed = (rows[2], rows[3]) if rows is not None else (0, 0)
        return bool(pending or failed or self._read_one(handle).ecc_errors)

    def _read_one(self, handle: Any) -> GpuReading:
        nvml = self._nvml
        rates = self._query(lambda: nvml.nvmlDeviceGetUtilizationRates(handle))
        memory = self._query(lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
        milliwatts = self._query(lambda: nvml.nvmlDeviceGetPowerUsage(handle))
        celsius = self._query(lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))
        errors = self._query(
            lambda: nvml.nvmlDeviceGetTotalEccErrors(
                handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
            )
        )
        return GpuReading(
            busy=rates.gpu / 100 if rates is not None else None,
            memory_gib=memory.used / _GIB if memory is not None else None,
            memory_total_gib=memory.total / _GIB if memory is not None else None,
            watts=milliwatts / _MILLIWATTS if milliwatts is not None else None,
            celsius=float(celsius) if celsius is not None else None,
            ecc_errors=int(errors) if errors is not None else None,
        )

    def _watch_xids(self) -> Any | None:
        nvml = self._nvml
        events = self._query(nvml.nvmlEventSetCreate)
        if events is None:
            return None
        for handle in self._handles:
            with suppress(nvml.NVMLError):  # not every GPU has events
                nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, events)
        return events

    def _query(self, question: Callable[[], T]) -> T | None:
        try:
            return question()
        except self._nvml.NVMLError:
            return None


def is_hardware_fault(xid: int) -> bool:
    """Return whether an Xid is a fault of the GPU, and not of the program."""
    return xid not in _PROGRAM_XIDS


@cache
def open_gpus(numbers: tuple[int, ...]) -> Gpus | None:
    """Return the GPUs with these numbers, in the order of the PCI bus; None without NVML, or without all of them.

    NVML stays open for the life of the agent, because closing it could also hang on a broken GPU.
    """
    if not numbers:
        return None
    try:
        import pynvml  # of the image's extra: the agent of a machine without GPUs need not have it
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(number) for number in numbers]
    except pynvml.NVMLError as error:
        _log.info("no figures of GPUs: %s", error)
        return None
    return Gpus(pynvml, handles)
