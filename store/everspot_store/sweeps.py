"""What a collector of garbage is about to delete, announced, so that whoever begins to use it meanwhile knows.

A collector announces keys, then reads who names them, deletes those that nobody names, and takes the announcement back.
Whoever begins to use a key names it first, and then looks at the announcements. Either its name was there when the
collector read, and the key stays; or the announcement was there before the name. Then it is seen now; or it was taken
back, and what was to be deleted is gone, so that it can be put there anew. No clock has a part in it.

A collector renews its announcement every few deletions, and reads anew where it was away for long, on a machine that
slept.
What it leaves behind, however it ends, announces only what may be deleted late. An announcement whose collector was
killed stays, and does no harm but that its keys are not relied on, by a dataset's put until it is `VOID`. The next
collector removes it, once it is a day old.
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
VOID = timedelta(hours=2)  # since it was renewed, by the store's time: nobody deletes by it any more
_STALE = timedelta(minutes=30)


class Sweep(Document):
    """Keys of the data bucket that may be deleted at any moment, unless somebody names them."""

    keys: list[str] = Field(default_factory=list)


class Announcement:
    """One collector's announcement. `doubt`: keys whose deletion was begun and not answered at once."""

    def __init__(self, data: Bucket, table: "Table[Sweep]", keys: Collection[str]) -> None:
        self._data, self._table = data, table
        self._id, self._keys = secrets.token_hex(8), list(keys)
        self.doubt: set[str] = set()
        table.put(self._id, Sweep(keys=self._keys))

    def renew(self) -> bool:
        """Say it again. False: it was gone, or old by the store's time, so that others may not have heeded it."""
        before = self._written()
        self._table.put(self._id, Sweep(keys=self._keys))
        after = self._written()
        return before is not None and after is not None and after - before < _STALE

    def end(self) -> None:
        """Take it back, but for what may be deleted late."""
        if self.doubt:
            self._table.put(self._id, Sweep(keys=sorted(self.doubt)))
        else:
            self._table.delete(self._id)

    def _written(self) -> datetime | None:
        return _times(self._data).get(self._table.key(self._id))


class Sweeps:
    """The announcements of one cluster. All methods raise `StoreUnavailable`, `StoreDenied` or `StoreMissing`."""

    def __init__(self, data: Bucket) -> None:
        self._data = data
        self._table = Table(data, PREFIX, Sweep)

    @contextmanager
    def announced(self, keys: Collection[str]) -> Iterator[Announcement]:
        """The keys are announced, until the block is over, however it ends. What is in `doubt` then stays announced."""
        ours = Announcement(self._data, self._table, keys)
        try:
            yield ours
        except BaseException:
            with suppress(StoreError):
                ours.end()
            raise
        ours.end()

    def announced_keys(self, now: datetime | None = None) -> set[str]:
        """All keys that are announced; by announcements that are not void, if `now` is given, in the store's time.

        Raises:
            Unreadable: if an announcement cannot be read.
        """
        times = _times(self._data) if now is not None else {}
        found, unreadable = self._table.census(
            lambda id: now is None or now - times.get(self._table.key(id), now) < VOID
        )
        if unreadable:
            raise Unreadable(unreadable)
        return {key for sweep in found.values() for key in sweep.value.keys}

    def may_go(self, key: str) -> bool:
        """Whether it is announced, or may be: an announcement that cannot be read may name anything."""
        found, unreadable = self._table.census()
        return bool(unreadable) or any(key in sweep.value.keys for sweep in found.values())


def _times(data: Bucket) -> dict[str, datetime]:
    return {entry.key: entry.modified for entry in data.list(f"{PREFIX}/")}
