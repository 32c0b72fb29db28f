"""A language model that is sharded as torchtitan's recipes do it, for the tests. A script like `trainer_sharded.py`.

Each line of its record has the step, the loss of the global batch and that of this rank in hexadecimal digits.
"""

import os
from pathlib import Path

import torch
from everspot_core.jobs.records import Reason
from everspot_train.rundir import RunDir, StopRequest
from everspot_train.trainer import Run, resumable_loader
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from trainer_sharded import gather_shards, mean_over_ranks

GLOBAL_BATCH = 24
ACCUMULATION = 2
TOTAL = 12
WIDTH, WORDS = 8, 17
"""Two or three ranks cannot share 17 words evenly."""


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = x + self.down(nn.functional.gelu(self.up(self.norm(x))))
        return result


class Language(nn.Module):
    """A model whose embedding is also its head."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(x)
        for block in self.blocks:
            hidden = block(hidden)
        scores: torch.Tensor = self.head(hidden)
        return scores


class Sentences(Dataset):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.randint(WORDS, (6,), generator=torch.Generator().manual_seed(index))


def shard(model: Language, plan: str, ranks: int) -> None:
    if plan == "mixed":  # bf16 in the forward pass, blocks compiled, activations recomputed
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for number, block in enumerate(model.blocks):
            wrapped = checkpoint_wrapper(block)
            wrapped.compile(backend="eager")
            model.blocks[number] = wrapped
            fully_shard(wrapped, mp_policy=policy)
        fully_shard(model, mp_policy=policy)
    elif plan == "hybrid":  # each shard on two ranks
        mesh = init_device_mesh("cpu", (2, ranks // 2), mesh_dim_names=("replicate", "shard"))
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
    else:  # tensor parallelism in pairs of ranks, and FSDP between the pairs
        mesh = init_device_mesh("cpu", (ranks // 2, 2), mesh_dim_names=("data", "tensor"))
        for block in model.blocks:
            parallelize_module(block, mesh["tensor"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
            fully_shard(block, mesh=mesh["data"])
        fully_shard(model, mesh=mesh["data"])


def make_loader(plan: str, rank: int, ranks: int) -> DataLoader:
    if plan != "tensor":
        return resumable_loader(Sentences(), GLOBAL_BATCH // ACCUMULATION // ranks, seed=5)
    pairs = ranks // 2  # the two ranks of a pair have the same batches
    sampler = DistributedSampler(Sentences(), pairs, rank // 2, seed=5)
    return DataLoader(Sentences(), GLOBAL_BATCH // ACCUMULATION // pairs, sampler=sampler)


def main() -> None:
    torch.set_num_threads(1)
    rundir, plan = RunDir.from_environment(), os.environ["PLAN"]
    stop_at, losses = int(os.environ.get("STOP_AT", "0")), os.environ["LOSSES"]
    # torch clips no gradients that lie on several meshes.
    clip_norm = None if plan == "tensor" else 1.0
    with Run.open(seed=3, precision="fp32", clip_norm=clip_norm, accumulation=ACCUMULATION) as run:
        torch.manual_seed(3)
        model = Language()
        shard(model, plan, run.world_size)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        warm_up = lr_scheduler.LinearLR(optimizer, 0.1, total_iters=3)
        schedule = lr_scheduler.SequentialLR(
            optimizer, [warm_up, lr_scheduler.CosineAnnealingLR(optimizer, TOTAL)], [3]
        )
        loader = make_loader(plan, run.rank, run.world_size)
        run.track(model=model, optimizer=optimizer, scheduler=schedule, loader=loader)
        for x in run.batches(TOTAL):
            loss = nn.functional.cross_entropy(model(x).float().flatten(0, 1), x.roll(-1, 1).flatten())
            if run.step(loss):
                with Path(f"{losses}.{run.rank}").open("a") as file:
                    file.write(f"{run.steps_done} {mean_over_ranks(loss).item().hex()} {run.last_loss.hex()}\n")
                if rundir is not None and run.rank == 0 and run.steps_done == stop_at:
                    rundir.write(StopRequest(reason=Reason.NOTICE))
        state = gather_shards(model.state_dict())
    if os.environ.get("RANK", "0") == "0":
        torch.save(state, f"{losses}.weights")


if __name__ == "__main__":
    main()
