"""Loops whose checkpoints are copied while the next forward and backward run. A script that takes its settings from the
environment; `HABIT` is what the loop does to its weights.

Each line of its record has the step, the loss of this rank in hexadecimal digits, whether copies were under way when
the batch came, and the digests of all tensors after the step.
"""

import hashlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import torch
from everspot_train.rundir import CheckpointRequest, RunDir, Status
from everspot_train.trainer import Run, resumable_loader
from everspot_train.trainer.trackable import iterate_tensors
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import checkpoint as recompute

TOTAL = int(os.environ.get("TOTAL", "8"))
PLAIN = ("compiled_step", "several", "closure", "accumulated", "scaled", "recomputed", "compiled")
"""Loops that change weights by their optimizers only."""
UNCOUNTED = ("clamp_data", "decay_by_numpy", "merge", "swap")
"""Loops that write into weights in ways that torch does not count."""
GROWS_AT = 3
"""The step after which the loop `grows` adds a layer, while the checkpoint of that step is copied."""
WIDTH = 1024 if os.environ.get("HABIT") in UNCOUNTED else 64
"""Of the model. Copies of the larger one take longer than the loop needs to change a weight."""


class Numbers(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.randn(WIDTH, generator=torch.Generator().manual_seed(index))


class Recomputed(nn.Module):
    """A block whose activations are computed again in the backward pass."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return recompute(self.block, x, use_reentrant=False)


def grow(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Add a layer, and have the optimizer train it."""
    with torch.random.fork_rng():
        layer = nn.Linear(WIDTH, WIDTH)
    model.append(layer)  # type: ignore[operator]
    optimizer.add_param_group({"params": list(layer.parameters()), "lr": 0.005})


def signal_writers(number: int) -> None:
    for child in psutil.Process().children():
        if "everspot_train.writer" in child.cmdline():
            child.send_signal(number)


class OwnOptimizer:
    """An optimizer that is none of torch's, and has no hooks."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        self.param_groups = [{"params": parameters}]

    def step(self) -> None:
        with torch.no_grad():
            for parameter in self.param_groups[0]["params"]:
                parameter -= 0.01 * parameter.grad

    def zero_grad(self, set_to_none: bool = True) -> None:
        for parameter in self.param_groups[0]["params"]:
            parameter.grad = None

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        assert not state


def make_model(habit: str) -> nn.Module:
    torch.manual_seed(3)
    block: nn.Module = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.Dropout(0.1), nn.ReLU())
    if habit == "recomputed":
        block = Recomputed(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()))
    return nn.Sequential(block, nn.Linear(WIDTH, WIDTH))


def make_optimizer(habit: str, parameters: list[nn.Parameter]) -> Any:
    if habit == "several":
        return torch.optim.AdamW(parameters, lr=0.01, fused=True)
    if habit == "closure":
        return torch.optim.SGD(parameters, lr=0.01, momentum=0.9, foreach=True)
    if habit == "unhooked":
        return OwnOptimizer(parameters)
    return torch.optim.AdamW(parameters, lr=0.01)


class Swap:
    """Averaged weights that are put in the place of the model's ones for an evaluation."""

    def __init__(self, model: nn.Module) -> None:
        self.average = {name: value.detach().clone() for name, value in model.named_parameters()}

    def step(self, model: nn.Module) -> None:
        for name, value in model.named_parameters():
            self.average[name].lerp_(value.detach(), 0.1)

    def evaluate(self, model: nn.Module, batch: torch.Tensor) -> None:
        own = {name: value.detach().clone() for name, value in model.named_parameters()}
        for values in (self.average, own):
            for name, value in model.named_parameters():
                value.data.copy_(values[name])
            with torch.no_grad():
                model.eval()(batch)
        model.train()

    def state_dict(self) -> dict[str, Any]:
        return dict(self.average)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.average = dict(state)


def clamp(model: nn.Module) -> None:
    with torch.no_grad():
        for value in model.parameters():
            value.clamp_(-0.1, 0.1)


def clamp_data(model: nn.Module) -> None:
    for value in model.parameters():
        value.data.clamp_(-0.1, 0.1)


def decay(model: nn.Module) -> None:
    for value in model.parameters():
        value.data = value.data * 0.999


def decay_by_numpy(model: nn.Module) -> None:
    for value in (value for value in model.parameters() if value.is_cpu):
        value.detach().numpy()[...] *= 0.999


def merge(model: nn.Module) -> None:
    """As the merge of a low-rank adapter: into the weight, and out of it again after an evaluation."""
    weight = model[1].weight  # type: ignore[index]
    own = weight.data.clone()
    weight.data += torch.full_like(weight, 0.5)
    with torch.no_grad():
        model(torch.ones(2, WIDTH, device=weight.device))
    weight.data.copy_(own)


CHANGES: dict[str, Callable[[nn.Module], None]] = {
    "clamp": clamp,
    "clamp_data": clamp_data,
    "decay": decay,
    "decay_by_numpy": decay_by_numpy,
    "merge": merge,
}
"""Changes of weights between a checkpoint and the next step."""


def request_checkpoint(rundir: RunDir | None, run: Run) -> None:
    """Be the agent: request a checkpoint of this step, after the one before it, if that comes soon."""
    if rundir is None or run.rank != 0:
        return
    for _ in range(100):
        status = rundir.read(Status)
        if status is not None and (status.durable_step or 0) >= run.steps_done - 1:
            break
        time.sleep(0.01)
    rundir.write(CheckpointRequest(seq=run.steps_done))


def describe(pieces: dict[str, Any]) -> dict[str, str]:
    """Return the digests of the tensors in these states, by path."""
    return {
        path: hashlib.sha256(whole(tensor).reshape(-1).view(torch.uint8).numpy().tobytes()).hexdigest()
        for path, tensor in iterate_tensors(pieces)
    }


def whole(tensor: Any) -> torch.Tensor:
    """Return a tensor without its gradient; of a sharded one, all of it."""
    return getattr(tensor, "full_tensor", lambda: tensor)().detach().cpu().contiguous()


def main() -> None:
    torch.set_num_threads(1)
    habit, rundir = os.environ["HABIT"], RunDir.from_environment()
    kill_at = int(os.environ.get("KILL_AT", "-1"))
    kill_writer_at = int(os.environ.get("KILL_WRITER_AT", "-1"))
    record = Path(f"{os.environ['LOSSES']}.{os.environ.get('RANK', '0')}")
    precision = "fp16" if habit == "scaled" else "fp32"
    accumulation = 2 if habit in ("accumulated", "scaled") else 1
    with Run.open(seed=3, precision=precision, accumulation=accumulation, clip_norm=1.0, overlap_copies=True) as run:
        model = make_model(habit)
        if habit == "fsdp2":
            fully_shard(model[0])
            fully_shard(model)
        else:
            model = run.prepare(model, compile="eager" if habit == "compiled" else False)
        optimizer = make_optimizer(habit, list(model.parameters()))
        loader = resumable_loader(Numbers(), 8 // run.world_size, seed=5)
        pieces: dict[str, Any] = {}
        swap = Swap(model)
        if habit == "swap":
            pieces["swap"] = swap
        critic = nn.Linear(WIDTH, 1).to(run.device)
        critic_optimizer = torch.optim.Adam(critic.parameters(), lr=0.01)
        if habit in ("several", "closure"):
            pieces |= {"critic": critic, "critic_optimizer": critic_optimizer}
        if habit == "grows" and (run.resume_step or 0) > GROWS_AT:
            grow(model, optimizer)
        run.track(model=model, optimizer=optimizer, loader=loader, **pieces)
        if habit == "compiled_step":
            optimizer.step = torch.compile(optimizer.step, backend="eager")
        pieces |= {"model": run.state.shared["model"], "optimizer": optimizer}
        overlaps = False
        for numbers in run.batches(TOTAL):
            batch = numbers.to(run.device)
            overlaps |= any(thread.name == "everspot-copies" for thread in threading.enumerate())
            if run.steps_done == kill_writer_at:
                signal_writers(signal.SIGKILL)
            if habit == "grows" and run.steps_done == GROWS_AT:
                grow(model, optimizer)
            if habit in CHANGES:
                CHANGES[habit](model)
            if habit == "swap":
                swap.evaluate(model, batch)
            if habit in ("several", "closure"):
                step_critic(critic, critic_optimizer, batch, closure=habit == "closure")
            with run.autocast():
                loss = (model(batch) - batch).square().mean() * (100 if habit == "scaled" else 1)
            if run.steps_done == kill_at and run.rank == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            if run.step(loss):
                if habit == "swap":
                    swap.step(model)
                digests = describe({name: piece.state_dict() for name, piece in pieces.items()})
                with record.open("a") as file:
                    line = {"loss": run.last_loss.hex(), "overlaps": overlaps, "digests": digests}
                    file.write(json.dumps({"step": run.steps_done} | line) + "\n")
                overlaps = False
                request_checkpoint(rundir, run)
                if run.steps_done == kill_writer_at:  # it does not publish the next one before it is killed
                    signal_writers(signal.SIGSTOP)


def step_critic(critic: nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor, *, closure: bool) -> None:
    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        value = critic(batch).square().mean()
        value.backward()
        return value

    if closure:
        optimizer.step(loss)
    else:
        loss()
        optimizer.step()


if __name__ == "__main__":
    main()
