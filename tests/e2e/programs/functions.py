"""A user's script with two functions for jobs, which submits both and prints their ids and then their results."""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import everspot

STEPS = 60


def hold(gate: str, step: int) -> None:
    """Wait at one step until the test lets the program go on."""
    if step == STEPS // 2:
        Path(gate, "held").touch()
        while not Path(gate, "go").exists():
            time.sleep(0.05)


@everspot.job(checkpoint={"every": "5s"}, tags={"Team": "vision"})
def count(gate: str) -> dict:
    """A plain loop with a checkpoint folder."""
    state = Path(os.environ["EVERSPOT_CHECKPOINT_DIR"], "state.json")
    total, begun_at = 0, 0
    if state.exists():
        begun_at, total = json.loads(state.read_text())
    for step in range(begun_at + 1, STEPS + 1):
        total += step
        state.with_suffix(".tmp").write_text(json.dumps([step, total]))
        state.with_suffix(".tmp").rename(state)
        state.with_name(".everspot-complete").touch()
        if not begun_at:
            hold(gate, step)
    return {"total": total, "resumed": begun_at > 0}


@everspot.job(checkpoint={"every": "5s"})
def fit(gate: str, lr: float = 0.01) -> dict:
    """A regression on the trainer library."""
    import torch
    from everspot_train.trainer import Run, resumable_loader

    with Run.open(seed=7) as run:
        inputs = torch.randn(256, 8, generator=torch.Generator().manual_seed(1))
        dataset = torch.utils.data.TensorDataset(inputs, inputs.sum(dim=1, keepdim=True))
        torch.manual_seed(7)
        model = run.prepare(torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.2), torch.nn.Linear(16, 1)))
        optimizer = torch.optim.Adam(model.parameters(), lr=lr)
        loader = resumable_loader(dataset, 16)
        run.track(model=model, optimizer=optimizer, loader=loader)
        begun_at = None
        for batch, target in run.batches(STEPS):
            begun_at = run.steps_done if begun_at is None else begun_at
            loss = torch.nn.functional.mse_loss(model(batch), target)
            run.step(loss)
            hold(gate, run.steps_done)
            time.sleep(0.1)
        return {"loss": round(loss.item(), 6), "resumed": begun_at > 0}


if __name__ == "__main__":
    store, gate, function = sys.argv[1:]
    functions: dict[str, Any] = {"count": count, "fit": fit}
    handle = functions[function].options(client=everspot.Client(store)).submit(gate)
    print(handle.job_id, flush=True)
    print(json.dumps(handle.result()), flush=True)
    print(json.dumps([step for step, _ in handle.metrics().get("loss", ())][-1:]), flush=True)
