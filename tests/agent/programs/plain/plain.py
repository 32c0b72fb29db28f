"""A user's program that knows nothing of Everspot: what it does is said by the environment variable PLAIN."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def fail() -> None:
    raise ValueError("the learning rate is negative")


def count() -> None:
    """Counts in a file of its checkpoint folder, and writes it a last time when it is told to stop."""
    state = Path("checkpoints/deep/count.txt")
    began = int(state.read_text()) if state.exists() else 0
    number = began

    def save(*_: object) -> None:
        time.sleep(float(os.environ.get("PLAIN_SAVE_SECONDS", "0")))
        state.parent.mkdir(exist_ok=True)
        state.write_text(str(number))
        sys.exit(0)

    signal.signal(signal.SIGTERM, save)
    print(f"began at {began}", flush=True)
    while number < int(os.environ["PLAIN_UNTIL"]):
        number += 1
        print(f"at {number}", flush=True)
        time.sleep(0.05)


def litter() -> None:
    """Leaves files wherever it may, and a child that hides: another session, no environment, no parent."""
    for place in (Path.home(), Path(os.environ["TMPDIR"]), Path(os.environ["EVERSPOT_HOME"])):
        (place / "litter").write_text("x" * 1000)
    hidden = [sys.executable, "-c", "import time; time.sleep(300)", os.environ["PLAIN_MARK"]]
    hide = "import subprocess, sys; subprocess.Popen(sys.argv[1:], env={}, start_new_session=True)"
    subprocess.run([sys.executable, "-c", hide, *hidden], env={}, start_new_session=True, check=True)
    print("at 1", flush=True)
    time.sleep(300)


def say() -> None:
    print(os.environ["PLAIN_SAYS"], flush=True)
    sys.exit(1)


def full() -> None:
    raise OSError(28, "No space left on device")


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def exits() -> None:
    sys.exit(3)


def idle() -> None:
    print("at 1", flush=True)
    time.sleep(300)


if __name__ == "__main__":
    {f.__name__: f for f in (fail, count, litter, say, full, killed, exits, idle)}[os.environ["PLAIN"]]()
