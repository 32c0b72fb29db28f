"""Stands in for EC2 instances: moto's, with a market side and states that take their time.

It does not stop, start, reboot or hibernate. A terminated instance stays visible until the local cloud goes down.
"""

import copy
from datetime import datetime
from typing import Any

from everspot_core.records import Market
from moto.ec2.models.instances import Instance, InstanceState, StateReason
from moto.ec2.utils import random_spot_request_id

from everspot_local import world
from everspot_local.aws.ec2.exceptions import UnsupportedHere
from everspot_local.machines.lifecycle import Cause
from everspot_local.market.pools import MarketPool

ALIVE = ("pending", "running")


class LocalInstance(Instance):
    """An instance of the local cloud. moto's `run_instances` makes it; the world's lifecycle moves it."""

    pool: MarketPool

    def __init__(self, ec2_backend: Any, image_id: str, user_data: Any, security_groups: Any, **kwargs: Any) -> None:
        super().__init__(ec2_backend, image_id, user_data, security_groups, **kwargs)
        self.set_state("pending", 0)
        self.action_at: datetime | None = None
        self.rebalance_at: datetime | None = None
        self.ended_at: datetime | None = None
        self.fleet_id: str | None = kwargs.get("fleet_id")
        self.spot_instance_request_id: str | None = None
        if self.lifecycle == "spot" or kwargs.get("instance_market_options") == "spot":
            self.lifecycle = "spot"
            self.spot_instance_request_id = random_spot_request_id()

    @property
    def market(self) -> Market:
        """How it is paid."""
        return Market.SPOT if self.lifecycle == "spot" else Market.ON_DEMAND

    @property
    def alive(self) -> bool:
        """Pending or running."""
        return self.state in ALIVE

    def set_state(self, name: str, code: int) -> None:
        """Change the state that the API tells."""
        self._state = InstanceState(name, code)

    def set_reason(self, transition: str, code: str, message: str) -> None:
        """Why it came to its end, in the API's three fields."""
        self._reason = transition
        self.state_reason = StateReason(message, code)

    def terminate(self) -> InstanceState:
        """By the API: the lifecycle does the rest, in its time."""
        previous = copy.copy(self._state)
        world.current().lifecycle.end(self, Cause.USER, graceful=True)
        return previous

    def stop(self) -> InstanceState:
        """Not offered."""
        raise UnsupportedHere("stopping instances; terminate them")

    def start(self) -> InstanceState:
        """Not offered."""
        raise UnsupportedHere("starting stopped instances")

    def reboot(self) -> None:
        """Not offered."""
        raise UnsupportedHere("rebooting instances")

    def release(self) -> None:
        """Give back network interfaces, volumes and the profile's association, as a terminated instance does."""
        for nic in self.nics.values():
            nic.stop()
            nic.delete()
        self.teardown_defaults()
        association = self.ec2_backend.iam_instance_profile_associations.get(self.id)
        if association is not None:
            self.ec2_backend.disassociate_iam_instance_profile(association_id=association.association_id)

    @property
    def profile_arn(self) -> str | None:
        """ARN of its instance profile."""
        association = self.ec2_backend.iam_instance_profile_associations.get(self.id)
        return None if association is None else str(association.iam_instance_profile.arn)
