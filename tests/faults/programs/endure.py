"""Programs with the frameworks' own ways to save, whose every step is a function of its number: `FRAMEWORK` says which.

Each prints `began at N` and the loss of each step. At its end it prints the digest of its weights.
"""

import hashlib
import json
import os
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path("checkpoints")
STEPS, EVERY = int(os.environ["STEPS"]), int(os.environ["EVERY"])
PAUSE = float(os.environ["PAUSE"])
"""Real seconds of each step, beside its computation, until the file `HURRY` is there."""
HURRY = Path(os.environ["HURRY"])


def report(step: int, loss: float) -> None:
    if os.environ.get("RANK", "0") != "0":  # two processes may write into one line
        return
    print(f"step {step} loss {loss!r}", flush=True)
    if not HURRY.exists():
        time.sleep(PAUSE)


def report_weights(arrays: Iterable[np.ndarray]) -> None:
    if os.environ.get("RANK", "0") == "0":
        print("weights", hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest(), flush=True)


def batch(step: int) -> np.ndarray:
    return np.random.default_rng(step).standard_normal((4, 8)).astype(np.float32)


class Momentum:
    """A linear model that numpy trains."""

    def __init__(self) -> None:
        self.weights = {f"layer.{n}": np.ones((8, 8), np.float32) * (n + 1) / 100 for n in range(6)}
        self.momentum = {name: np.zeros_like(array) for name, array in self.weights.items()}

    def step(self, number: int) -> float:
        x = batch(number)
        loss = 0.0
        for name, array in self.weights.items():
            y = x @ array - 1
            loss += float((y * y).mean())
            self.momentum[name] = 0.9 * self.momentum[name] + x.T @ y / 32
            self.weights[name] = array - np.float32(0.01) * self.momentum[name]
        return loss


def safetensors() -> None:
    """Shards with an index, an optimizer and a step, written in place into a folder for each step, with pauses."""
    from safetensors.numpy import load_file, save_file

    model, first = Momentum(), 0
    whole = sorted(FOLDER.glob("step-*"), key=lambda path: int(path.name[5:]))
    if whole:
        newest = whole[-1]
        index = json.loads((newest / "model.safetensors.index.json").read_text())["weight_map"]
        for shard in sorted(set(index.values())):
            model.weights |= load_file(newest / shard)
        assert set(index) == set(model.weights)
        with np.load(newest / "optimizer.npz") as stored:
            model.momentum = {name: stored[name] for name in stored.files}
        first = json.loads((newest / "progress.json").read_text())["step"]
        assert newest.name == f"step-{first}"
    print(f"began at {first}", flush=True)
    for step in range(first + 1, STEPS + 1):
        report(step, model.step(step))
        if step % EVERY == 0:
            print("saves", flush=True)
            folder = FOLDER / f"step-{step}"
            folder.mkdir(exist_ok=True)
            names = sorted(model.weights)
            weight_map = {}
            for shard in range(3):
                file = f"model-{shard + 1:05d}-of-00003.safetensors"
                in_shard = names[shard * 2 : shard * 2 + 2]
                save_file({name: np.ascontiguousarray(model.weights[name]) for name in in_shard}, folder / file)
                weight_map |= dict.fromkeys(in_shard, file)
                time.sleep(0.03)
            (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
            time.sleep(0.03)
            np.savez(folder / "optimizer.npz", **model.momentum)
            time.sleep(0.03)
            (folder / "progress.json").write_text(json.dumps({"step": step}))
    report_weights(model.weights[name] for name in sorted(model.weights))


def heeding() -> None:
    """One file that is renamed into place, and once more when it is told to stop."""
    model, first, signals = Momentum(), 0, []
    signal.signal(signal.SIGTERM, lambda *_: signals.append(1))
    if (FOLDER / "state.npz").exists():
        with np.load(FOLDER / "state.npz") as stored:
            first = int(stored["step"])
            model.weights = {name[2:]: stored[name] for name in stored.files if name.startswith("w.")}
            model.momentum = {name[2:]: stored[name] for name in stored.files if name.startswith("m.")}
    print(f"began at {first}", flush=True)
    for step in range(first + 1, STEPS + 1):
        report(step, model.step(step))
        if step % EVERY == 0 or signals:
            print("saves", flush=True)
            arrays = {f"w.{name}": array for name, array in model.weights.items()}
            arrays |= {f"m.{name}": array for name, array in model.momentum.items()}
            np.savez(FOLDER / "state.npz.tmp.npz", step=step, **arrays)
            time.sleep(0.05)
            (FOLDER / "state.npz.tmp.npz").rename(FOLDER / "state.npz")
        if signals:
            print(f"stopped at {step}", flush=True)
            sys.exit(0)
    report_weights(model.weights[name] for name in sorted(model.weights))


def torch_net() -> Any:
    import torch

    torch.manual_seed(3)
    torch.set_num_threads(1)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.2), torch.nn.Linear(16, 1))


def transformers() -> None:
    import torch
    from transformers import Trainer, TrainerCallback, TrainingArguments
    from transformers.trainer_utils import get_last_checkpoint

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch_net()

        def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"loss": ((self.layers(x).squeeze(-1) - labels) ** 2).mean()}

    class Report(TrainerCallback):
        def on_log(self, args, state, control, logs=None, **_):  # type: ignore[no-untyped-def]
            if logs and "loss" in logs:
                report(state.global_step, logs["loss"])

        def on_save(self, args, state, control, **_):  # type: ignore[no-untyped-def]
            print("saves", flush=True)

    data = [{"x": torch.from_numpy(batch(n)[0]), "labels": torch.tensor(float(n % 5))} for n in range(64)]
    arguments = TrainingArguments(
        output_dir=str(FOLDER), max_steps=STEPS, save_steps=EVERY, save_total_limit=2, per_device_train_batch_size=4,
        report_to=[], use_cpu=True, disable_tqdm=True, logging_steps=1, seed=5,
    )  # fmt: skip
    net = Net()
    trainer = Trainer(net, arguments, train_dataset=data, callbacks=[Report()])
    newest = get_last_checkpoint(str(FOLDER)) if FOLDER.exists() else None
    print(f"began at {newest.rpartition('-')[2] if newest else 0}", flush=True)
    trainer.train(resume_from_checkpoint=newest)
    report_weights(parameter.detach().numpy() for parameter in net.parameters())


def lightning() -> None:
    import lightning
    import torch
    from lightning.pytorch.callbacks import ModelCheckpoint

    class Net(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch_net()

        def training_step(self, _: object, __: int) -> torch.Tensor:
            step = self.global_step + 1
            torch.manual_seed(step)  # Lightning does not keep the random states
            loss = (self.layers(torch.from_numpy(batch(step))) - 1).pow(2).mean()
            report(step, loss.item())
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters(), 0.01)

        def on_save_checkpoint(self, checkpoint: dict) -> None:
            print("saves", flush=True)

    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.zeros(100000, 1)), batch_size=1)
    keeper = ModelCheckpoint(dirpath=FOLDER, save_last=True, every_n_train_steps=EVERY, save_top_k=1)
    trainer = lightning.Trainer(
        max_steps=STEPS, callbacks=[keeper], logger=False, enable_progress_bar=False, accelerator="cpu",
        enable_model_summary=False,
    )  # fmt: skip
    last = FOLDER / "last.ckpt"
    first = torch.load(last, weights_only=False)["global_step"] if last.exists() else 0
    print(f"began at {first}", flush=True)
    net = Net()
    trainer.fit(net, data, ckpt_path=str(last) if last.exists() else None)
    report_weights(parameter.detach().numpy() for parameter in net.parameters())


def accelerate() -> None:
    import torch
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    net = torch_net()
    optimizer = torch.optim.Adam(net.parameters(), 0.01)
    model, optimizer = accelerator.prepare(net, optimizer)

    class Progress:
        step = 0

        def state_dict(self) -> dict[str, int]:
            print("saves", flush=True)
            return {"step": self.step}

        def load_state_dict(self, state: dict[str, int]) -> None:
            self.step = state["step"]

    progress = Progress()
    accelerator.register_for_checkpointing(progress)
    steps = sorted(FOLDER.glob("step_*"), key=lambda path: int(path.name.rpartition("_")[2]))
    if steps:
        accelerator.load_state(str(steps[-1]))
        assert steps[-1].name == f"step_{progress.step}"
    print(f"began at {progress.step}", flush=True)
    while progress.step < STEPS:
        progress.step += 1
        loss = (model(torch.from_numpy(batch(progress.step))) - 1).pow(2).mean()
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        report(progress.step, loss.item())
        if progress.step % EVERY == 0:
            accelerator.save_state(str(FOLDER / f"step_{progress.step}"))
    report_weights(parameter.detach().numpy() for parameter in net.parameters())


def dcp() -> None:
    import torch
    import torch.distributed.checkpoint as dcp

    net = torch_net()
    optimizer = torch.optim.Adam(net.parameters(), 0.01)
    optimizer.zero_grad()
    net(torch.from_numpy(batch(0))).sum().mul(0).backward()
    optimizer.step()  # so that it has a state to load into

    def state() -> dict[str, object]:
        moments = {f"{n}.{key}": value for n, s in optimizer.state_dict()["state"].items() for key, value in s.items()}
        return {"net": net.state_dict(), "moments": moments, "step": torch.tensor(step), "rng": torch.get_rng_state()}

    step = 0
    if (FOLDER / "last" / ".metadata").exists():
        stored = state()
        dcp.load(stored, checkpoint_id=FOLDER / "last", no_dist=True)
        net.load_state_dict(stored["net"])
        inner = optimizer.state_dict()
        for n, s in inner["state"].items():
            for key in s:
                s[key] = stored["moments"][f"{n}.{key}"]
        optimizer.load_state_dict(inner)
        step = int(stored["step"])
        torch.set_rng_state(stored["rng"])
    print(f"began at {step}", flush=True)
    while step < STEPS:
        step += 1
        loss = (net(torch.from_numpy(batch(step))) - 1).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(step, loss.item())
        if step % EVERY == 0:
            print("saves", flush=True)
            dcp.save(state(), storage_writer=dcp.FileSystemWriter(FOLDER / "last", overwrite=True), no_dist=True)
    report_weights(parameter.detach().numpy() for parameter in net.parameters())


def everspot() -> None:
    """The trainer library, whose checkpoints a process of its own writes."""
    import torch
    from everspot_train.trainer import Run, RunStopped, resumable_loader

    data = torch.utils.data.TensorDataset(torch.from_numpy(np.concatenate([batch(n) for n in range(16)])))
    try:
        with Run.open(seed=5, precision="fp32") as run:
            net = run.prepare(torch_net())
            optimizer = torch.optim.Adam(net.parameters(), 0.01)
            run.track(model=net, optimizer=optimizer, loader=resumable_loader(data, 4, seed=1))
            print(f"began at {run.restore() or 0}", flush=True)
            for (x,) in run.batches(STEPS):
                run.step((net(x) - 1).pow(2).mean())
                report(run.steps_done, run.last_loss)
                if run.steps_done % EVERY == 0:
                    print("saves", flush=True)
            report_weights(parameter.detach().numpy() for parameter in net.parameters())
    except RunStopped:
        print(f"stopped at {run.steps_done}", flush=True)
        raise


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    globals()[os.environ["FRAMEWORK"]]()
