"""Reports the files that are not uploaded, with the reasons: each once, in events of bounded size."""

from collections.abc import Mapping
from datetime import timedelta

from everspot_core.jobs.records import EventKind
from everspot_store.file_tree import escape_path

from everspot_train.agent.outcome import EmitEvent

MOST_PATHS = 20
"""The most paths that an event names."""
MOST_REASONS = 5
"""The most events at a time, one for each reason."""
LASTING = timedelta(minutes=1)
"""A file is reported after it was left out for this time. Most files are complete a moment later."""
APART = timedelta(minutes=1)
"""The least time between two events while the program runs."""


class Skips:
    """The files of one folder that are left out. `folder`: its name in events."""

    def __init__(self, folder: str, emit: EmitEvent) -> None:
        self._folder = folder
        self._emit = emit
        self._since: dict[bytes, timedelta] = {}
        self._reported: set[bytes] = set()
        self._told_at: timedelta | None = None

    def tell_lasting(self, left_out: Mapping[bytes, str], now: timedelta) -> None:
        """Record the files that are left out now, and report those that have been left out for `LASTING`."""
        self._since = {path: self._since.get(path, now) for path in left_out}
        lasting = {path: left_out[path] for path, since in self._since.items() if now - since >= LASTING}
        if self._told_at is None or now - self._told_at >= APART:
            self._told_at = now if self.report(lasting) else self._told_at

    def report(self, left_out: Mapping[bytes, str]) -> bool:
        """Report the files that are left out and were not reported before. Return whether an event was written."""
        new = {escape_path(path): reason for path, reason in left_out.items() if path not in self._reported}
        self._reported |= set(left_out)
        emit_skipped(self._emit, self._folder, new)
        return bool(new)


def emit_skipped(emit: EmitEvent, folder: str, skipped: Mapping[str, str]) -> None:
    """Write an event for each reason, with its files. `skipped`: the reasons by escaped path."""
    reasons = sorted(set(skipped.values()))
    if len(reasons) > MOST_REASONS:
        skipped = {
            path: reason_of_path if reason_of_path in reasons[: MOST_REASONS - 1] else "other reasons"
            for path, reason_of_path in skipped.items()
        }
    for reason in sorted(set(skipped.values())):
        paths = sorted(path for path, reason_of_path in skipped.items() if reason_of_path == reason)
        emit(EventKind.SKIPPED, folder=folder, paths=[*paths[:MOST_PATHS]], count=len(paths), reason=reason)
