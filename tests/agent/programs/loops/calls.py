"""Programs with one or two calls of an integration. `FRAMEWORK` chooses one, and `STOP_AT` the step of a notice.

A first stage is skipped if its result exists. Each step of training is printed as `made CALL STEP`.
"""

import os
from pathlib import Path
from typing import Any

import torch
from everspot_train.rundir import RunDir, StopRequest

torch.set_num_threads(1)
torch.manual_seed(1)
RUNDIR = RunDir.from_environment()
PRETRAINED = Path("checkpoints/pretrained.pt")
STOP_AT = os.environ["STOP_AT"].split()
DATA = torch.arange(32.0).unsqueeze(1)


def note(call: str, step: int, more: object = "") -> None:
    print(f"made {call} {step} {more}\n", end="", flush=True)  # one write, into which other ranks cannot write
    if [call, str(step)] == STOP_AT:
        RUNDIR.write(StopRequest(reason="notice"))


def lightning(*, folders: bool = False) -> None:
    from everspot_train.frameworks.lightning import fit
    from lightning.pytorch import LightningModule, Trainer
    from lightning.pytorch.callbacks import GradientAccumulationScheduler, LearningRateFinder
    from lightning.pytorch.strategies import ModelParallelStrategy

    class Net(LightningModule):
        def __init__(self, call: str) -> None:
            super().__init__()
            self.layer, self.call, self.lr = torch.nn.Linear(1, 1), call, 1e-9

        def configure_model(self) -> None:
            if folders:
                from torch.distributed.fsdp import fully_shard

                fully_shard(self.layer, mesh=self.device_mesh["data_parallel"])

        def on_train_start(self) -> None:
            self.weights: list[float] = []

        def on_train_epoch_start(self) -> None:
            self.weights.append(1.0 / (1 + self.current_epoch))

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            note(self.call, self.global_step + 1, self.weights[-1])
            return self.weights[-1] * self.layer(batch[0]).pow(2).mean()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), self.lr)

    def make_trainer(*callbacks: Any, **options: Any) -> Trainer:
        settings = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
        return Trainer(max_epochs=3, callbacks=[*callbacks], devices=1, **settings, **options)

    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(DATA), 4)
    if folders:
        fit(make_trainer(strategy=ModelParallelStrategy()), Net("one"), loader)
        return
    if not PRETRAINED.exists():
        fit(make_trainer(), Net("one"), loader)
        PRETRAINED.touch()
    finder = LearningRateFinder(num_training_steps=2, min_lr=1e-9, max_lr=1e-8)
    fit(make_trainer(finder, GradientAccumulationScheduler({0: 1})), Net("two"), loader)


def folders() -> None:
    lightning(folders=True)


def accelerate() -> None:
    from accelerate import Accelerator
    from everspot_train.frameworks.accelerate import ResumableLoop

    def train(call: str) -> None:
        accelerator = Accelerator(cpu=True)
        model = torch.nn.Linear(1, 1)
        loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(DATA), 4)
        model, optimizer, loader = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 1e-9), loader)
        loop = ResumableLoop(accelerator)
        for _ in loop.epochs(3):
            for (x,) in loop.batches(loader):
                accelerator.backward(model(x).mean())
                optimizer.step()
                optimizer.zero_grad()
                note(call, loop.step + 1)

    if not PRETRAINED.exists():
        train("one")
        PRETRAINED.touch()
    train("two")


def transformers() -> None:
    from everspot_train.frameworks.transformers import train
    from transformers import Trainer, TrainerCallback, TrainingArguments

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"loss": ((self.layer(x) - labels) ** 2).mean()}

    class Notes(TrainerCallback):
        def __init__(self, call: str) -> None:
            self.call = call

        def on_step_end(self, args: Any, state: Any, control: Any, **context: Any) -> None:
            note(self.call, state.global_step)

    def make_trainer(call: str) -> Trainer:
        arguments = TrainingArguments(
            "checkpoints", num_train_epochs=3, per_device_train_batch_size=4, report_to=[], use_cpu=True,
            disable_tqdm=True, logging_steps=4,
        )  # fmt: skip
        return Trainer(Net(), arguments, train_dataset=[{"x": x, "labels": x} for x in DATA], callbacks=[Notes(call)])

    if not PRETRAINED.exists():
        train(make_trainer("one"))
        PRETRAINED.touch()
    train(make_trainer("two"))


globals()[os.environ["FRAMEWORK"]]()
