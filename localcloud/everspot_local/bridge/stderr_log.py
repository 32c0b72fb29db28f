"""Collects the upstream provider's standard error, and explains how its process ended."""

from __future__ import annotations

import subprocess
import tempfile
import threading
from collections import deque
from datetime import timedelta
from pathlib import Path

KEPT_LINES = 400


class StderrLog:
    """Reads a process's standard error: into the log file `sink` if there is one, else the last lines are kept and go
    to a file of their own only when the process dies."""

    def __init__(self, process: subprocess.Popen[bytes], sink: str | None) -> None:
        self._process = process
        self._sink = sink
        self._lines: deque[bytes] = deque(maxlen=KEPT_LINES)
        self._lock = threading.Lock()
        self._text = ""
        self._thread = threading.Thread(target=self._read, name="upstream-stderr", daemon=True)
        self._thread.start()

    def describe_exit(self, patience: timedelta) -> str:
        """Return one sentence that says how the process ended and where its log is, the same to every caller; an empty
        one if it is still running after `patience`."""
        try:
            code = self._process.wait(patience.total_seconds())
        except subprocess.TimeoutExpired:
            return ""
        self._thread.join(patience.total_seconds())
        with self._lock:
            if not self._text:
                how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
                self._text = (
                    f"the upstream provider ended ({how}) in the middle of its work; "
                    f"run the same command again, after `pulumi refresh`; its log: {self._log()}"
                )
            return self._text

    def close(self) -> None:
        """Stop reading, once the process has ended."""
        self._thread.join()
        if self._process.stderr:
            self._process.stderr.close()

    def _log(self) -> str:
        if self._sink:
            return self._sink
        with tempfile.NamedTemporaryFile("wb", prefix="everspot-upstream-", suffix=".log", delete=False) as log:
            log.writelines(self._lines)
        return log.name

    def _read(self) -> None:
        if self._process.stderr is None:
            return
        for line in self._process.stderr:
            self._lines.append(line)
            if self._sink:
                with Path(self._sink).open("ab") as log:
                    log.write(line)
