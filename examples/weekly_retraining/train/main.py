"""Retrains a small network weekly: from scratch on all images so far, or from the last run's model on the new images
and as many old ones.

In place of a growing archive, each week adds a slice of the prepared arrays. A step takes at least `STEP_SECONDS`, so
that the duration of a run depends on its steps and not on the load of the machine.
"""

import os
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

FIRST, MORE = 12_000, 6000
"""Images of the first week, and those that each later week adds: half of them in the second."""
EPOCHS, CONTINUED_EPOCHS = 6, 4
BATCH = 128
STEP_SECONDS = 0.3

torch.manual_seed(1)
inputs = Path(os.environ["EVERSPOT_INPUTS"])
last_run, outputs = inputs / "weekly", Path(os.environ["EVERSPOT_OUTPUT_DIR"])
arrays = np.load(inputs / "prepare" / "arrays.npz")
images, labels, test_images, test_labels = (
    torch.from_numpy(arrays[name]) for name in ("images", "labels", "test_images", "test_labels")
)
model = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
if last_run.exists():
    week = int((last_run / "week").read_text()) + 1
    model.load_state_dict(torch.load(last_run / "model.pt", weights_only=True))
    count = FIRST + MORE * (week - 1)
    replayed = torch.randperm(count - MORE)[:MORE]  # against forgetting
    chosen, epochs = torch.cat([torch.arange(count - MORE, count), replayed]), CONTINUED_EPOCHS
else:
    week = int(os.environ.get("WEEK", "1"))
    chosen, epochs = torch.arange(FIRST + MORE * (week - 1)), EPOCHS
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
steps = epochs * -(-len(chosen) // BATCH)
schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.02, total_iters=steps)
print(f"EVERSPOT step=0 total_steps={steps} steps_per_epoch={steps // epochs}", flush=True)
step = 0
for _ in range(epochs):
    for batch in chosen[torch.randperm(len(chosen))].split(BATCH):
        began = time.monotonic()
        loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        step += 1
        time.sleep(max(0.0, STEP_SECONDS - (time.monotonic() - began)))
    with torch.no_grad():
        accuracy = (model(test_images).argmax(1) == test_labels).float().mean().item()
    print(f"EVERSPOT step={step} loss={loss.item():.4f} accuracy={accuracy:.4f}", flush=True)
outputs.mkdir(exist_ok=True)
torch.save(model.state_dict(), outputs / "model.pt")
(outputs / "week").write_text(str(week))
