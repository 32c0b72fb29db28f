"""The launch intents of a cluster: the only record of what was launched, for which job, and with which outcome.

Every launch is written before the cloud is asked, under the next free number, and once more with its outcome. Two
schedulers that launch for the same need write the same number: one of them is first, and the other learns that it has
not seen everything yet.
"""

import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from everspot_clouds.base import Launched
from everspot_core.capacity.launching import (
    LaunchedInstance,
    LaunchError,
    LaunchIntent,
    LaunchOutcome,
    place_jobs,
    store_mark,
)
from everspot_core.schedule import PoolKey
from everspot_store import Store, Versioned

from everspot_scheduler.parallel import run_parallel

FORGET_AFTER = timedelta(hours=1)
"""The least market time for which a settled intent stays: its number must not become free while a scheduler may be
about to write it."""
REMEMBERED = timedelta(days=1)
"""Market time for which an intent with refusals stays, because schedulers know the refusals from it."""
TOKEN = 32
"""Hexadecimal digits of a token, which begins with the mark of the cluster's store."""
MOST = 400
"""The most intents without living instances that are kept."""


@dataclass(frozen=True, slots=True)
class Place:
    """An instance in its intent: the job that it was launched for, its pool, the intent's times, and of a pod its
    machine."""

    job_id: str
    pool: PoolKey
    made_at: datetime
    settled_at: datetime
    node: str = ""
    node_share: float = 1.0


class Intents:
    """The intents in the store. All methods raise the store's errors.

    Attributes:
        launched: every instance of a settled intent.
        unreadable: whether there are intents that this release cannot read.
        edition: rises with every change.
        mark: the beginning of every token of this cluster, which tells its instances from those of another cluster of
            the same name.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.mark = store_mark(store.control.url)
        self._documents: dict[str, Versioned[LaunchIntent]] = {}
        self._newest = 0
        self.launched: dict[str, Place] = {}
        self.unreadable = False
        self.edition = 0

    def look(self) -> None:
        """Read the changes: one listing, and one read for each new version."""
        table, before = self._store.launching, {name: document.etag for name, document in self._documents.items()}
        self._documents = table.scan()
        self.unreadable = bool(table.unreadable)
        self._newest = max([self._newest, *(_number(name) for name in {*self._documents, *table.unreadable})])
        if {name: document.etag for name, document in self._documents.items()} != before:
            self.launched = {name: place for intent in self.settled() for name, place in _places(intent)}
            self.edition += 1

    def __bool__(self) -> bool:
        """Return whether there are any intents."""
        return bool(self._documents) or self.unreadable

    def settled(self) -> Iterator[LaunchIntent]:
        """Return the intents with an outcome, oldest first."""
        return (document.value for _, document in sorted(self._documents.items()) if document.value.outcome is not None)

    def unsettled(self) -> list[LaunchIntent]:
        """Return the intents without an outcome, oldest first."""
        return [document.value for _, document in sorted(self._documents.items()) if document.value.outcome is None]

    def has_pending(self, token: str) -> bool:
        """Return whether an intent without outcome has this token: its instances are not unclaimed."""
        return any(intent.token == token for intent in self.unsettled())

    def token(self) -> str:
        """Return a new token."""
        return self.mark + secrets.token_hex((TOKEN - len(self.mark)) // 2)

    def next(self) -> int:
        """Return the number of the next intent."""
        return self._newest + 1

    def create(self, intent: LaunchIntent) -> bool:
        """Write an intent. False if its number is taken: another scheduler launched something not seen here yet."""
        written = self._store.launching.create(intent.name, intent)
        if written is None:
            return False
        self._documents[intent.name] = written
        self._newest = max(self._newest, intent.seq)
        self.edition += 1
        return True

    def record_outcome(
        self, intent: LaunchIntent, brought: Iterable[Launched], errors: Iterable[LaunchError]
    ) -> LaunchIntent:
        """Write an intent's outcome, and return the intent as it then is in the store: the first outcome counts."""
        instances = {i.instance_id: i for i in brought}
        jobs = place_jobs(intent, tuple(instances))
        outcome = LaunchOutcome(
            instances=tuple(
                LaunchedInstance(
                    instance_id=name,
                    instance_type=instances[name].instance_type,
                    zone=instances[name].zone,
                    market=intent.market,
                    job_id=job,
                    node=instances[name].node,
                    node_share=instances[name].node_share,
                )
                for name, job in jobs.items()
            ),
            errors=tuple(errors),
            settled_at=self._store.clock.now(),
        )
        old = self._documents[intent.name]
        written = self._store.launching.replace(intent.name, old, intent.settled(outcome))
        if written is None:
            written = self._store.launching.read([intent.name]).get(intent.name, old)
        self._documents[intent.name] = written
        self.edition += 1
        self.launched |= dict(_places(written.value))
        return written.value

    def forget(self, ended: Iterable[str], now: datetime, version: str) -> None:
        """Delete the intents that are not needed any more.

        These were settled long ago, all their instances are `ended`, and their refusals are too old to count or, where
        the request was wrong, are about another `version` of the template. The newest intent always stays, because
        the next number follows from it.
        """
        over = set(ended)
        idle = [i for i in self.settled() if all(x.instance_id in over for x in _outcome(i).instances)]
        old = [i for i in idle if i.seq != self._newest and now - _outcome(i).settled_at >= FORGET_AFTER]
        spare = len(old) - MOST
        deletable = [i for n, i in enumerate(old) if n < spare or not _still_informative(i, now, version)]
        run_parallel(lambda intent: self._store.launching.delete(intent.name), deletable)
        for intent in deletable:
            del self._documents[intent.name]


def version_name(template: str, version: str) -> str:
    """Return the name of a version of a template."""
    return f"{template}:{version}"


def _still_informative(intent: LaunchIntent, now: datetime, version: str) -> bool:
    outcome = _outcome(intent)
    if any(e.kind.for_good for e in outcome.errors):
        return version_name(intent.template, intent.template_version) == version
    return bool(outcome.errors) and now - outcome.settled_at < REMEMBERED


def _places(intent: LaunchIntent) -> Iterator[tuple[str, Place]]:
    if intent.outcome is None:
        return
    for instance in intent.outcome.instances:
        pool = PoolKey(instance.instance_type, instance.zone, instance.market)
        yield (
            instance.instance_id,
            Place(instance.job_id, pool, intent.made_at, intent.outcome.settled_at, instance.node, instance.node_share),
        )


def _outcome(intent: LaunchIntent) -> LaunchOutcome:
    assert intent.outcome is not None  # noqa: S101 - asked of settled ones only
    return intent.outcome


def _number(name: str) -> int:
    return int(name) if name.isdecimal() else 0
