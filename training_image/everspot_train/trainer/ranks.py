"""The processes of one run: a single one, or several under torchrun on one machine."""

import os
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

_CONTROL_TIMEOUT = timedelta(days=30)
"""Of the group for decisions. The other ranks wait in it while the first one downloads a checkpoint, or waits for an
upload. The agent's limits bound these waits; torch's default of 30 minutes would end a run whose state is large."""


def rank_from_environment() -> int:
    """Return RANK as torchrun sets it; 0 without it."""
    return int(os.environ.get("RANK", "0"))


def world_size_from_environment() -> int:
    """Return WORLD_SIZE as torchrun sets it; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


class Ranks:
    """This process among those of its run. With a single process its methods cost nothing."""

    def __init__(self) -> None:
        self.rank = rank_from_environment()
        self.world_size = world_size_from_environment()
        self.device = self._device()
        self._own_group = False
        self._control: Any = None
        if self.world_size > 1:
            self._join()

    @property
    def first(self) -> bool:
        """Whether this process communicates with agent and store."""
        return self.rank == 0

    @staticmethod
    def _device() -> torch.device:
        if torch.cuda.is_available():
            device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
            torch.cuda.set_device(device)
            return device
        return torch.device("cpu")

    def _join(self) -> None:
        if not dist.is_initialized():
            dist.init_process_group("nccl" if self.device.type == "cuda" else "gloo")
            self._own_group = True
        # Decisions have a process group of their own, so that they never wait for the device.
        self._control = dist.new_group(backend="gloo", timeout=_CONTROL_TIMEOUT)

    def share(self, value: int) -> int:
        """Return the first rank's `value` on every rank."""
        if self.world_size == 1:
            return value
        shared = torch.tensor([value])
        dist.broadcast(shared, src=0, group=self._control)
        return int(shared.item())

    def share_object(self, value: Any) -> Any:
        """Return the first rank's `value`, any small object, on every rank."""
        if self.world_size == 1:
            return value
        shared = [value]
        dist.broadcast_object_list(shared, src=0, group=self._control)
        return shared[0]

    def gather(self, value: Any) -> list[Any]:
        """Return every rank's `value`, any small object, on every rank."""
        if self.world_size == 1:
            return [value]
        values: list[Any] = [None] * self.world_size
        dist.all_gather_object(values, value, group=self._control)
        return values

    def meet(self) -> None:
        """Wait until every rank has called this."""
        if self.world_size > 1:
            dist.barrier(group=self._control)

    def leave(self) -> None:
        """Close the process groups of this object."""
        # A group and its threads live as long as anything refers to it. Such a thread can abort the process at the
        # interpreter's end.
        self._control, control = None, self._control
        if control is not None and dist.is_initialized():
            dist.destroy_process_group(control)
        del control
        if self._own_group:
            dist.destroy_process_group()
            self._own_group = False
