"""Keeps the folder `checkpoints` of a program that does not use the trainer library.

It is published as a checkpoint like any other, under the same fence, and put back before the program is started again.
A file that has not changed since it was kept last is not uploaded again, unless that was long ago or by another job:
the bucket may have a rule that removes old objects of jobs, even if a newer checkpoint still names them.
"""

import logging
import shutil
import threading
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from everspot_core.checkpoint import Checkpoint, Part
from everspot_core.clock import Clock
from everspot_core.records import EventKind
from everspot_store import Checkpoints, Fenced, StoreError
from pydantic import JsonValue

from everspot_train.agent.outcome import Say
from everspot_train.agent.threads import DueTimer

KIND, FOLDER = "kind", "folder"
SENT = "sent"
"""The field of a checkpoint's `info` with the upload times of its parts, by the prefix of each publication's keys."""
FRESH = timedelta(days=7)
"""The age from which on a part is uploaded again. A bucket may remove objects after 30 days at the earliest; this is
far less, because a job may also wait."""
SPACING = timedelta(minutes=1)
"""The least time between two publications while the program runs, unless the job's checkpoint interval is shorter."""
URGENT_SPACING = timedelta(seconds=5)
"""The same while the program is being stopped. No object of the store is rewritten more often."""
QUIET_SECONDS = 2.0
"""A file that was written more recently than this may not be complete yet."""
_LOOK_EVERY = timedelta(seconds=1)
_UNFINISHED = ".tmp"

_log = logging.getLogger(__name__)

Stamp = tuple[int, int, int]


@dataclass(frozen=True)
class _Kept:
    """The content of the newest checkpoint. `sent`: the upload time of each publication's parts, as far as it is known
    and they are this job's own."""

    stamps: dict[str, Stamp]
    parts: dict[str, Part]
    sent: dict[str, datetime]

    def aged(self, now: datetime) -> bool:
        """Whether a part of this job is so old that it must be uploaded again."""
        return any(now - self.sent[place] >= FRESH for place in map(_place, self.parts.values()) if place in self.sent)

    def fresh(self, name: str, now: datetime) -> bool:
        """Whether the part is young enough to stay as it is."""
        at = self.sent.get(_place(self.parts[name]))
        return at is not None and now - at < FRESH


class FolderKeeper:
    """The folder of one ownership. The main thread calls `restore` and `keep_last`, a helper thread `keep_if_due`.

    Args:
        checkpoints: the job's checkpoints, opened under the owner's epoch and guarded by its lease.
        folder: the program's folder, which need not exist.
        scratch: the folder for copies, so that a file that changes during the upload does no harm.
        every: the job's checkpoint interval.
        keep: the number of checkpoints that stay.
        say: writes events.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        folder: Path,
        scratch: Path,
        every: timedelta | None,
        keep: int,
        say: Say,
        clock: Clock,
    ) -> None:
        self._checkpoints = checkpoints
        self.folder = folder
        self._copies = scratch / "folder"
        self._spacing = min(every, SPACING) if every is not None else SPACING
        self._keep = keep
        self._say = say
        self._clock = clock
        self._lock = threading.Lock()
        self._look = DueTimer(_LOOK_EVERY, clock)
        self._kept = _Kept({}, {}, {})
        self._next = 1
        self._began: timedelta | None = None
        self.took = timedelta()
        self.durable = False

    def restore(self) -> bool:
        """Put back the folder that was kept last. False: there is none, or the newest checkpoint is the trainer's.

        Raises:
            CheckpointCorrupt: if there are checkpoints and none is whole.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        head = self._checkpoints.head()
        if head is None or not head.checkpoints:
            return False
        self._next = head.checkpoints[0].step + 1
        self.durable = True
        if head.checkpoints[0].info.get(KIND) != FOLDER:
            return False
        shutil.rmtree(self._copies, ignore_errors=True)
        found = self._checkpoints.restore(self._copies)
        if found is None:
            return False
        self._put_back(found)
        return True

    def keep_if_due(self, *, urgent: bool) -> None:
        """Publish the folder if something in it is new or was kept long ago, and nothing is being written. Raises
        `StoreError`."""
        if not self._look.due():
            return
        spacing = URGENT_SPACING if urgent else self._spacing
        if self._began is not None and self._clock.monotonic() - self._began < spacing:
            return
        with self._lock:
            stamps = _stamps(self.folder)
            due = stamps != self._kept.stamps or self._kept.aged(self._clock.now())
            if stamps and due and _at_rest(stamps):
                self._publish(stamps, "interval", copy=True)

    def keep_last(self, *, sound: bool) -> None:
        """Publish what the program left, after its end. Raises `StoreError`.

        `sound`: it ended by itself, so that no file is half written. Otherwise the folder is published only if nothing
        was written to it lately.
        """
        with self._lock:
            stamps = _stamps(self.folder)
            if stamps and stamps != self._kept.stamps and (sound or _at_rest(stamps)):
                self._publish(stamps, "final", copy=False)

    def _publish(self, stamps: dict[str, Stamp], trigger: str, *, copy: bool) -> None:
        self._began, now = self._clock.monotonic(), self._clock.now()
        kept = self._kept
        same = {name for name, stamp in stamps.items() if kept.stamps.get(name) == stamp and kept.fresh(name, now)}
        files = {name: self.folder / name for name in stamps if name not in same}
        if copy:
            copied = self._copy(files)
            if copied is None or _stamps(self.folder) != stamps:
                return  # it changes just now: the next look finds it at rest
            files = copied
        unchanged = {name: kept.parts[name] for name in same}
        sent = {place: kept.sent[place] for place in map(_place, unchanged.values())}
        sent[self._checkpoints.place(self._next)] = now
        told: dict[str, JsonValue] = {place: at.isoformat() for place, at in sent.items()}
        done = self._checkpoints.publish(self._next, files, {KIND: FOLDER, SENT: told}, self._keep, unchanged)
        self._next = done.step + 1
        self._kept = _Kept(stamps, {part.name: part for part in done.parts}, sent)
        self.durable = True
        self.took = self._clock.monotonic() - self._began
        size = sum(part.size for part in done.parts)
        seconds = round(self.took.total_seconds(), 3)
        self._say(EventKind.CHECKPOINTED, files=len(stamps), bytes=size, seconds=seconds, trigger=trigger)
        shutil.rmtree(self._copies, ignore_errors=True)
        try:
            self._checkpoints.retire()
        except Fenced:
            raise
        except StoreError as error:
            _log.warning("old checkpoint parts stay for now: %s", error)

    def _copy(self, files: dict[str, Path]) -> dict[str, Path] | None:
        shutil.rmtree(self._copies, ignore_errors=True)
        try:
            for name, path in files.items():
                target = self._copies / name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)
        except OSError as error:
            _log.warning("the folder of checkpoints was not copied: %s", error)
            return None
        return {name: self._copies / name for name in files}

    def _put_back(self, found: Checkpoint) -> None:
        names = {part.name: part for part in found.parts}
        for name in names:
            source, target = self._copies / name, self.folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            source.replace(target)
        shutil.rmtree(self._copies, ignore_errors=True)
        stamps = _stamps(self.folder)
        stamps = {name: stamps[name] for name in names if name in stamps}
        self._kept = _Kept(stamps, names, _sent(found, self._checkpoints.job_id))
        self._next = max(self._next, found.step + 1)


def _place(part: Part) -> str:
    """The prefix of the keys of one publication."""
    return "/".join(part.key.split("/")[:5])


def _sent(checkpoint: Checkpoint, job_id: str) -> dict[str, datetime]:
    """The upload times of the parts under the job's own prefix, as far as the checkpoint has them."""
    told, found = checkpoint.info.get(SENT), {}
    for place, at in told.items() if isinstance(told, dict) else ():
        try:
            moment = datetime.fromisoformat(str(at))
        except ValueError:
            continue
        if place.startswith(f"jobs/{job_id}/") and moment.tzinfo is not None:
            found[place] = moment
    return found


def _stamps(folder: Path) -> dict[str, Stamp]:
    """The stamps of the folder's files by path. Links are not followed, and unfinished files (`.tmp`) are left out."""
    found: dict[str, Stamp] = {}
    for path in sorted(folder.rglob("*")):
        try:
            status = path.lstat()
            if path.is_file() and not path.is_symlink() and not path.name.endswith(_UNFINISHED):
                found[path.relative_to(folder).as_posix()] = (status.st_size, status.st_mtime_ns, status.st_ino)
        except OSError:  # gone meanwhile
            continue
    return found


def _at_rest(stamps: dict[str, Stamp]) -> bool:
    newest = max(modified for _, modified, _ in stamps.values())
    return time.time_ns() - newest >= QUIET_SECONDS * 1e9
