"""A job's folder `checkpoints` for tests, on a folder store, with a manual clock."""

import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from everspot_core.jobs.records import EventKind
from everspot_store import ManualClock, Store
from everspot_train.agent.artifacts.open_files import find_mapped_files, find_open_files
from everspot_train.agent.folder import FolderCheckpoints
from everspot_train.agent.notice_fit import FolderNoticeFit

SECOND = timedelta(seconds=1)


class DescendantOpenFiles:
    """Finds the open files of the processes that a test has started.

    An agent with a broker likewise searches the processes of its job alone. A search of all processes takes tens of
    milliseconds on a machine that runs many of them, and a test looks hundreds of times.
    """

    def opened(self, root: bytes) -> tuple[set[bytes], set[bytes]]:
        return find_open_files(list_descendants(os.getpid()), os.path.realpath(root))

    def mapped(self, root: bytes) -> set[bytes]:
        return find_mapped_files(list_descendants(os.getpid()), os.path.realpath(root))


def list_descendants(pid: int) -> Iterator[int]:
    """Return all descendants of a process."""
    with suppress(OSError):  # a process, or a thread, has ended meanwhile
        for thread in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in map(int, thread.read_text().split()):
                yield child
                yield from list_descendants(child)


class Place:
    """A job's folder on several machines in succession."""

    def __init__(self, root: Path) -> None:
        self.root, self.clock = root, ManualClock()
        for name in ("control", "data"):
            (root / name).mkdir()
        self.store = Store.open(f"file://{root}/control", f"file://{root}/data", clock=self.clock)
        self.events: list[tuple[EventKind, dict[str, Any]]] = []

    def keeper(
        self, epoch: int, interval: timedelta | None = None, *, notice: timedelta | None = None
    ) -> FolderCheckpoints:
        machine = self.root / f"machine-{epoch}"
        checkpoints = self.store.checkpoints("job-1", epoch)
        fit = FolderNoticeFit(notice, timedelta(), self.record_event, self.clock) if notice is not None else None
        return FolderCheckpoints(
            checkpoints, machine / "checkpoints", machine / "scratch", interval, 2, self.record_event, self.clock, fit,
            open_files=DescendantOpenFiles(),
        )  # fmt: skip

    def record_event(self, kind: EventKind, **data: Any) -> None:
        self.events.append((kind, data))

    def list_events(self, kind: EventKind) -> list[dict[str, Any]]:
        return [data for other, data in self.events if other is kind]

    @property
    def checkpoint_events(self) -> list[dict[str, Any]]:
        return self.list_events(EventKind.CHECKPOINTED)

    def look(self, keeper: FolderCheckpoints, seconds: int = 1, *, urgent: bool = False) -> None:
        """Call `keep_if_due` once a second."""
        for _ in range(seconds):
            self.clock.advance(SECOND)
            keeper.keep_if_due(urgent=urgent)

    def next_machine(self, epoch: int) -> FolderCheckpoints:
        keeper = self.keeper(epoch)
        assert keeper.restore()
        return keeper


def write(keeper: FolderCheckpoints, name: str, text: str, *, rename: bool = False) -> Path:
    """Write a file, in place or by renaming it into place, with a new stamp."""
    path = keeper.folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    before = path.lstat().st_ctime_ns if path.exists() else 0
    target = path.with_name(f"{path.name}.tmp") if rename else path
    target.write_text(text)
    if rename:
        target.replace(path)
    for _ in range(100):  # the kernel's clock is coarse
        if path.lstat().st_ctime_ns > before and path.lstat().st_ctime_ns + 10_000_000 < time.time_ns():
            break
        time.sleep(0.002)
    return path


def tree(keeper: FolderCheckpoints) -> dict[str, str]:
    return {
        path.relative_to(keeper.folder).as_posix(): path.read_text()
        for path in sorted(keeper.folder.rglob("*"))
        if path.is_file()
    }


def restore_tree(place: Place, epoch: int, *, fence: bool = True) -> dict[str, str]:
    """Return the files that the next machine would restore."""
    if fence:
        return tree(place.next_machine(epoch))
    folder = place.root / f"reader-{epoch}"
    checkpoint = place.store.checkpoints("job-1").restore(folder)
    assert checkpoint is not None
    entries = json.loads((folder / "tree.json").read_text())["entries"]
    return {entry["path"]: (folder / entry["content"]).read_text() for entry in entries if entry["kind"] == "file"}
