"""Announcements of the keys that a garbage collector is about to delete, for programs that may start to use them
meanwhile.

A collector announces keys, reads which documents name them, deletes the unnamed ones, and removes the announcement. A
user of a key first names it, and then looks at the announcements. There are two cases:

- The name existed when the collector read the documents. Then the key stays.
- The announcement existed before the name. Then the user sees the announcement; or the announcement and the object are
  removed already, and the user uploads the object again.

No clocks are compared. A collector renews its announcement every few deletions. If the renewal comes late, for example
because the machine slept, it reads the documents again.

When a collector ends, also by an exception, its announcement is reduced to the keys that may still be deleted late. If
the collector is killed, the whole announcement stays. Programs then treat the objects under its keys as gone. A
dataset's put ignores the announcement once it is older than `VOID`; the next collector removes it once it is a day old.
"""

import secrets
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta

from everspot_core.documents import Document
from pydantic import Field

from everspot_store.bucket import Bucket
from everspot_store.errors import StoreError, Unreadable
from everspot_store.table import Table

PREFIX = "sweeps"
VOID = timedelta(hours=2)  # since its renewal, by the store's time; no collector still deletes by it
_STALE = timedelta(minutes=30)


class AnnouncedKeys(Document):
    """Keys of the data bucket that may be deleted at any moment, unless a document names them."""

    keys: list[str] = Field(default_factory=list)


class Announcement:
    """One collector's announcement. `unanswered`: keys whose delete request got no answer at first."""

    def __init__(self, data: Bucket, table: "Table[AnnouncedKeys]", keys: Collection[str]) -> None:
        self._data, self._table = data, table
        self._id, self._keys = secrets.token_hex(8), list(keys)
        self.unanswered: set[str] = set()
        table.put(self._id, AnnouncedKeys(keys=self._keys))

    def renew(self) -> bool:
        """Write the announcement again. Return False if it was gone, or too old by the store's time, because others may
        have ignored it."""
        before = self._written()
        self._table.put(self._id, AnnouncedKeys(keys=self._keys))
        after = self._written()
        return before is not None and after is not None and after - before < _STALE

    def end(self) -> None:
        """Remove the announcement, except for the keys that may be deleted late."""
        if self.unanswered:
            self._table.put(self._id, AnnouncedKeys(keys=sorted(self.unanswered)))
        else:
            self._table.delete(self._id)

    def _written(self) -> datetime | None:
        return _times(self._data).get(self._table.key(self._id))


class GcAnnouncements:
    """The announcements of one cluster. All methods raise `StoreUnavailable`, `StoreDenied` or `StoreMissing`."""

    def __init__(self, data: Bucket) -> None:
        self._data = data
        self._table = Table(data, PREFIX, AnnouncedKeys)

    @contextmanager
    def announced(self, keys: Collection[str]) -> Iterator[Announcement]:
        """Announce the keys until the block ends, also by an exception. Keys in `unanswered` then stay announced."""
        announcement = Announcement(self._data, self._table, keys)
        try:
            yield announcement
        except BaseException:
            with suppress(StoreError):
                announcement.end()
            raise
        announcement.end()

    def announced_keys(self, now: datetime | None = None) -> set[str]:
        """Return all announced keys. With `now`, in the store's time, announcements older than `VOID` do not count.

        Raises:
            Unreadable: if an announcement cannot be read.
        """
        times = _times(self._data) if now is not None else {}
        announcements, unreadable = self._table.scan_with_unreadable(
            lambda id: now is None or now - times.get(self._table.key(id), now) < VOID
        )
        if unreadable:
            raise Unreadable(unreadable)
        return {key for sweep in announcements.values() for key in sweep.value.keys}

    def may_be_deleted(self, key: str) -> bool:
        """Return whether the key is announced, or may be: an unreadable announcement may name any key."""
        announcements, unreadable = self._table.scan_with_unreadable()
        return bool(unreadable) or any(key in sweep.value.keys for sweep in announcements.values())


def _times(data: Bucket) -> dict[str, datetime]:
    return {entry.key: entry.modified for entry in data.list(f"{PREFIX}/")}
