"""The market of one region: its time, pools and prices, quotas and records.

It does not know who buys: machines take instances from its pools and give them back.
"""

import threading
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from everspot_core.capacity.catalogue import Catalogue

from everspot_local.market.clock import MarketClock
from everspot_local.market.delays import Delays
from everspot_local.market.disturbances import DisturbanceRates, Disturbances
from everspot_local.market.market_log import MarketLog
from everspot_local.market.pools import MarketPool, Pools
from everspot_local.market.quotas import Quotas
from everspot_local.market.timeline import Timeline


class LocalMarket:
    """A market. Everything happens on its timeline and while its lock is held.

    Attributes:
        zone_ids: zone ids by zone name.
        disturbances: decides what the services do wrong.
        price_listeners: called with a pool when its Spot price changes.

    Args:
        catalogue: instance types with prices.
        region: name of the region.
        zone_ids: zone ids by zone name.
        quotas: creates the account's initial quotas.
        market_log: file of launches, ends and prices.
        scale: market seconds in a real second.
        seed: of depths and prices.
        delays: of the cloud's own actions.
        disturbances: shares at the beginning.
        one_price: whether a type's Spot price is the same in all zones.
        epoch: of the clock, see `MarketClock`.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        region: str,
        zone_ids: dict[str, str],
        quotas: Callable[[], Quotas],
        market_log: Path,
        *,
        scale: float,
        seed: int,
        delays: Delays,
        disturbances: DisturbanceRates,
        one_price: bool = False,
        epoch: int | None = None,
    ) -> None:
        self.region = region
        self.delays = self._first_delays = delays
        self.clock = MarketClock(scale, epoch)
        self.lock = threading.RLock()
        self.timeline = Timeline(self.clock, self.lock)
        self.log = MarketLog(market_log)
        self._catalogue = catalogue
        self.zone_ids = zone_ids
        self.price_listeners: list[Callable[[MarketPool, float], None]] = []
        self._seed, self._one_price = seed, one_price
        self._new_quotas = quotas
        self._first_rates = disturbances
        self.disturbances = Disturbances(disturbances, seed)
        self.pools = self._new_pools()
        self.quotas = quotas()

    def pool_delays(self, pool: MarketPool) -> Delays:
        """Return the delays of a pool's machines."""
        return self.delays.changed(pool.delays)

    def open(self) -> None:
        """Start the timeline and the changes of prices."""
        self.timeline.start()
        self._walk()

    def reset(self) -> None:
        """Return the market to its beginning, with empty records and nothing scheduled. The clock goes on."""
        self.timeline.clear()
        self.log.restart()
        self.pools = self._new_pools()
        self.quotas = self._new_quotas()
        self.delays = self._first_delays
        self.disturbances = Disturbances(self._first_rates, self._seed)
        self._walk()

    def use_catalogue(self, catalogue: Catalogue) -> None:
        """Add types that a market script declares. Existing pools stay as they are."""
        self._catalogue = catalogue
        self.pools.catalogue = catalogue

    def _new_pools(self) -> Pools:
        return Pools(
            self._catalogue, self.region, self.zone_ids, self._seed, self.clock.epoch, self._record_price,
            one_price=self._one_price,
        )  # fmt: skip

    def _record_price(self, pool: MarketPool, usd: float, at: datetime) -> None:
        self.log.price(pool.instance_type, pool.zone, usd, at)
        for listener in self.price_listeners:
            listener(pool, usd)

    def _walk(self) -> None:
        def step() -> None:
            self._walk()  # first: a step that fails must not be the last
            self.pools.walk(self.clock.now())

        self.timeline.after(self.delays.walk, step)
