"""What can be missing on a machine, with a message that says what to do."""

import re
import shutil
import subprocess
from pathlib import Path

GIB = 1 << 30
# Measured: .venv with torch's CUDA wheels, and Go's caches with the three binaries.
VENV_BYTES = 8 * GIB
GO_BYTES = 9 * GIB
OLDEST_GO = (1, 21)


class Missing(Exception):
    """Something that set-up cannot do without; the text says what, and what to do."""


def disk(folder: Path, required: int, step: str) -> None:
    """Check that there is room for a step.

    Raises:
        Missing: there is not.
    """
    existing = next(p for p in (folder, *folder.parents) if p.exists())
    free = shutil.disk_usage(existing).free
    if free < required:
        raise Missing(
            f"{step} needs about {required / GIB:.0f} GiB, and {existing} has {free / GIB:.1f} GiB free. "
            "Make room, then run `make setup` again: it goes on where it stopped."
        )


def go() -> str:
    """Return the Go command.

    Raises:
        Missing: Go is not installed, or is too old.
    """
    command = shutil.which("go")
    if command is None:
        raise Missing(
            "neither the official downloads can be reached nor is there a Go compiler to build from source. "
            "Install Go 1.26 (https://go.dev/dl, or your distribution's golang package) and put `go` on PATH, "
            "or install Pulumi (https://www.pulumi.com/docs/install) where the network allows it."
        )
    text = subprocess.run([command, "version"], capture_output=True, text=True, check=False).stdout
    version = re.search(r"go(\d+)\.(\d+)", text)
    if version is None or (int(version[1]), int(version[2])) < OLDEST_GO:
        raise Missing(
            f"{command} is too old or does not run ({text.strip() or 'no answer'}): Go 1.21 or newer is needed"
        )
    return command


def explain(command: list[str], output: str) -> Missing:
    """Return what to say about a command that failed."""
    tail = "\n".join(output.strip().splitlines()[-12:])
    low = output.lower()
    hint = ""
    if "no space left" in low:
        hint = "The disk is full: make room, then run `make setup` again."
    elif any(
        s in low
        for s in (
            "name or service not known",
            "temporary failure",
            "could not resolve",
            "connection refused",
            "no such host",
            "network is unreachable",
            "dial tcp",
            "connection timed out",
            "i/o timeout",
        )
    ):
        hint = "The network cannot be reached: check the connection, proxies and mirrors, then run `make setup` again."
    return Missing(f"`{' '.join(command[:4])} …` failed:\n{tail}\n{hint}".rstrip())
