"""The billing rules of a cloud, as values. Each cloud's `rules.py` defines its own."""

from dataclasses import dataclass
from datetime import timedelta

from everspot_core.capacity.instances import Role
from everspot_core.capacity.market import Market
from everspot_core.costs.ledger import LaunchRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class BillingRules:
    """The differences of a cloud's bill from the price of every second.

    - `minimum`: a shorter life is billed as this long.
    - `free_within`: a spot instance that the cloud takes sooner than this costs nothing; None: it is always billed.
    - `left_out`: names of costs that the cloud bills and our bill leaves out.
    - `pods`: whether agents are pods. The end of a pod is not the end of its machine, so `free_within` applies only to
      the machine.
    """

    minimum: timedelta
    free_within: timedelta | None
    left_out: tuple[str, ...]
    pods: bool = False

    def minimum_life(self, launch: LaunchRecord) -> timedelta:
        """Return the shortest life that is billed of an instance. A pod on a machine of others has none."""
        return timedelta(0) if launch.node else self.minimum

    def is_free(self, launch: LaunchRecord, taken_after: timedelta) -> bool:
        """Return whether an instance is free that the cloud took this long after its launch."""
        if self.free_within is None or launch.market is not Market.SPOT or (self.pods and launch.role is Role.AGENT):
            return False
        return taken_after < self.free_within
