"""`notice.durable_ratio`: from the notice until 500 MB of state are published, against writing and syncing them raw."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench._state500 import MEGABYTES, ROUNDS, environment, print_ratio, write_run


def raw_write(path: Path) -> float:
    """Seconds to write as many bytes and have them on the disk."""
    block = os.urandom(1_000_000)
    began = time.monotonic()
    with path.open("wb") as file:
        for _ in range(MEGABYTES):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
    seconds = time.monotonic() - began
    path.unlink()
    return seconds


def notice_to_durable(folder: Path) -> float:
    """Seconds from the moment stop.json is written until the trainer says that the step is durable."""
    from everspot_train.rundir import RunDir, Status

    write_run(folder / "run", folder / "store", 1)
    process = subprocess.Popen(
        [sys.executable, "-m", "bench._state500"],
        env=environment(folder / "run", NOTICE_AT="2", NOTICED=str(folder / "noticed")),
    )
    rundir, durable = RunDir(folder / "run"), None
    while durable is None and process.poll() is None:
        status = rundir.read(Status)
        if status is not None and status.durable_step == 2:
            durable = time.monotonic()
        time.sleep(0.02)
    if process.wait() != 0 or durable is None:
        raise RuntimeError(f"the training process ended with {process.returncode} and nothing durable")
    return durable - float((folder / "noticed").read_text())


def main() -> int:
    """Print the figure; 0."""
    checkpoints, raw = [], []
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory(prefix="everspot-bench-") as name:
            raw.append(raw_write(Path(name, "raw")))
            checkpoints.append(notice_to_durable(Path(name)))
    print_ratio(
        "notice.durable_ratio", checkpoints, raw, "{ours} from notice to durable in a folder, {floor} raw write + fsync"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
