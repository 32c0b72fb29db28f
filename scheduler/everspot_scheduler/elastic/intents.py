"""The launch intents of a cluster: the only record of what was launched, for whom, and what came of it.

Every launch is written down before the cloud is asked for it, under the next number that is free, and once more with
what came of it. Two schedulers that launch for the same need write the same number: one of them is first, and the other
learns that it has not seen everything yet.
"""

import hashlib
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from everspot_clouds.base import Launched
from everspot_core.launching import LaunchedInstance, LaunchError, LaunchIntent, LaunchOutcome, place_jobs
from everspot_core.schedule import PoolKey
from everspot_store import Store, Versioned

from everspot_scheduler.together import side_by_side

FORGET_AFTER = timedelta(hours=1)
"""Market time for which a settled intent stays at the least. A number must not be free again while a scheduler may be
about to write it."""
REMEMBERED = timedelta(days=1)
"""Market time for which an intent that was refused something stays: its refusals are what is known of the pools."""
MARK, TOKEN = 8, 32
"""Hexadecimal digits of the mark of a cluster's store, and of a token, which begins with it."""
MOST = 400
"""Intents without living instances that are kept, whatever they could still tell."""


@dataclass(frozen=True, slots=True)
class Place:
    """An instance in its intent: the job that it was launched for, its pool, and when it was written down."""

    job_id: str
    pool: PoolKey
    made_at: datetime
    settled_at: datetime


class Intents:
    """What is written of the launches. All methods raise the store's errors.

    `launched`: every instance of a settled intent. `unreadable`: whether there are intents that nobody here can read.
    `edition`: rises whenever anything of all this has changed. `mark`: how every token of this cluster begins, so that
    what another cluster of the same name has launched is told apart.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.mark = hashlib.sha256(store.control.url.partition("?")[0].encode()).hexdigest()[:MARK]
        self._found: dict[str, Versioned[LaunchIntent]] = {}
        self._newest = 0
        self.launched: dict[str, Place] = {}
        self.unreadable = False
        self.edition = 0

    def look(self) -> None:
        """Read what has changed: a listing, and a read for each new version."""
        table, before = self._store.launching, {name: found.etag for name, found in self._found.items()}
        self._found = table.scan()
        self.unreadable = bool(table.unreadable)
        self._newest = max([self._newest, *(_number(name) for name in {*self._found, *table.unreadable})])
        if {name: found.etag for name, found in self._found.items()} != before:
            self.launched = {name: place for intent in self.settled() for name, place in _places(intent)}
            self.edition += 1

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._found) or self.unreadable

    def settled(self) -> Iterator[LaunchIntent]:
        """Those whose outcome is known, oldest first."""
        return (found.value for _, found in sorted(self._found.items()) if found.value.outcome is not None)

    def unsettled(self) -> list[LaunchIntent]:
        """Those whose outcome is not known, oldest first."""
        return [found.value for _, found in sorted(self._found.items()) if found.value.outcome is None]

    def knows(self, token: str) -> bool:
        """Whether an intent without outcome has this token: its instances are not strangers."""
        return any(intent.token == token for intent in self.unsettled())

    def token(self) -> str:
        """A new one."""
        return self.mark + secrets.token_hex((TOKEN - MARK) // 2)

    def next(self) -> int:
        """The number that a new intent takes."""
        return self._newest + 1

    def create(self, intent: LaunchIntent) -> bool:
        """Write an intent. False: its number is taken, so somebody has launched something that was not seen here."""
        written = self._store.launching.create(intent.name, intent)
        if written is None:
            return False
        self._found[intent.name] = written
        self._newest = max(self._newest, intent.seq)
        self.edition += 1
        return True

    def settle(self, intent: LaunchIntent, brought: Iterable[Launched], errors: Iterable[LaunchError]) -> LaunchIntent:
        """Write what came of an intent, and give it back as it stands then: whoever writes it first is believed."""
        found = {i.instance_id: i for i in brought}
        jobs = place_jobs(intent, tuple(found))
        outcome = LaunchOutcome(
            instances=tuple(
                LaunchedInstance(
                    instance_id=name,
                    instance_type=found[name].instance_type,
                    zone=found[name].zone,
                    market=intent.market,
                    job_id=job,
                )
                for name, job in jobs.items()
            ),
            errors=tuple(errors),
            settled_at=self._store.clock.now(),
        )
        old = self._found[intent.name]
        written = self._store.launching.replace(intent.name, old, intent.settled(outcome))
        if written is None:
            written = self._store.launching.get(intent.name) or old
        self._found[intent.name] = written
        self.edition += 1
        self.launched |= dict(_places(written.value))
        return written.value

    def forget(self, ended: Iterable[str], now: datetime, version: str) -> None:
        """Delete those that say nothing any more: settled long ago, their instances `ended`, and what they were
        refused forgotten or, where the request was wrong, corrected by another `version` of the template.

        The newest one stays for good: its number is what the next one is counted from.
        """
        over = set(ended)
        idle = [i for i in self.settled() if all(x.instance_id in over for x in _outcome(i).instances)]
        old = [i for i in idle if i.seq != self._newest and now - _outcome(i).settled_at >= FORGET_AFTER]
        spare = len(old) - MOST
        gone = [i for n, i in enumerate(old) if n < spare or not _telling(i, now, version)]
        side_by_side(lambda intent: self._store.launching.delete(intent.name), gone)
        for intent in gone:
            del self._found[intent.name]


def version_of(template: str, version: str) -> str:
    """The name of a version of a template."""
    return f"{template}:{version}"


def _telling(intent: LaunchIntent, now: datetime, version: str) -> bool:
    outcome = _outcome(intent)
    if any(e.kind.for_good for e in outcome.errors):
        return version_of(intent.template, intent.template_version) == version
    return bool(outcome.errors) and now - outcome.settled_at < REMEMBERED


def _places(intent: LaunchIntent) -> Iterator[tuple[str, Place]]:
    if intent.outcome is None:
        return
    for one in intent.outcome.instances:
        pool = PoolKey(one.instance_type, one.zone, one.market)
        yield one.instance_id, Place(one.job_id, pool, intent.made_at, intent.outcome.settled_at)


def _outcome(intent: LaunchIntent) -> LaunchOutcome:
    assert intent.outcome is not None  # noqa: S101 - asked of settled ones only
    return intent.outcome


def _number(name: str) -> int:
    return int(name) if name.isdigit() else 0
