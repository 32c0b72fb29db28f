"""Starts the local cloud's process and finds it again; errors are one sentence."""

import json
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import NoReturn

from everspot_local.address import Address, NotRunning, alive
from everspot_local.command import Command
from everspot_local.console import PlainConsole

complaints = PlainConsole(stderr=True)
START_SECONDS, STOP_SECONDS = 60.0, 30.0
KUBERNETES_SECONDS = 300.0
"""Of a start with Kubernetes, which takes 20 s on an idle machine of two cores."""


class Failed(Exception):
    """An error that is printed to the user in one sentence."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


def fail(message: str) -> NoReturn:
    """End the command with one sentence."""
    raise Failed(message)


def start(command: Command, state_dir: Path, *, quiet: bool) -> Address:
    """Start the process and wait until it answers."""
    state_dir.mkdir(parents=True, exist_ok=True)
    (state_dir / "state.json").unlink(missing_ok=True)
    with (state_dir / "daemon.log").open("w") as out:
        process = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-m", "everspot_local.daemon", json.dumps(asdict(command))],
            stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
        )  # fmt: skip
    with complaints.status("starting the local cloud …") if not quiet else _Silence():
        end = time.monotonic() + (KUBERNETES_SECONDS if command.kubernetes else START_SECONDS)
        while time.monotonic() < end and process.poll() is None:
            if (address := find(state_dir)) is not None:
                return address
            time.sleep(0.1)
    if process.poll() is None:
        process.kill()
    lines = (state_dir / "daemon.log").read_text().splitlines()[-5:]
    return fail("the local cloud did not start; its last words:\n" + "\n".join(lines))


def find(state_dir: Path) -> Address | None:
    """Return the local cloud that runs in a folder, if there is one."""
    try:
        return Address.read(state_dir)
    except NotRunning:
        return None


def wait_until_ended(pid: int) -> bool:
    """Wait until a process has ended; return False if it does not."""
    end = time.monotonic() + STOP_SECONDS
    while alive(pid):
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


class _Silence:
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...
