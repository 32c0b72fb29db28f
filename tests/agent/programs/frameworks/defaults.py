"""A Trainer of Lightning with its default logger and `ModelCheckpoint`, whose second epoch the test interrupts."""

import os
import time
import warnings
from pathlib import Path

import lightning
import torch
from everspot_train.frameworks.lightning import fit
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning_net import LightningNet

NOTES = Path(os.environ["NOTES"])
torch.set_num_threads(1)


class Wait(Callback):
    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if trainer.global_step == 20:
            (NOTES / "here").touch()
            while not (NOTES / "struck").exists():
                time.sleep(0.02)


def make_trainer(*callbacks: Callback, **options: object) -> lightning.Trainer:
    return lightning.Trainer(
        accelerator="cpu", callbacks=[*callbacks], enable_progress_bar=False, enable_model_summary=False, **options
    )


def is_warned_of(text: str, caught: list[warnings.WarningMessage]) -> bool:
    return any(text in str(warning.message) for warning in caught)


data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(64, 4)), batch_size=4)
trainer = make_trainer(Wait(), ModelCheckpoint("elsewhere", every_n_train_steps=7), ModelCheckpoint(), max_epochs=3)
MIDDLE = "You're resuming from a checkpoint that ended before the epoch ended"
resumes = (NOTES / "struck").exists()
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    fit(trainer, LightningNet(), data)
print(f"resumes {resumes}, warned of the middle: {is_warned_of(MIDDLE, caught)}", flush=True)
for callback in trainer.checkpoint_callbacks:
    best = Path(callback.best_model_path)
    print("best", os.path.relpath(best), best.exists(), flush=True)
print("left", sorted(str(path) for path in Path("checkpoints").rglob("*.ckpt")), flush=True)

# By hand Lightning warns: what is left out above is its warning still.
middle = Path("checkpoints/everspot/fit-1/step=20.ckpt")
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    make_trainer(max_epochs=2, logger=False).fit(LightningNet(), data, ckpt_path=middle, weights_only=False)
print(f"by hand, warned of the middle: {is_warned_of(MIDDLE, caught)}", flush=True)
