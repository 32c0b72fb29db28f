"""The sweeps of a cluster, each with its journal of Optuna's operations, and the comparisons of number formats.

The keys are `studies/{sweep}/sweep.json`, `studies/{sweep}/journal/{n:08d}.json` and
`studies/{comparison}/comparison.json`. A process appends to the journal by a conditional write, which succeeds only if
the process has read all earlier entries. So any number of processes may run a sweep at the same time.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from everspot_core.experiments.precision_comparison import ComparisonRecord
from everspot_core.experiments.sweep import JournalEntry, SweepRecord

from everspot_store.bucket import Bucket
from everspot_store.errors import StoreUnavailable
from everspot_store.table import Table

PREFIX = "studies"
TRIES = 50
"""The most tries to append while other processes append first."""


class JournalChanged(Exception):
    """Another process has written to the journal since a decision was made by it."""


class Studies:
    """The sweeps of one cluster. Thread-safe. Every method raises the store's errors."""

    def __init__(self, control: Bucket) -> None:
        self._sweeps = Table(control, PREFIX, SweepRecord)
        self._comparisons = Table(control, PREFIX, ComparisonRecord)
        self._control = control

    def get(self, name: str) -> SweepRecord | None:
        """Return the record of a sweep, or None if it has not begun.

        Raises:
            BadDocument: if it cannot be read.
        """
        document = self._sweeps.get(f"{name}/sweep")
        return document.value if document is not None else None

    def begin(self, record: SweepRecord) -> SweepRecord:
        """Begin a sweep. If a sweep of this name has begun already, return its record."""
        key = f"{record.spec.name}/sweep"
        done = self._sweeps.create(key, record)
        if done is not None:
            return done.value
        return self.get(record.spec.name) or record

    def change(self, record: SweepRecord) -> None:
        """Replace the caps of a sweep."""
        self._sweeps.put(f"{record.spec.name}/sweep", record)

    def get_comparison(self, name: str) -> ComparisonRecord | None:
        """Return the record of a comparison, or None if it has not begun.

        Raises:
            BadDocument: if it cannot be read.
        """
        document = self._comparisons.get(f"{name}/comparison")
        return document.value if document is not None else None

    def begin_comparison(self, record: ComparisonRecord) -> ComparisonRecord:
        """Begin a comparison. If a comparison of this name has begun already, return its record."""
        done = self._comparisons.create(f"{record.spec.name}/comparison", record)
        if done is not None:
            return done.value
        return self.get_comparison(record.spec.name) or record

    def change_comparison(self, record: ComparisonRecord) -> None:
        """Replace the arms, seeds, metric and tolerance of a comparison."""
        self._comparisons.put(f"{record.spec.name}/comparison", record)

    def journal(self, name: str) -> "Journal":
        """Return the journal of a sweep."""
        return Journal(Table(self._control, f"{PREFIX}/{name}/journal", JournalEntry))


class Journal:
    """One sweep's journal: a backend of Optuna's `JournalStorage`, which needs these two methods."""

    def __init__(self, table: Table[JournalEntry]) -> None:
        self._table = table
        self._logs: list[dict[str, Any]] = []
        self._pieces = 0
        self._required: int | None = None

    def read_logs(self, log_number_from: int) -> list[dict[str, Any]]:
        """Return all operations from this number on."""
        self._catch_up()
        return self._logs[log_number_from:]

    def count_entries(self) -> int:
        """Read the entries of other processes, and return how many there are in all."""
        self._catch_up()
        return self._pieces

    @contextmanager
    def refuse_after(self, entries: int) -> Iterator[None]:
        """Within this block refuse to append if there are more entries than these: what was decided by them may not
        hold any more."""
        self._required = entries
        try:
            yield
        finally:
            self._required = None

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Append operations after all existing ones.

        Raises:
            JournalChanged: within `refuse_after`, if others wrote first.
            StoreUnavailable: if others wrote first during every try.
        """
        for _ in range(TRIES):
            self._catch_up()
            if self._required is not None and self._pieces != self._required:
                raise JournalChanged(self._table.prefix)
            if self._table.create(_piece(self._pieces), JournalEntry(logs=logs)) is not None:
                self._logs += logs
                self._pieces += 1
                return
        raise StoreUnavailable(f"the journal {self._table.prefix} was written by others {TRIES} times in a row")

    def _catch_up(self) -> None:
        """Read the operations of other processes: by a listing the first time, then piece by piece."""
        if not self._pieces:
            pieces = self._table.scan()
            while _piece(self._pieces) in pieces:
                self._logs += pieces[_piece(self._pieces)].value.logs
                self._pieces += 1
        while (piece := self._table.get(_piece(self._pieces))) is not None:
            self._logs += piece.value.logs
            self._pieces += 1


def _piece(number: int) -> str:
    return f"{number:08d}"
