"""`resume.ratio`: from the start of a process to its first resumed step on 0.8 GB of state, against imports and a raw
parallel read of as many bytes."""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench._state import ROUNDS, environment, print_ratio, shared_memory, write_run

THREADS = 4
_IMPORTS = """
import torch, everspot_train.trainer
torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1)  # the first optimizer imports another large part of torch
"""


def imports() -> float:
    """Seconds to start a process, import what any such loop needs, and end."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", _IMPORTS], check=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    return time.monotonic() - began


def raw_read(store: Path) -> float:
    """Seconds to read the checkpoint's bytes once, several files at a time."""

    def read(path: Path) -> None:
        with path.open("rb", buffering=0) as file:
            while file.read(4_000_000):
                pass

    began = time.monotonic()
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(read, (store / "data").rglob("stream-*")))
    return time.monotonic() - began


def first_step(folder: Path, epoch: int) -> float:
    """Seconds from starting the process until its first step after the resume is done."""
    with shared_memory() as memory:
        write_run(folder / f"run-{epoch}", folder / "store", epoch, memory)
        began = time.monotonic()
        subprocess.run(
            [sys.executable, "-m", "bench._state"],
            check=True,
            env=environment(folder / f"run-{epoch}", FIRST_STEP=str(folder / "first")),
        )
    return float((folder / "first").read_text()) - began


def main() -> int:
    """Print the figure. Returns 0 if it is within its limit."""
    resumes, floor = [], []
    with tempfile.TemporaryDirectory(prefix="everspot-bench-") as name:
        folder = Path(name)
        write_run(folder / "run-1", folder / "store", 1)
        settings = {"NOTICE_AT": "2", "NOTICED": str(folder / "noticed")}
        command = [sys.executable, "-m", "bench._state"]
        subprocess.run(command, check=True, env=environment(folder / "run-1", **settings))
        for number in range(ROUNDS):
            floor.append(imports() + raw_read(folder / "store"))
            resumes.append(first_step(folder, epoch=2 + number))
    resumed, least = statistics.median(resumes), statistics.median(floor)
    note = f"{resumed:.2f} s from process start to the first resumed step, {least:.2f} s imports and raw parallel read"
    ratios = [a / b for a, b in zip(resumes, floor, strict=True)]
    return int(not print_ratio("resume.ratio", ratios, 1.15, note))


if __name__ == "__main__":
    raise SystemExit(main())
