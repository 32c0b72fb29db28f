"""Has files of streamed datasets downloaded for one process, by `python -m everspot_train.shard_cache`.

The workers of a DataLoader are forked, and the store's client does not outlive a fork. So each has a fetcher, which
ends with it. A request is a line of JSON, and so is its answer.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from everspot_store import StoreUnavailable

from everspot_train.trainer.errors import TrainerError


class Fetcher:
    """The fetcher of this process, which starts with the first request. Not thread-safe.

    A fork, or a copy by pickle, starts its own.

    Args:
        folder: of the cache.
        limit: bytes of the cache.
        control_url: the control bucket of the cluster; None: that of the run directory.
    """

    def __init__(self, folder: Path, limit: int, control_url: str | None = None) -> None:
        self._command = [sys.executable, "-P", "-m", "everspot_train.shard_cache", str(folder), str(limit)]
        self._command += [] if control_url is None else [control_url]
        self._process: subprocess.Popen[str] | None = None
        self._pid = os.getpid()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_process": None}

    def fetch(self, digest: str, length: int) -> bool:
        """Bring a file into the cache. Returns whether it had to be downloaded.

        Raises:
            StoreUnavailable: if the store could not be reached for minutes, which is no error of the program.
            TrainerError: if it cannot be had for another reason.
        """
        if self._pid != os.getpid():  # a fork
            self._process, self._pid = None, os.getpid()
        if self._process is None:
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(self._command, stdin=pipe, stdout=pipe, text=True)  # noqa: S603
        process = self._process
        assert process.stdin is not None  # noqa: S101 - both are pipes
        assert process.stdout is not None  # noqa: S101
        try:
            process.stdin.write(json.dumps({"digest": digest, "length": length}) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        answer: dict[str, Any] = (
            json.loads(line) if line else {"error": f"the fetcher ended: exit code {process.wait()}"}
        )
        if "error" in answer:
            kind = StoreUnavailable if answer.get("unavailable") else TrainerError
            raise kind(f"a file of a streamed dataset cannot be had: {answer['error']}")
        return bool(answer["fetched"])

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None and process.stdin is not None and process.stdout is not None:
            process.stdin.close()
            process.stdout.close()
            process.wait()
