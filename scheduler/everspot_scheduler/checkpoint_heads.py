"""Finds jobs whose checkpoints belong to a later epoch than their record, before an instance is paid for them.

Such a head shuts out every owner that the record could name: each attempt would be fenced, and lost. The record is then
older than its checkpoints: it was restored from a copy, or written by hand.
"""

import logging
from collections.abc import Mapping

from everspot_core.jobs.records import JobState, Reason
from everspot_store import BadDocument, Store

from everspot_scheduler.observer import Observation
from everspot_scheduler.parallel import run_parallel

AT_ONCE = 128
"""The most heads that are read in one tick, so that no tick is long."""
_log = logging.getLogger(__name__)


class Heads:
    """The heads of waiting jobs, each read once for each epoch of the record."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._read: dict[str, int] = {}
        self._ahead: dict[str, int] = {}

    def ahead(self, observation: Observation) -> Mapping[str, int]:
        """Return, by job, the epoch of each head that is ahead of its record.

        Raises:
            StoreError: if the store failed.
        """
        readable = observation.jobs.keys() - observation.unreadable_jobs
        waiting = {name: _epoch(name, observation) for name in readable if _waits(name, observation)}
        self._read = {name: epoch for name, epoch in self._read.items() if waiting.get(name) == epoch}
        self._ahead = {name: epoch for name, epoch in self._ahead.items() if name in self._read}
        unread = sorted(waiting.keys() - self._read.keys(), key=lambda name: (not _was_lost(name, observation), name))
        names = unread[:AT_ONCE]
        for name, epoch in zip(names, run_parallel(self._head_epoch, names), strict=True):
            self._read[name] = waiting[name]
            if epoch is not None and epoch > waiting[name] and self._is_current(name, waiting[name]):
                _log.error("the checkpoints of %s are of epoch %d, its record is of %d", name, epoch, waiting[name])
                self._ahead[name] = epoch
        return self._ahead

    def _head_epoch(self, name: str) -> int | None:
        try:
            head = self._store.heads.get(name)
        except BadDocument as error:  # the agent that gets the job reports it
            _log.error("%s", error)
            return None
        return head.value.epoch if head is not None else None

    def _is_current(self, name: str, epoch: int) -> bool:
        """Return whether the record has not gone on since it was observed: then its new owner wrote that head."""
        record = self._store.records.get(name)
        return (record.value.epoch if record is not None else 0) == epoch


def _waits(name: str, observation: Observation) -> bool:
    return name not in observation.records or observation.records[name].value.state is JobState.PENDING


def _epoch(name: str, observation: Observation) -> int:
    return observation.records[name].value.epoch if name in observation.records else 0


def _was_lost(name: str, observation: Observation) -> bool:
    return name in observation.records and observation.records[name].value.last_reason is Reason.LOST
