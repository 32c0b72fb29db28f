"""Stands in for what EC2 does with an instance from launch to end, and tells about on EventBridge.

It does not stop, start or hibernate instances: a Spot interruption terminates.
"""

import logging
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING

from everspot_core.records import Market

from everspot_local.aws.events import source as events
from everspot_local.market.clock import stamp
from everspot_local.market.pools import MarketPool
from everspot_local.world import World

if TYPE_CHECKING:
    from everspot_local.aws.ec2.instances import LocalInstance

log = logging.getLogger(__name__)
PENDING, RUNNING, SHUTTING_DOWN, TERMINATED = ("pending", 0), ("running", 16), ("shutting-down", 32), ("terminated", 48)


@dataclass(frozen=True)
class _Words:
    transition: str
    code: str
    message: str


class Cause(Enum):
    """Who ended an instance, in the API's words."""

    USER = _Words("User initiated", "Client.UserInitiatedShutdown", "User initiated shutdown")
    ITSELF = _Words("", "Client.InstanceInitiatedShutdown", "Instance initiated shutdown")
    SPOT = _Words("Service initiated", "Server.SpotInstanceTermination", "Spot instance termination")
    SERVICE = _Words("Service initiated", "Server.InternalError", "Internal error on termination")


class Lifecycle:
    """Moves instances through their states. Every method is called with the world's lock held."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.instances: dict[str, LocalInstance] = {}

    def living(self) -> list["LocalInstance"]:
        """Pending and running instances."""
        return [i for i in self.instances.values() if i.alive]

    def find(self, instance_id: str) -> "LocalInstance":
        """A living instance by its id.

        Raises:
            KeyError: if there is none.
        """
        found = self.instances.get(instance_id)
        if found is None or not found.alive:
            raise KeyError(f"there is no pending or running instance {instance_id}")
        return found

    def launched(self, instance: "LocalInstance", pool: MarketPool) -> None:
        """A new instance exists: it costs from now on, and will be running and boot by and by."""
        world, now = self._world, self._world.clock.now()
        instance.pool = pool
        pool.used[instance.market] += 1
        instance.launch_time = now
        self.instances[instance.id] = instance
        price = pool.on_demand_usd if instance.market is Market.ON_DEMAND else None
        world.log.launch(instance.id, pool.instance_type, pool.zone, instance.market.value, price, now)
        self._enter(instance, PENDING)
        world.timeline.at(now + world.delays.pending, lambda: self._running(instance))
        if world.options.boot_command is not None:
            world.timeline.at(now + world.delays.boot, lambda: self._boot(instance))

    def rebalance(self, instance: "LocalInstance") -> None:
        """Recommend to leave a Spot instance: its pool is at risk."""
        now = self._world.clock.now()
        if instance.rebalance_at is None:
            instance.rebalance_at = now
            events.instance_event(self._world, instance, "EC2 Instance Rebalance Recommendation", {}, now)

    def notice(self, instance: "LocalInstance", lead: timedelta | None = None) -> None:
        """Tell a Spot instance that it will be taken, and take it when the lead has passed.

        Raises:
            ValueError: if the instance is on-demand.
        """
        if instance.market is not Market.SPOT:
            raise ValueError(f"{instance.id} is on-demand: only Spot instances get interruption notices")
        if instance.action_at is not None:
            return
        now = self._world.clock.now()
        instance.action_at = now + (self._world.delays.notice if lead is None else lead)
        detail = {"instance-action": "terminate"}
        events.instance_event(self._world, instance, "EC2 Spot Instance Interruption Warning", detail, now)
        self._world.timeline.at(instance.action_at, lambda: self.take(instance))

    def take(self, instance: "LocalInstance") -> None:
        """Take an instance away at once, whatever it is doing; an on-demand one fails, as hardware does."""
        self.end(instance, Cause.SPOT if instance.market is Market.SPOT else Cause.SERVICE, graceful=False)

    def end(self, instance: "LocalInstance", cause: Cause, *, graceful: bool) -> None:
        """Begin the end of an instance: it costs nothing from now on, and its processes are ended."""
        if not instance.alive:
            return
        world, now = self._world, self._world.clock.now()
        instance.pool.used[instance.market] -= 1
        instance.ended_at = now
        words = cause.value
        instance.set_reason(f"{words.transition} ({now:%Y-%m-%d %H:%M:%S} GMT)" if words.transition else "",
                            words.code, f"{words.code}: {words.message}")  # fmt: skip
        world.log.end(instance.id, cause is Cause.SPOT, now)
        self._enter(instance, SHUTTING_DOWN)
        for listener in world.listeners:
            try:
                listener(instance, cause.name)
            except Exception:  # what replaces an instance must not keep this one from ending
                log.exception("the end of %s could not be told", instance.id)
        if world.machines.stop(instance.id, hard=not graceful):
            world.timeline.at(now + world.delays.shutdown, lambda: world.machines.kill(instance.id))
        else:
            self.gone(instance.id)

    def gone(self, instance_id: str) -> None:
        """No process of an instance is left: it is terminated. One that nobody ended has shut itself down."""
        instance = self.instances[instance_id]
        if instance.alive:
            self.end(instance, Cause.ITSELF, graceful=False)
        elif instance.state != TERMINATED[0]:
            self._world.metadata.close(instance_id)
            instance.release()
            self._enter(instance, TERMINATED)

    def _running(self, instance: "LocalInstance") -> None:
        if instance.state == PENDING[0]:
            self._enter(instance, RUNNING)

    def _boot(self, instance: "LocalInstance") -> None:
        if instance.alive:
            self._world.machines.boot(instance)

    def _enter(self, instance: "LocalInstance", state: tuple[str, int]) -> None:
        instance.set_state(*state)
        detail = {"state": state[0]}
        now = self._world.clock.now()
        events.instance_event(self._world, instance, "EC2 Instance State-change Notification", detail, now)


def drought_text(pool: MarketPool) -> str:
    """What EC2 says when a pool has nothing to give."""
    return (
        f"We currently do not have sufficient {pool.instance_type} capacity in the Availability Zone you requested "
        f"({pool.zone}). Our system will be working on provisioning additional capacity."
    )


def action_document(instance: "LocalInstance") -> dict[str, str] | None:
    """`spot/instance-action` of the metadata service, or None while there is no notice."""
    return None if instance.action_at is None else {"action": "terminate", "time": stamp(instance.action_at)}
