"""Writes a recipe's log lines during training, and its files at the end."""

import json
import logging
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from everspot_train.rundir import OUTPUT_DIR_VARIABLE
from everspot_train.trainer import Run

EVERY = 10.0
"""Real seconds between two lines of the log. The loss is read from the device only for a line."""

log = logging.getLogger("everspot.recipe")


class ProgressLog:
    """The log lines of the first rank: one for the first step, then one every `EVERY` seconds.

    Args:
        total: steps of the whole run.
        samples: per step, of all processes together.
        clock: returns monotonic seconds.
    """

    def __init__(self, total: int, samples: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._total, self._samples, self._clock = total, samples, clock
        self._logged_at: float | None = None
        self._logged_step = 0

    def step(self, run: Run) -> None:
        """Record that a step is done. Most calls only read the clock."""
        if run.rank != 0:
            return
        now = self._clock()
        if self._logged_at is None:
            self._logged_at, self._logged_step = now, run.steps_done
            log.info("step %d of %d, epoch %d: loss %.4f", run.steps_done, self._total, run.epoch + 1, run.last_loss)
        elif now - self._logged_at >= EVERY:
            rate = (run.steps_done - self._logged_step) * self._samples / (now - self._logged_at)
            self._logged_at, self._logged_step = now, run.steps_done
            log.info(
                "step %d of %d, epoch %d: loss %.4f, %.0f samples/s",
                run.steps_done,
                self._total,
                run.epoch + 1,
                run.last_loss,
                rate,
            )


def whole_state(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return the state_dict on the processor. All ranks must call it, because sharded weights are gathered."""
    state = {name: value.detach() for name, value in model.state_dict().items()}
    return {name: (v.full_tensor() if hasattr(v, "full_tensor") else v).cpu() for name, v in state.items()}


def leave(weights: Mapping[str, torch.Tensor], metrics: Mapping[str, Any]) -> Path | None:
    """Write `metrics.json` and the weights (`model.pt`) to the folder of outputs. Return the folder; without an agent
    write nothing and return None."""
    output_dir = os.environ.get(OUTPUT_DIR_VARIABLE)
    if not output_dir:
        return None
    folder = Path(output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(dict(weights), folder / "model.pt")
    (folder / "metrics.json").write_text(json.dumps(dict(metrics), indent=1) + "\n")
    return folder
