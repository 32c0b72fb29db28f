"""The events of jobs, read once for each change of a job's owner: between them only time passes."""

from collections.abc import Collection, Iterable, Mapping

from everspot_core.records import Event, EventKind, JobRecord
from everspot_store import Store

from everspot_scheduler.together import side_by_side

_Standing = tuple[int, bool, str | None]


class Histories:
    """What happened to the jobs of one cluster, without what trainers wrote."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, tuple[_Standing, list[Event]]] = {}

    def of(self, records: Iterable[JobRecord]) -> Mapping[str, list[Event]]:
        """The events of these jobs; the same list as long as there are no others.

        Those of one that its owner has taken back are read until they tell of it, which they do a little later than
        the record.

        Raises:
            StoreError: if they could not be read.
        """
        wanted = list(records)
        side_by_side(self._read, [r for r in wanted if self._has_more(r)])
        return {r.job_id: self._known[r.job_id][1] for r in wanted}

    def forget(self, but: Collection[str]) -> None:
        """Keep those of these jobs only."""
        for job in self._known.keys() - set(but):
            del self._known[job]

    def _has_more(self, record: JobRecord) -> bool:
        """Whether the events of a job may tell more by now than they did when they were read."""
        standing, events = self._known.get(record.job_id, (None, []))
        return standing != _standing(record) or (record.state.owned and _seems_lost(record.epoch, events))

    def _read(self, record: JobRecord) -> None:
        self._known[record.job_id] = _standing(record), self._store.events(record.job_id, brief=True)


def _standing(record: JobRecord) -> _Standing:
    """What a job's attempts begin and end with."""
    return record.epoch, record.state.owned, record.owner


def _seems_lost(epoch: int, events: Iterable[Event]) -> bool:
    """Whether this ownership, by its events, was lost and not taken back since."""
    mine = [e for e in events if e.epoch == epoch]
    lost = max((e.at for e in mine if e.kind is EventKind.LOST), default=None)
    return lost is not None and not any(e.data.get("reclaimed") and e.at >= lost for e in mine)
