"""Publishes and restores the folder `checkpoints` of a program that does not use the trainer library.

Complete files in it are published as a checkpoint like any other, under the same fence, and restored before the program
is started again. `artifacts` decides which files are complete. A file that has not changed since it was published is
not uploaded again, unless that was long ago or by another job: the bucket may have a rule that removes old objects of
jobs, even if a newer checkpoint names them.
"""

import logging
import os
import shutil
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path

from everspot_core.clock import Clock
from everspot_core.jobs.checkpoint import Checkpoint, Part, before_loop_end, by_failed_loads
from everspot_core.jobs.records import EventKind
from everspot_store import CheckpointCorrupt, Checkpoints, Fenced, StoreError
from everspot_store.checkpoints import is_fresh
from everspot_store.file_tree import EntryKind, FileTree, TreeEntry, escape_path, put_back, unescape_path

from everspot_train.agent.artifacts.assess import REST, Assessment, Assessor, ProgramEnd
from everspot_train.agent.artifacts.copies import (
    Changed,
    FolderCopier,
    UnreadableFile,
    copy_growing,
    find_torn,
    read_stamp,
)
from everspot_train.agent.artifacts.look import FolderWatch, Look, Stamp
from everspot_train.agent.artifacts.open_files import OpenFiles
from everspot_train.agent.artifacts.plan import (
    LastPublication,
    PublicationPlan,
    describe_entry,
    find_empty_folders,
    is_due,
    plan,
    without,
)
from everspot_train.agent.folder_info import (
    has_tree,
    is_folder_checkpoint,
    make_folder_info,
    publication_prefix,
    read_numbered_parts,
    read_rhythm,
    read_step,
    read_upload_times,
)
from everspot_train.agent.notice_fit import FolderNoticeFit
from everspot_train.agent.outcome import EmitEvent
from everspot_train.agent.skips import Skips
from everspot_train.agent.threads import DueTimer
from everspot_train.rundir import USER_FILE, USER_TREE, SavedState

TREE = "tree.json"
"""The part with the names, modes, times and links of the files."""
SPACING = timedelta(minutes=1)
"""The least time between two publications while the program runs, unless the job's checkpoint interval is shorter."""
URGENT_SPACING = timedelta(seconds=5)
"""The least time between two publications while the program is being stopped. No object of the store is rewritten more
often."""
INTERVAL = timedelta(minutes=5)
"""The checkpoint interval of a job that has no interval in time."""
OVERDUE_INTERVALS = 3
"""An event reports that nothing was published for this many checkpoint intervals."""
LIBRARY_SILENCE = timedelta(minutes=5)
"""Real time after which a program that has not reported does not use the trainer library, although its newest
checkpoint is the library's. The library reports once its imports are done and the run is opened."""
_LOOK_EVERY = timedelta(seconds=1)
_TRIES = 5
"""The scans in a row of a folder that changes during each of them. A program may write several times a second."""
_PAUSE = timedelta(milliseconds=20)
_REWRITTEN = "it is rewritten all the time, so it counts as a log, and its copy may not match the other files"
_TOO_EARLY = "it was written after its checkpoint was published, so the checkpoint has the older version"
_EMPTY = "it is an empty folder outside of checkpoint folders"
_LONGEST_FAILURE = 300
"""The most characters of an unexpected error in an event."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Published:
    """The content of the newest checkpoint. `sent`: the known upload times of this job's own parts, by publication."""

    last: LastPublication = field(default_factory=LastPublication)
    parts: Mapping[str, Part] = field(default_factory=dict)
    sent: Mapping[str, datetime] = field(default_factory=dict)

    def aged(self, now: datetime) -> bool:
        """Return whether a part of this job is old enough to be uploaded again."""
        return any(
            not is_fresh(self.sent[place], now)
            for place in map(publication_prefix, self.parts.values())
            if place in self.sent
        )

    def fresh_part(self, entry: TreeEntry | None, now: datetime) -> Part | None:
        """Return the part with the content of an entry if it is young enough to be used again."""
        part = self.parts.get(entry.content) if entry is not None else None
        at = self.sent.get(publication_prefix(part)) if part is not None else None
        return part if at is not None and is_fresh(at, now) else None


class FolderCheckpoints:
    """The folder of one attempt. A helper thread calls `keep_if_due`, the main thread all other methods.

    Args:
        checkpoints: the job's checkpoints, opened under the owner's epoch and guarded by its lease.
        folder: the program's folder, which need not exist.
        scratch: the folder for copies, so that files may change during the upload.
        interval: the job's checkpoint interval.
        keep: the number of checkpoints that stay.
        emit: writes events.
        notice_fit: compares each upload with the notice; None without a notice.
        open_files: finds the files that are being written to; None: searches the processes of this user.
        saved_state: returns the newest checkpoint that the program has reported as saved; None if programs do not
            report it.
        before_publication: called before each publication while the program runs; raises `StoreError`.

    Attributes:
        took: the duration of the last publication.
        durable: whether the job has any checkpoint.
        durable_step: the optimizer steps of the newest checkpoint; None: not reported.
        restored: the restored checkpoint.
        publications: the number of its own publications.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        folder: Path,
        scratch: Path,
        interval: timedelta | None,
        keep: int,
        emit: EmitEvent,
        clock: Clock,
        notice_fit: FolderNoticeFit | None = None,
        open_files: OpenFiles | None = None,
        saved_state: Callable[[], SavedState | None] | None = None,
        before_publication: Callable[[], None] = lambda: None,
    ) -> None:
        self._checkpoints = checkpoints
        self.folder = folder
        self._root = os.fsencode(folder)
        self._watch = FolderWatch(self._root, open_files)
        self._copies = scratch / "folder"
        self._copier = FolderCopier(self._root, scratch / "copies")
        self._interval = interval or INTERVAL
        self._spacing = min(interval, SPACING) if interval is not None else SPACING
        self._keep = keep
        self._emit = emit
        self._clock = clock
        self._notice_fit = notice_fit
        self._saved_state = saved_state
        self._before_publication = before_publication
        self._lock = threading.Lock()
        self._timer = DueTimer(_LOOK_EVERY, clock)
        self._assessor = Assessor()
        self._skips = Skips("checkpoints", emit)
        self._published = _Published()
        self._assessed = Assessment()
        self._dirty: set[bytes] = set()
        self._torn: dict[bytes, tuple[Stamp, str]] = {}  # the stamp and the reason of files that were not whole
        self._failures: set[str] = set()
        self._next, self.publications = 1, 0
        self._began: timedelta | None = None
        self._kept_at: timedelta | None = None
        self._restored_at = timedelta()
        self._overdue = OVERDUE_INTERVALS
        self._usual_gap = timedelta()  # between the program's last two checkpoints
        self._has_old_parts = False  # whether a publication has superseded parts that are not deleted yet
        self._stopping = False
        self._library = False  # whether the trainer library is expected to keep this job's checkpoints
        self.took = timedelta()
        self.durable = False
        self.durable_step: int | None = None
        self.restored: Checkpoint | None = None

    def restore(self) -> bool:
        """Restore the folder from the newest checkpoint. Return False without a checkpoint, or if the newest one is the
        trainer library's.

        Raises:
            CheckpointCorrupt: if the job has checkpoints and none is whole.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        head = self._checkpoints.head()
        stored = head.checkpoints if head is not None else []
        newest = stored[0] if stored else None
        if newest is not None:
            self._next = newest.step + 1
            self.durable = True
            first = by_failed_loads(stored)[0]
            if first is not newest:
                count = sum(checkpoint.failed_loads for checkpoint in stored)
                self._emit(EventKind.FELL_BACK, from_step=newest.step, to_step=first.step, count=count)
        if len(stored) > 1 and stored[0].epoch == stored[1].epoch:
            self._usual_gap = self._clock.to_real(stored[0].created_at - stored[1].created_at)
        if newest is not None and is_folder_checkpoint(newest):
            shutil.rmtree(self._copies, ignore_errors=True)
            self.restored = self._checkpoints.restore(self._copies)
            self.durable_step = read_step(self.restored) if self.restored is not None else None
        elif newest is not None:
            self._library = True
            self._put_back_user_files()
        if self.restored is not None:
            self._put_back(self.restored)
        else:
            look = self._watch.look(self._clock.monotonic(), thorough=True)
            self._assessor.start(look)
            stamps = {path: item.stamp for path, item in look.items.items()}
            self._published = _Published(LastPublication({}, stamps))  # files that came with the code are not new
        self._kept_at = self._restored_at = self._clock.monotonic()
        return self.restored is not None

    def keep_if_due(self, *, urgent: bool) -> None:
        """Publish the complete files of the folder if any of them is new, or was published long ago. Raises
        `StoreError`."""
        if not self._timer.due() or self._waits_for_library():
            return
        with self._lock:
            now = self._clock.monotonic()
            waited = self._began is None or now - self._began >= (URGENT_SPACING if urgent else self._spacing)
            assessment, thorough = Assessment(), False
            for attempt in range(_TRIES if waited else 1):
                if attempt:
                    self._clock.sleep(_PAUSE)
                look = self._watch.look(self._clock.monotonic(), thorough=thorough)
                self._dirty |= look.mapped
                assessment = self._assessor.observe(look)
                self._skips.report(dict.fromkeys(self._published_too_early(), _TOO_EARLY))
                aged = self._published.aged(self._clock.now())
                if waited and (aged or is_due(look, assessment, self._published.last, self._dirty)):
                    if thorough:
                        published = self._publish(look, assessment, "interval", copy=True)
                        assessment = self._assessed
                        if published:
                            break
                    thorough = True  # a publication needs to know the files that are being written to
                elif not (look.writing & set(assessment.left_out)):
                    break
            self._skips.tell_lasting(self._torn_still(look) | assessment.left_out, now)
            self._skips.report(dict.fromkeys(self._assessor.rewritten, _REWRITTEN))
            self._tell_if_overdue(assessment)
            self._retire(lambda: not self._stopping)

    def prefer_publications(self) -> None:
        """Delete no old parts before the next publication, because the program is asked to stop."""
        self._stopping = True

    def retire(self, go_on: Callable[[], bool]) -> None:
        """Delete the parts of superseded checkpoints while `go_on` returns True. Raises `Fenced`."""
        with self._lock:
            self._retire(go_on)

    def _retire(self, go_on: Callable[[], bool]) -> None:
        if not self._has_old_parts or not go_on():
            return
        try:
            self._checkpoints.retire(go_on=go_on)
        except Fenced:
            raise
        except StoreError as error:
            _log.warning("old checkpoint parts stay for now: %s", error)
        self._has_old_parts = not go_on()

    def keep_last(self, ended: ProgramEnd) -> None:
        """Publish the complete files of the folder after the program's end. Old parts stay. Raises `StoreError`."""
        if self._waits_for_library(ended):
            return
        self.prefer_publications()
        with self._lock:
            self._copier.clear()  # nothing changes after this
            look = self._watch.look(self._clock.monotonic(), thorough=True)
            assessment = self._assessor.conclude(look, ended)
            if is_due(look, assessment, self._published.last, self._dirty):
                self._publish(look, assessment, "final", copy=False)
                assessment = self._assessed
            special = {path: item for path, item in look.items.items() if item.kind is None}
            skipped = dict.fromkeys(look.unfinished, "names that end in .tmp are unfinished")
            skipped |= dict.fromkeys(special, "it is neither a file, a folder nor a symbolic link")
            skipped |= dict.fromkeys(find_empty_folders(look, assessment), _EMPTY)
            self._skips.report(skipped | assessment.left_out)

    def _waits_for_library(self, ended: ProgramEnd | None = None) -> bool:
        """Return whether the trainer library may still take over this job's checkpoints. A retry with other code may be
        a program without the library: it has ended without a report, is silent for long, or uses an integration."""
        if self._library:
            silence = self._clock.monotonic() - self._restored_at
            saves = self._saved_state is not None and self._saved_state() is not None
            self._library = not (ended is ProgramEnd.SOUND or saves or silence >= LIBRARY_SILENCE)
        return self._library

    def note_failed_load(self, *, library: bool) -> None:
        """Record that the program failed to load the restored checkpoint: it ended before it wrote anything. The next
        attempt begins with the checkpoint before. `library`: whether the trainer library loaded it. Raises
        `StoreError`."""
        head = self._checkpoints.head()
        stored = head.checkpoints if head is not None else []
        loaded = by_failed_loads(stored)[0] if stored and library else self.restored
        if loaded is not None and self.publications == 0 and not self._assessor.wrote and len(stored) > 1:
            _log.warning("the program failed while it loaded checkpoint %d", loaded.step)
            self._checkpoints.note_failed_load(loaded.step, loaded.epoch)

    def _publish(self, look: Look, assessment: Assessment, trigger: str, *, copy: bool) -> bool:
        """Publish the complete files. Return False if they changed meanwhile, or their content is not whole."""
        began, now = self._clock.monotonic(), self._clock.now()
        self._assessed = assessment
        while True:
            draft = plan(look, assessment, self._published.last)
            if not draft.units and not draft.carried:
                return False
            entries, sources = self._draft_entries(draft, look, now)
            try:
                files = self._sources(look, assessment, sources, copy=copy)
            except Changed as error:
                name = escape_path(os.fsencode(str(error)))
                self._assessed = replace(assessment, reason=f"{name} was written again before it was copied")
                return False
            except UnreadableFile as error:
                self._assessed = assessment = without(assessment, {error.path: error.reason})
                if not is_due(look, assessment, self._published.last, self._dirty):
                    return False
                continue
            except OSError as error:
                _log.warning("the folder of checkpoints was not copied: %s", error)
                self._assessed = replace(assessment, reason=f"no copy could be made: {error.strerror or error}")
                return False
            stamps = self._published.last.stamps
            new = {path for path in files if stamps.get(path) != look.items[path].stamp or path in self._dirty}
            judged = {path: file for path, file in files.items() if path in new - assessment.others}
            torn = find_torn(judged, draft.units, assessment.doubtful)
            self._torn |= {path: (look.items[path].stamp, reason) for path, reason in torn.items()}
            if not torn:
                break
            assessment = without(assessment, torn)
            self._assessed = assessment
            if not is_due(look, assessment, self._published.last, self._dirty):
                return False
        self._assessed, self._began = assessment, began
        self._send(draft, look, entries, {sources[path]: file for path, file in files.items()}, now, trigger)
        return True

    def _published_too_early(self) -> set[bytes]:
        """Return the settings files that are now known to belong to each round, and were written after the newest
        checkpoint was published with the other files of their round."""
        late, kept_at = self._assessor.late_settings, self._kept_at
        return {path for path, since in late.items() if self.publications and kept_at is not None and kept_at > since}

    def _torn_still(self, look: Look) -> dict[bytes, str]:
        """Return the reasons for files that are left out because they were not whole and have not changed since."""
        items = look.items
        self._torn = {
            path: (stamp, reason)
            for path, (stamp, reason) in self._torn.items()
            if path in items and items[path].stamp == stamp
        }
        return {path: reason for path, (_, reason) in self._torn.items()}

    def note_failure(self, error: Exception) -> None:
        """Write an event for an unexpected error of the agent, once for each class of error and place."""
        words = f"{type(error).__name__}: {error}"
        if words in self._failures:
            return
        self._failures.add(words)
        since = self._clock.monotonic() - self._kept_at if self._kept_at is not None else timedelta()
        seconds = round(since.total_seconds(), 1)
        reason = f"the agent failed, and tries again: {words[:_LONGEST_FAILURE]}"
        self._emit(EventKind.NOT_CHECKPOINTED, intervals=0, seconds=seconds, reason=reason)

    def _draft_entries(
        self, draft: PublicationPlan, look: Look, now: datetime
    ) -> tuple[list[TreeEntry], dict[bytes, str]]:
        """Return the tree of a publication, and the name of the part of each file that has to be uploaded."""
        entries, sources = list[TreeEntry](), dict[bytes, str]()
        firsts = dict[int, TreeEntry]()
        last = self._published.last
        for path in sorted(draft.units):
            item = look.items[path]
            entry = describe_entry(path, item, draft.units[path])
            first = firsts.get(item.inode)
            if item.kind is EntryKind.FILE and first is not None:
                entry = entry.model_copy(update={"same_as": first.path, "content": first.content})
            elif item.kind is EntryKind.FILE:
                same = last.stamps.get(path) == item.stamp and path not in self._dirty
                part = self._published.fresh_part(last.entries.get(path), now) if same else None
                name = part.name if part is not None else f"{self._next}-{len(sources)}"
                if part is None:
                    sources[path] = name
                entry = firsts[item.inode] = entry.model_copy(update={"content": name})
            entries.append(entry)
        carried = {entry.path for entry in draft.carried.values()}
        for entry in draft.carried.values():
            alone = entry.same_as and entry.same_as not in carried
            entries.append(entry.model_copy(update={"same_as": ""}) if alone else entry)
        for path in sorted(draft.folders):
            folder = look.items.get(path)
            if folder is not None and folder.kind is EntryKind.DIRECTORY:
                entries.append(describe_entry(path, folder, draft.folders[path]))
        return entries, sources

    def _sources(
        self, look: Look, assessment: Assessment, sources: Mapping[bytes, str], *, copy: bool
    ) -> dict[bytes, Path]:
        shutil.rmtree(self._copies, ignore_errors=True)  # the copied logs of the last try
        if not copy:
            return {path: Path(os.fsdecode(self._root + b"/" + path)) for path in sources}
        state = [path for path in sources if path not in assessment.others]
        logs = {path: name for path, name in sources.items() if path in assessment.others}
        copies = self._copier.copy(state, look) | copy_growing(self._root, logs, self._copies)
        for path in assessment.settings:  # one that is rewritten belongs to the next round
            if read_stamp(self._root, path) != look.items[path].stamp:
                raise Changed(os.fsdecode(path))
        return copies

    def _send(
        self,
        draft: PublicationPlan,
        look: Look,
        entries: list[TreeEntry],
        files: dict[str, Path],
        now: datetime,
        trigger: str,
    ) -> None:
        began = self._clock.monotonic()
        published = self._published
        used = {entry.content for entry in entries if entry.content} - set(files)
        unchanged = {name: published.parts[name] for name in used if name in published.parts}
        entries = [
            entry for entry in entries if not entry.content or entry.content in files or entry.content in unchanged
        ]
        self._copies.mkdir(parents=True, exist_ok=True)
        tree = self._copies / TREE
        tree.write_bytes(FileTree(entries=entries).to_json())
        sent = {
            place: published.sent[place]
            for place in map(publication_prefix, unchanged.values())
            if place in published.sent
        }
        sent[self._checkpoints.key_prefix(self._next)] = now
        step = self._step_of(entries)
        info = make_folder_info(sent, self._assessor.rhythm, self._assessor.parts, step)
        if trigger != "final":
            self._before_publication()
        done = self._checkpoints.publish(self._next, {**files, TREE: tree}, info, self._keep, unchanged)
        self._next, self.durable_step = done.step + 1, step
        stamps = {path: look.items[path].stamp for path in draft.units}
        stamps |= {path: stamp for path, stamp in published.last.stamps.items() if path in draft.carried}
        publication = LastPublication({unescape_path(entry.path): entry for entry in entries}, stamps)
        self._published = _Published(publication, {part.name: part for part in done.parts}, sent)
        self._dirty -= draft.present
        self._dirty |= look.mapped
        self.publications += 1
        kept_at, self._kept_at = self._kept_at, self._clock.monotonic()
        if kept_at is not None:
            self._usual_gap = self._kept_at - kept_at
        self.durable, self._overdue = True, OVERDUE_INTERVALS
        self.took = self._clock.monotonic() - began
        count = sum(1 for entry in entries if entry.kind is EntryKind.FILE)
        size = sum(part.size for part in done.parts if part.name != TREE)
        seconds = round(self.took.total_seconds(), 3)
        self._emit(EventKind.CHECKPOINTED, files=count, bytes=size, seconds=seconds, trigger=trigger)
        if self._notice_fit is not None:
            uploaded = sum(part.size for part in done.parts if part.name in files)
            self._notice_fit.note_upload(self.took, uploaded, self._usual_gap)
        shutil.rmtree(self._copies, ignore_errors=True)
        self._copier.clear()
        self._has_old_parts = True

    def _step_of(self, entries: list[TreeEntry]) -> int | None:
        """Return the optimizer steps of the newest checkpoint among the entries of a publication. If the newest saved
        checkpoint is left out, an earlier one counts."""
        state = self._saved_state() if self._saved_state is not None else None
        if state is None:
            return self.durable_step
        path = os.fsencode(state.path)
        paths = (unescape_path(entry.path) for entry in entries)
        is_published = any(entry == path or entry.startswith(path + b"/") for entry in paths)
        return state.step if is_published else self.durable_step

    def _put_back(self, checkpoint: Checkpoint) -> None:
        parts = {part.name: part for part in checkpoint.parts}
        if has_tree(checkpoint):
            tree = FileTree.read((self._copies / TREE).read_bytes())
        else:
            tree = FileTree(entries=[TreeEntry(path=escape_path(os.fsencode(n)), content=n) for n in parts])
        problems = put_back(tree.entries, self.folder, lambda entry: self._copies / entry.content)
        self._skips.report({unescape_path(path): reason for path, reason in problems.items()})
        shutil.rmtree(self._copies, ignore_errors=True)
        look = self._watch.look(self._clock.monotonic(), thorough=True)
        self._assessor = Assessor(read_rhythm(checkpoint), read_numbered_parts(checkpoint))
        self._assessor.start(look)
        entries = {unescape_path(entry.path): entry for entry in tree.entries if entry.path not in problems}
        stamps = {path: look.items[path].stamp for path in entries if path in look.items}
        self._published = _Published(
            LastPublication(entries, stamps), parts, read_upload_times(checkpoint, self._checkpoints.job_id)
        )
        self._next = max(self._next, checkpoint.step + 1)

    def _put_back_user_files(self) -> None:
        """Restore the files of this folder that the trainer library has stored with the checkpoint that it loads."""
        try:
            checkpoint = self._checkpoints.restore(
                self._copies, lambda name: name.startswith(USER_FILE), before_loop_end, require_all=True
            )
        except CheckpointCorrupt as error:  # the trainer reports it if its own parts are affected
            _log.warning("the folder of checkpoints is not put back: %s", error)
            return
        if checkpoint is not None and any(part.name == USER_TREE for part in checkpoint.parts):
            tree = FileTree.read((self._copies / USER_TREE).read_bytes())
            problems = put_back(tree.entries, self.folder, lambda entry: self._copies / entry.content)
            self._skips.report({unescape_path(path): reason for path, reason in problems.items()})
        shutil.rmtree(self._copies, ignore_errors=True)

    def _tell_if_overdue(self, assessment: Assessment) -> None:
        """Write an event when nothing was published for several intervals, and again each time that the span has
        doubled.

        A program that saves less often than the interval is overdue after three times its own usual time.
        """
        if self._kept_at is None:
            self._kept_at = self._clock.monotonic()
        waited = self._clock.monotonic() - self._kept_at
        settling = REST if assessment.reason else timedelta()  # files that were just written may be complete after it
        if waited < max(self._interval, self._usual_gap) * self._overdue + settling:
            return
        new, yet = (" new", "") if self.durable else ("", " yet")
        empty = f"the program has written nothing{new} into the folder checkpoints{yet}"
        self._emit(
            EventKind.NOT_CHECKPOINTED,
            intervals=self._overdue,
            seconds=round(waited.total_seconds(), 1),
            reason=assessment.reason or empty,
        )
        self._overdue *= 2
