"""`resume.ratio`: from the start of a process to its first resumed step on 500 MB of state, against imports and a raw
read of as many bytes."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench._state500 import ROUNDS, environment, print_ratio, write_run

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
    """Seconds to read the checkpoint's bytes once."""
    began = time.monotonic()
    for path in (store / "data").rglob("*.pt"):
        with path.open("rb") as file:
            while file.read(1_000_000):
                pass
    return time.monotonic() - began


def first_step(folder: Path, epoch: int) -> float:
    """Seconds from starting the process until its first step after the resume is done."""
    write_run(folder / f"run-{epoch}", folder / "store", epoch)
    began = time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "bench._state500"],
        check=True,
        env=environment(folder / f"run-{epoch}", FIRST_STEP=str(folder / "first")),
    )
    return float((folder / "first").read_text()) - began


def main() -> int:
    """Print the figure; 0."""
    resumes, floor = [], []
    with tempfile.TemporaryDirectory(prefix="everspot-bench-") as name:
        folder = Path(name)
        write_run(folder / "run-1", folder / "store", 1)
        settings = {"NOTICE_AT": "2", "NOTICED": str(folder / "noticed")}
        command = [sys.executable, "-m", "bench._state500"]
        subprocess.run(command, check=True, env=environment(folder / "run-1", **settings))
        for round_number in range(ROUNDS):
            floor.append(imports() + raw_read(folder / "store"))
            resumes.append(first_step(folder, epoch=2 + round_number))
    words = "{ours} from process start to the first resumed step, {floor} for imports and a raw read (file cache warm)"
    print_ratio("resume.ratio", resumes, floor, words)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
