"""Collects the facts about a failed program, and decides whether the failure was the program's own.

The first exception comes from the file that torch's elastic agents write; torch is not imported. If there is no such
file, the end of the program's output is used.
"""

import json
import re
import signal
from dataclasses import dataclass
from pathlib import Path

from everspot_core.costs.ledger import FaultKind
from everspot_core.jobs.records import Reason

from everspot_train.rundir import read_regular

ERROR_FILE = "error.json"
SIGNALLED = 128
"""The exit code of a shell or a launcher whose child was ended by a signal, less the signal's number."""
_LONGEST = 1 << 20  # bytes of an error file: a program may write anything into it

_DISK = re.compile(r"No space left on device|\[Errno 28\]|Disk quota exceeded|\[Errno 122\]")
# Errors of the device, in the words of the CUDA runtime (CUDA Runtime API, cudaError_t) and of the driver's tools.
# Not among them: illegal addresses, asserts and launch failures, which kernels cause, and too little memory.
_GPU = re.compile(
    r"uncorrectable (ECC|NVLink) error|hardware stack error|CUDA-capable device\(s\) is/are busy or unavailable"
    r"|no CUDA-capable device is detected|system not yet initialized|GPU is lost|has fallen off the bus"
    r"|Unable to determine the device handle|CUDA driver initialization failed|\bXid\b",
    re.IGNORECASE,
)
_BY_EXCEPTION = {
    "CheckpointCorrupt": Reason.DAMAGED,
    "StoreDenied": Reason.DENIED,
    "StoreMissing": Reason.DENIED,
    "StoreUnavailable": Reason.SHUTDOWN,
}
_SENTENCES = {
    Reason.DAMAGED: "none of the job's checkpoints is whole",
    Reason.DENIED: "the store refuses what the job needs",
    Reason.SHUTDOWN: "the store could not be reached",
}


@dataclass(frozen=True)
class Failure:
    """How a program failed.

    `exit_code`: the program's own, negative for a signal; None if only the first process knows it. `message`: the
    exception in one line. `tail`: the end of the output. `limit_hit`: the memory limit in GiB for which it was killed.
    """

    exit_code: int | None = None
    message: str = ""
    traceback: str = ""
    tail: str = ""
    disk_full: bool = False
    limit_hit: float | None = None

    def fault(self) -> FaultKind | None:
        """Return the part of the machine that failed, if any did."""
        output = "\n".join((self.message, self.traceback, self.tail))
        if self.disk_full or _DISK.search(output):
            return FaultKind.DISK
        return FaultKind.GPUS if _GPU.search(output) else None

    def trouble(self, message: str) -> tuple[Reason, str] | None:
        """Return the reason and a sentence, if the failure was not the program's own; else None. `message`: the
        program's last message, if it had one."""
        fault = self.fault()
        if fault is FaultKind.DISK:
            return Reason.MACHINE, "the machine's disk is full"
        if fault is FaultKind.GPUS:
            return Reason.MACHINE, f"a GPU of the machine failed: {_line(_GPU, self)}"
        name = (message or self.message).split(":", 1)[0].rpartition(".")[2]
        reason = _BY_EXCEPTION.get(name)
        if reason is None:
            return None
        return reason, f"{_SENTENCES[reason]}: {(message or self.message).partition(': ')[2]}"


def read_failure(folder: Path, tail: str, *, disk_full: bool = False) -> Failure:
    """Return the failure by the run directory. A file that cannot be read counts as missing."""
    try:
        document = json.loads(read_regular(folder / ERROR_FILE, _LONGEST))["message"]
        extra = document.get("extraInfo") or {}
        code = document.get("errorCode")
        return Failure(
            exit_code=code if isinstance(code, int) and not isinstance(code, bool) else None,
            message=str(document.get("message") or ""),
            traceback=str(extra.get("py_callstack") or ""),
            tail=tail,
            disk_full=disk_full,
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return Failure(tail=tail, disk_full=disk_full)


def describe_exit(exit_code: int | None) -> str:
    """Return an exit code in words: `exited with 3`, `was killed by SIGKILL`."""
    if exit_code is None:
        return "ended"
    return f"was killed by {signal_name(exit_code)}" if exit_code < 0 else f"exited with {exit_code}"


def by_signal(exit_code: int) -> bool:
    """Return whether a signal ended the process, or the one that its shell or launcher waited for: that one ends with
    128 and the signal's number."""
    return exit_code < 0 or SIGNALLED < exit_code <= SIGNALLED + signal.NSIG


def signal_name(exit_code: int | None) -> str | None:
    """Return the signal's name behind a negative exit code; None for any other."""
    if exit_code is None or exit_code >= 0:
        return None
    try:
        return signal.Signals(-exit_code).name
    except ValueError:
        return f"signal {-exit_code}"


def _line(pattern: re.Pattern[str], failure: Failure) -> str:
    output = "\n".join((failure.message, failure.traceback, failure.tail))
    return next((line.strip() for line in output.splitlines() if pattern.search(line)), "")[:300]
