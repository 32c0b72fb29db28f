"""A user's program that knows nothing of Everspot: what it does is said by the environment variable PLAIN."""

import os
import pickle
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


def print_and_fail() -> None:
    print(os.environ["PLAIN_SAYS"], flush=True)
    sys.exit(1)


def full() -> None:
    raise OSError(28, "No space left on device")


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def lose_peer() -> None:
    """The first process only loses its peer. The second one, which ends later, is the cause."""
    ready = Path(os.environ["TMPDIR"], "ready")
    if os.environ["RANK"] == "0":
        while not ready.exists():
            time.sleep(0.05)
        raise RuntimeError(
            "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [::1]:1"
        )

    def end(*_: object) -> None:
        raise ValueError("label 1001 is out of range")

    signal.signal(signal.SIGTERM, end)
    ready.touch()
    while True:
        signal.pause()


def exits() -> None:
    sys.exit(3)


def idle() -> None:
    print("at 1", flush=True)
    time.sleep(300)


ODD = os.fsdecode(b"caf\xe9\r.json")


def crash() -> None:
    """Saves its state under an odd name and fails; the second attempt ends well, and leaves outputs."""
    state = Path("checkpoints", ODD)
    if not state.exists():
        state.write_text("7")
        sys.exit(1)
    print(f"began at {state.read_text()}", flush=True)
    Path("outputs").mkdir()
    for name in (ODD, "good.csv"):
        Path("outputs", name).write_text("1")


def halves() -> None:
    """Writes its state in place, twice as a whole and then by half, and leaves SIGTERM to its default action."""
    state, go = Path("checkpoints/state.pkl"), Path(os.environ["PLAIN_GO"])
    number = pickle.loads(state.read_bytes())["step"] if state.exists() else 0
    print(f"began at {number}", flush=True)
    if number:
        sys.exit(0)
    for step in (1, 2):
        state.write_bytes(pickle.dumps({"step": step, "weights": b"x" * 1000}))
        while not (go / str(step)).exists():
            time.sleep(0.05)
    with state.open("wb") as file:
        file.write(pickle.dumps({"step": 3, "weights": b"x" * 1000})[:500])
        file.flush()
        print("at half", flush=True)
        time.sleep(300)


if __name__ == "__main__":
    {f.__name__: f for f in (fail, count, litter, print_and_fail, full, killed, lose_peer, exits, idle, crash, halves)}[
        os.environ["PLAIN"]
    ]()
