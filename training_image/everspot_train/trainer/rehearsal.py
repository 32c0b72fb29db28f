"""Records what a run computes, step by step, and pauses it at given steps: the trainer's side of a rehearsal.

`everspot rehearse` sets EVERSPOT_REHEARSAL to the path of a file. Each rank appends lines of JSON to it (the ranks
after the first to `PATH.RANK`), and reads beforehand `PATH.orders`: the number of steps, and the steps at which the run
waits for the agent. So an interruption comes after a step and not after a time. Without the variable nothing is
recorded.

Lines: `plan` (once for each `batches`), `boundary` (between two steps, with everything that the next one depends on),
`epoch` (the loader's epoch is over), `pause` (waits for the agent), `end` (the program leaves its `with`).
"""

import functools
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from everspot_train.rehearsal_orders import AT_END, REHEARSAL_VARIABLE, Orders
from everspot_train.rundir import CheckpointRequest, RunDir, StopRequest
from everspot_train.trainer.digests import describe, flatten
from everspot_train.trainer.errors import TrainerError
from everspot_train.trainer.feed_parts import count_batches
from everspot_train.trainer.model_setup import plain_name
from everspot_train.trainer.randomness import GlobalRandomness
from everspot_train.trainer.state import TrainState, unwrapped
from everspot_train.trainer.variables import Walk

LEAST_STEPS = 12
"""Steps of a rehearsal whose orders name no number."""
LONGEST_EPOCH = 40
"""An epoch of so many steps at the most is rehearsed to its end, and a few steps further."""
PAST_EPOCH = 3
_LONGEST_PAUSE = 600.0  # seconds; the agent answers in less than one, or is gone
_LOOK_EVERY = 0.02


class Recorder:
    """The recorder of one rank."""

    def __init__(self, record: Path, rank: int, rundir: RunDir | None) -> None:
        self._orders = Orders.read(record)
        self._path = record if rank == 0 else record.with_name(f"{record.name}.{rank}")
        self._rank, self._rundir = rank, rundir
        self._steps: int | None = self._orders.steps
        self._state: TrainState | None = None
        self._model: torch.nn.Module | None = None
        self._loader: Any = None
        self._loaders: set[int] = set()
        self._batches: list[str] = []
        self._losses: list[str] = []
        self._metrics: dict[str, str] = {}
        self._evaluated = False
        self._boundaries = 0
        self._total = 0

    @classmethod
    def from_environment(cls, rundir: RunDir | None, rank: int) -> "Recorder | None":
        """Return the recorder that the environment asks for; None if this is no rehearsal."""
        path = os.environ.get(REHEARSAL_VARIABLE)
        return cls(Path(path), rank, rundir) if path else None

    def track(self, state: TrainState, model: torch.nn.Module, loader: Any) -> None:
        """Note what the loop tracks. The model's change to evaluation mode shows that the loop evaluates."""
        self._state, self._model, self._loader = state, unwrapped(model), loader
        names = ("sampler", "batch_sampler", "generator")
        self._loaders = {id(loader), *(id(getattr(loader, name, None)) for name in names)} - {id(None)}
        self._watch_evaluation(self._model)

    def limit(self, total_steps: int, accumulation: int) -> int:
        """Return the number of steps of the loop: the rehearsal's, at most the loop's own."""
        epoch = count_batches(self._loader)
        per_epoch = epoch // accumulation if epoch is not None else None
        if self._steps is None:
            past = per_epoch + PAST_EPOCH if per_epoch is not None and per_epoch <= LONGEST_EPOCH else 0
            self._steps = max(LEAST_STEPS, past)
        self._total = min(total_steps, self._steps)
        facts = {"accumulation": accumulation, "loader": _describe_loader(self._loader)}
        self._write("plan", self._total, total=total_steps, per_epoch=per_epoch, **facts)
        return self._total

    def batch(self, batch: Any) -> None:
        """Record a batch, before the loop changes it."""
        self._batches.append(describe(batch))

    def loss(self, loss: torch.Tensor) -> None:
        """Note a loss."""
        self._losses.append(describe(loss))

    def metrics(self, values: dict[str, float]) -> None:
        """Note metrics."""
        self._metrics |= {name: describe(value) for name, value in values.items()}

    def epoch_over(self, step: int) -> None:
        """Note that the loader's epoch ended after `step` steps."""
        self._write("epoch", step)

    def boundary(self, step: int) -> None:
        """Note the state between two steps. Called by the generator over which the user's code iterates."""
        caller = sys._getframe(1).f_back
        self._boundaries += 1
        self._write("boundary", step, first=self._boundaries == 1, **self._everything(caller))

    def wait(self, step: int, *, over: bool = False) -> None:
        """Wait for the agent, if the orders say so. `over`: the loop is over.

        Raises:
            TrainerError: if nothing comes.
        """
        event = self._orders.pauses.get(AT_END if over else str(step))
        if event is None or self._rank != 0 or self._rundir is None or (over and step < (self._steps or 0)):
            return
        self._write("pause", step, what=event)
        rundir = self._rundir
        answers: dict[str, Callable[[], object]] = {
            "checkpoint": lambda: rundir.read(CheckpointRequest),
            "stop": lambda: rundir.read(StopRequest),
        }
        answered, end = answers.get(event, lambda: None), time.monotonic() + _LONGEST_PAUSE
        while not answered():
            if time.monotonic() > end:
                raise TrainerError(f"the rehearsal has waited {_LONGEST_PAUSE:.0f} s at step {step} for its {event}")
            time.sleep(_LOOK_EVERY)

    def end(self, step: int, error: BaseException | None) -> None:
        """Note the state with which the program leaves its `with`."""
        caller = sys._getframe(1).f_back
        self._write("end", step, error=type(error).__name__ if error else None, **self._everything(caller))

    def _everything(self, caller: FrameType | None) -> dict[str, Any]:
        observed = {
            "batches": self._batches,
            "losses": self._losses,
            "metrics": self._metrics,
            "evaluated": self._evaluated,
        }
        self._batches, self._losses, self._metrics, self._evaluated = [], [], {}, False
        state = dict(self._flat_state())
        tracked = set(self._tracked_ids())
        randomness = flatten("", GlobalRandomness().state_dict())
        kinds = sorted({name.partition("/")[0] for name in randomness})
        random = {kind: describe([t for n, t in randomness.items() if n.partition("/")[0] == kind]) for kind in kinds}
        return {**observed, "state": state, "random": random, "variables": Walk(tracked, self._loaders).look(caller)}

    def _flat_state(self) -> Iterator[tuple[str, str]]:
        if self._state is None or self._model is None:
            return
        names = {id(parameter): plain_name(name) for name, parameter in self._model.named_parameters()}
        for name, piece in self._state.shared.items():
            state = piece.state_dict()
            if isinstance(piece, torch.optim.Optimizer):
                yield from _flat_optimizer(name, piece, state, names).items()
            else:
                yield from flatten(name, state).items()
        stored = set(self._model.state_dict(keep_vars=False))
        for name, buffer in self._model.named_buffers():
            if plain_name(name) not in stored:
                yield f"buffer/{plain_name(name)}", describe(buffer)
        frozen = [plain_name(name) for name, parameter in self._model.named_parameters() if not parameter.requires_grad]
        yield "frozen/parameters", ", ".join(frozen) or "none"

    def _tracked_ids(self) -> Iterator[int]:
        if self._state is None or self._model is None:
            return
        stored = set(self._model.state_dict())
        yield from (id(parameter) for parameter in self._model.parameters())
        yield from (id(buffer) for name, buffer in self._model.named_buffers() if plain_name(name) in stored)
        for piece in [*self._state.shared.values(), *self._state.local.values()]:
            if isinstance(piece, torch.optim.Optimizer):
                yield id(piece)
            elif isinstance(piece, torch.nn.Module):
                yield from (id(tensor) for tensor in piece.state_dict(keep_vars=True).values())

    def _watch_evaluation(self, model: torch.nn.Module) -> None:
        """Detect the model's change to evaluation mode. A hook of the model itself would be copied and pickled with
        it."""
        train = torch.nn.Module.train

        @functools.wraps(train)
        def noting(module: torch.nn.Module, mode: bool = True) -> torch.nn.Module:
            if module is model and not mode:
                self._evaluated = True
            return train(module, mode)

        setattr(torch.nn.Module, "train", noting)  # noqa: B010  torch's own method, for this process

    def _write(self, event: str, step: int, **data: Any) -> None:
        line = json.dumps({"event": event, "step": step, "rank": self._rank, **data})
        with self._path.open("a") as record:
            record.write(line + "\n")


def _flat_optimizer(name: str, optimizer: torch.optim.Optimizer, state: Any, names: dict[int, str]) -> dict[str, str]:
    """Return an optimizer's state with the names of the parameters instead of their numbers."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    numbers = [number for group in state.get("param_groups", []) for number in group.get("params", [])]
    by_number = {n: names.get(id(p), f"parameter {n}") for n, p in zip(numbers, parameters, strict=False)}
    flat: dict[str, str] = {}
    for number, entries in state.get("state", {}).items():
        flat |= flatten(f"{name}/{by_number.get(number, number)}", entries)
    for place, group in enumerate(state.get("param_groups", [])):
        own = {key: value for key, value in group.items() if key != "params"}
        flat |= flatten(f"{name}/group {place}", own | {"parameters": len(group.get("params", []))})
    extra = {key: value for key, value in state.items() if key not in ("state", "param_groups")}
    return flat | (flatten(name, extra) if extra else {})


def _describe_loader(loader: Any) -> dict[str, Any]:
    """Return the properties of a loader that the advice depends on."""
    dataset = getattr(loader, "dataset", None)
    workers = getattr(loader, "num_workers", 0)
    return {
        "type": type(loader).__name__,
        "order": type(getattr(loader, "batch_sampler", None)).__name__,
        "sampler": type(getattr(loader, "sampler", None)).__name__,
        "dataset": type(dataset).__name__ if dataset is not None else None,
        "workers": workers if isinstance(workers, int) else 0,
        "own": isinstance(loader, Iterable) and not isinstance(loader, torch.utils.data.DataLoader),
    }
