"""What the cluster is declared to be, read again while the scheduler runs: `cluster.json`, and the wish to roll.

An upgrade changes limits, types, size and generation there; the scheduler follows without being restarted. It is
careful with what instances are ended for: a new size counts only once it has stood for a while, because the fleets
follow it in their own time, and a generation counts for nothing if the newest instances do not have it.
"""

import logging
from collections.abc import Iterable
from datetime import timedelta

from everspot_core.catalogue import InstanceType
from everspot_core.manifest import Limits, Manifest, Standing
from everspot_core.records import InstanceRecord, Role
from everspot_store import BadDocument, Store

from everspot_scheduler.pace import Pace

TICKS_BETWEEN = 6
"""Ticks from one look at `cluster.json` to the next."""
TICKS_TO_SETTLE = 24
"""For so many ticks a declared size must have stood before instances are ended for it."""
BOOT = timedelta(minutes=2)
"""Market time: an instance that booted so long after the generation was first seen must have it."""
_log = logging.getLogger(__name__)


class Declaration:
    """The declaration of one cluster, as this scheduler has seen it last. Raises the store's errors."""

    def __init__(self, store: Store, manifest: Manifest) -> None:
        self._store, self.manifest = store, manifest
        self._etag: str | None = None
        self._rolls_to = self._doubted = ""
        self._since, self._generation_since = store.clock.monotonic(), store.clock.now()
        self._pace = Pace(TICKS_BETWEEN * manifest.limits.tick_every)

    @property
    def limits(self) -> Limits:
        """The durations in force."""
        return self.manifest.limits

    @property
    def types(self) -> list[InstanceType]:
        """Types declared in place."""
        return self.manifest.instance_types

    def refresh(self) -> bool:
        """Look again if it is time; whether anything has changed. What cannot be read changes nothing."""
        now = self._store.clock.monotonic()
        if not self._pace.due(now):
            return False
        self._pace.called(now)
        try:
            found = self._store.read_manifest()
            roll = self._store.roll_request()
        except BadDocument as error:
            _log.error("%s", error)
            return False
        self._rolls_to = roll.generation if roll is not None else ""
        if found is None or found.etag == self._etag:
            return False
        if self.manifest.standing != found.value.standing:
            self._since = now
        if self.manifest.generation != found.value.generation or self._etag is None:
            self._generation_since = self._store.clock.now()
        if self._etag is not None:
            _log.info("cluster.json has changed: generation %s", found.value.generation or "unnamed")
        self._etag, self.manifest = found.etag, found.value
        return True

    def standing(self) -> Standing | None:
        """What the standing fleets are declared to hold, once that has stood for a while."""
        stood = self._store.clock.monotonic() - self._since
        return self.manifest.standing if stood >= TICKS_TO_SETTLE * self.limits.tick_every else None

    def generation(self, instances: Iterable[InstanceRecord]) -> str:
        """The generation by which instances are to be replaced; empty while instances that were launched long after it
        was declared have another and none has it: then replacing them would never end."""
        wanted = self.manifest.generation
        agents = [i for i in instances if i.role is Role.AGENT and i.generation]
        right = any(i.generation == wanted for i in agents)
        wrong = [] if right else [i for i in agents if i.booted_at > self._generation_since + BOOT]
        if wanted and wrong and self._doubted != wanted:
            self._doubted = wanted
            _log.error(
                "%s was launched with generation %s, cluster.json says %s: nothing is replaced for its generation",
                wrong[0].instance_id, wrong[0].generation, wanted,
            )  # fmt: skip
        return "" if wrong else wanted

    def rolling(self) -> bool:
        """Whether somebody wants busy instances replaced too."""
        return bool(self.manifest.generation) and self._rolls_to == self.manifest.generation
