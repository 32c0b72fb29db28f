"""Tools for tests of code that uses the store: a bucket in memory, and a script of faults for any backend.

The script is deterministic and counts, so that a test can assert that its fault happened:

    faults = FaultScript().on("replace", key="records/*", nth=2, then=Fault.ANSWER_LOST)
    bucket = Bucket("memory:///", FaultyBackend(MemoryBackend(), faults), clock)
    …
    assert faults.spent
"""

import fnmatch
import hashlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import TypeVar

from everspot_core.clock import Clock

from everspot_store.backend import (
    Backend,
    Consume,
    Entry,
    Moved,
    Uploaded,
    Version,
    Versioned,
    WriteOutcome,
    WriteResult,
)
from everspot_store.bucket import Bucket
from everspot_store.copying import write_at
from everspot_store.errors import KeyTaken, StoreBusy, StoreDenied, StoreUnavailable
from everspot_store.store import Store

R = TypeVar("R")


class Crash(BaseException):
    """The simulated death of the process at a call. It is no `Exception`, so that no code recovers from it."""


class Fault(Enum):
    """The faults that a call can have."""

    LOST = "412, and nothing written"
    CONFLICT = "409, and nothing written"
    BUSY = "429, and nothing written"
    NEVER_ARRIVED = "no answer, and nothing written"
    ANSWER_LOST = "no answer, but written"
    ARRIVES_LATER = "no answer, and written only when the next call is made"
    REFUSED_AFTER_DONE = "412 because a hidden retry met its own first attempt"
    DENIED = "403"
    CRASH_BEFORE = "the caller dies before the call"
    CRASH_AFTER = "the caller dies after the call was carried out"


@dataclass
class _Line:
    operation: str
    key: str
    nth: int
    fault: Fault
    calls: int = 0
    fired: bool = False


class FaultScript:
    """A script of faults for calls. Each line takes effect once."""

    def __init__(self) -> None:
        self._lines: list[_Line] = []
        self._late: list[Callable[[], object]] = []
        self._lock = threading.Lock()

    def on(self, operation: str = "*", *, key: str = "*", nth: int = 1, fault: Fault) -> "FaultScript":
        """The `nth` call of `operation` (a pattern over get, list, put, create, replace, delete, upload, download)
        whose key matches the pattern `key`, counted from now, gets the fault `fault`."""
        self._lines.append(_Line(operation, key, nth, fault))
        return self

    def clear(self) -> None:
        """Remove the lines that have not taken effect."""
        self._lines.clear()

    def delay(self, call: Callable[[], object]) -> None:
        """Delay a call until `arrive`."""
        self._late.append(call)

    def arrive(self) -> None:
        """Carry out the delayed calls. The next call of the backend does this by itself."""
        late, self._late = self._late, []
        for call in late:
            call()

    @property
    def spent(self) -> bool:
        """Whether every line has taken effect."""
        return all(line.fired for line in self._lines)

    def next(self, operation: str, key: str) -> Fault | None:
        """Count a call. Returns its fault, if any."""
        with self._lock:
            struck = None
            for line in self._lines:
                if fnmatch.fnmatch(operation, line.operation) and fnmatch.fnmatch(key, line.key):
                    line.calls += 1
                    if line.calls == line.nth and struck is None:
                        line.fired, struck = True, line.fault
            return struck


class FaultyBackend:
    """A backend whose calls have the faults of a script."""

    def __init__(self, inner: Backend, faults: FaultScript) -> None:
        self._inner = inner
        self._faults = faults

    def get(self, key: str) -> Versioned[bytes] | None:
        """See `Backend`."""
        return self._plain("get", key, lambda: self._inner.get(key))

    def list(self, prefix: str) -> list[Entry]:
        """See `Backend`."""
        return self._plain("list", prefix, lambda: self._inner.list(prefix))

    def put(self, key: str, data: bytes) -> Version:
        """See `Backend`."""
        return self._plain("put", key, lambda: self._inner.put(key, data))

    def create(self, key: str, data: bytes) -> WriteResult:
        """See `Backend`."""
        return self._conditional("create", key, lambda: self._inner.create(key, data))

    def replace(self, key: str, data: bytes, version: Version) -> WriteResult:
        """See `Backend`."""
        return self._conditional("replace", key, lambda: self._inner.replace(key, data, version))

    def delete(self, key: str) -> None:
        """See `Backend`."""
        self._plain("delete", key, lambda: self._inner.delete(key))

    def upload(self, key: str, path: Path, moved: Moved | None = None) -> Uploaded:
        """See `Backend`."""
        return self._plain("upload", key, lambda: self._inner.upload(key, path, moved))

    def download(self, key: str, path: Path, moved: Moved | None = None) -> str | None:
        """See `Backend`."""
        return self._plain("download", key, lambda: self._inner.download(key, path, moved))

    def upload_view(self, key: str, view: memoryview, moved: Moved | None = None) -> None:
        """See `Backend`. In the script it is an `upload`."""
        self._plain("upload", key, lambda: self._inner.upload_view(key, view, moved))

    def download_at(self, key: str, file: int, offset: int, consume: Consume) -> int | None:
        """See `Backend`. In the script it is a `download`."""
        return self._plain("download", key, lambda: self._inner.download_at(key, file, offset, consume))

    def _begin(self, operation: str, key: str) -> Fault | None:
        self._faults.arrive()
        fault = self._faults.next(operation, key)
        if fault is Fault.CRASH_BEFORE:
            raise Crash(f"before {operation} {key}")
        if fault is Fault.DENIED:
            raise StoreDenied(f"{operation} {key}: scripted")
        return fault

    def _plain(self, operation: str, key: str, call: Callable[[], R]) -> R:
        """Carry out a call without a condition. It has two kinds of faults: it is not carried out, or it is carried out
        without an answer."""
        fault = self._begin(operation, key)
        if fault is Fault.BUSY:
            raise StoreBusy(f"{operation} {key}: scripted")
        if fault in (Fault.LOST, Fault.CONFLICT, Fault.NEVER_ARRIVED):
            raise StoreUnavailable(f"{operation} {key}: scripted")
        if fault is Fault.ARRIVES_LATER:
            self._faults.delay(call)
            raise StoreUnavailable(f"{operation} {key}: scripted")
        result = call()
        if fault is Fault.CRASH_AFTER:
            raise Crash(f"after {operation} {key}")
        if fault is not None:
            raise StoreUnavailable(f"{operation} {key}: scripted")
        return result

    def _conditional(self, operation: str, key: str, call: Callable[[], WriteResult]) -> WriteResult:
        fault = self._begin(operation, key)
        if fault is Fault.LOST:
            return WriteResult(WriteOutcome.LOST)
        if fault is Fault.CONFLICT:
            return WriteResult(WriteOutcome.CONFLICT)
        if fault is Fault.BUSY:
            return WriteResult(WriteOutcome.BUSY)
        if fault is Fault.NEVER_ARRIVED:
            return WriteResult(WriteOutcome.UNKNOWN)
        if fault is Fault.ARRIVES_LATER:
            self._faults.delay(call)
            return WriteResult(WriteOutcome.UNKNOWN)
        result = call()
        if fault is Fault.CRASH_AFTER:
            raise Crash(f"after {operation} {key}")
        if fault is Fault.REFUSED_AFTER_DONE:
            return WriteResult(WriteOutcome.LOST)
        return WriteResult(WriteOutcome.UNKNOWN) if fault is Fault.ANSWER_LOST else result


class MemoryBackend:
    """A bucket in memory. `watch` is called with every change (key, new bytes or None) before it is visible. Its
    exceptions go to the caller."""

    def __init__(self, watch: Callable[[str, bytes | None], None] | None = None) -> None:
        self.objects: dict[str, bytes] = {}
        self._tags: dict[str, str] = {}
        self._count = 0
        self._watch = watch or (lambda key, data: None)
        self._lock = threading.RLock()

    def get(self, key: str) -> Versioned[bytes] | None:
        """See `Backend`."""
        with self._lock:
            return Versioned(self.objects[key], Version(self._tags[key])) if key in self.objects else None

    def list(self, prefix: str) -> list[Entry]:
        """See `Backend`."""
        with self._lock:
            return [
                Entry(key, self._tags[key], len(self.objects[key]), datetime.fromtimestamp(0, UTC))
                for key in sorted(key for key in self.objects if key.startswith(prefix))
            ]

    def put(self, key: str, data: bytes) -> Version:
        """See `Backend`."""
        with self._lock:
            self._watch(key, data)
            self._count += 1
            self.objects[key], self._tags[key] = data, f"v{self._count}"
            return Version(self._tags[key])

    def create(self, key: str, data: bytes) -> WriteResult:
        """See `Backend`."""
        with self._lock:
            if key in self.objects:
                return WriteResult(WriteOutcome.LOST)
            return WriteResult(WriteOutcome.DONE, self.put(key, data))

    def replace(self, key: str, data: bytes, version: Version) -> WriteResult:
        """See `Backend`."""
        with self._lock:
            if self._tags.get(key) != version.etag:
                return WriteResult(WriteOutcome.LOST)
            return WriteResult(WriteOutcome.DONE, self.put(key, data))

    def delete(self, key: str) -> None:
        """See `Backend`."""
        with self._lock:
            if key in self.objects:
                self._watch(key, None)
                del self.objects[key], self._tags[key]

    def upload(self, key: str, path: Path, moved: Moved | None = None) -> Uploaded:
        """See `Backend`."""
        data = path.read_bytes()
        if moved is not None:
            moved(len(data))
        if self.create(key, data).outcome is not WriteOutcome.DONE:
            raise KeyTaken(key)
        return Uploaded(key, len(data), hashlib.sha256(data).hexdigest())

    def download(self, key: str, path: Path, moved: Moved | None = None) -> str | None:
        """See `Backend`."""
        content = self.get(key)
        if content is None:
            return None
        path.write_bytes(content.value)
        if moved is not None:
            moved(len(content.value))
        return hashlib.sha256(content.value).hexdigest()

    def upload_view(self, key: str, view: memoryview, moved: Moved | None = None) -> None:
        """See `Backend`."""
        if moved is not None:
            moved(len(view))
        if self.create(key, bytes(view)).outcome is not WriteOutcome.DONE:
            raise KeyTaken(key)

    def download_at(self, key: str, file: int, offset: int, consume: Consume) -> int | None:
        """See `Backend`."""
        content = self.get(key)
        if content is None:
            return None
        write_at(file, memoryview(content.value), offset)
        consume(memoryview(content.value))
        return len(content.value)


def faulty_store(control: Backend, data: Backend, clock: Clock, faults: FaultScript) -> Store:
    """Return a store on two backends, with one script of faults in front of both."""
    return Store(
        Bucket("memory://control", FaultyBackend(control, faults), clock),
        Bucket("memory://data", FaultyBackend(data, faults), clock),
        clock,
    )
