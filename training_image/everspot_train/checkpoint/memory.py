"""Memory that another process can read: a file, in a file system in memory where there is one, that is mapped."""

import logging
import mmap
import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import torch

_GROWTH = 1.02
"""The factor by which more memory is reserved than is needed at first: counters and small tensors are added later."""

DISCARDED = -1
"""The counter's value if the bytes will not be complete."""
_COUNTER_BYTES = 8
_PORTABLE = 1
"""cudaHostRegisterPortable: the pages are locked for all GPUs."""
_MADV_POPULATE_READ = 22
"""See madvise(2). `mmap` has no name for it."""

_log = logging.getLogger(__name__)


class SharedMemory:
    """A file that is mapped as one tensor of bytes. It is reserved once, and again only if more is needed.

    After these bytes the file has a counter: how many of them, from the first one on, a reader may use now.

    Args:
        folders: for the file, in the order in which they are tried. They exist, and are removed by their owner.
        name: of the file.
        device: a GPU that copies into the memory, so that its pages are locked; None: there is none.
    """

    def __init__(self, folders: Sequence[Path], name: str, device: torch.device | None = None) -> None:
        self._paths = [folder / name for folder in folders]
        self._device = device if device is not None and device.type == "cuda" else None
        self._locked_at: int | None = None
        self._lock = threading.Lock()
        self._path = self._paths[0]
        self._file: tuple[int, int, int] | None = None
        self._bytes = torch.empty(0, dtype=torch.uint8)
        self._counter = torch.zeros(1, dtype=torch.int64)

    @property
    def path(self) -> Path:
        """The file that holds the memory."""
        return self._path

    @property
    def counter_at(self) -> int:
        """The place of the counter in the file, in bytes: a signed number of 64 bits."""
        return self._bytes.numel()

    def count(self, size: int) -> None:
        """Set the counter: the first `size` bytes may be read. `DISCARDED`: the others never will."""
        self._counter.fill_(size)

    def reserve(self, size: int) -> torch.Tensor:
        """Return at least `size` bytes, all of them present in memory, so that writing to them needs no page fault.

        The result is the same tensor as before, unless more is needed or the file was removed, replaced or cut off:
        then no other process would find there what is copied.

        Raises:
            OSError: if no folder has room for them. A page that could not be had later would end the process with
                SIGBUS.
        """
        with self._lock:
            if size > self._bytes.numel() or not self._is_in_place():
                self._forget()
                pages = -(-int(size * _GROWTH) // mmap.PAGESIZE) + 1  # one more, for the counter
                self._path, mapped = self._reserve(pages * mmap.PAGESIZE)
                self._file = _identify(self._path)
                self._bytes = mapped[: -mmap.PAGESIZE]
                self._counter = mapped[-mmap.PAGESIZE :][:_COUNTER_BYTES].view(torch.int64)
                self._lock_pages(mapped)
            return self._bytes

    def close(self) -> None:
        """Forget the memory, and remove the file."""
        with self._lock:
            self._forget()
            with suppress(OSError):
                self._path.unlink()

    def _is_in_place(self) -> bool:
        return not self._bytes.numel() or self._file == _identify(self._path)

    def _lock_pages(self, mapped: torch.Tensor) -> None:
        """Lock the pages for copies from the GPU, which are slower into other memory, and keep the GPU waiting."""
        if self._device is None:
            return
        with torch.cuda.device(self._device):  # a thread begins with the first GPU of the machine
            error = int(torch.cuda.cudart().cudaHostRegister(mapped.data_ptr(), mapped.nbytes, _PORTABLE))
            if not error:
                self._locked_at = mapped.data_ptr()
                return
            with suppress(RuntimeError):  # CUDA reports the error to the next kernel of this thread, too
                torch.ones(1, device=self._device)
        _log.warning("the memory for checkpoints cannot be locked (CUDA error %d): copies are slower", error)

    def _forget(self) -> None:
        if self._locked_at is not None:  # before it is unmapped
            torch.cuda.cudart().cudaHostUnregister(self._locked_at)
            self._locked_at = None
        self._bytes = torch.empty(0, dtype=torch.uint8)
        self._counter = torch.zeros(1, dtype=torch.int64)

    def _reserve(self, size: int) -> tuple[Path, torch.Tensor]:
        for path in self._paths[:-1]:
            try:
                return path, _map(path, size)
            except OSError as error:
                _log.warning("%d MB of memory for checkpoints cannot be had (%s): a file is used", size >> 20, error)
                with suppress(OSError):
                    path.unlink()
        return self._paths[-1], _map(self._paths[-1], size)


def read_memory(path: Path, size: int) -> torch.Tensor:
    """Return a file's first `size` bytes, mapped. Changes of the tensor do not reach the file.

    Raises:
        OSError: if the file cannot be read, or is shorter.
    """
    if not size:
        return torch.empty(0, dtype=torch.uint8)
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size < size:
            raise OSError(f"{path.name} is shorter than {size} bytes")
        mapped = mmap.mmap(file.fileno(), size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    with suppress(OSError):  # Linux has it since 5.14
        mapped.madvise(_MADV_POPULATE_READ)  # all page faults in one call, and no copy
    return torch.frombuffer(mapped, dtype=torch.uint8)


def _identify(path: Path) -> tuple[int, int, int] | None:
    """Return what names the file at a path, and its size; None without a file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size


def _map(path: Path, size: int) -> torch.Tensor:
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(file, 0, size)
        mapped = mmap.mmap(file, size, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
    finally:
        os.close(file)
    return torch.frombuffer(mapped, dtype=torch.uint8)
