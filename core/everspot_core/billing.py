"""By what rules a cloud bills, as values: each cloud's own rules give them."""

from dataclasses import dataclass
from datetime import timedelta

from everspot_core.ledger import LaunchRecord
from everspot_core.market import Market


@dataclass(frozen=True, slots=True, kw_only=True)
class BillingRules:
    """What a cloud bills beside the price of every second. `minimum`: shorter lives are paid as if they had been so
    long; `free_within`: a spot instance that the cloud takes sooner than that costs nothing, None if it always does;
    `left_out`: what is on the cloud's bill and not in ours."""

    minimum: timedelta
    free_within: timedelta | None
    left_out: tuple[str, ...]

    def is_free(self, launch: LaunchRecord, taken_after: timedelta) -> bool:
        """Whether an instance that the cloud took so long after its launch costs nothing."""
        return launch.market is Market.SPOT and self.free_within is not None and taken_after < self.free_within
