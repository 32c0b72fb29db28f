"""Programs that end with the process that started them, however it ends."""

import contextlib
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

from everspot_local.machines import keeper

END_WITHIN = timedelta(seconds=20)
"""Real time between SIGTERM and SIGKILL."""


class Child:
    """A running program under a keeper (`everspot_local.machines.keeper`).

    Args:
        command: The program and its arguments.
        log: The file of its output, which is continued.
        environment: Its variables; None for those of this process.
        folder: In which it runs; None for this process's own.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> None:
        with log.open("ab") as output:
            self._keeper = subprocess.Popen(  # noqa: S603 - programs of the caller
                [sys.executable, "-I", "-S", keeper.__file__, *command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env=environment,
                cwd=folder,
                start_new_session=True,
            )

    @property
    def has_ended(self) -> bool:
        """Whether nothing of the program runs any more."""
        return self._keeper.poll() is not None

    def terminate(self) -> None:
        """Send SIGTERM to the program."""
        self._order(b"T")

    def kill(self) -> None:
        """Kill the program, and wait until it has ended."""
        self._order(b"K")
        self._keeper.wait()
        self._close()

    def wait(self) -> None:
        """Wait until the program has ended, and kill it if it takes too long."""
        try:
            self._keeper.wait(END_WITHIN.total_seconds())
        except subprocess.TimeoutExpired:
            self.kill()
        self._close()

    def _order(self, order: bytes) -> None:
        with contextlib.suppress(BrokenPipeError, ValueError):  # it may have ended by itself
            assert self._keeper.stdin is not None  # noqa: S101 - a pipe was asked for
            self._keeper.stdin.write(order)
            self._keeper.stdin.flush()

    def _close(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            assert self._keeper.stdin is not None  # noqa: S101 - a pipe was asked for
            self._keeper.stdin.close()
