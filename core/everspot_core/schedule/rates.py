"""What an instance costs in an hour, as far as the view knows."""

from everspot_core.records import InstanceRecord, Market
from everspot_core.schedule.view import ClusterView, PoolKey

USD_PER_GPU, USD_PER_VCPU = 1.0, 0.05
"""Where no price is known, so that shares are at least in proportion to what is used."""
SPOT_DISCOUNT = 1 / 3
"""Of the on-demand price, where a spot price is not known."""


class Rates:
    """Hourly prices by pool; failing that by type; failing that by size."""

    def __init__(self, view: ClusterView) -> None:
        self._pools = {p.key: p.usd_per_hour for p in view.pools}
        known = ((t.name, t.on_demand_usd_per_hour) for t in (*view.types, *(p.instance_type for p in view.pools)))
        self._types = {name: usd for name, usd in known if usd is not None}

    def of(self, record: InstanceRecord) -> float:
        """US dollars an hour of this instance."""
        usd = self._pools.get(PoolKey(record.instance_type, record.zone, record.market))
        if usd is not None:
            return usd
        by_size = record.gpus * USD_PER_GPU + record.vcpus * USD_PER_VCPU
        usd = self._types.get(record.instance_type, by_size)
        return usd * SPOT_DISCOUNT if record.market is Market.SPOT else usd
