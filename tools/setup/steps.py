"""Steps with stamps: each is done once, says how long it took, and is done again only when its sources change."""

import hashlib
import os
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from problems import Missing, explain

ROOT = Path(__file__).resolve().parents[2]
STATE = ROOT / ".everspot"
STAMPS = STATE / "stamps"
TOOLCHAIN = STATE / "toolchain"
BIN = TOOLCHAIN / "bin"
PLUGINS = TOOLCHAIN / "plugins"
STUBS = TOOLCHAIN / "stubs"
LOGS = STATE / "logs"
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
BEAT_SECONDS = 30.0

_printing = threading.Lock()


@dataclass(frozen=True)
class Step:
    """One thing to be had: the files whose change makes it stale, the products that prove it, and how to make it.

    `make` returns a few words on what it took, and raises `Missing` when it cannot.
    """

    name: str
    sources: tuple[Path, ...]
    products: Callable[[], Iterable[Path]]
    make: Callable[[], str]

    def key(self) -> str:
        """Return a digest of the sources."""
        digest = hashlib.sha256()
        for path in self.sources:
            digest.update(path.read_bytes())
        return digest.hexdigest()

    def fresh(self) -> bool:
        """Return whether the step has nothing to do."""
        stamp = STAMPS / self.name
        return stamp.exists() and stamp.read_text() == self.key() and all(p.exists() for p in self.products())

    def run(self) -> None:
        """Do the step if it is needed, and stamp it.

        Raises:
            Missing: the step cannot be done.
        """
        if self.fresh():
            return
        key, began = self.key(), time.monotonic()
        print_progress(f"{self.name}: started")
        beat = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(beat, began), daemon=True)
        watcher.start()
        try:
            how = self.make()
        finally:
            beat.set()
        lost = [p for p in self.products() if not p.exists()]
        if lost:
            again = VENV if VENV in lost[0].parents else lost[0].parent
            raise Missing(f"{lost[0]} is still not there. Remove {again}, then run `make setup` again.")
        STAMPS.mkdir(parents=True, exist_ok=True)
        (STAMPS / self.name).write_text(key)
        print_progress(f"{self.name}: {how} ({time.monotonic() - began:.0f} s)")

    def _watch(self, done: threading.Event, began: float) -> None:
        while not done.wait(BEAT_SECONDS):
            print_progress(f"{self.name}: still at it ({time.monotonic() - began:.0f} s)")


def print_progress(text: str) -> None:
    """Print one line of progress."""
    with _printing:
        print(f"setup · {text}", flush=True)


def call(command: list[str | Path], log: str, cwd: Path = ROOT, env: dict[str, str] | None = None) -> str:
    """Run a command, keep its output in a log file, and return it.

    Raises:
        Missing: it failed; the text has the end of its output and a hint.
    """
    LOGS.mkdir(parents=True, exist_ok=True)
    words = [str(c) for c in command]
    path = LOGS / f"{log}.log"
    with path.open("w") as out:
        status = subprocess.run(
            words, cwd=cwd, stdout=out, stderr=subprocess.STDOUT, env={**os.environ, **(env or {})}, check=False
        ).returncode
    text = path.read_text(errors="replace")
    if status:
        raise explain(words, text)
    return text


def chain(steps: list[Step], failures: list[str]) -> threading.Thread:
    """Start a thread that does some steps one after the other; a failure ends the chain and is noted."""

    def work() -> None:
        for step in steps:
            try:
                step.run()
            except Missing as error:
                failures.append(f"{step.name}: {error}")
                return
            except OSError as error:
                failures.append(f"{step.name}: {error}")
                return
            except Exception as error:  # else the thread would end, and set-up would say that all is done
                traceback.print_exc()
                failures.append(f"{step.name}: {type(error).__name__}: {error}")
                return

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def report(failures: list[str]) -> int:
    """Print what failed and return the exit status."""
    for text in failures:
        print(f"\nsetup: {text}", file=sys.stderr)
    return 1 if failures else 0
