"""Events of a Spot market that a script, a trace or a person may cause.

It does not know other actions than those named here, and refuses a misspelt field by name.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, fields
from datetime import timedelta
from functools import partial
from typing import Any

from everspot_core.capacity.catalogue import InstanceType
from everspot_core.jobs.records import Market

from everspot_local.controls.replay import PoolSchedule, Replay
from everspot_local.machines.lifecycle import Machines
from everspot_local.machines.machine import Machine
from everspot_local.market.clock import stamp
from everspot_local.market.delays import PER_POOL, Delays, span
from everspot_local.market.disturbances import DisturbanceRates
from everspot_local.market.market import LocalMarket
from everspot_local.market.pools import MarketPool


class Actions:
    """Carries out actions that are given as documents. Called with the market's lock held."""

    NAMES = (
        "interrupt",
        "rebalance",
        "drought",
        "recover",
        "price",
        "depth",
        "quota",
        "replay",
        "delays",
        *("disturbances", "fail_launches", "issuer"),
    )

    def __init__(self, market: LocalMarket, machines: Machines) -> None:
        self._market = market
        self._machines = machines
        self._replay: Replay | None = None

    def do(self, document: dict[str, Any]) -> dict[str, Any]:
        """Carry out one action; the answer names what it changed.

        Raises:
            ValueError: for an action, field or value that is unknown.
            KeyError: for an instance that is not running.
        """
        fields = dict(document)
        name = fields.pop("action", None)
        handlers: dict[str, Callable[..., dict[str, Any]]] = {each: getattr(self, each) for each in self.NAMES}
        if name not in handlers:
            raise ValueError(f"unknown action {name!r}; there are {', '.join(self.NAMES)}")
        try:
            return handlers[name](**fields)
        except TypeError as error:
            raise ValueError(f"action {name}: {str(error).partition('() ')[2]}") from None

    def interrupt(self, instance: str, notice: bool = True, rebalance: Any = None, lead: Any = None) -> dict[str, Any]:
        """Reclaim an instance: a Spot instance after the usual notice, any instance immediately if `notice` is false.

        Args:
            instance: an id, or `oldest`, `newest` or a pool's name, which mean a Spot instance.
            notice: whether the instance gets a notice.
            rebalance: send a rebalance recommendation, and give notice this long after it.
            lead: length of the notice.
        """
        machine = self._pick(instance)
        if not notice:
            self._machines.take(machine)
        elif rebalance is None:
            self._machines.notice(machine, _span(lead))
        else:
            if machine.market is not Market.SPOT:
                raise ValueError(f"{machine.id} is on-demand: only Spot instances get interruption notices")
            self._machines.rebalance(machine)
            delay = _span(rebalance) or timedelta()
            self._market.timeline.after(delay, lambda: self._notice_if_alive(machine, _span(lead)))
        return {"instance": machine.id}

    def rebalance(self, instance: str) -> dict[str, Any]:
        """Send a rebalance recommendation for a Spot instance, without taking it back."""
        machine = self._pick(instance)
        if machine.market is not Market.SPOT:
            raise ValueError(f"{machine.id} is on-demand: only Spot instances get rebalance recommendations")
        self._machines.rebalance(machine)
        return {"instance": machine.id}

    def drought(self, pool: str, duration: Any = None, market: str = "spot", **more: Any) -> dict[str, Any]:
        """Empty pools for a time (`for`) or until `recover`; their Spot instances get notice."""
        duration = more.pop("for", duration)
        if more:
            raise TypeError(f"drought() got unexpected fields {', '.join(more)}")
        side, span = Market(market), _span(duration)
        until = self._market.clock.now() + (span or timedelta(days=3650))
        pools = self._market.pools.matching(pool)
        struck = []
        for each in pools:
            each.dry_until[side] = until
            if side is Market.SPOT:
                struck += self._notice_all(each)
            if span is not None:
                self._market.timeline.at(until, partial(self._end_drought, each, side, until))
        return {"pools": [p.name for p in pools], "instances": struck}

    def recover(self, pool: str, market: str = "spot") -> dict[str, Any]:
        """End a drought."""
        pools = self._market.pools.matching(pool)
        for each in pools:
            each.dry_until.pop(Market(market), None)
        return {"pools": [p.name for p in pools]}

    def price(self, pool: str, usd: float | None = None, factor: float | None = None) -> dict[str, Any]:
        """Set a new Spot price, or multiply the present one by a factor."""
        if (usd is None) == (factor is None):
            raise ValueError("action price: give usd or factor")
        pools = [p for p in self._market.pools.matching(pool) if p.spot_usd is not None]
        amount = float(usd if usd is not None else factor or 0)
        if not 0 < amount < math.inf:
            raise ValueError(f"action price: {'usd' if factor is None else 'factor'} must be a number above 0")
        for each in pools:
            new = amount if factor is None else (each.spot_usd or 0) * amount
            self._market.pools.set_price(each, new, self._market.clock.now())
        return {"pools": [p.name for p in pools]}

    def depth(self, pool: str, instances: int, market: str = "spot") -> dict[str, Any]:
        """Set how many instances a pool has room for; if more are running, the newest Spot instances get notice."""
        side = Market(market)
        if instances < 0:
            raise ValueError("action depth: instances must be at least 0")
        pools = self._market.pools.matching(pool)
        struck = []
        for each in pools:
            each.depth[side] = int(instances)
            if side is Market.SPOT:
                running = self._spot_machines(each)
                struck += self._notice_each(running[int(instances) :])
        return {"pools": [p.name for p in pools], "instances": struck}

    def replay(self, pools: Any, types: Any = (), alone: bool = False, delays: Any = None) -> dict[str, Any]:
        """Replay depths and prices from now on, over and over, in place of the previous replay.

        Args:
            pools: schedules, as `PoolSchedule.parse` reads them.
            types: instance types with prices that the catalogue lacks.
            alone: whether all other Spot pools are empty.
            delays: by name, for later launches.
        """
        if not isinstance(pools, list) or not pools:
            raise ValueError("action replay: `pools` must be a list that is not empty")
        if types:
            instance_types = [InstanceType.model_validate(kind) for kind in types]
            self._market.use_catalogue(self._market.pools.catalogue.with_types(instance_types))
        schedules = [PoolSchedule.parse(document) for document in pools]
        played = {(self._played(schedule).name, schedule.market) for schedule in schedules}
        if delays:
            self.delays(**delays)
        if self._replay is not None:
            self._replay.stop()
        if alone:
            self._market.pools.spot_depth = 0
            for pool in self._market.pools:
                if (pool.name, Market.SPOT) not in played:
                    self.depth(pool.name, 0)
        self._replay = Replay(self._market, self._set_depth, self._set_price)
        began = self._market.clock.now()
        self._replay.begin(schedules, began)
        return {"pools": sorted({name for name, _ in played}), "began_at": stamp(began)}

    def delays(self, pool: str = "", **settings: Any) -> dict[str, Any]:
        """Set how long things take from now on, by the names of `Delays`; with `pool`, for launches from that pool."""
        if not settings:
            raise ValueError(f"action delays: name one of {', '.join(field.name for field in fields(Delays))}")
        changed = self._market.delays.changed(settings)
        if not pool:
            self._market.delays = changed
            return {"pools": []}
        if other := sorted(set(settings) - set(PER_POOL)):
            raise ValueError(f"action delays: {', '.join(other)} is not of a pool; {', '.join(PER_POOL)} are")
        matches = self._market.pools.matching(pool)
        for each in matches:
            each.delays.update(settings)
        return {"pools": [p.name for p in matches]}

    def disturbances(self, **rates: Any) -> dict[str, Any]:
        """Set shares of what the services do wrong from now on, by the names of `DisturbanceRates`."""
        if not rates:
            raise ValueError(f"action disturbances: name one of {', '.join(f.name for f in fields(DisturbanceRates))}")
        self._market.disturbances.rates = self._market.disturbances.rates.changed(rates)
        return {"disturbances": asdict(self._market.disturbances.rates)}

    def fail_launches(self, pool: str, code: str, instances: int = 1) -> dict[str, Any]:
        """Let the next instances of each pool be launched and die seconds later. `code`: of the cloud's own codes."""
        if code not in self._machines.failure_codes:
            codes = ", ".join(sorted(self._machines.failure_codes)) or "none in this cloud"
            raise ValueError(f"action fail_launches: there is no failure {code!r}; there are {codes}")
        if instances < 0:
            raise ValueError("action fail_launches: instances must be at least 0")
        pools = self._market.pools.matching(pool)
        for each in pools:
            each.launch_failures = [code] * int(instances)
        return {"pools": [p.name for p in pools]}

    def issuer(self, url: str, address: str) -> dict[str, Any]:
        """Say where an issuer of identity tokens answers on this machine, so that its keys can be asked for."""
        self._machines.issuers.introduce(url, address)
        return {"issuer": url}

    def _played(self, schedule: PoolSchedule) -> MarketPool:
        kind, _, zone = schedule.pool.partition("/")
        pool = self._market.pools.get(kind, zone)
        if pool is None:
            raise ValueError(f"action replay: there is no pool {schedule.pool!r}")
        if schedule.market is Market.ON_DEMAND and set(schedule.prices) - {pool.on_demand_usd}:
            raise ValueError(
                f"action replay: {schedule.pool} costs ${pool.on_demand_usd:g} an hour on-demand by the catalogue, "
                f"not ${schedule.prices[0]:g}"
            )
        if schedule.market is Market.SPOT and schedule.prices:
            pool.scripted = True
        return pool

    def _set_depth(self, pool: str, instances: int, market: Market) -> None:
        self.depth(pool, instances, market.value)

    def _set_price(self, pool: str, usd: float) -> None:
        kind, _, zone = pool.partition("/")
        if (market_pool := self._market.pools.get(kind, zone)) is not None:
            self._market.pools.set_price(market_pool, usd, self._market.clock.now())

    def quota(self, code: str, value: float) -> dict[str, Any]:
        """Set a quota by its code. Running instances stay."""
        self._market.quotas.set(code, float(value))
        return {"quota": code, "value": float(value)}

    def _end_drought(self, pool: MarketPool, side: Market, until: Any) -> None:
        if pool.dry_until.get(side) == until:
            del pool.dry_until[side]

    def _notice_all(self, pool: MarketPool) -> list[str]:
        return self._notice_each(self._spot_machines(pool))

    def _notice_each(self, machines: Iterable[Machine]) -> list[str]:
        struck = []
        for machine in machines:
            self._machines.notice(machine)
            struck.append(machine.id)
        return struck

    def _notice_if_alive(self, machine: Machine, lead: timedelta | None) -> None:
        if machine.alive:
            self._machines.notice(machine, lead)

    def _spot_machines(self, pool: MarketPool) -> list[Machine]:
        return [m for m in self._machines.living() if m.market is Market.SPOT and m.pool is pool]

    def _pick(self, name: str) -> Machine:
        if name not in ("oldest", "newest") and not self._is_pool(name):
            return self._machines.find(name)
        spot = [m for m in self._machines.living() if m.market is Market.SPOT and m.reclaim_at is None]
        if name not in ("oldest", "newest"):
            spot = [m for m in spot if name in (m.pool.name, m.pool.instance_type, m.pool.zone)]
        if not spot:
            raise KeyError(f"no Spot instance without notice fits {name!r}")
        return spot[-1] if name == "newest" else spot[0]

    def _is_pool(self, name: str) -> bool:
        pools = self._market.pools
        return "/" in name or name in pools.zones or name in pools.catalogue.types


def _span(value: Any) -> timedelta | None:
    return None if value is None else span(value)
