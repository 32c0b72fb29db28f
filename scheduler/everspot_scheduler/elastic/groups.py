"""Makes requests of launches: launches with the same pools on the same terms become one request."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from everspot_core.capacity.launching import LaunchPool
from everspot_core.capacity.market import Market
from everspot_core.cluster.manifest import Elastic
from everspot_core.schedule import Launch, PoolKey

POOLS_AT_MOST = 300
"""The most pools of one request; more would gain nothing."""
AT_ONCE = 500
"""The most instances of one request, so that the cloud answers, with an error for each instance, before the timeout."""


@dataclass(frozen=True, slots=True)
class Group:
    """Launches that are one request.

    Attributes:
        jobs: one for each instance.
        whole: all instances or none.
    """

    jobs: tuple[str, ...]
    pools: tuple[PoolKey, ...]
    ordered: bool
    whole: bool

    @property
    def market(self) -> Market:
        """The market of all of its pools."""
        return self.pools[0].market


def launchable_pools(elastic: Elastic) -> list[PoolKey]:
    """Return every pool in which instances may be launched."""
    pools = (PoolKey(t, z, market) for t in elastic.types for z in sorted(elastic.places) for market in elastic.markets)
    return [pool for pool in pools if elastic.offers(pool.instance_type, pool.zone, pool.market)]


def groups(launches: Iterable[Launch], elastic: Elastic) -> list[Group]:
    """Return the requests, in the plan's order. A gang has its own request, so that the request is all or nothing for
    it alone."""
    alike: dict[tuple[tuple[PoolKey, ...], bool, str], list[str]] = defaultdict(list)
    for launch in launches:
        pools = tuple(p for p in launch.ranked if elastic.offers(p.instance_type, p.zone, p.market))[:POOLS_AT_MOST]
        gang = launch.job_id if launch.count > 1 else ""
        if pools:
            alike[pools, launch.ordered, gang] += [launch.job_id] * launch.count
    requests = list[Group]()
    for (pools, ordered, gang), jobs in alike.items():
        size = len(jobs) if gang else AT_ONCE
        for first in range(0, len(jobs), size):
            requests.append(Group(tuple(jobs[first : first + size]), pools, ordered, whole=bool(gang)))
    return requests


def launch_pools(pools: Iterable[PoolKey], places: Mapping[str, str], prices: Mapping[str, float]) -> list[LaunchPool]:
    """Return these pools in the form of an intent. `prices`: the highest Spot price that is paid, by type."""
    return [
        LaunchPool(
            instance_type=pool.instance_type,
            zone=pool.zone,
            market=pool.market,
            place=places[pool.zone],
            max_price=prices.get(pool.instance_type) if pool.market is Market.SPOT else None,
        )
        for pool in pools
    ]
