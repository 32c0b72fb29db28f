"""The loop that the tests train: small, and with every kind of state that a resume must restore.

python and numpy augment, torch drops out, fp16 overflows until the scaler has come down, the rate follows a schedule.
Run as a script it takes its settings from the environment.
"""

import faulthandler
import os
import random
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from everspot_core.jobs.records import Reason
from everspot_train.rundir import CheckpointRequest, LeaseFile, RunDir, StopRequest
from everspot_train.trainer import Run, resumable_loader
from torch import nn

TOTAL = 40


@dataclass(frozen=True)
class Settings:
    losses: Path
    total: int = TOTAL
    precision: str = "fp16"
    accumulation: int = 2
    stop_at: int | None = None
    notice: int | None = None
    """Seconds from the stop to its deadline."""
    checkpoint_at: int | None = None
    suspend_at: int | None = None
    drop: str | None = None
    pause: float = 0.0
    poison_at: int | None = None
    workers: int = 0
    samples: int = 100
    ballast: int = 0
    """Bytes of a buffer of which each step changes some; a state as large as users' ones."""
    gate: "Gate | None" = None

    @classmethod
    def from_environment(cls) -> "Settings":
        def number(name: str) -> int | None:
            return int(os.environ[name]) if name in os.environ else None

        return cls(
            losses=Path(f"{os.environ['LOSSES']}.{os.environ.get('RANK', '0')}"),
            stop_at=number("STOP_AT"),
            notice=number("NOTICE"),
            checkpoint_at=number("CHECKPOINT_AT"),
            suspend_at=number("SUSPEND_AT"),
            pause=float(os.environ.get("PAUSE", "0")),
            precision=os.environ.get("PRECISION", "fp16"),
            workers=number("WORKERS") or 0,
            ballast=number("BALLAST") or 0,
            gate=Gate.from_environment(TOTAL),
        )


class Gate:
    """Keeps a loop from its end while a file exists: of the last 25 steps an attempt makes one, and after it one for
    each request of the agent."""

    LATE_STEPS = 25
    STATUS_SECONDS = 0.6
    """After it the trainer reports its step: it writes its status twice a second."""

    def __init__(self, path: Path, total: int) -> None:
        self._path, self._first_late = path, total - self.LATE_STEPS
        self._passed = False
        self._answered = 0

    @classmethod
    def from_environment(cls, total: int) -> "Gate | None":
        return cls(Path(os.environ["GATE"]), total) if "GATE" in os.environ else None

    def pass_step(self, step: int, rundir: RunDir) -> None:
        if step < self._first_late:
            return
        if not self._passed:
            self._passed = True
            time.sleep(self.STATUS_SECONDS)
            return
        while self._path.exists():
            request = rundir.read(CheckpointRequest)
            number = request.seq if request is not None else 0
            if number > self._answered or rundir.read(StopRequest) is not None:
                self._answered = number
                return
            time.sleep(0.005)


class Digits(torch.utils.data.Dataset):
    def __init__(self, samples: int) -> None:
        source = np.random.default_rng(7)
        self.x = source.normal(size=(samples, 12)).astype(np.float32)
        self.y = source.integers(0, 4, size=samples)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        return self.x[index], int(self.y[index])


class Ballast(nn.Module):
    """Numbers that are the same all over: the steps that were made."""

    PLACES = 1000

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("numbers", torch.zeros(size // 4))

    def step(self, steps_before: int) -> None:
        places = self.numbers[:: max(1, len(self.numbers) // self.PLACES)]
        assert places.eq(steps_before).all(), f"step {steps_before} was resumed with {places.unique()}"
        places += 1


def augment(x: torch.Tensor) -> torch.Tensor:
    return x * random.uniform(0.9, 1.1) + torch.from_numpy(np.random.normal(scale=0.01, size=x.shape)).float()


def train(settings: Settings) -> dict[str, torch.Tensor]:
    """Train, append each step's loss as exact hexadecimal text, and return the final weights."""
    torch.set_num_threads(1)
    data = Digits(settings.samples)
    with Run.open(seed=3, accumulation=settings.accumulation, clip_norm=1.0, precision=settings.precision) as run:
        model = run.prepare(nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 4)))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.05, total_steps=settings.total)
        loader = resumable_loader(data, 8 if run.world_size == 1 else 4, seed=5, num_workers=settings.workers)
        ballast = Ballast(settings.ballast)
        run.track(model=model, optimizer=optimizer, scheduler=scheduler, loader=loader, ballast=ballast)
        for pieces in (run.state.shared, run.state.local):
            pieces.pop(settings.drop, None)
        for x, y in run.batches(settings.total):
            with run.autocast():
                # Large enough that fp16 overflows at the scaler's first guesses.
                loss = 100 * nn.functional.cross_entropy(model(augment(x)), y)
            if settings.poison_at == run.steps_done:
                loss = loss * float("nan")
            if run.step(loss):
                ballast.step(run.steps_done - 1)
                with settings.losses.open("a") as file:
                    file.write(f"{run.steps_done} {run.last_loss.hex()}\n")
                wish(settings, run)
        return {name: value.clone() for name, value in model.state_dict().items()}


def wish(settings: Settings, run: Run) -> None:
    """Be the agent at exactly this step."""
    time.sleep(settings.pause)
    rundir = RunDir.from_environment()
    if rundir is None or run.rank != 0:
        return
    if settings.gate is not None:
        settings.gate.pass_step(run.steps_done, rundir)
    if run.steps_done == settings.stop_at:
        deadline = time.monotonic() + settings.notice if settings.notice is not None else None
        rundir.write(StopRequest(reason=Reason.NOTICE, deadline=deadline))
    if run.steps_done == settings.suspend_at:
        rundir.write(LeaseFile(valid_until=0))
        time.sleep(1.1)  # the file is read at most once a second
    if run.steps_done == settings.checkpoint_at:
        rundir.write(CheckpointRequest(seq=1))


if __name__ == "__main__":
    faulthandler.register(signal.SIGUSR1)  # a test that waits in vain asks where it is
    weights = train(Settings.from_environment())
    if int(os.environ.get("RANK", "0")) == 0:
        torch.save(weights, os.environ["LOSSES"] + ".weights")
