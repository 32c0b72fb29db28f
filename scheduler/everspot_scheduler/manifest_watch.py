"""The declaration of the cluster, read again while the scheduler runs: `cluster.json`, and the request to roll.

An upgrade changes limits, types, size and generation there, and the scheduler follows without a restart. It ends
instances for a new declaration only with care:

- A new size counts only once it has stood for a while, because the fleets need time to follow it. It does not count at
  all if a fleet launches more than that nevertheless.
- A new generation does not count if the newest instances of a market do not have it.
"""

import logging
from collections.abc import Iterable
from datetime import datetime, timedelta

from everspot_core.capacity.catalogue import InstanceType
from everspot_core.cluster.manifest import Limits, Manifest, Standing
from everspot_core.jobs.records import Market, Role
from everspot_core.schedule import InstanceView
from everspot_core.schedule.provisioning.leaving import weight
from everspot_store import BadDocument, Store

from everspot_scheduler.backoff import Backoff

TICKS_BETWEEN = 6
"""Ticks between two reads of `cluster.json`."""
TICKS_TO_SETTLE = 24
"""The ticks for which a declared size must have stood before instances are ended for it."""
BOOT = timedelta(minutes=2)
"""Market time for which a launch may lag behind a change. An instance launched later than this after a new generation
must have it, and a fleet that launches later than this after other instances must have known of them."""
_log = logging.getLogger(__name__)


class ManifestWatch:
    """The declaration of one cluster, as this scheduler read it last. Raises the store's errors."""

    def __init__(self, store: Store, manifest: Manifest) -> None:
        self._store, self.manifest = store, manifest
        self._etag: str | None = None
        self._rolls_to = self._doubted = ""
        self._since, self._generation_since = store.clock.monotonic(), store.clock.now()
        self._standing_since, self._unexplained = store.clock.now(), ""
        self._backoff = Backoff(TICKS_BETWEEN * manifest.limits.tick_every)

    @property
    def limits(self) -> Limits:
        """The declared limits."""
        return self.manifest.limits

    @property
    def types(self) -> list[InstanceType]:
        """The instance types that are declared in place."""
        return self.manifest.instance_types

    def refresh(self) -> bool:
        """Read it again if it is due. Returns whether anything has changed. An unreadable document changes nothing."""
        now = self._store.clock.monotonic()
        if not self._backoff.take(now):
            return False
        try:
            document = self._store.read_manifest()
            roll = self._store.roll_request()
        except BadDocument as error:
            _log.error("%s", error)
            return False
        self._rolls_to = roll.generation if roll is not None else ""
        if document is None or document.etag == self._etag:
            return False
        if self.manifest.standing != document.value.standing:
            self._since, self._standing_since, self._unexplained = now, self._store.clock.now(), ""
        if self.manifest.generation != document.value.generation or self._etag is None:
            self._generation_since = self._store.clock.now()
        if self._etag is not None:
            _log.info("cluster.json has changed: generation %s", document.value.generation or "unnamed")
        for problem in self._store.left_out_of_manifest():
            _log.warning("cluster.json: %s: left out", problem)
        self._etag, self.manifest = document.etag, document.value
        return True

    def standing(self, instances: Iterable[InstanceView]) -> Standing | None:
        """Return the declared size of the standing fleets, once it has not changed for a while; otherwise None.

        It is also None if another party sets a fleet's size, because releasing its excess would then never end.
        """
        standing, stood = self.manifest.standing, self._store.clock.monotonic() - self._since
        if standing is None or stood < self._settling:
            return None
        agents = [i for i in instances if _is_agent(i)]
        unexplained = next((i for i in agents if self._is_unexplained(i, agents, standing)), None)
        if unexplained is None:
            return standing
        if not self._unexplained:
            market = _market(unexplained)
            self._unexplained = unexplained.instance_id
            _log.error(
                "%s was launched although the %s fleet already had its declared %d units: something else resizes the "
                "fleet, so no instance is released as excess",
                unexplained.instance_id, market.value, _target(standing, market),
            )  # fmt: skip
        return None

    @property
    def _settling(self) -> timedelta:
        return TICKS_TO_SETTLE * self.limits.tick_every

    def _is_unexplained(self, instance: InstanceView, agents: Iterable[InstanceView], standing: Standing) -> bool:
        """Return whether the instance was launched although others that stay made up the declared size long before."""
        clock, launched, market = self._store.clock, _launched(instance), _market(instance)
        if clock.to_real(launched - BOOT - self._standing_since) < self._settling:
            return False
        longstanding = (i for i in agents if _market(i) is market and _stays(i) and _launched(i) <= launched - BOOT)
        return sum(weight(standing, i) for i in longstanding) >= _target(standing, market)

    def generation(self, instances: Iterable[InstanceView]) -> str:
        """Return the generation that instances are replaced for.

        It is empty if instances of a market that were launched long after it was declared have another one, and none
        there has it, because replacing them would then never end.
        """
        declared = self.manifest.generation
        agents = [i for i in instances if _reports(i) and i.record is not None and i.record.generation]
        right = {_market(i) for i in agents if _generation(i) == declared}
        since = self._generation_since + BOOT
        wrong = [i for i in agents if _market(i) not in right and _launched(i) > since]
        if declared and wrong and self._doubted != declared:
            self._doubted = declared
            _log.error(
                "%s was launched with generation %s, cluster.json says %s: nothing is replaced for its generation",
                wrong[0].instance_id, _generation(wrong[0]), declared,
            )  # fmt: skip
        return "" if wrong else declared

    def rolling(self) -> bool:
        """Return whether busy instances are replaced too, by the request to roll."""
        return bool(self.manifest.generation) and self._rolls_to == self.manifest.generation


def _is_agent(instance: InstanceView) -> bool:
    """Return whether it is an agent's instance of the standing fleets that reports."""
    return instance.launched_for is None and _reports(instance)


def _reports(instance: InstanceView) -> bool:
    """Return whether it is an agent's instance that reports."""
    return instance.record is not None and instance.record.role is Role.AGENT and instance.reports


def _stays(instance: InstanceView) -> bool:
    """Return whether no reason is known for which its fleet would replace it."""
    return not (instance.leaving or instance.ending or instance.notified or instance.recommended_away)


def _market(instance: InstanceView) -> Market:
    assert instance.record is not None  # noqa: S101 - asked of agents that have reported only
    return instance.record.market


def _generation(instance: InstanceView) -> str:
    assert instance.record is not None  # noqa: S101 - asked of agents that have reported only
    return instance.record.generation


def _launched(instance: InstanceView) -> datetime:
    """Return the launch by the ledger; otherwise the start of its agent, which is later for a restarted agent."""
    assert instance.record is not None  # noqa: S101 - asked of agents that have reported only
    return instance.launched_at or instance.record.booted_at


def _target(standing: Standing, market: Market) -> int:
    return standing.spot_units if market is Market.SPOT else standing.on_demand_units
