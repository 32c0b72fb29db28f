"""`notice.durable_ratio`: from the notice until 0.8 GB of state are published, against writing and syncing them raw.

The raw write uses as many threads as the writer, each with a file of its own, and syncs each file.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench._state import ROUNDS, environment, print_ratio, shared_memory, write_run

FILES, FILE_BYTES = 12, 64 << 20
THREADS = 4


def raw_write(folder: Path) -> float:
    """Seconds to write as many bytes from memory and have them on the disk."""
    block = os.urandom(FILE_BYTES)

    def write(number: int) -> None:
        with (folder / f"raw-{number}").open("wb", buffering=0) as file:
            file.write(block)
            os.fsync(file.fileno())

    began = time.monotonic()
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(write, range(FILES)))
    seconds = time.monotonic() - began
    for path in folder.glob("raw-*"):
        path.unlink()
    return seconds


def notice_to_durable(folder: Path, memory: Path) -> float:
    """Seconds from the moment stop.json is written until the trainer says that the step is durable."""
    from everspot_train.rundir import RunDir, Status

    write_run(folder / "run", folder / "store", 1, memory)
    process = subprocess.Popen(
        [sys.executable, "-m", "bench._state"],
        env=environment(folder / "run", NOTICE_AT="20", NOTICED=str(folder / "noticed")),
    )
    rundir, durable = RunDir(folder / "run"), None
    while durable is None and process.poll() is None:
        status = rundir.read(Status)
        if status is not None and status.durable_step == 20:
            durable = time.monotonic()
        time.sleep(0.02)
    code = process.wait()
    if code != 0 or durable is None:
        raise RuntimeError(f"the training process ended with {code} and nothing durable")
    return durable - float((folder / "noticed").read_text())


def main() -> int:
    """Print the figure. Returns 0 if it is within its limit."""
    checkpoints, raw = [], []
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory(prefix="everspot-bench-") as name, shared_memory() as memory:
            raw.append(raw_write(Path(name)))
            checkpoints.append(notice_to_durable(Path(name), memory))
    durable, floor = statistics.median(checkpoints), statistics.median(raw)
    note = f"{durable:.2f} s from notice to durable in a folder, {floor:.2f} s raw parallel write + fsync of 0.8 GB"
    ratios = [a / b for a, b in zip(checkpoints, raw, strict=True)]
    return int(not print_ratio("notice.durable_ratio", ratios, 1.3, note))


if __name__ == "__main__":
    raise SystemExit(main())
