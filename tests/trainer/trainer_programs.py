"""Loops with models and optimizers as libraries make them, for the tests. A script that takes its settings from the
environment: PROGRAM names what is trained.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from everspot_core.jobs.records import Reason
from everspot_train.rundir import RunDir, StopRequest
from everspot_train.trainer import Run, resumable_loader
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from torch.distributed.fsdp import fully_shard
from torch.optim import lr_scheduler
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

TOTAL = 12
WORDS = 24
GLOBAL_BATCH = 4


class Sentences(torch.utils.data.Dataset):
    """Sentences of random words, the same ones in each process."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.randint(WORDS, (6,), generator=torch.Generator().manual_seed(index))


class Block(nn.Module):
    """A residual layer that another wrapper can be put around."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.1), nn.Linear(16, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = x + self.inner(x)
        return result


class Words(nn.Module):
    """A language model whose output layer is its embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 8)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(8, WORDS, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.embedding(words)
        for block in self.blocks:
            x = block(x)
        logits: torch.Tensor = self.head(x)
        return logits


class EightBit(torch.optim.Optimizer):
    """Momentum in 8 bits, with its scale and a plan that are no tensors, as optimizers of small memory keep it."""

    def __init__(self, parameters: Iterator[nn.Parameter], lr: float) -> None:
        super().__init__(parameters, {"lr": lr, "betas": (0.9,), "name": "8-bit"})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state |= {
                        "code": torch.zeros_like(parameter, dtype=torch.int8),
                        "scale": 1.0,
                        "plan": ("linear", {}),
                    }
                momentum = state["code"].float() * state["scale"] * group["betas"][0] + parameter.grad
                state["scale"] = max(momentum.abs().max().item(), 1e-12) / 127
                state["code"] = (momentum / state["scale"]).round().to(torch.int8)
                parameter -= group["lr"] * momentum


def make_optimizers() -> dict[str, tuple[nn.Module, torch.optim.Optimizer]]:
    """Return a model and an optimizer of each kind, by a name that the trainer can track the pair under."""
    kinds: dict[str, Callable[[Iterator[nn.Parameter]], torch.optim.Optimizer]] = {
        "adam_fused": lambda p: torch.optim.Adam(p, lr=0.01, fused=True),
        "adamw_amsgrad": lambda p: torch.optim.AdamW(p, lr=0.01, amsgrad=True, foreach=True),
        "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
        "adafactor": lambda p: torch.optim.Adafactor(p, lr=0.01),
        "nadam": lambda p: torch.optim.NAdam(p, lr=0.01),
        "radam": lambda p: torch.optim.RAdam(p, lr=0.01),
        "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01),
        "adadelta": lambda p: torch.optim.Adadelta(p, lr=0.5),
        "adamax": lambda p: torch.optim.Adamax(p, lr=0.01),
        "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, centered=True, momentum=0.5),
        "rprop": lambda p: torch.optim.Rprop(p, lr=0.01),
        "asgd": lambda p: torch.optim.ASGD(p, lr=0.01, t0=3),
        "eight_bit": lambda p: EightBit(p, lr=0.05),
        "adafactor_of_transformers": transformers_adafactor,
    }
    models = {kind: Words() for kind in kinds}
    return {kind: (model, kinds[kind](model.parameters())) for kind, model in models.items()}


def transformers_adafactor(parameters: Iterator[nn.Parameter]) -> torch.optim.Optimizer:
    from transformers.optimization import Adafactor

    return Adafactor(parameters, lr=0.01, relative_step=False, scale_parameter=False)


def transformer(run: Run) -> nn.Module:
    """A model of Hugging Face that recomputes its activations, sharded layer by layer."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=WORDS, n_positions=8, n_embd=8, n_layer=2, n_head=2)
    model = GPT2LMHeadModel(config)
    model.gradient_checkpointing_enable()
    if run.world_size > 1:
        for block in model.transformer.h:
            fully_shard(block)
        fully_shard(model)
    model.train()
    return model


def wrapped(run: Run) -> nn.Module:
    """A model with all that changes the names of parameters: recomputed blocks, shards and compilation."""
    model = Words()
    apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, Block))
    if run.world_size > 1:
        for block in model.blocks:
            fully_shard(block)
        fully_shard(model)
    compiled = torch.compile(model, backend="eager")
    assert isinstance(compiled, nn.Module)
    return compiled


def loss_of(model: nn.Module, words: torch.Tensor) -> torch.Tensor:
    output = model(words[:, :-1])
    logits = getattr(output, "logits", output)
    return nn.functional.cross_entropy(logits.flatten(0, 1), words[:, 1:].flatten())


def whole(tensor: Any) -> torch.Tensor:
    value: torch.Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return value.detach()


def main() -> None:
    torch.set_num_threads(1)
    rundir = RunDir.from_environment()
    program = os.environ["PROGRAM"]
    stop_at = int(os.environ.get("STOP_AT", "0"))
    with Run.open(seed=3, precision=os.environ["PRECISION"], clip_norm=1.0) as run:
        torch.manual_seed(1)  # each rank begins with the same weights
        model = {"transformers": transformer, "wrapped": wrapped, "optimizers": lambda run: Words()}[program](run)
        pairs = make_optimizers() if program == "optimizers" else {}
        torch.manual_seed(run.rank)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        warm_up = lr_scheduler.LinearLR(optimizer, 0.1, total_iters=4)
        tracked: dict[str, Any] = {f"model_{kind}": pair[0] for kind, pair in pairs.items()}
        tracked |= {f"optimizer_{kind}": pair[1] for kind, pair in pairs.items()}
        if program == "optimizers":
            schedule: Any = lr_scheduler.ChainedScheduler([warm_up, lr_scheduler.ExponentialLR(optimizer, 0.9)])
            tracked["average"] = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
        else:
            cosine = lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 4)
            schedule = lr_scheduler.SequentialLR(optimizer, [warm_up, cosine], [5])
        loader = resumable_loader(
            Sentences(), GLOBAL_BATCH // run.world_size, seed=5, num_workers=1, persistent_workers=True
        )
        run.track(model=model, optimizer=optimizer, scheduler=schedule, loader=loader, **tracked)
        with Path(f"{os.environ['LOSSES']}.{run.rank}").open("a", buffering=1) as record:
            for words in run.batches(TOTAL):
                for other, other_optimizer in pairs.values():
                    other_optimizer.zero_grad()
                    loss_of(other, words).backward()
                    other_optimizer.step()
                if run.step(loss_of(model, words)):
                    if "average" in tracked:
                        tracked["average"].update_parameters(model)
                    record.write(f"{run.steps_done} {run.last_loss.hex()} {schedule.get_last_lr()}\n")
                    if rundir is not None and run.rank == 0 and run.steps_done == stop_at:
                        rundir.write(StopRequest(reason=Reason.NOTICE))
        modules = [model, *(part for part in tracked.values() if isinstance(part, nn.Module))]
        state = [{name: whole(value) for name, value in module.state_dict().items()} for module in modules]
        if run.rank == 0:
            torch.save(state, os.environ["LOSSES"] + ".weights")


if __name__ == "__main__":
    main()
