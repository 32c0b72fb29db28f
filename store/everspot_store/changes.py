"""The changes of a cluster's environment that were applied: `changes/{time}-{digest}.json`, each written once."""

from everspot_core.cluster.applied_change import AppliedChange

from everspot_store.bucket import Bucket
from everspot_store.document_cache import DocumentCache
from everspot_store.table import Table

_DIGITS = 12
"""The digits of the digest in a key. The time in seconds and these digits distinguish any two changes."""


class Changes:
    """The applied changes of one cluster. Thread-safe. Every method raises the store's errors."""

    def __init__(self, control: Bucket, cache: DocumentCache | None = None) -> None:
        self._table = Table(control, "changes", AppliedChange, cache)

    def add(self, change: AppliedChange) -> None:
        """Write a change. Writing a change of the same second and digest again does nothing."""
        self._table.create(f"{change.at:%Y%m%dT%H%M%SZ}-{change.digest[:_DIGITS]}", change)

    def all(self) -> list[AppliedChange]:
        """Return all changes that can be read, the oldest first."""
        return [document.value for _, document in sorted(self._table.scan().items())]
