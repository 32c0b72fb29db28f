"""What the cluster is declared to be, read again while the scheduler runs: `cluster.json`, and the request to roll.

An upgrade changes limits, types, size and generation there; the scheduler follows without being restarted. It is
careful with what instances are ended for: a new size counts only once it has stood for a while, because the fleets
follow it in their own time, and it counts for nothing if a fleet brings more than that all the same. Nor does a
generation that the newest instances of a market do not have.
"""

import logging
from collections.abc import Iterable
from datetime import datetime, timedelta

from everspot_core.catalogue import InstanceType
from everspot_core.manifest import Limits, Manifest, Standing
from everspot_core.records import Market, Role
from everspot_core.schedule import InstanceView
from everspot_core.schedule.provisioning.leaving import weight
from everspot_store import BadDocument, Store

from everspot_scheduler.pace import Pace

TICKS_BETWEEN = 6
"""Ticks from one look at `cluster.json` to the next."""
TICKS_TO_SETTLE = 24
"""For so many ticks a declared size must have stood before instances are ended for it."""
BOOT = timedelta(minutes=2)
"""Market time: an instance launched so long after a generation was first seen must have it, and one launched so long
after others must have known of them."""
_log = logging.getLogger(__name__)


class Declaration:
    """The declaration of one cluster, as this scheduler has seen it last. Raises the store's errors."""

    def __init__(self, store: Store, manifest: Manifest) -> None:
        self._store, self.manifest = store, manifest
        self._etag: str | None = None
        self._rolls_to = self._doubted = ""
        self._since, self._generation_since = store.clock.monotonic(), store.clock.now()
        self._standing_since, self._stranger = store.clock.now(), ""
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
            self._since, self._standing_since, self._stranger = now, self._store.clock.now(), ""
        if self.manifest.generation != found.value.generation or self._etag is None:
            self._generation_since = self._store.clock.now()
        if self._etag is not None:
            _log.info("cluster.json has changed: generation %s", found.value.generation or "unnamed")
        for problem in self._store.left_out_of_manifest():
            _log.warning("cluster.json: %s: left out", problem)
        self._etag, self.manifest = found.etag, found.value
        return True

    def standing(self, instances: Iterable[InstanceView]) -> Standing | None:
        """What the standing fleets are declared to hold, once that has stood for a while; None too while a fleet is of
        another size, for then letting its excess go would never end."""
        standing, stood = self.manifest.standing, self._store.clock.monotonic() - self._since
        if standing is None or stood < self._settling:
            return None
        agents = [i for i in instances if _is_agent(i)]
        stranger = next((i for i in agents if self._is_unasked(i, agents, standing)), None)
        if stranger is None:
            return standing
        if not self._stranger:
            market = _market(stranger)
            self._stranger = stranger.instance_id
            _log.error(
                "%s (%s) was brought while its market held the declared %d without it: the fleet is sized by somebody "
                "else, and nothing is let go as excess",
                stranger.instance_id, market.value, _target(standing, market),
            )  # fmt: skip
        return None

    @property
    def _settling(self) -> timedelta:
        return TICKS_TO_SETTLE * self.limits.tick_every

    def _is_unasked(self, instance: InstanceView, agents: Iterable[InstanceView], standing: Standing) -> bool:
        """Launched for no reason known here: long after the size was declared, while others made it up that stay."""
        clock, launched, market = self._store.clock, _launched(instance), _market(instance)
        if clock.to_real(launched - BOOT - self._standing_since) < self._settling:
            return False
        held = (i for i in agents if _market(i) is market and _stays(i) and _launched(i) <= launched - BOOT)
        return sum(weight(standing, i) for i in held) >= _target(standing, market)

    def generation(self, instances: Iterable[InstanceView]) -> str:
        """The generation by which instances are to be replaced; empty while instances of a market that were launched
        long after it was declared have another and none there has it: then replacing them would never end."""
        wanted = self.manifest.generation
        agents = [i for i in instances if _is_agent(i) and i.record is not None and i.record.generation]
        right = {_market(i) for i in agents if _generation(i) == wanted}
        since = self._generation_since + BOOT
        wrong = [i for i in agents if _market(i) not in right and _launched(i) > since]
        if wanted and wrong and self._doubted != wanted:
            self._doubted = wanted
            _log.error(
                "%s was launched with generation %s, cluster.json says %s: nothing is replaced for its generation",
                wrong[0].instance_id, _generation(wrong[0]), wanted,
            )  # fmt: skip
        return "" if wrong else wanted

    def rolling(self) -> bool:
        """Whether somebody wants busy instances replaced too."""
        return bool(self.manifest.generation) and self._rolls_to == self.manifest.generation


def _is_agent(instance: InstanceView) -> bool:
    """Of the standing fleets: what was launched for a job says nothing of what is declared."""
    if instance.launched_for is not None:
        return False
    return instance.record is not None and instance.record.role is Role.AGENT and instance.reports


def _stays(instance: InstanceView) -> bool:
    """Nothing is known for which its fleet would replace it."""
    return not (instance.leaving or instance.ending or instance.notified or instance.recommended_away)


def _market(instance: InstanceView) -> Market:
    assert instance.record is not None  # noqa: S101 - asked of agents that have reported only
    return instance.record.market


def _generation(instance: InstanceView) -> str:
    assert instance.record is not None  # noqa: S101 - asked of agents that have reported only
    return instance.record.generation


def _launched(instance: InstanceView) -> datetime:
    """By the ledger; else when its agent began, which an agent that was restarted did later."""
    assert instance.record is not None  # noqa: S101 - asked of agents that have reported only
    return instance.launched_at or instance.record.booted_at


def _target(standing: Standing, market: Market) -> int:
    return standing.spot_units if market is Market.SPOT else standing.on_demand_units
