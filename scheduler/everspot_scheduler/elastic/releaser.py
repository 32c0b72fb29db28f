"""Terminates launched instances that were ordered to leave and hold no job, and unclaimed ones, which no intent names.

The order to leave comes first, as a conditional write on the assignment that was seen idle, so that no scheduler puts a
job there any more. Then the cloud is asked to terminate the instance, again and again until it is seen to end. The
instance's agent obeys the same order.
"""

import logging
from collections.abc import Iterable, Iterator
from datetime import timedelta

from everspot_clouds.base import Cloud, CloudInstance, Phase
from everspot_core.clock import Clock
from everspot_core.jobs.records import Order, Role

from everspot_scheduler.cloud_facts import Facts
from everspot_scheduler.elastic.intents import Intents
from everspot_scheduler.observer import Observation

REPEAT = timedelta(seconds=30)
"""Real time after which the cloud is asked again to end an instance that still lives."""
GRACE = timedelta(seconds=90)
"""Real time between the first description of an unclaimed instance and its end: its intent may have been written after
intents were last read."""
_log = logging.getLogger(__name__)


class Releaser:
    """Ends instances of one cluster."""

    def __init__(self, cloud: Cloud, intents: Intents, clock: Clock) -> None:
        self._cloud, self._intents, self._clock = cloud, intents, clock
        self._requested_at: dict[str, timedelta] = {}
        self._unclaimed_since: dict[str, timedelta] = {}

    def due(
        self, observation: Observation, facts: Facts, ended: Iterable[str], restarted: Iterable[str] = ()
    ) -> list[str]:
        """Return the instances that the cloud has to be asked to end now. `restarted`: those that ended, and that
        somebody started again."""
        now, over = self._clock.monotonic(), set(ended)
        useless = [i for i in facts.described.values() if is_unclaimed(i, self._intents)]
        useless += [facts.described[name] for name in restarted if is_ours(facts.described[name], self._intents)]
        names = [*self._leaving(observation, facts, over), *self._useless(useless, observation, now)]
        self._requested_at = {name: at for name, at in self._requested_at.items() if name in names}
        return [name for name in names if name not in self._requested_at or now - self._requested_at[name] >= REPEAT]

    def end(self, names: list[str]) -> None:
        """Ask the cloud to end these instances. Raises the cloud's errors; the next rounds ask again."""
        if not names:
            return
        self._requested_at |= dict.fromkeys(names, self._clock.monotonic())
        self._cloud.terminate(names)
        _log.info("asked to end %s", ", ".join(names))

    def _leaving(self, observation: Observation, facts: Facts, over: set[str]) -> Iterator[str]:
        owners = observation.owned()
        for name, document in sorted(observation.assignments.items()):
            running = name in self._intents.launched and name not in over and not _ends(facts, name)
            if running and document.value.order is Order.LEAVE and not document.value.jobs and name not in owners:
                yield name

    def _useless(self, instances: Iterable[CloudInstance], observation: Observation, now: timedelta) -> Iterator[str]:
        """Yield those of the unclaimed or restarted instances whose grace is over and that hold no job."""
        self._unclaimed_since = {i.instance_id: self._unclaimed_since.get(i.instance_id, now) for i in instances}
        for name, since in sorted(self._unclaimed_since.items()):
            assignment = observation.assignments.get(name)
            busy = assignment is not None and bool(assignment.value.jobs)
            if now - since >= GRACE and not busy and name not in observation.unreadable_assignments:
                restarted = name in self._intents.launched
                reason = "had ended and was started again" if restarted else "was launched and is in no intent"
                _log.warning("%s of this cluster %s: it is ended", name, reason)
                yield name


def is_ours(instance: CloudInstance, intents: Intents) -> bool:
    """Return whether a living instance was launched for this cluster, by an intent that is known here or not."""
    alive = instance.role is Role.AGENT and instance.phase is Phase.ALIVE
    return alive and instance.launch.startswith(intents.mark)


def is_unclaimed(instance: CloudInstance, intents: Intents) -> bool:
    """Return whether a living instance was launched for this cluster and no intent names it; no if some cannot be
    read."""
    recorded = instance.instance_id in intents.launched or intents.has_pending(instance.launch)
    return is_ours(instance, intents) and not recorded and not intents.unreadable


def _ends(facts: Facts, name: str) -> bool:
    described = facts.described.get(name)
    return facts.is_gone(name) or (described is not None and described.phase is not Phase.ALIVE)
