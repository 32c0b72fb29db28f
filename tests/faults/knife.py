"""Ends, holds or delays a machine at any of its calls to the store."""

import random
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from everspot_store import Entry, ManualClock, StoreUnavailable, Uploaded, Version, Versioned, WriteOutcome, WriteResult
from everspot_store.folder import FolderBackend

R = TypeVar("R")


class Cut(BaseException):
    """The machine is gone in the middle of what it did."""


class Knife:
    """Sits between one machine and the store."""

    def __init__(self, dice: random.Random) -> None:
        self.calls = 0
        self.cut_at: int | None = None
        self.cut_after = False
        self.hold_at: int | None = None
        self.hold: Callable[[str], None] = lambda key: None
        self.loses = 0.0
        self.rewrites: list[tuple[timedelta, str]] = []
        self._dice = dice

    def around(self, key: str, call: Callable[[], R], lost: Callable[[], R]) -> R:
        self.calls += 1
        number = self.calls
        if number == self.cut_at and not self.cut_after:
            self._cut(key)
        if number == self.hold_at:
            self.hold(key)
        if self._dice.random() < self.loses:
            if self._dice.random() < 0.5:
                call()
            return lost()
        answer = call()
        if number == self.cut_at:
            self._cut(key)
        return answer

    def _cut(self, key: str) -> NoReturn:
        """End the calling thread. If it is a helper thread, the next call ends the next thread, as the machine does."""
        if threading.current_thread() is not threading.main_thread():
            self.cut_at, self.cut_after = self.calls + 1, False
        raise Cut(key)


class KnifedBackend:
    """A folder, reached through the knife."""

    def __init__(self, inner: FolderBackend, knife: Knife, clock: ManualClock) -> None:
        self._inner, self._knife, self._clock = inner, knife, clock

    def _read(self, key: str, call: Callable[[], R]) -> R:
        def lost() -> R:
            raise StoreUnavailable("the answer was lost")

        return self._knife.around(key, call, lost)

    def _write(self, key: str, call: Callable[[], WriteResult]) -> WriteResult:
        return self._knife.around(key, call, lambda: WriteResult(WriteOutcome.UNKNOWN))

    def get(self, key: str) -> Versioned[bytes] | None:
        return self._read(key, lambda: self._inner.get(key))

    def list(self, prefix: str) -> list[Entry]:
        return self._read(prefix, lambda: self._inner.list(prefix))

    def put(self, key: str, data: bytes) -> str:
        self._knife.rewrites.append((self._clock.monotonic(), key))
        return self._read(key, lambda: self._inner.put(key, data))

    def create(self, key: str, data: bytes) -> WriteResult:
        return self._write(key, lambda: self._inner.create(key, data))

    def replace(self, key: str, data: bytes, version: Version) -> WriteResult:
        self._knife.rewrites.append((self._clock.monotonic(), key))
        return self._write(key, lambda: self._inner.replace(key, data, version))

    def delete(self, key: str) -> None:
        return self._read(key, lambda: self._inner.delete(key))

    def upload(self, key: str, path: Path, moved: Any = None) -> Uploaded:
        return self._read(key, lambda: self._inner.upload(key, path, moved))

    def download(self, key: str, path: Path, moved: Any = None) -> str | None:
        return self._read(key, lambda: self._inner.download(key, path, moved))

    def upload_view(self, key: str, view: memoryview, moved: Any = None) -> None:
        return self._read(key, lambda: self._inner.upload_view(key, view, moved))

    def download_at(self, key: str, file: int, offset: int, consume: Any) -> int | None:
        return self._read(key, lambda: self._inner.download_at(key, file, offset, consume))
