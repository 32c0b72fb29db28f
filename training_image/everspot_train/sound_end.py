"""The end of a program by itself, without an error: what is done about it in each of its processes, and who sees it.

A program that returns, or exits with 0, has ended soundly. What happens to its process afterwards, while Python shuts
down, is no part of the program. So the agent learns of the sound end from a file, and not from the exit code alone.
"""

import contextlib
import gc
import os
import sys
import time
from pathlib import Path

ENDED_DIR_VARIABLE = "EVERSPOT_ENDED_DIR"
"""The variable with the folder in which each process whose program has ended soundly leaves an empty file, named by its
rank."""
_GLOO = "pt_gloo"
"""The beginning of the names of the threads in which a process group of gloo works."""
_LOOK, _CALM_LOOKS, _LONGEST_REST = 0.01, 3, 10.0
"""Real seconds between two looks at these threads; the looks in a row that find all of them asleep, and therefore with
no tensor to free; and the longest wait, in seconds."""


class SoundEnd:
    """The sound end of the program in this process.

    Attributes:
        reached: whether the program has ended so.
    """

    def __init__(self) -> None:
        self.reached = False

    def conclude(self) -> None:
        """Leave the file for the agent, and close what can abort Python's shutdown. Nothing happens after another
        end."""
        if not self.reached:
            return
        folder = os.environ.get(ENDED_DIR_VARIABLE)
        if folder:
            with contextlib.suppress(OSError):  # the exit code tells the end, unless a signal comes in its place
                Path(folder).mkdir(exist_ok=True)
                (Path(folder) / os.environ.get("RANK", "0")).touch()
        _close_gloo()


def count_ended(folder: Path) -> int:
    """Return in how many processes the program has ended soundly."""
    try:
        return sum(1 for _ in folder.iterdir())
    except OSError:
        return 0


def _close_gloo() -> None:
    """Destroy the process groups that the program left open, if the default one is of gloo.

    A thread of gloo that frees a tensor while Python shuts down is ended by the interpreter, which C++ answers with
    "terminate called without an active exception" and SIGABRT (https://github.com/pytorch/pytorch/pull/179291). NCCL
    has no such threads, and closing its groups would wait for the other processes.
    """
    dist = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available() or not dist.is_initialized() or dist.get_backend() != "gloo":
        return
    with contextlib.suppress(Exception):  # the program has ended soundly, whatever its group does
        dist.destroy_process_group()
    gc.collect()  # the threads end with the last reference, and a model refers to itself
    end = time.monotonic() + _LONGEST_REST
    calm = 0
    while calm < _CALM_LOOKS and time.monotonic() < end:
        time.sleep(_LOOK)  # without the interpreter's lock, which a thread needs to free a tensor
        calm = 0 if _gloo_is_busy() else calm + 1


def _gloo_is_busy() -> bool:
    """Return whether a thread of gloo runs or is ready to run. DistributedDataParallel keeps its group, and so the
    threads, until the process ends."""
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # the thread has just ended
            name, _, fields = (task / "stat").read_text().partition("(")[2].rpartition(")")
            if name.startswith(_GLOO) and not fields.startswith(" S"):
                return True
    return False
