"""The sweep of the demonstration: small trials on instances that they share, run by the command that a user has."""

import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from everspot_local.demo.world import DemoError, DemoWorld

SWEEP = Path(__file__).parent / "sweep" / "rates.yaml"
NAME = "rates"
"""Of the sweep, and of the job of each of its trials."""
FINAL = {"SUCCEEDED", "FAILED", "CANCELLED"}


@dataclass
class Trials:
    """The running sweep. `max_concurrent`: the most of its trials that were seen on one instance at the same moment."""

    world: DemoWorld
    command: subprocess.Popen[bytes] | None = None
    max_concurrent: int = 0

    def begin(self) -> None:
        """Start the command; it ends when all trials have."""
        self.command = self.world.everspot_beside("sweep", str(SWEEP), log="sweep.log")

    def look(self, jobs: list[dict[str, Any]]) -> None:
        """Record which trials run beside each other, among the jobs as they are now."""
        on = Counter(job["owner"] for job in jobs if job["name"] == NAME and job["owner"])
        self.max_concurrent = max([self.max_concurrent, *on.values()])

    def over(self) -> bool:
        """Return whether the sweep has ended.

        Raises:
            DemoError: if the command has failed.
        """
        code = self.command.poll() if self.command is not None else None
        if code:
            raise DemoError(f"`sweep` ended with {code}: {self.world.home / 'sweep.log'}")
        return self.command is None or code == 0

    def describe_progress(self, jobs: list[dict[str, Any]]) -> str:
        """Return the progress in words."""
        ended = sum(job["name"] == NAME and job["state"] in FINAL for job in jobs)
        return f"sweep: {ended} trials" if self.command is not None else ""

    def shown(self) -> dict[str, Any]:
        """Return the answer of `everspot sweep --show`."""
        answer: dict[str, Any] = self.world.everspot_json("sweep", str(SWEEP), "--show")
        return answer
