"""Writes a fault record for each useless instance, once, for people and for later schedulers."""

import logging
from collections.abc import Callable, Mapping

from everspot_clouds.base import CloudInstance, Phase
from everspot_core.costs.ledger import FaultKind, FaultRecord
from everspot_core.jobs.records import InstanceRecord, Role
from everspot_store import BadDocument, Store

from everspot_scheduler.cloud_facts import Facts

_log = logging.getLogger(__name__)


class Faults:
    """The faults of one cluster. All methods raise the store's errors."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.records: dict[str, FaultRecord] = {}
        self._cleared: set[str] = set()

    def load(self) -> None:
        """Read the fault records of earlier schedulers."""
        self.records = {name: document.value for name, document in self._store.faults.scan().items()}

    def note(self, instance: InstanceRecord, kind: FaultKind, detail: str, image: str = "") -> None:
        """Write a fault of an instance that has reported."""
        fault = FaultRecord(
            instance_id=instance.instance_id,
            instance_type=instance.instance_type,
            zone=instance.zone,
            market=instance.market,
            kind=kind,
            generation=instance.generation,
            image=image,
            detail=detail,
            at=self._store.clock.now(),
        )
        self._write(fault)

    def look_for_silent(
        self,
        facts: Facts,
        reported: Mapping[str, object],
        late: Callable[[CloudInstance], bool],
        generation: str,
    ) -> None:
        """Write a fault for each agent that never reported: running agents that are `late`, and agents that were late
        when they ended, unless the cloud took their instances.

        Args:
            facts: The cloud's facts.
            reported: The instances that have a heartbeat.
            late: Whether an instance lives, or has lived, for longer than the boot deadline.
            generation: The declared generation. An instance that was silent from its launch on was launched with it,
                unless it changed within the boot deadline.
        """
        for name, instance in facts.described.items():
            checked = name in reported or name in self.records or name in self._cleared
            if checked or instance.role is not Role.AGENT or not late(instance):
                continue
            if instance.phase is not Phase.ALIVE and instance.interrupted is None:
                continue  # it is not known yet who ended it
            if instance.interrupted or name in facts.warned or self._has_reported(name):
                self._cleared.add(name)
                continue
            self._write(_silent(instance, generation, self._store))

    def _has_reported(self, name: str) -> bool:
        """Return whether its last heartbeat is in the ledger, even if it cannot be read."""
        try:
            return self._store.past_instances.get(name) is not None
        except BadDocument as error:
            _log.error("%s", error)
            return True

    def _write(self, fault: FaultRecord) -> None:
        name = fault.instance_id
        if name not in self.records:
            self._store.faults.create(name, fault)  # None: another scheduler was first
            self.records[name] = fault
            _log.warning("%s is of no use (%s): %s", name, fault.kind.value, fault.detail)


def _silent(instance: CloudInstance, generation: str, store: Store) -> FaultRecord:
    return FaultRecord(
        instance_id=instance.instance_id,
        instance_type=instance.instance_type,
        zone=instance.zone,
        market=instance.market,
        kind=FaultKind.NEVER_REPORTED,
        generation=generation,
        image=instance.image,
        detail="its agent has never reported",
        at=store.clock.now(),
    )
