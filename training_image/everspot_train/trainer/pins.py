"""What the first attempt of a run has fixed for all that follow: number format and global batch.

A run that goes on elsewhere must go on as the same training. The machine may be another one, so `auto` could resolve
to another format there, and fewer processes would take smaller steps. What can be made the same is made the same, and
what cannot is refused.
"""

import logging
from collections.abc import Mapping

import torch
from everspot_core.job import Precision
from pydantic import JsonValue

from everspot_train.trainer.errors import StateMismatch
from everspot_train.trainer.precision import resolve

log = logging.getLogger("everspot.trainer")


class Pins:
    """`info`: what is stored with the newest checkpoint; empty for the first attempt, which is free."""

    def __init__(self, info: Mapping[str, JsonValue]) -> None:
        self._info = info

    def precision(self, wanted: Precision, device: torch.device) -> Precision:
        """The format to use; `auto` is what the first attempt made of it.

        Raises:
            StateMismatch: if another one is demanded than the run was begun with.
        """
        pinned = self._info.get("precision")
        if not isinstance(pinned, str) or pinned not in set(Precision):
            return resolve(wanted, device)
        if wanted not in (Precision.AUTO, Precision(pinned)):
            raise StateMismatch(f"the run was begun with precision {pinned}, and {wanted.value} is demanded now")
        if wanted is Precision.AUTO and resolve(wanted, device).value != pinned:
            log.warning("precision stays %s, with which the run was begun; this machine's own is another", pinned)
        return Precision(pinned)

    def accumulation(self, wanted: int, batch_size: int | None, world_size: int) -> int:
        """Losses per optimizer step for which the global batch is what it was. `batch_size`: samples per batch and
        process; None where it is not known, and then it is taken to be the same.

        Raises:
            StateMismatch: if no whole number does it.
        """
        unit = _number(self._info.get("global_batch")) if batch_size else None
        each = (batch_size or 1) if unit is not None else 1
        pinned = unit if unit is not None else self._losses_per_step()
        if pinned is None or each * world_size * wanted == pinned:
            return wanted
        accumulation, rest = divmod(pinned, each * world_size)
        what = "samples" if unit is not None else "batches"
        if rest or not accumulation:
            raise StateMismatch(
                f"the run was begun with {pinned} {what} per optimizer step, and {world_size} processes with "
                f"{each} each cannot make as many: ask for the same number of GPUs, or another batch size"
            )
        log.warning("accumulation is %d instead of %d: %d %s per step, as before", accumulation, wanted, pinned, what)
        return accumulation

    def _losses_per_step(self) -> int | None:
        accumulation, world = _number(self._info.get("accumulation")), _number(self._info.get("world_size"))
        return accumulation * world if accumulation and world else None


def _number(value: JsonValue) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
