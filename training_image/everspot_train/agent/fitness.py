"""Checks whether this machine is fit for a job (GPUs that compute, enough disk), and cleans up after a job."""

import logging
import os
import tempfile
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

from everspot_core.capacity.catalogue import InstanceType, UnknownInstanceType, builtin
from everspot_core.clock import Clock
from everspot_core.cluster.manifest import Manifest
from everspot_core.costs.ledger import FaultKind
from everspot_store import remove_tree

from everspot_train.agent.cuda import CudaFault, check_cuda
from everspot_train.agent.hardware import Hardware, measure
from everspot_train.agent.temporary import FOLDER as TEMPORARY
from everspot_train.agent.temporary import is_claimed
from everspot_train.agent.threads import DueTimer

MIN_FREE_VARIABLE = "EVERSPOT_MIN_FREE_MIB"
MIN_FREE_MIB = 512
"""The free MiB of disk that a machine needs to take a job. With less, code, a checkpoint or a log would not fit."""
CLEANUP_FOLDERS_VARIABLE = "EVERSPOT_SWEEP"
"""The variable with folders, separated by colons, that belong to the agent's user alone and are emptied after each job.
The image's unit sets it. If it is unset, nothing outside the state folder is removed, because on a laptop /tmp is
shared."""
FULL_MIB = 16
"""A disk with less than this many MiB free counts as full."""
LOOK_EVERY = timedelta(seconds=10)

CACHE = "cache"
"""The subfolder of the state folder for datasets and packages, which later jobs of the machine may need."""
_log = logging.getLogger(__name__)


class Fitness:
    """Checks and cleans one machine. Only the agent's main thread uses it.

    Args:
        kind: the type of the machine, with its GPUs; None if unknown.
        hardware: as measured at the start.
        home: the agent's state folder. Files that appear there after this object was made belong to jobs, and are
            removed.
        environ: the agent's environment.
        cuda_fault: why CUDA did not work at the start; None if it worked, or without GPUs.
    """

    def __init__(
        self,
        kind: InstanceType | None,
        hardware: Hardware,
        home: Path,
        environ: Mapping[str, str],
        clock: Clock,
        *,
        cuda_fault: CudaFault | None = None,
    ) -> None:
        self._kind = kind
        self._gpus = kind.gpus if kind is not None else None
        self.hardware = hardware
        self._cuda_fault = cuda_fault
        self._home = home
        self._least = int(environ.get(MIN_FREE_VARIABLE) or MIN_FREE_MIB)
        self._swept = [Path(name) for name in (environ.get(CLEANUP_FOLDERS_VARIABLE) or "").split(":") if name]
        home.mkdir(parents=True, exist_ok=True)
        self._own = {entry.name for entry in home.iterdir()} | {"runs", "manifest.json", CACHE, TEMPORARY}
        self._broken = ""
        self._last_trouble: str | None = None
        self._schedule = DueTimer(LOOK_EVERY, clock)

    def look(self) -> str | None:
        """Return why this machine should get no job, or None. Checks only if the last check is long enough ago."""
        if self._schedule.due():
            self._look()
        return self._last_trouble

    def check_now(self) -> str | None:
        """Check now, after a job, and return why this machine should get no job, or None."""
        self._look()
        return self._last_trouble

    def record_fault(self, fault: FaultKind | None, words: str) -> None:
        """Record that this machine broke a job. A failed GPU, or agent, is not trusted again until the agent
        restarts."""
        if fault in (FaultKind.GPUS, FaultKind.AGENT):
            self._broken = words[:300]

    def remeasure(self) -> None:
        """Count the GPUs and check CUDA on them again, after a job that failed on them."""
        if self._gpus:
            self.hardware = measure(self._kind)
            self._cuda_fault = check_cuda(self.hardware.gpus)

    def tidy(self) -> None:
        """Remove the files that a job left in the state folder, outside of its run directory, and in the folders of
        `EVERSPOT_SWEEP`."""
        leftovers = [entry for entry in self._home.iterdir() if entry.name not in self._own]
        for folder in self._swept:
            leftovers.extend(entry for entry in _owned(folder) if not is_claimed(entry))
        for entry in leftovers:
            _log.info("removing %s, which a job left", entry)
            if entry.is_dir() and not entry.is_symlink():
                remove_tree(entry)
            else:
                _unlink(entry)
        if free_mib(self._home) < self._least:
            # The shared cache can be fetched again. A machine without disk space would be useless.
            remove_tree(self._home / CACHE)

    def _look(self) -> None:
        self._last_trouble = self._trouble()
        if self._last_trouble is not None and self._gpu_trouble() is not None:
            self.remeasure()  # a driver may be late at boot
            self._last_trouble = self._trouble()

    def _trouble(self) -> str | None:
        if self._broken:
            return self._broken
        gpu_trouble = self._gpu_trouble()
        if gpu_trouble is not None:
            return gpu_trouble
        for folder in {self._home, Path(tempfile.gettempdir())}:
            free = free_mib(folder)
            if free < self._least:
                return f"{free} MiB are free on the disk of {folder}, and {self._least} are needed"
        return None

    def _gpu_trouble(self) -> str | None:
        if self._gpus and self.hardware.gpus < self._gpus:
            return f"{self.hardware.gpus} of the {self._gpus} GPUs that its type has are seen"
        return self._cuda_fault.message if self._gpus and self._cuda_fault is not None else None


def find_type(manifest: Manifest, name: str) -> InstanceType | None:
    """Return an instance type by the catalog and the cluster's own types; None for an unknown one."""
    try:
        return builtin().with_types(manifest.instance_types).get(name)
    except UnknownInstanceType:
        return None


def free_mib(folder: Path) -> int:
    """Return the free MiB for this user on the disk of `folder`."""
    room = os.statvfs(folder)
    return room.f_bavail * room.f_frsize >> 20


def is_full(folder: Path) -> bool:
    """Return whether the disk of `folder` is full. False if the folder no longer exists."""
    try:
        return free_mib(folder) < FULL_MIB
    except OSError:  # the program has removed it
        return False


def _owned(folder: Path) -> list[Path]:
    try:
        return [entry for entry in folder.iterdir() if entry.lstat().st_uid == os.getuid()]
    except OSError:
        return []


def _unlink(entry: Path) -> None:
    try:
        entry.unlink(missing_ok=True)
    except OSError as error:
        _log.warning("%s stays: %s", entry, error)
