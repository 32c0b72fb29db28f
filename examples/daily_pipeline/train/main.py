"""The second stage: trains a small network on the arrays of the first one, and reports its accuracy."""

import os
from pathlib import Path

import numpy as np
import torch
from torch import nn

BATCH = 64

torch.manual_seed(int(os.environ["SEED"]))
arrays = np.load(Path(os.environ["EVERSPOT_INPUTS"]) / "prepare" / "arrays.npz")
images, labels, test_images, test_labels = (
    torch.from_numpy(arrays[name]) for name in ("images", "labels", "test_images", "test_labels")
)
model = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
step = 0
for _ in range(int(os.environ["EPOCHS"])):
    for batch in torch.randperm(len(images)).split(BATCH):
        loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
    with torch.no_grad():
        accuracy = (model(test_images).argmax(1) == test_labels).float().mean().item()
    print(f"EVERSPOT step={step} loss={loss.item():.4f} accuracy={accuracy:.4f}", flush=True)
outputs = Path(os.environ["EVERSPOT_OUTPUT_DIR"])
outputs.mkdir(exist_ok=True)
torch.save(model.state_dict(), outputs / "model.pt")
(outputs / "accuracy").write_text(f"{accuracy:.4f}")
