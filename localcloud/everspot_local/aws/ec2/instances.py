"""Stands in for EC2 instances: moto's, connected to the market, with states that change after realistic delays.

It stops on-demand instances that no fleet or group launched and whose shutdown behavior is `stop`: their capacity goes
back, and their volumes stay. One that switches itself off is terminated, whatever its shutdown behavior. It does not
start, reboot or hibernate. A terminated instance stays visible for an hour.
"""

import copy
from datetime import datetime
from typing import Any

from everspot_core.jobs.records import Market
from moto.ec2.models.instances import Instance, InstanceState, StateReason
from moto.ec2.utils import random_spot_request_id

from everspot_local.aws import account
from everspot_local.aws.ec2.exceptions import EC2ClientError, UnsupportedHere
from everspot_local.aws.environment import endpoints
from everspot_local.aws.events import source
from everspot_local.machines.machine import EndedBy, Machine, MachinePhase
from everspot_local.market.pools import MarketPool

STATES = {
    MachinePhase.PENDING: ("pending", 0),
    MachinePhase.RUNNING: ("running", 16),
    MachinePhase.ENDING: ("shutting-down", 32),
    MachinePhase.ENDED: ("terminated", 48),
}
STOPPING = {MachinePhase.ENDING: ("stopping", 64), MachinePhase.ENDED: ("stopped", 80)}
"""States of an instance whose volumes outlive its machine."""
# Who ended an instance, in the API's words: transition, code, message.
REASONS = {
    EndedBy.USER: ("User initiated", "Client.UserInitiatedShutdown", "User initiated shutdown"),
    EndedBy.ITSELF: ("", "Client.InstanceInitiatedShutdown", "Instance initiated shutdown"),
    EndedBy.MARKET: ("Service initiated", "Server.SpotInstanceTermination", "Spot instance termination"),
    EndedBy.FAILURE: ("Service initiated", "Server.InternalError", "Internal error on termination"),
}
LAUNCH_FAILURES = {
    "Client.InternalError": "Client error on launch",
    "Client.InvalidKMSKey.InvalidState": "The KMS key provided is in an incorrect state",
    "Client.InvalidSnapshot.NotFound": "The specified snapshot was not found",
    "Client.VolumeLimitExceeded": "Volume limit exceeded",
    "Server.InsufficientInstanceCapacity": "Insufficient capacity to satisfy instance request",
    "Server.InternalError": "Internal error on launch",
}
"""Messages by code of instances that EC2 launches and terminates seconds later. Such an instance has the code
`Server.InternalError` where a client's error is in its message: EC2 User Guide, "Instance terminates immediately", and
API reference, "StateReason". The KMS code as met: openshift's installer, `Client.InvalidKMSKey.InvalidState`."""


class LocalInstance(Instance):
    """An instance as EC2 shows a machine. moto's `run_instances` makes it; the account's machines change its state."""

    machine: Machine

    def __init__(self, ec2_backend: Any, image_id: str, user_data: Any, security_groups: Any, **kwargs: Any) -> None:
        super().__init__(ec2_backend, image_id, user_data, security_groups, **kwargs)
        self._state = InstanceState(*STATES[MachinePhase.PENDING])
        self.fleet_id: str | None = kwargs.get("fleet_id")
        self._stops = False
        self.spot_instance_request_id: str | None = None
        if self.lifecycle == "spot" or kwargs.get("instance_market_options") == "spot":
            self.lifecycle = "spot"
            self.spot_instance_request_id = random_spot_request_id()

    def launch(self, pool: MarketPool) -> None:
        """Take a machine from a pool of the market, which bills it from now on."""
        here = account.current()
        self.launch_time = here.market.clock.now()
        self.machine = Machine(self.id, pool, self.market, self.launch_time, self, self.fleet_id)
        here.machines.launch(self.machine)

    @property
    def market(self) -> Market:
        """Return the market, Spot or on-demand, that the instance is billed by."""
        return Market.SPOT if self.lifecycle == "spot" else Market.ON_DEMAND

    @property
    def alive(self) -> bool:
        """Return whether the instance is pending or running."""
        return self.machine.alive

    def environment(self) -> dict[str, str]:
        """Return the environment in which the instance's programs find the account's services and its metadata
        service."""
        here = account.current()
        return {
            **endpoints(here.endpoint, here.region),
            "AWS_EC2_METADATA_DISABLED": "false",
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": here.metadata.endpoint(self.id),
            **here.machines.trees.variables(self.image_id, lasting=self._can_stop),
        }

    @property
    def _can_stop(self) -> bool:
        """Return whether its volumes outlive a power-off: Spot instances here are one-time, and what fleets and groups
        launch is terminated."""
        alone = self.fleet_id is None and getattr(self, "autoscaling_group", None) is None
        return alone and self.instance_initiated_shutdown_behavior == "stop" and self.market is Market.ON_DEMAND

    def labels(self) -> dict[str, str]:
        """Return the instance's tags."""
        return dict(self.ec2_backend.tags.get(self.id, {}))

    def get_tags(self) -> list[dict[str, str]]:
        """Return the instance's tags, found by its id. moto searches the tags of the whole account for each
        instance."""
        return [
            {"resource_id": self.id, "key": key, "resource_type": "instance", "value": value}
            for key, value in self.labels().items()
        ]

    def entered(self, at: datetime) -> None:
        """Change the state that the API shows, and send the event of it to EventBridge."""
        machine = self.machine
        if machine.phase is MachinePhase.ENDING and machine.ended_by is not None:
            self._set_reason(machine.ended_by, at)
        elif machine.phase is MachinePhase.ENDED:
            account.current().metadata.close(self.id)
            if not self._stops:
                self._remove(at)
        self._state = InstanceState(*(STOPPING if self._stops else STATES).get(machine.phase, STATES[machine.phase]))
        self._publish_event("EC2 Instance State-change Notification", {"state": self.state}, at)

    def rebalance_recommended(self, at: datetime) -> None:
        """Send the rebalance recommendation to EventBridge."""
        self._publish_event("EC2 Instance Rebalance Recommendation", {}, at)

    def noticed(self, at: datetime) -> None:
        """Send the interruption notice to EventBridge."""
        self._publish_event("EC2 Spot Instance Interruption Warning", {"instance-action": "terminate"}, at)

    def terminate(self) -> InstanceState:
        """Begin the termination that the API was asked for; the account's machines complete it."""
        previous = copy.copy(self._state)
        if self._stops:
            self._stops = False
            if self.machine.phase is MachinePhase.ENDED:
                at = account.current().market.clock.now()
                self._set_reason(EndedBy.USER, at)
                self.entered(at)
            else:  # it is stopping
                self._state = InstanceState(*STATES[self.machine.phase])
        account.current().machines.end(self.machine, EndedBy.USER, graceful=True)
        return previous

    def stop(self) -> InstanceState:
        """Begin to stop the instance, as StopInstances does."""
        previous = copy.copy(self._state)
        if self._stops:
            return previous
        if not self.alive or self.machine.phase is MachinePhase.PENDING:
            reason = "is not in a state from which it can be stopped."
            if self.alive:
                reason = "cannot be stopped as it has never reached the 'running' state."
            raise EC2ClientError("IncorrectInstanceState", f"Instance '{self.id}' {reason}")
        if self.market is Market.SPOT:
            raise EC2ClientError(
                "UnsupportedOperation",
                f"You can't stop the Spot Instance '{self.id}' because it is associated with a one-time Spot Instance "
                "request. You can only stop Spot Instances associated with persistent Spot Instance requests.",
            )
        if not self._can_stop:
            raise UnsupportedHere("stopping instances of fleets, or with the shutdown behavior `terminate`")
        self._stops = True
        account.current().machines.end(self.machine, EndedBy.USER, graceful=True)
        return previous

    def start(self) -> InstanceState:
        """Refuse: the local cloud does not start stopped instances."""
        raise UnsupportedHere("starting stopped instances")

    def reboot(self) -> None:
        """Refuse: the local cloud does not reboot instances."""
        raise UnsupportedHere("rebooting instances")

    @property
    def profile_arn(self) -> str | None:
        """Return the ARN of the instance profile."""
        association = self.ec2_backend.iam_instance_profile_associations.get(self.id)
        return None if association is None else str(association.iam_instance_profile.arn)

    def _publish_event(self, detail_type: str, detail: dict[str, Any], at: datetime) -> None:
        source.instance_event(account.current().region, self.id, detail_type, detail, at)

    def _set_reason(self, by: EndedBy, at: datetime) -> None:
        """Set the three fields in which the API says why the instance ended."""
        if self.machine.failure:
            code = self.machine.failure if self.machine.failure.startswith("Server.") else "Server.InternalError"
            self._reason = code
            self.state_reason = StateReason(f"{self.machine.failure}: {LAUNCH_FAILURES[self.machine.failure]}", code)
            return
        transition, code, message = REASONS[by]
        self._reason = f"{transition} ({at:%Y-%m-%d %H:%M:%S} GMT)" if transition else ""
        self.state_reason = StateReason(f"{code}: {message}", code)

    def _remove(self, at: datetime) -> None:
        """Release the resources of a terminated instance, and forget it after a while."""
        self._release()
        here = account.current()
        here.machines.trees.remove_disk(self.id)
        here.market.timeline.at(at + here.market.delays.remembered, self._forget)

    def _forget(self) -> None:
        """Remove the instance and its tags from all answers. API reference, TerminateInstances: "visible after
        termination (for approximately one hour)"; EC2 User Guide, "Terminate …": its tags are deleted too."""
        backend = self.ec2_backend
        for key, reservation in list(backend.reservations.items()):
            reservation.instances = [i for i in reservation.instances if i is not self]
            if not reservation.instances:
                del backend.reservations[key]
        backend.tags.pop(self.id, None)

    def _release(self) -> None:
        """Release network interfaces, volumes and the association with the instance profile, as a terminated instance
        does."""
        for nic in self.nics.values():
            nic.stop()
            nic.delete()
        self.teardown_defaults()
        association = self.ec2_backend.iam_instance_profile_associations.get(self.id)
        if association is not None:
            self.ec2_backend.disassociate_iam_instance_profile(association_id=association.association_id)
