"""Makes the temporary directory of each job: private, short, and removed with the job.

Programs open sockets below TMPDIR: multiprocessing and DataLoader workers (`pymp-…/listener-…`), torch's shared memory
(`torch-shm-dir-…/manager.sock`), Ray. The path of a socket has at most 107 bytes (unix(7), `sun_path`); a longer path
ends or hangs the program. The run directory is named after the job, and its path is too long.
"""

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from everspot_store import remove_tree

MEMORY = Path("/dev/shm")  # noqa: S108  private directories in it
"""The file system in memory (shm_overview(7)) for the tensors of checkpoints before their upload."""
FOLDER = "tmp"
"""The folder for temporary directories in the state folder, which is on the instance's largest disk."""
MOST_BYTES = 40
"""The longest path of a temporary directory. Ray needs the most below it: 66 bytes for
`/ray/session_2026-01-01_00-00-00_000000_1234567/sockets/plasma_store`."""
PREFIX = "everspot-"
_LOCK = "lock"
_SUFFIX_BYTES = 8  # of the names that tempfile makes


class TemporaryFolders:
    """The temporary directories of one agent's jobs.

    The directories are in the state folder. If its path is too long, they are in the agent's own directory in /tmp,
    whose lock the agent holds for its life. So a later agent finds the directories of a dead agent, even if it uses
    another state folder.

    Args:
        home: the agent's state folder; None: always use `shared`.
        shared: the folder that is used if `home` is too long.
    """

    def __init__(self, home: Path | None, shared: Path = Path("/tmp")) -> None:  # noqa: S108  private directories in it
        inside = home / FOLDER if home is not None else None
        fits = inside is not None and len(os.fsencode(inside)) + 1 + _SUFFIX_BYTES <= MOST_BYTES
        self._inside = inside if fits else None
        self._shared = shared
        self._own: Path | None = None
        self._lock: int | None = None

    def clear(self) -> None:
        """Remove the directories of earlier agents. Call it only after their jobs' processes have ended."""
        if self._inside is not None:
            remove_tree(self._inside)
            return
        for folder in self._shared.glob(f"{PREFIX}*"):
            with suppress(OSError):
                if folder != self._own and folder.lstat().st_uid == os.getuid() and _is_abandoned(folder):
                    remove_tree(folder)

    def make(self) -> Path:
        """Make a directory that only this user can enter. Raises `OSError`."""
        return Path(tempfile.mkdtemp(prefix="", dir=self._parent()))

    def _parent(self) -> Path:
        if self._inside is not None:
            self._inside.mkdir(mode=0o700, parents=True, exist_ok=True)
            return self._inside
        if self._own is None or not self._own.is_dir():
            self._own, self._lock = self._claim()
        return self._own

    def _claim(self) -> tuple[Path, int]:
        """Create a directory for this agent. It gets its name while the lock is already held, so that no other agent
        takes it for abandoned."""
        new = Path(tempfile.mkdtemp(prefix=".", dir=self._shared))
        try:
            handle = os.open(new / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(handle, fcntl.LOCK_EX)
            own = self._shared / f"{PREFIX}{new.name[1:]}"
            new.rename(own)
        except OSError:
            shutil.rmtree(new, ignore_errors=True)
            raise
        return own, handle


def is_claimed(folder: Path) -> bool:
    """Return whether a living agent owns this directory."""
    return folder.name.startswith(PREFIX) and (folder / _LOCK).is_file() and not _is_abandoned(folder)


def _is_abandoned(folder: Path) -> bool:
    """Return whether the agent that made the directory has ended."""
    if folder.is_symlink() or not folder.is_dir():
        return False
    try:
        handle = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False  # not one of these directories
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(handle)
