"""Provider plugins that serve all runs of the engine in one environment.

A plugin and its provider take longer to start than most of these runs, and the engine would start them for each run.
The variable PULUMI_DEBUG_PROVIDERS makes the engine attach to a running plugin ("Debugging Pulumi providers" in
Pulumi's documentation). The engine configures it like a plugin that it started.
"""

import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import IO

STOP_SECONDS = 60


@dataclass
class Plugins:
    """The plugins of one cloud's provider, one for each environment that was asked for."""

    cloud: str
    _running: dict[frozenset[tuple[str, str]], tuple["subprocess.Popen[str]", int]] = field(default_factory=dict)

    def attached(self, env: Mapping[str, str]) -> dict[str, str]:
        """The environment of a run of the engine that finds a plugin of its own environment running."""
        key = frozenset(env.items())
        if key not in self._running:
            command = shutil.which(f"pulumi-resource-{self.cloud}", path=env["PATH"])
            assert command is not None
            process = subprocess.Popen(
                [command], env=dict(env), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
            )
            stdout: IO[str] | None = process.stdout
            assert stdout is not None
            self._running[key] = process, int(stdout.readline())
        return {**env, "PULUMI_DEBUG_PROVIDERS": f"{self.cloud}:{self._running[key][1]}"}

    def close(self) -> None:
        """End what runs."""
        for process, _ in self._running.values():
            process.terminate()
        for process, _ in self._running.values():
            process.wait(STOP_SECONDS)
            assert process.stdout is not None
            process.stdout.close()
        self._running.clear()
