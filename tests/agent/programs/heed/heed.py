"""A user's training program that saves when it gets SIGTERM, which takes a while. HEED_WORKERS: as many workers of a
DataLoader run beside it."""

import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType

WORKERS = int(os.environ.get("HEED_WORKERS", "0"))
signals = 0


def say(text: str) -> None:
    """Print a line in one write, so that no other process's line splits it."""
    os.write(1, f"{text}\n".encode())


def save(_number: int, _frame: FrameType | None) -> None:
    global signals
    signals += 1
    if signals > 1:
        say("a second signal")
        return
    end = time.monotonic() + float(os.environ.get("HEED_SECONDS", "2"))
    while time.monotonic() < end:
        time.sleep(0.1)
    state = Path(os.environ["EVERSPOT_CHECKPOINT_DIR"]) / "state.txt"
    state.parent.mkdir(exist_ok=True)
    state.write_text("whole")
    say("saved")
    sys.exit(0)


def main() -> None:
    signal.signal(signal.SIGTERM, save)
    if not WORKERS:
        say("trains")
        while True:
            time.sleep(0.1)
    from torch.utils.data import DataLoader

    for number, _ in enumerate(DataLoader(range(10**9), num_workers=WORKERS)):
        if number == 2:
            say("trains")
        time.sleep(0.05)


if __name__ == "__main__":
    main()
