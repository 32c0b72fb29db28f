"""Finds stale documents: their ETag has not changed for a while, by this machine's own monotonic clock."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol


class HasEtag(Protocol):
    """Anything with an ETag, such as a versioned document."""

    @property
    def etag(self) -> str:
        """A value that changes with every write."""
        ...


@dataclass(frozen=True, slots=True)
class _SeenVersion:
    etag: str
    since: timedelta


class Staleness:
    """Remembers since when each document has had its ETag.

    It uses no time that another machine wrote, and a scheduler that has just started grants every owner the full
    length. Time in which nothing could be read does not count, because a silent store silences the owners too. A
    version's age counts from after the read that first saw it to before the read that last saw it. So it never counts
    as older than it is, and an owner, which counts from before its write, gives up first.
    """

    def __init__(self, longest: timedelta | None = None) -> None:
        """`longest`: the most that counts between two looks; None: all of it counts."""
        self._last_change: dict[str, _SeenVersion] = {}
        self._last = timedelta(0)
        self._longest = longest

    def observe(self, documents: Mapping[str, HasEtag], before: timedelta, after: timedelta) -> None:
        """Note all documents, read between two moments of the monotonic clock. Absent ones are forgotten."""
        blind = max(before - self._last - self._longest, timedelta(0)) if self._longest is not None else timedelta(0)
        changes = {}
        for name, document in documents.items():
            last_change = self._last_change.get(name)
            same = last_change is not None and last_change.etag == document.etag
            since = min(last_change.since + blind, before) if last_change is not None and same else after
            changes[name] = _SeenVersion(document.etag, since)
        self._last_change, self._last = changes, before

    def stale(self, limit: timedelta) -> frozenset[str]:
        """Return the documents that had stood still for `limit` at least when they were last read."""
        return frozenset(
            name for name, last_change in self._last_change.items() if self._last - last_change.since >= limit
        )
