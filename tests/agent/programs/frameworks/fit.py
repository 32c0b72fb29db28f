"""Users' programs with the frameworks' own ways to save: `FRAMEWORK` says which, and `STRIKE` where the first attempt
stops to be struck: inside a save, or between two."""

import os
import random
import sys
import time
from pathlib import Path

import torch
from torch import nn

FOLDER = Path("checkpoints")
STEPS, EVERY = 60, 20
NOTES = Path(os.environ["NOTES"])
FIRST = not (NOTES / "first").exists()
(NOTES / "first").touch()


def wait_to_be_struck(where: str, step: int) -> None:
    """In the first attempt: say where the program is, and stay there."""
    if FIRST and os.environ["STRIKE"] == where and step >= 2 * EVERY:
        print("here", flush=True)
        time.sleep(600)


def transformers() -> None:
    from trainer_net import TrainerNet
    from transformers import Trainer, TrainerCallback, TrainingArguments

    class Struck(Trainer):
        def _save_rng_state(self, output_dir: str) -> None:
            wait_to_be_struck("inside", self.state.global_step)
            super()._save_rng_state(output_dir)

    class Between(TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            if state.global_step == 2 * EVERY + 5:
                wait_to_be_struck("between", state.global_step)

    data = [{"x": torch.randn(4), "labels": torch.randn(())} for _ in range(64)]
    arguments = TrainingArguments(
        output_dir=str(FOLDER), max_steps=STEPS, save_steps=EVERY, save_total_limit=2, per_device_train_batch_size=2,
        report_to=[], use_cpu=True, disable_tqdm=True, logging_steps=1,
    )  # fmt: skip
    trainer = Struck(TrainerNet(), arguments, train_dataset=data, callbacks=[Between()])
    resume = any(FOLDER.glob("checkpoint-*"))
    began = 0
    if resume:
        from transformers.trainer_utils import get_last_checkpoint

        newest = str(get_last_checkpoint(str(FOLDER)))
        by_time = max(FOLDER.glob("checkpoint-*"), key=lambda path: path.stat().st_mtime)
        assert Path(newest).name == by_time.name, (newest, by_time)
        began = int(newest.rpartition("-")[2])
    print(f"began at {began}", flush=True)
    trainer.train(resume_from_checkpoint=resume or None)
    print("left", sorted(path.name for path in FOLDER.glob("checkpoint-*")), flush=True)


def lightning() -> None:
    import lightning
    from lightning.pytorch.callbacks import ModelCheckpoint
    from lightning_net import LightningNet

    class Net(LightningNet):
        def training_step(self, batch: list[torch.Tensor], number: int) -> torch.Tensor:
            if self.global_step == 2 * EVERY + 5:
                wait_to_be_struck("between", self.global_step)
            return super().training_step(batch, number)

    class Struck(ModelCheckpoint):
        @staticmethod
        def _link_checkpoint(trainer: lightning.Trainer, filepath: str, linkpath: str) -> None:
            wait_to_be_struck("inside", trainer.global_step)
            ModelCheckpoint._link_checkpoint(trainer, filepath, linkpath)

    keeper = Struck(dirpath=FOLDER, save_last="link", every_n_train_steps=EVERY, save_top_k=-1)
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(200, 4)), batch_size=2)
    trainer = lightning.Trainer(
        max_steps=STEPS, callbacks=[keeper], logger=False, enable_progress_bar=False, accelerator="cpu",
        enable_model_summary=False,
    )  # fmt: skip
    last = FOLDER / "last.ckpt"
    began = torch.load(last, weights_only=False)["global_step"] if last.exists() else 0
    print(f"began at {began}", flush=True)
    trainer.fit(Net(), data, ckpt_path=str(last) if last.exists() else None)
    print("left", sorted(path.name for path in FOLDER.iterdir()), flush=True)


def accelerate() -> None:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    model, optimizer = accelerator.prepare(model, optimizer)

    class Progress:
        step = 0

        def state_dict(self) -> dict[str, int]:
            wait_to_be_struck("inside", self.step)
            return {"step": self.step}

        def load_state_dict(self, state: dict[str, int]) -> None:
            self.step = state["step"]

    progress = Progress()
    accelerator.register_for_checkpointing(progress)
    steps = sorted(FOLDER.glob("step_*"), key=lambda path: int(path.name.rpartition("_")[2]))
    if steps:
        accelerator.load_state(str(steps[-1]))
    print(f"began at {progress.step}", flush=True)
    while progress.step < STEPS:
        progress.step += 1
        accelerator.backward(model(torch.randn(2, 4)).pow(2).mean())
        optimizer.step()
        time.sleep(0.05)
        if progress.step % EVERY == 0:
            accelerator.save_state(str(FOLDER / f"step_{progress.step}"))
        if progress.step == 2 * EVERY + 5:
            wait_to_be_struck("between", progress.step)
    print("left", sorted(path.name for path in FOLDER.iterdir()), flush=True)


def dcp() -> None:
    import torch.distributed.checkpoint as dcp

    class Struck(dcp.FileSystemWriter):
        def finish(self, *arguments: object, **keywords: object) -> None:
            wait_to_be_struck("inside", step)
            super().finish(*arguments, **keywords)

    state = {"weight": torch.zeros(1000), "step": torch.zeros((), dtype=torch.long)}
    if (FOLDER / "last" / ".metadata").exists():
        dcp.load(state, checkpoint_id=FOLDER / "last", no_dist=True)
    step = int(state["step"])
    print(f"began at {step}", flush=True)
    assert bool((state["weight"] == step).all()), "weights and step are of different steps"
    while step < STEPS:
        step += 1
        state["weight"] += 1
        state["step"] += 1
        if step % EVERY == 0:
            dcp.save(state, storage_writer=Struck(FOLDER / "last", overwrite=True), no_dist=True)
            while FIRST and not (NOTES / "kept").exists():  # the next one is written over it
                time.sleep(0.1)
        if step == 2 * EVERY + 5:
            wait_to_be_struck("between", step)
    print("left", sorted(path.name for path in FOLDER.iterdir()), flush=True)


if __name__ == "__main__":
    random.seed(0)
    torch.set_num_threads(1)
    globals()[os.environ["FRAMEWORK"]]()
    sys.stdout.flush()
