"""The regions in which a job's pools are, and what a move between them costs.

A job runs in one region at a time, where its checkpoint is. To move it gives up what it holds, waits until the
checkpoint is copied, and pays for the bytes that leave the region. Each region has its own on-demand price.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from everspot_core.federation.forecast import COPIED_PER_HOUR, MoveCost
from everspot_core.validation.problems import Problems


@dataclass(frozen=True, slots=True, kw_only=True)
class Regions:
    """The regions of the pools of one job. The job begins in the first one.

    Attributes:
        names: one a region.
        pools: the region of each pool, as an index of `names`.
        price_ratios: on-demand price by region, as `Setting.price_ratio`.
        checkpoint_gb: gigabytes that a move copies.
        egress_usd: dollars for a gigabyte that leaves each region.

    Raises:
        BadInputs: naming every value that is out of range.
    """

    names: tuple[str, ...]
    pools: tuple[int, ...]
    price_ratios: tuple[float, ...]
    checkpoint_gb: float
    egress_usd: tuple[float, ...]

    def __post_init__(self) -> None:
        problems, count = Problems(), len(self.names)
        problems.need(count >= 1, "regions", "at least one is needed")
        for name in ("price_ratios", "egress_usd"):
            values: tuple[float, ...] = getattr(self, name)
            problems.need(len(values) == count, name, f"needs {count} values, one a region; it has {len(values)}")
            low = [v for v in values if not 0 <= v < math.inf or (name == "price_ratios" and v == 0)]
            problems.need(not low, name, f"must be positive numbers; there is {low}")
        problems.need(all(0 <= r < count for r in self.pools), "pools", f"must be indexes of {count} regions")
        gigabytes = self.checkpoint_gb
        problems.need(0 <= gigabytes < math.inf, "checkpoint_gb", f"must be >= 0; it is {gigabytes}")
        problems.raise_any("simulation")

    @classmethod
    def from_names(
        cls, pools: Sequence[str], price_ratios: dict[str, float], *, checkpoint_gb: float, egress_usd: float
    ) -> "Regions":
        """Return the regions with these names, one name a pool. `price_ratios`: by name. `egress_usd`: of every
        region."""
        names = tuple(dict.fromkeys(pools))
        return cls(
            names=names,
            pools=tuple(names.index(name) for name in pools),
            price_ratios=tuple(price_ratios[name] for name in names),
            checkpoint_gb=checkpoint_gb,
            egress_usd=(egress_usd,) * len(names),
        )

    def move_ticks(self, tick_seconds: float) -> int:
        """Return the whole ticks that a move takes."""
        seconds = MoveCost.for_bytes(self.checkpoint_gb, 0.0, COPIED_PER_HOUR).expected.total_seconds()
        return max(1, math.ceil(seconds / tick_seconds - 1e-9))

    def move_usd(self, origin: int) -> float:
        """Return the dollars of a move out of a region."""
        return self.checkpoint_gb * self.egress_usd[origin]


def one_region(pools: int, price_ratio: float) -> Regions:
    """Return a single region that has all pools."""
    return Regions(
        names=("home",), pools=(0,) * pools, price_ratios=(price_ratio,), checkpoint_gb=0.0, egress_usd=(0.0,)
    )
