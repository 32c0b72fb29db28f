"""What a collector of garbage is about to delete, announced, so that whoever begins to use it meanwhile knows.

A collector announces keys, then reads who names them, deletes those that nobody names, and takes the announcement back.
Whoever begins to use a key names it first, and then looks at the announcements. Either its name was there when the
collector read, and the key stays; or the announcement was there before the name. Then it is seen now; or it was taken
back, and what was to be deleted is gone, so that it can be put there anew. No clock has a part in it.

An announcement whose collector was cut off stays, and does no harm but that its keys are not relied on. The next
collector removes it, once it is a day old.
"""

import secrets
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from everspot_core.documents import Document
from pydantic import Field

from everspot_store.bucket import Bucket
from everspot_store.errors import Unreadable
from everspot_store.table import Table

PREFIX = "sweeps"


class Sweep(Document):
    """Keys of the data bucket that may be deleted at any moment, unless somebody names them."""

    keys: list[str] = Field(default_factory=list)


class Sweeps:
    """The announcements of one cluster. All methods raise `StoreUnavailable`, `StoreDenied` or `StoreMissing`."""

    def __init__(self, data: Bucket) -> None:
        self._table = Table(data, PREFIX, Sweep)

    @contextmanager
    def announced(self, keys: Collection[str]) -> Iterator[None]:
        """The keys are announced, until the block is over. Behind an error the announcement stays: a deletion whose
        answer was lost may come late."""
        name = secrets.token_hex(8)
        self._table.put(name, Sweep(keys=list(keys)))
        yield
        self._table.delete(name)

    def announced_keys(self) -> set[str]:
        """All keys that are announced.

        Raises:
            Unreadable: if an announcement cannot be read.
        """
        found, unreadable = self._table.census()
        if unreadable:
            raise Unreadable(unreadable)
        return {key for sweep in found.values() for key in sweep.value.keys}

    def may_go(self, key: str) -> bool:
        """Whether it is announced, or may be: an announcement that cannot be read may name anything."""
        found, unreadable = self._table.census()
        return bool(unreadable) or any(key in sweep.value.keys for sweep in found.values())
