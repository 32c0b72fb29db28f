"""A loop with a sharded model (`fully_shard`), for the tests. A script that takes its settings from the environment.

Each line of its record has the step, the loss of the global batch in hexadecimal digits, and the samples of this rank.
"""

import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from everspot_core.jobs.records import Reason
from everspot_train.rundir import RunDir, StopRequest
from everspot_train.trainer import Run, resumable_loader
from torch import nn
from torch.distributed.fsdp import fully_shard
from trainer_loop import Gate

GLOBAL_BATCH = 12
TOTAL = 30


class Numbers(torch.utils.data.Dataset):
    """Samples with their number, so that a batch says which samples it holds."""

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.randn(8, generator=torch.Generator().manual_seed(index)), index


def make_model() -> nn.Sequential:
    """A model with a frozen layer, buffers, and a parameter that four ranks cannot share evenly.

    Each rank begins with the same weights, of which it keeps its shard.
    """
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.BatchNorm1d(16), nn.Linear(16, 7), nn.Tanh(), nn.Linear(7, 8))
    model[0].weight.requires_grad_(False)
    return model


class Average:
    """An average of the weights, sharded as they are, beside a value that each rank has of its own."""

    def __init__(self, model: nn.Module, rank: int) -> None:
        self.values = {name: value.detach().clone() for name, value in model.named_parameters()}
        self.of_rank = torch.tensor(float(rank))

    def step(self, model: nn.Module) -> None:
        for name, value in model.named_parameters():
            self.values[name] = self.values[name] * 0.9 + value.detach() * 0.1
        self.of_rank *= 2

    def state_dict(self) -> dict[str, object]:
        return {"values": dict(self.values), "of_rank": self.of_rank}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.values, self.of_rank = state["values"], state["of_rank"]


def gather_shards(tensors: dict[str, Any]) -> dict[str, torch.Tensor]:
    return {name: getattr(value, "full_tensor", lambda v=value: v)() for name, value in tensors.items()}


def mean_over_ranks(value: torch.Tensor) -> torch.Tensor:
    value = value.detach().clone()
    if dist.is_initialized():
        dist.all_reduce(value)
        value /= dist.get_world_size()
    return value


def main() -> None:
    torch.set_num_threads(1)
    rundir = RunDir.from_environment()
    stop_at = int(os.environ.get("STOP_AT", "0"))
    gate = Gate.from_environment(TOTAL)
    record = Path(f"{os.environ['LOSSES']}.{os.environ.get('RANK', '0')}")
    with Run.open(seed=3, precision="fp32", clip_norm=1.0) as run:
        model = make_model()
        model[2].eval()  # the statistics of a batch depend on how it is divided
        if run.world_size > 1:
            fully_shard(model[3])
            fully_shard(model)
        optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, TOTAL)
        loader = resumable_loader(Numbers(), GLOBAL_BATCH // run.world_size, seed=5)
        average = Average(model, run.rank)
        run.track(model=model, optimizer=optimizer, scheduler=scheduler, loader=loader, average=average)
        for x, samples in run.batches(TOTAL):
            loss = (model(x) - x).square().mean()
            if run.step(loss):
                average.step(model)
                with record.open("a") as file:
                    numbers = ",".join(map(str, samples.tolist()))
                    file.write(f"{run.steps_done} {mean_over_ranks(loss).item().hex()} {numbers}\n")
                if rundir is not None and run.rank == 0 and run.steps_done == stop_at:
                    rundir.write(StopRequest(reason=Reason.NOTICE))
                if gate is not None and rundir is not None and run.rank == 0:
                    gate.pass_step(run.steps_done, rundir)
        state = gather_shards(model.state_dict())
        averages = gather_shards(average.values) | {"of_rank": average.of_rank}
    torch.save(averages, f"{os.environ['LOSSES']}.average.{os.environ.get('RANK', '0')}")
    if os.environ.get("RANK", "0") == "0":
        torch.save(state, os.environ["LOSSES"] + ".weights")


if __name__ == "__main__":
    main()
