"""Decides which checkpoints in a folder are complete, by pure functions over successive scans of the folder.

A *round* is one writing of all files of a checkpoint. The machine's clock and the times that programs set do not
count: only whether stamps changed between two scans, and the order of the kernel's times of change (ctime).
"""

from collections import deque
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import Enum
from itertools import dropwhile

from everspot_store.file_tree import EntryKind, escape_path

from everspot_train.agent.artifacts.layouts import (
    MARKER,
    STATE_ENDINGS,
    CheckpointUnit,
    Division,
    Layout,
    divide,
    is_log,
    is_settings,
    member_template,
    numbered_template,
    path_template,
    required_members,
)
from everspot_train.agent.artifacts.look import Look, Stamp
from everspot_train.agent.artifacts.order import SPAN, TimedWrite, WriteOrder
from everspot_train.agent.artifacts.rhythm import Rhythm, Write
from everspot_train.agent.artifacts.settings import SettingsFiles

REST = timedelta(seconds=20)
"""Loose files whose rounds are not known yet count as a checkpoint after this time without a write. It is longer than
the pauses between the files of one checkpoint, and shorter than the pauses between two checkpoints."""
SETTLED = timedelta(seconds=3)
"""The same for a checkpoint of accelerate, whose last file depends on the program."""
_LONGEST_HISTORY = 50_000
BURST = timedelta(milliseconds=200)
"""Files that differ in a number and are written within this time are parts of one checkpoint, not two checkpoints."""
CHURNING = 5
"""A file that has changed in this many scans in a row counts as a log."""
_OFTEN = timedelta(seconds=5)
"""A file that was written twice within this time before the newest write of any file counts as written all the time."""
HELD_OPEN, HELD_BYTES = timedelta(minutes=1), 64 << 20
"""A file of up to this many bytes that a process has had open for so long counts as a log, too. No checkpoint of that
size takes that long to write."""
_CLOSED_BY_A_FILE = (Layout.MARKED, Layout.TRAINER, Layout.DISTRIBUTED, Layout.RENAMED)
_FAMILIES = (Layout.MARKED, Layout.TRAINER, Layout.DISTRIBUTED, Layout.ACCELERATE)
"""Layouts that a folder is expected to have before its first files show it."""
_MOST_NAMED = 3
_NO_PAUSE = (
    f"its files are written again within {SPAN.seconds} s, and it is not known with which of them a round begins: no "
    "pause before any of them is twice as long as before the others"
)


class ProgramEnd(Enum):
    """The end of the program."""

    SOUND = "exit code 0"
    BY_ITSELF = "another exit code of its own"
    KILLED = "killed by a signal"


@dataclass(frozen=True)
class Assessment:
    """The complete checkpoints of a folder at one scan.

    Attributes:
        units: the complete checkpoints whose files a layout identifies.
        waiting: the names of incomplete checkpoints.
        loose: the loose files, if together they are complete; otherwise None.
        others: logs and similar files.
        settings: the files of `others` that are settings files and are not written like logs.
        links: symbolic links outside of the units.
        left_out: the reason for each file that is left out, by path.
        added: files of the newest round, if none of them was written over an older one.
        doubtful: files that count as half written unless their content shows that they are whole.
        reason: why the loose files, or a unit, are not complete; empty if everything is complete.
    """

    units: tuple[CheckpointUnit, ...] = ()
    waiting: frozenset[bytes] = frozenset()
    loose: frozenset[bytes] | None = None
    others: frozenset[bytes] = frozenset()
    settings: frozenset[bytes] = frozenset()
    links: frozenset[bytes] = frozenset()
    left_out: dict[bytes, str] = field(default_factory=dict)
    added: frozenset[bytes] = frozenset()
    doubtful: frozenset[bytes] = frozenset()
    reason: str = ""


class Assessor:
    """Compares the scans of one folder during one attempt.

    Args:
        rhythm: the program's rounds, as earlier attempts have learned them.
        parts: `Assessor.parts` of the attempt before.

    Attributes:
        wrote: whether the program has written anything but logs.
        rewritten: files that count as logs although the program does not only append to them, and their names are not
            those of logs.
        late_settings: settings files that the last scan found to belong to each round, each with the time of the last
            write of the round's other files.
        parts: templates in which a number distinguishes the files of one checkpoint.
    """

    def __init__(self, rhythm: Rhythm | None = None, parts: Iterable[bytes] = ()) -> None:
        self.rhythm = rhythm or Rhythm()
        self._learned_rhythm = deepcopy(self.rhythm)
        self._settings = SettingsFiles({*self.rhythm.members, self.rhythm.leader or b""})
        self.families: dict[bytes, Layout] = {}
        self._members: dict[bytes, frozenset[bytes]] = {}
        self._last = Look(timedelta())
        self._since: dict[bytes, timedelta] = {}  # when each path was last seen to change
        self._last_write = timedelta()
        self._churns: dict[bytes, int] = {}
        self._opened: dict[bytes, timedelta] = {}
        self._logs: set[bytes] = set()
        self._churned: set[bytes] = set()  # files that were written in place all the time, or held open, at some time
        self._overwritten: set[bytes] = set()  # files that were written in place, and not only appended to
        self._earlier: dict[bytes, timedelta] = {}  # when each path was seen to change the time before the last
        self.rewritten: set[bytes] = set()
        self.late_settings: dict[bytes, timedelta] = {}
        self.parts = set(parts)
        self._order = WriteOrder()
        self._single_files: set[bytes] = set()
        self._history = deque[Write](maxlen=_LONGEST_HISTORY)
        self._ever_written = False
        self.wrote = False

    def start(self, look: Look) -> None:
        """Take the folder's state before the program starts: all its files are complete."""
        division = divide(look)
        self._last, self._last_write = look, look.at
        for unit in division.units:
            self._learn(unit)

    def observe(self, look: Look) -> Assessment:
        """Assess the folder while the program runs."""
        division = self._advance(look)
        complete, left_out = list[CheckpointUnit](), dict[bytes, str]()
        for unit in _by_age(division, look):
            reason = self._unit_reason(unit, division, look)
            if not reason:
                complete.append(unit)
                self._learn(unit)
            else:
                left_out |= dict.fromkeys(unit.paths, reason)
        reason = self._loose_reason(division, look)
        return self._assessment(division, complete, left_out, reason, look)

    def conclude(self, look: Look, ended: ProgramEnd) -> Assessment:
        """Assess the folder after the program's end. `look` finds nothing being written."""
        before, quiet = self._last, look.at - self._last_write
        division = self._advance(look)
        doubtful = frozenset[bytes]() if ended is ProgramEnd.SOUND else before.writing - before.appending
        if ended is ProgramEnd.KILLED:
            doubtful |= {path for path, since in self._since.items() if since == look.at}
        if division.marked:  # stamps advance in ticks: a stamp equal to the marker's may belong to a later write
            marked_at = look.items[MARKER].ctime_ns
            doubtful -= {path for path in division.loose if path == MARKER or look.items[path].ctime_ns < marked_at}
        complete, left_out = list[CheckpointUnit](), dict[bytes, str]()
        for unit in _by_age(division, look):
            if unit.layout in _CLOSED_BY_A_FILE:
                doubtful -= unit.paths
            reason = unit.missing or self._missing_members(unit)
            if not reason and ended is ProgramEnd.KILLED and _has_unknown_end(unit):
                reason = self._unsettled(unit, division, look)
            if not reason or ended is ProgramEnd.SOUND:
                complete.append(unit)
                self._learn(unit)
            else:
                left_out |= dict.fromkeys(unit.paths, reason)
        reason = self._end_reason(division, look, ended, quiet)
        return replace(self._assessment(division, complete, left_out, reason, look), doubtful=doubtful)

    def _assessment(
        self, division: Division, complete: list[CheckpointUnit], left_out: dict[bytes, str], reason: str, look: Look
    ) -> Assessment:
        loose: frozenset[bytes] | None = division.loose
        if reason:
            current = {write.path for write in self.rhythm.current}
            earlier = division.loose - current - look.writing
            left_out |= dict.fromkeys(division.loose - earlier, reason)
            # The round that is being written is left out if the rounds before it still exist.
            earlier_is_complete = bool(self.rhythm.current) and not self.rhythm.replaced and self.rhythm.rounds > 0
            loose = (
                earlier if earlier_is_complete and earlier and not (look.writing & (division.loose - current)) else None
            )
        waiting = frozenset(unit.name for unit in division.units) - {unit.name for unit in complete}
        reasons = [reason, *(left_out[path] for path in sorted(left_out))]
        return Assessment(
            units=tuple(complete),
            waiting=waiting,
            loose=loose,
            others=division.others,
            settings=frozenset(filter(is_settings, division.others)) - self._logs - look.appending,
            links=division.links,
            left_out=left_out,
            added=frozenset() if self.rhythm.replaced else frozenset(write.path for write in self.rhythm.current),
            reason=next((text for text in reasons if text), ""),
        )

    def _advance(self, look: Look) -> Division:
        """Record the changes since the last scan."""
        before = self._last
        changed = {path for path, item in look.items.items() if _stamp(before, path) != item.stamp}
        self._earlier = {path: at for path, at in self._earlier.items() if path in look.items} | {
            path: self._since[path] for path in changed if path in self._since
        }
        self._since = {path: look.at if path in changed else self._since.get(path, before.at) for path in look.items}
        logs, state_settings, quiet_since = set(self._logs), set(self._settings.state), self._last_write
        self._note_churning(before, look, changed)
        written = sorted(changed, key=lambda path: (look.items[path].ctime_ns, path))
        self._settings.observe(written, before, look, self._logs)
        settings = {path for path in look.items if self._settings.holds_state(path)}
        new_settings = (path for path in settings & changed if path_template(path) not in state_settings)
        self.late_settings = dict.fromkeys(new_settings, quiet_since)
        division = divide(look, self._logs, self.families, settings)
        self.wrote = self.wrote or bool({path for path in changed if path not in division.others})
        undecided = {path for path in division.others if is_settings(path)} - self._logs - look.appending
        writes = [path for path in written if path in division.loose]
        if writes or (look.writing & division.loose):
            self._last_write, self._ever_written = look.at, True
        if undecided & changed:
            self._last_write = look.at
        numbered = _parts(writes, before, look) - self.parts
        self.parts |= numbered
        if numbered or self._settings.state != state_settings:
            self._learned_rhythm = Rhythm()  # the learned rounds were wrong, or lacked some files
        if numbered or self._settings.state != state_settings or self._logs != logs:
            self._replay()
        new = [
            Write(path, self._template(path), path not in before.items)
            for path in [*self._former_units(division, look, changed), *written]
            if path in division.loose or path in undecided or path in self._churned
        ]
        self._history.extend(new)
        state = list(filter(self._is_state, new))
        self.rhythm.observe(state)
        items = [(write.template, look.items[write.path]) for write in state]
        self._order.observe([TimedWrite(name, item.ctime_ns, item.size) for name, item in items], look.at, look.wall_ns)
        if self._order.leader not in (None, self.rhythm.leader):
            self._learned_rhythm = Rhythm(self._order.leader)
            self._replay()
        if self._order.leader is not None and self._order.leader == self.rhythm.leader:
            self.rhythm.members |= self._order.templates - {self.rhythm.leader}
        self._last = look
        return division

    def _former_units(self, division: Division, look: Look, changed: set[bytes]) -> list[bytes]:
        """Return the files that were checkpoints by themselves at the last scan, until one beside them showed that they
        are parts of one: they were written before it."""
        paths = (self._single_files & division.loose) - changed
        self._single_files = {unit.name for unit in division.units if unit.layout is Layout.LIGHTNING}
        return sorted(paths, key=lambda path: (look.items[path].ctime_ns, path))

    def _replay(self) -> None:
        """Learn the rhythm again from all writes of files that are known to hold state."""
        self.rhythm = deepcopy(self._learned_rhythm)
        writes = (replace(write, template=self._template(write.path)) for write in self._history)
        state: Iterable[Write] = filter(self._is_state, writes)
        if self._order.leader is not None:  # the first writes may belong to the end of a round
            state = dropwhile(lambda write: write.template != self.rhythm.leader, state)
        self.rhythm.observe(state)

    def _is_state(self, write: Write) -> bool:
        return write.path not in self._logs and (not is_settings(write.path) or self._settings.holds_state(write.path))

    def _template(self, path: bytes) -> bytes:
        return member_template(path) if numbered_template(path) in self.parts else path_template(path)

    def _note_churning(self, before: Look, look: Look, changed: set[bytes]) -> None:
        """Find files that are written in place all the time. No program rewrites a checkpoint at every scan."""
        for path in changed:
            item, earlier = look.items[path], before.items.get(path)
            in_place = earlier is not None and earlier.inode == item.inode
            self._churns[path] = self._churns.get(path, 0) + 1 if in_place else 0
            if in_place and earlier is not None and (item.size <= earlier.size or path.endswith(b".json")):
                self._overwritten.add(path)
        self._churns = {path: count for path, count in self._churns.items() if path in changed}
        self._opened = {path: self._opened.get(path, look.at) for path in look.writing - look.mapped}
        long_open = {path for path, since in self._opened.items() if look.at - since >= HELD_OPEN}
        long_open = {path for path in long_open if look.items[path].size <= HELD_BYTES}
        churning = {path for path, count in self._churns.items() if count >= CHURNING}
        self._churned |= {path for path in long_open | churning if not path.endswith(STATE_ENDINGS)}
        self._logs = self._churned if self._has_slower_state(look) else self._churned - self._overwritten
        self.rewritten |= {path for path in churning & self._logs & self._overwritten if not is_log(path)}

    def _has_slower_state(self, look: Look) -> bool:
        """Return whether some state is not written all the time. Otherwise the program writes its whole state all the
        time, and overwritten files are no logs."""
        newest = max(self._since.values(), default=timedelta())
        return any(
            item.kind is EntryKind.FILE
            and not is_log(path)
            and path not in self._churned
            and path not in look.appending
            and not (path in self._earlier and newest - self._earlier[path] <= _OFTEN)
            for path, item in look.items.items()
        )

    def _learn(self, unit: CheckpointUnit) -> None:
        template = path_template(unit.name + b"/")
        names = frozenset(path_template(path) for path in required_members(unit))
        if unit.layout in _FAMILIES and template != unit.name + b"/":
            self.families[template] = unit.layout
            if names:
                members = self._members.get(template, names)
                later_ranks = unit.layout is Layout.DISTRIBUTED and members < names
                self._members[template] = names if later_ranks else members & names

    def _missing_members(self, unit: CheckpointUnit) -> str:
        members = self._members.get(path_template(unit.name + b"/"), frozenset())
        missing = members - {path_template(path) for path in unit.paths}
        if not missing:
            return ""
        name = min(missing).rpartition(b"/")[2]
        return f"{escape_path(name)}, which the checkpoints before it have, is not written yet"

    def _unit_reason(self, unit: CheckpointUnit, division: Division, look: Look) -> str:
        """Return why a unit is not complete while the program runs; empty if it is complete."""
        if unit.missing or (missing := self._missing_members(unit)):
            return unit.missing or missing
        if writing := unit.paths & look.writing:
            return f"{escape_path(min(writing))} is open for writing"
        if _has_unknown_end(unit) and (unsettled := self._unsettled(unit, division, look)):
            return unsettled
        if any(self._since[path] == look.at for path in unit.paths):
            return "it has just been written"
        return ""

    def _unsettled(self, unit: CheckpointUnit, division: Division, look: Look) -> str:
        """Return why a checkpoint whose last file is unknown may be incomplete; empty if a similar one was seen before,
        or the program has begun the next one."""
        template = path_template(unit.name + b"/")
        if template in self._members:
            return ""
        begun = max(look.items[path].ctime_ns for path in unit.paths)
        siblings = [
            other for other in division.units if path_template(other.name + b"/") == template != other.name + b"/"
        ]
        if any(min(look.items[path].ctime_ns for path in other.paths) > begun for other in siblings):
            return ""
        unchanged_for = look.at - max(self._since[path] for path in unit.paths)
        return "" if unchanged_for >= SETTLED else f"it was written less than {SETTLED.seconds} s ago"

    def _loose_reason(self, division: Division, look: Look) -> str:
        """Return why the loose files together are not complete while the program runs; empty if they are."""
        if not division.loose or division.missing:
            return division.missing
        pending = self._pending_settings(division, look)
        if writing := sorted((division.loose | pending) & look.writing):
            path = next((path for path in writing if path in look.mapped), writing[0])
            state = "is mapped for writing" if path in look.mapped else "is open for writing"
            return f"{escape_path(path)} {state}"
        if not self._ever_written or (self._round_is_whole and not pending) or division.marked:
            return ""
        if not self.rhythm.whole and self.rhythm.rounds:
            names = sorted(self.rhythm.members - {write.template for write in self.rhythm.current})
            return f"{_names(names)} was not written yet in this round, as in the rounds before"
        if look.at - self._last_write >= REST:
            return ""
        if self._order.is_fast and self._order.leader is None:
            return _NO_PAUSE
        return f"its files may belong together, and were written less than {REST.seconds} s ago"

    def _end_reason(self, division: Division, look: Look, ended: ProgramEnd, quiet: timedelta) -> str:
        """Return why the loose files together are not complete after the program's end; empty if they are."""
        if ended is ProgramEnd.SOUND or not division.loose or not self._ever_written:
            return ""
        if division.missing:
            return division.missing
        pending = self._pending_settings(division, look)
        if (self._round_is_whole and not pending) or division.marked:
            return ""
        if not self.rhythm.whole and self.rhythm.rounds:
            names = sorted(self.rhythm.members - {write.template for write in self.rhythm.current})
            return f"the program ended before it wrote {_names(names)}"
        if ended is ProgramEnd.BY_ITSELF or quiet >= REST:
            return ""
        if self._order.is_fast and self._order.leader is None:
            return _NO_PAUSE
        if pending:
            return f"the program was killed before it was known whether {_names(sorted(pending))} belongs to each round"
        return "the program was killed while it may have been writing its first checkpoint"

    @property
    def _round_is_whole(self) -> bool:
        """Return whether the present round is complete, and the first file of rounds is known."""
        return self.rhythm.whole and (not self._order.is_fast or self._order.leader == self.rhythm.leader)

    def _pending_settings(self, division: Division, look: Look) -> frozenset[bytes]:
        return self._settings.pending(division.others - self._logs - look.appending)


def _has_unknown_end(unit: CheckpointUnit) -> bool:
    """Return whether other ranks may still write files of the unit, of which nothing is known."""
    by_rank = unit.layout is Layout.DISTRIBUTED and required_members(unit)
    return unit.layout is Layout.ACCELERATE or bool(by_rank)


def _parts(writes: list[bytes], before: Look, look: Look) -> set[bytes]:
    """Return the templates of numbered files that were written in immediate succession, or in turns."""
    parts, last = set[bytes](), dict[bytes, bytes]()
    for path in writes:
        template = path_template(path)
        if (earlier := last.get(template)) is not None:
            gap = look.items[path].ctime_ns - look.items[earlier].ctime_ns
            if timedelta(microseconds=gap / 1000) < BURST or path in before.items:
                parts.add(numbered_template(path))
        last[template] = path
    return parts


def _by_age(division: Division, look: Look) -> list[CheckpointUnit]:
    """Return the checkpoints, the oldest first, because the newer ones are compared with them."""
    return sorted(division.units, key=lambda unit: (max(look.items[path].ctime_ns for path in unit.paths), unit.name))


def _stamp(look: Look, path: bytes) -> Stamp | None:
    item = look.items.get(path)
    return item.stamp if item is not None else None


def _names(templates: list[bytes]) -> str:
    shown = ", ".join(escape_path(template) for template in templates[:_MOST_NAMED])
    return shown + (" and more" if len(templates) > _MOST_NAMED else "")
