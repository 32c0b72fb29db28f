"""Keeps the number format and the global batch of a run's first attempt for all later attempts.

On another machine `auto` could resolve to another format, and fewer processes would make smaller batches. The
invariants keep both the same where that is possible, and refuse the run where it is not.
"""

import logging
from collections.abc import Mapping

import torch
from everspot_core.jobs.job import Precision
from pydantic import JsonValue

from everspot_train.trainer.errors import StateMismatch
from everspot_train.trainer.precision import mixed, resolve

log = logging.getLogger("everspot.trainer")


class RunInvariants:
    """The invariants of one run. `info`: the newest checkpoint's; empty in the first attempt."""

    def __init__(self, info: Mapping[str, JsonValue]) -> None:
        self._info = info

    def precision(self, requested: Precision, device: torch.device, *, lowered: bool | None = None) -> Precision:
        """Return the format to use. `auto` means the format of the first attempt.

        Args:
            requested: the format that the program or its job asks for.
            device: the device of this process.
            lowered: whether a job that allows mixed precision after a failover now uses it; None for other jobs.

        Raises:
            StateMismatch: if `requested` is another format than the run began with.
        """
        pinned = self._info.get("precision")
        if requested is Precision.AUTO and lowered is not None:
            return self._after_failover(Precision(pinned) if pinned in set(Precision) else None, device, lowered)
        if not isinstance(pinned, str) or pinned not in set(Precision):
            return resolve(requested, device)
        if requested not in (Precision.AUTO, Precision(pinned)):
            raise StateMismatch(f"the run was begun with precision {pinned}, and {requested.value} is demanded now")
        if requested is Precision.AUTO and resolve(requested, device).value != pinned:
            log.warning("precision stays %s, with which the run was begun; this machine's own is another", pinned)
        return Precision(pinned)

    @staticmethod
    def _after_failover(pinned: Precision | None, device: torch.device, lowered: bool) -> Precision:
        """Return fp32 until the job is lowered, and then the device's own format. A run in mixed precision stays in
        it."""
        before = pinned or Precision.FP32
        if mixed(before) or not lowered:
            return before
        after = resolve(Precision.AUTO, device)
        if pinned is not None:
            log.warning("precision changes from %s to %s: the GPU has less memory than %s needs", before, after, before)
        return after

    def accumulation(self, requested: int, batch_size: int | None, world_size: int) -> int:
        """Return the number of losses per optimizer step that keeps the global batch. `batch_size`: samples per batch
        and process; None means the same as before.

        Raises:
            StateMismatch: if no whole number keeps it.
        """
        unit = _number(self._info.get("global_batch")) if batch_size else None
        each = (batch_size or 1) if unit is not None else 1
        pinned = unit if unit is not None else self._losses_per_step()
        if pinned is None or each * world_size * requested == pinned:
            return requested
        accumulation, remainder = divmod(pinned, each * world_size)
        unit_name = "samples" if unit is not None else "batches"
        if remainder or not accumulation:
            raise StateMismatch(
                f"the run was begun with {pinned} {unit_name} per optimizer step, and {world_size} processes with "
                f"{each} each cannot make as many: ask for the same number of GPUs, or another batch size"
            )
        log.warning(
            "accumulation is %d instead of %d: %d %s per step, as before", accumulation, requested, pinned, unit_name
        )
        return accumulation

    def _losses_per_step(self) -> int | None:
        accumulation, world = _number(self._info.get("accumulation")), _number(self._info.get("world_size"))
        return accumulation * world if accumulation and world else None


def _number(value: JsonValue) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
