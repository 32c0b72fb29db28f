"""Makes the working directory of each job, under a path that is the same in every attempt.

Programs store absolute paths in their checkpoints, and use them in the next attempt: Lightning's `ModelCheckpoint`
(`dirpath`, `last_model_path`), the Hugging Face `Trainer` (`best_model_checkpoint`). So the path depends only on the
job's id, in a folder with the same path on every machine of the image.
"""

import fcntl
import logging
import os
from collections.abc import Iterator
from pathlib import Path

from everspot_store import remove_tree

from everspot_train.agent.containment import find_processes
from everspot_train.rundir import CHECKPOINT_DIR_VARIABLE

FOLDER = "work"
"""The folder of the working directories in the state folder."""
WORK_VARIABLE = "EVERSPOT_WORK"
"""The variable with a folder that replaces it. Agents of several machines may share this folder, as on the local
cloud."""
MOST_PATHS = 20
"""The most paths that are tried for one job."""

_log = logging.getLogger(__name__)


class WorkFolder:
    """The working directory of one attempt. Made by `WorkFolders.claim`.

    Attributes:
        path: of the directory, without symbolic links.
    """

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._lock = lock

    def release(self) -> None:
        """Remove the directory. Call it only after the job's processes have ended."""
        remove_tree(self.path)
        os.close(self._lock)


class WorkFolders:
    """The working directories of one agent's jobs.

    Each is locked while its agent has the job. If another living agent has locked a directory, or a process of an ended
    attempt may still write to it, the job gets another path.

    Args:
        root: the folder that they are made in.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def clear(self) -> None:
        """Remove the directories of earlier agents. Call it only after their jobs' processes have ended."""
        for path in self._root.iterdir() if self._root.is_dir() else ():
            lock = _lock(path)
            if lock is not None:
                WorkFolder(path, lock).release()

    def claim(self, job_id: str) -> WorkFolder:
        """Make an empty directory for a job, which only this user can enter.

        Raises:
            OSError: if no directory can be made.
        """
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        root = self._root.resolve()
        for path in _paths(root, job_id):
            path.mkdir(mode=0o700, exist_ok=True)
            lock = _lock(path)
            if lock is None:
                _log.warning("%s is in use: job %s gets another working directory", path, job_id)
                continue
            try:
                _empty(path)
            except OSError as error:
                _log.warning("%s cannot be emptied (%s): job %s gets another working directory", path, error, job_id)
                os.close(lock)
                continue
            return WorkFolder(path, lock)
        raise OSError(f"no working directory for job {job_id}: {MOST_PATHS} in {root} are in use")


def _paths(root: Path, job_id: str) -> Iterator[Path]:
    """Yield the paths that a job's working directory may have. No id of a job contains `~`."""
    yield root / job_id
    for number in range(2, MOST_PATHS + 1):
        yield root / f"{job_id}~{number}"


def _empty(path: Path) -> None:
    """Remove the content that an ended agent left in a directory. Raises `OSError`."""
    path.chmod(0o700)
    for child in path.iterdir():
        if child.is_dir() and not child.is_symlink():
            remove_tree(child)
            if child.exists():
                raise OSError(f"{child.name} stays")
        else:
            child.unlink()


def _lock(path: Path) -> int | None:
    """Lock an unused directory and return the handle; None if it is in use."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_current = path.lstat().st_ino == os.fstat(handle).st_ino
        if is_current and not any(find_processes(path, CHECKPOINT_DIR_VARIABLE)):
            return handle
    except OSError:
        pass
    os.close(handle)
    return None
