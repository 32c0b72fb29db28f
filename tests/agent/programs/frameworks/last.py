"""A program with Lightning's `save_last`, as a copy or as a link (`SAVE_LAST`), that resumes from `last.ckpt`.

It stops at the first of the steps in `PAUSES` before which it saves, until it is killed.
"""

import os
import time
from pathlib import Path

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn

FOLDER = Path("checkpoints")
STEPS, EVERY = 40, 5
PAUSES = list(map(int, os.environ["PAUSES"].split()))


class Net(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        if self.global_step in PAUSES and self.global_step > first + EVERY:
            print("here", flush=True)
            time.sleep(600)
        return self.layer(batch[0]).pow(2).mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.01)


torch.set_num_threads(1)
keeper = ModelCheckpoint(
    dirpath=FOLDER, filename="best-{step}", save_last="link" if os.environ["SAVE_LAST"] == "link" else True,
    every_n_train_steps=EVERY,
)  # fmt: skip
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(200, 4)), batch_size=2)
trainer = lightning.Trainer(
    max_steps=STEPS, callbacks=[keeper], logger=False, enable_progress_bar=False, accelerator="cpu",
    enable_model_summary=False,
)  # fmt: skip
last = FOLDER / "last.ckpt"
first = torch.load(last, weights_only=False)["global_step"] if last.exists() else 0
print(f"in {Path.cwd()} {os.environ['EVERSPOT_CHECKPOINT_DIR']}", flush=True)
print(f"began at {first}", flush=True)
trainer.fit(Net(), data, ckpt_path=str(last) if last.exists() else None)
print("left", sorted(path.name for path in FOLDER.iterdir()), flush=True)
