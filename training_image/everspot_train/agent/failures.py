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

from everspot_train.lost_peer import is_lost_peer
from everspot_train.rundir import read_regular

ERROR_FILE = "error.json"
SIGNALLED = 128
"""A shell or a launcher whose child was killed by a signal exits with this plus the signal's number."""
_LONGEST = 1 << 20  # bytes of an error file, which a program may have filled

_DISK = re.compile(r"No space left on device|\[Errno 28\]|Disk quota exceeded|\[Errno 122\]")
# Errors of the device, in the words of the CUDA runtime (CUDA Runtime API, cudaError_t) and of the driver's tools.
# Illegal addresses, asserts, launch failures, too little memory and an invisible device (CUDA_VISIBLE_DEVICES="") are
# not among them, because programs cause these. An Xid counts only as the driver writes it into the kernel's log.
_GPU = re.compile(
    r"uncorrectable (ECC|NVLink) error|hardware stack error|CUDA-capable device\(s\) is/are busy or unavailable"
    r"|system not yet initialized|GPU is lost|has fallen off the bus"
    r"|Unable to determine the device handle|CUDA driver initialization failed|NVRM: Xid|\bXid \(PCI",
    re.IGNORECASE,
)
_BY_EXCEPTION = {
    "CheckpointCorrupt": Reason.DAMAGED,
    "StoreDenied": Reason.DENIED,
    "StoreMissing": Reason.DENIED,
    "StoreUnavailable": Reason.SHUTDOWN,
    # Its subclasses, by name, because the agent does not import the trainer. `Refused` is no name for this store alone.
    "StoreBusy": Reason.SHUTDOWN,
    "StoreUntrusted": Reason.SHUTDOWN,
    "LockBusy": Reason.SHUTDOWN,
    "WriterDied": Reason.SHUTDOWN,
    "WriterFailed": Reason.MACHINE,
}
# torch raises the exception of a DataLoader's process again, with this text before the original traceback.
_RAISED_IN_WORKER = re.compile(r"[\w.]+: Caught (\w+) in (?:DataLoader worker process|pin memory thread)\b")
_SENTENCES = {
    Reason.DAMAGED: "none of the job's checkpoints is whole",
    Reason.DENIED: "the store refuses what the job needs",
    Reason.SHUTDOWN: "the store could not be reached",
    Reason.MACHINE: "no checkpoint can be written or read on this machine",
}


@dataclass(frozen=True)
class Failure:
    """The failure of a program.

    `exit_code`: of the program, negative for a signal; None if only the exit code of the first process is known.
    `message`: the exception in one line. `tail`: the end of the output. `limit_hit`: the memory limit in GiB at which
    it was killed. `gpus`: the number of the job's GPUs. Without GPUs, no output shows a failed GPU. `is_gpu_confirmed`:
    whether the driver confirms a failed GPU; None if it cannot be asked. `rank`: of the process that failed first; None
    if it is unknown.
    """

    exit_code: int | None = None
    message: str = ""
    traceback: str = ""
    tail: str = ""
    disk_full: bool = False
    limit_hit: float | None = None
    gpus: int = 0
    is_gpu_confirmed: bool | None = None
    rank: int | None = None

    def fault(self) -> FaultKind | None:
        """Return the part of the machine that failed, or None. A program may print anything, so its output alone does
        not count where the driver denies it."""
        suspect = self._suspect()
        return None if suspect is FaultKind.GPUS and self.is_gpu_confirmed is False else suspect

    def _suspect(self) -> FaultKind | None:
        """Return the part of the machine that failed by the output of the program, or None."""
        output = "\n".join((self.message, self.traceback, self.tail))
        if self.disk_full or _DISK.search(output):
            return FaultKind.DISK
        return FaultKind.GPUS if self.gpus and _GPU.search(output) else None

    def cause(self, message: str) -> str:
        """Return the exception that ended the program. `message`: of the first rank, if any. It may only say that
        another rank is gone, so the exception of the rank that failed first comes before it."""
        if self.message and not is_lost_peer(self.message) and (self.rank or is_lost_peer(message)):
            return self.message
        if self.rank and not self.message and is_lost_peer(message):
            return f"rank {self.rank} {describe_exit(self.exit_code)}"
        return message or self.message

    def trouble(self, cause: str) -> tuple[Reason, str] | None:
        """Return the reason and a sentence if the machine or the store caused the failure; otherwise None."""
        fault = self._suspect()
        if fault is FaultKind.DISK:
            return Reason.MACHINE, "the machine's disk is full"
        if fault is FaultKind.GPUS:
            verb = "may have failed, which its driver does not confirm" if self.is_gpu_confirmed is False else "failed"
            return Reason.MACHINE, f"a GPU of the machine {verb}: {_line(_GPU, self)}"
        name, text = _split_exception(cause)
        reason = _BY_EXCEPTION.get(name)
        return (reason, f"{_SENTENCES[reason]}: {text}") if reason is not None else None


def read_failure(folder: Path, tail: str, *, disk_full: bool = False) -> Failure:
    """Return the failure that the run directory's files show. An unreadable file counts as missing."""
    try:
        document = json.loads(read_regular(folder / ERROR_FILE, _LONGEST))["message"]
        extra = document.get("extraInfo") or {}
        code, rank = document.get("errorCode"), extra.get("rank")
        return Failure(
            exit_code=code if type(code) is int else None,
            rank=rank if type(rank) is int else None,
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
    """Return whether a signal killed the process, or the child of its shell or launcher, which then exits with 128 plus
    the signal's number."""
    return exit_code < 0 or SIGNALLED < exit_code <= SIGNALLED + signal.NSIG


def signal_name(exit_code: int | None) -> str | None:
    """Return the name of the signal of a negative exit code; None for other exit codes."""
    if exit_code is None or exit_code >= 0:
        return None
    try:
        return signal.Signals(-exit_code).name
    except ValueError:
        return f"signal {-exit_code}"


def _split_exception(message: str) -> tuple[str, str]:
    """Return the class name of the exception that caused a message, and its text."""
    raised = _RAISED_IN_WORKER.match(message)
    if raised is not None:
        return raised[1], message.strip().splitlines()[-1].partition(": ")[2]
    return message.split(":", 1)[0].rpartition(".")[2], message.partition(": ")[2]


def _line(pattern: re.Pattern[str], failure: Failure) -> str:
    output = "\n".join((failure.message, failure.traceback, failure.tail))
    return next((line.strip() for line in output.splitlines() if pattern.search(line)), "")[:300]
