"""A user's program on Lightning, with the habits that `HABITS` names."""

import os
import warnings
from datetime import timedelta

import torch
from everspot_train.frameworks.lightning import fit
from lightning.pytorch import LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import Callback, EarlyStopping, ModelCheckpoint
from lightning.pytorch.plugins.io import TorchCheckpointIO
from strike import RANK, digest, record, strike
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

HABITS = os.environ.get("HABITS", "").split()
warnings.simplefilter("ignore")


class Net(LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 16), nn.Dropout(0.3), nn.ReLU(), nn.Linear(16, 1))

    def training_step(self, batch, index):
        loss = nn.functional.mse_loss(self.layers(batch[0]), batch[1])
        self.log("loss", loss)
        rate = self.trainer.optimizers[0].param_groups[0]["lr"]
        record(call=self.call, step=self.trainer.current_epoch * 100 + index, loss=loss.item(), rate=rate)
        return loss

    def validation_step(self, batch, index):
        if not self.trainer.sanity_checking:
            strike(f"validation {self.global_step}")
        self.log("val_loss", nn.functional.mse_loss(self.layers(batch[0]), batch[1]))

    def on_validation_epoch_end(self):
        if not self.trainer.sanity_checking:
            value = self.trainer.callback_metrics["val_loss"].item()
            record(call=self.call, step=self.global_step, val_loss=value)

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), 0.01)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 30)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class Striker(Callback):
    def on_train_batch_end(self, trainer, module, outputs, batch, index):
        strike(f"step {trainer.global_step}")


class StruckIO(TorchCheckpointIO):
    def save_checkpoint(self, checkpoint, path, storage_options=None):
        if RANK == "0":
            strike(f"save {checkpoint['global_step']}")
        super().save_checkpoint(checkpoint, path, storage_options)


def make_trainer(folder="checkpoints", **changes):
    callbacks = [
        Striker(),
        ModelCheckpoint(
            dirpath=folder,
            save_last=True,
            every_n_train_steps=10,
            save_top_k=1,
            monitor=None,
            enable_version_counter=False,
        ),
    ]
    if "early" in HABITS:
        callbacks.append(EarlyStopping("val_loss", patience=2, min_delta=10.0))
    settings = {
        "max_epochs": 4, "accumulate_grad_batches": 2, "accelerator": "cpu", "logger": False, "callbacks": callbacks,
        "enable_progress_bar": False, "enable_model_summary": False, "val_check_interval": 6, "plugins": [StruckIO()],
        "devices": int(os.environ.get("WORLD_SIZE", "1")),
    }  # fmt: skip
    if "time" in HABITS:
        settings["max_time"] = timedelta(hours=1)
    return Trainer(**settings)


torch.set_num_threads(1)
seed_everything(3)
random = torch.Generator().manual_seed(0)
inputs = torch.randn(60, 4, generator=random)
data = TensorDataset(inputs, inputs.sum(dim=1, keepdim=True))
workers = 1 if "workers" in HABITS else 0
train_loader = DataLoader(data, batch_size=4, shuffle=True, num_workers=workers)
model = Net()
for call in (1, 2) if "twice" in HABITS else (1,):
    model.call = call
    trainer = make_trainer(f"checkpoints/{call}")
    fit(trainer, model, train_loader, DataLoader(data, batch_size=20))
    record(call=call, steps=trainer.global_step, weights=digest(model))
    strike("after")
