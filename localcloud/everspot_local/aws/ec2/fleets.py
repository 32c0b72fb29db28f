"""Stands in for EC2 Fleet: launches from the market's pools, and replaces ended instances if it is of type `maintain`.

It does not rebalance capacity, nor replace unhealthy instances that still run (instances here have no status checks).
On-demand members that end are replaced like Spot ones.
"""

import json
import logging
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from everspot_core.jobs.records import Market
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models.core import TaggedEC2Resource
from moto.ec2.utils import random_fleet_id

from everspot_local.aws import account
from everspot_local.aws.ec2 import fleet_errors, fleet_options, launch_rules, throttle
from everspot_local.aws.ec2.exceptions import InvalidFleetConfig
from everspot_local.aws.ec2.fleet_launch import Attempt
from everspot_local.aws.ec2.fleet_request import Override, read_overrides
from everspot_local.aws.ec2.fleet_targets import Targets, read_targets
from everspot_local.aws.ec2.instances import LocalInstance
from everspot_local.aws.ec2.roles import need_fleet_role, need_spot_role
from everspot_local.aws.events import source as events
from everspot_local.aws.iam import caller
from everspot_local.aws.iam.launches import Launch, by_kind, calls_of_launch
from everspot_local.aws.iam.resources import FLEET_TAGS_BY, base_context
from everspot_local.aws.strict import strict

log = logging.getLogger(__name__)


@dataclass
class Member:
    """An instance that the fleet launched. `weight`: the capacity units that it counts for."""

    instance: LocalInstance
    weight: float
    override: Override


class LocalFleet(TaggedEC2Resource):
    """A fleet. Its members are counted as fulfilled while they are pending or running."""

    def __init__(self, backend: Any, request: dict[str, Any]) -> None:
        fleet_options.check(request)
        self.ec2_backend = backend
        self.id = random_fleet_id()
        self.type: str = request.get("Type") or "maintain"
        self.targets = read_targets(request["TargetCapacitySpecification"])
        if self.type != "instant":
            need_fleet_role()
            if self.targets.spot:
                need_spot_role()
        self.excess_policy = request.get("ExcessCapacityTerminationPolicy") or "termination"
        self.context: str | None = request.get("Context")
        self.replace_unhealthy = bool(request.get("ReplaceUnhealthyInstances"))
        self.with_expiration = bool(request.get("TerminateInstancesWithExpiration"))
        self.options = fleet_options.read_options(request)
        self.request = request
        self.launch_tags = by_kind(request.get("TagSpecifications"))
        self.use_configs(request.get("LaunchTemplateConfigs") or [])
        self.add_tags(self.launch_tags.get("fleet", {}))
        self.created = account.current().market.clock.now()
        self.state = "submitted"
        self.members: dict[str, Member] = {}
        self.errors: list[dict[str, Any]] = []
        self.history: list[tuple[datetime, str, dict[str, Any]]] = []
        self._attempt_scheduled = False

    def use_configs(self, configs: list[dict[str, Any]]) -> None:
        """Launch from these templates and overrides from now on; running instances stay."""
        types = account.current().market.pools.catalogue.types
        self.overrides = read_overrides(self.ec2_backend, configs, types, instant=self.type == "instant")
        self.configs = configs

    def begin(self) -> None:
        """Launch immediately if the fleet is `instant`, else shortly after the answer."""
        if self.type == "instant":
            self.state = "active"
            self._launch(*self._missing())
            return
        self._record_event("EC2 Fleet State Change", "fleet-change", {"sub-type": "submitted"})
        self._schedule_attempt(account.current().market.delays.submit)

    @property
    def deleted(self) -> bool:
        """Return whether the fleet is deleted, so that it launches nothing."""
        return self.state.startswith("deleted")

    def living(self, market: Market | None = None) -> list[Member]:
        """Return the members that are pending or running, oldest first."""
        return [m for m in self.members.values() if m.instance.alive and market in (None, m.instance.market)]

    def fulfilled(self, market: Market | None = None) -> float:
        """Return the capacity units of the living members."""
        return sum(m.weight for m in self.living(market))

    def modify(self, targets: Targets | None, excess_policy: str | None) -> None:
        """Carry out a ModifyFleet."""
        if self.type != "maintain":
            raise InvalidFleetConfig(f"Fleets of type {self.type} cannot be modified.")
        if self.deleted:
            raise InvalidFleetConfig(f"Fleet {self.id} is deleted.")
        self.targets = targets or self.targets
        self.excess_policy = excess_policy or self.excess_policy
        self.state = "modifying"
        self._record_event("EC2 Fleet State Change", "fleet-change", {"sub-type": "modify_in_progress"})
        self._schedule_attempt(account.current().market.delays.submit)

    def delete(self, terminate: bool) -> None:
        """Stop launching, and terminate the members if asked to."""
        self.state = "deleted_terminating" if terminate else "deleted_running"
        self._record_event("EC2 Fleet State Change", "fleet-change", {"sub-type": self.state})
        if terminate:
            for member in self.living():
                member.instance.terminate()
        self._close_if_empty()

    def member_ended(self, instance_id: str) -> None:
        """Replace a member that has ended, if the fleet's type does that."""
        self._record_event("EC2 Fleet Instance Change", "instance-change", {"sub-type": "terminated"}, instance_id)
        if self.deleted:
            self._close_if_empty()
        elif self.type == "maintain":
            self._schedule_attempt(account.current().market.delays.replace)

    def _schedule_attempt(self, delay: Any) -> None:
        if not self._attempt_scheduled:
            self._attempt_scheduled = True
            account.current().market.timeline.after(delay, self._attempt)

    def _attempt(self) -> None:
        """Bring the fleet to its targets. A failed attempt is always repeated, since nothing else would repair a fleet
        of type `maintain`."""
        self._attempt_scheduled = False
        if self.deleted:
            return
        satisfied = False
        try:
            satisfied = self._reach_targets()
        except Exception:
            log.exception("fleet %s could not reach its targets and tries again", self.id)
        if self.type == "maintain" and not satisfied:
            self._schedule_attempt(account.current().market.delays.retry)

    def _reach_targets(self) -> bool:
        if self.state in ("submitted", "modifying"):
            self.state = "active"
            self._record_event("EC2 Fleet State Change", "fleet-change", {"sub-type": "active"})
        if self.excess_policy == "termination":
            self._shed(Market.ON_DEMAND, self.targets.on_demand)
            self._shed(Market.SPOT, self.targets.spot)
        return self._launch(*self._missing())

    def _missing(self) -> tuple[float, float]:
        return (
            max(0.0, self.targets.on_demand - self.fulfilled(Market.ON_DEMAND)),
            max(0.0, self.targets.spot - self.fulfilled(Market.SPOT)),
        )

    def _shed(self, market: Market, target: float) -> None:
        """Terminate the newest members beyond the target. A Spot instance gets its interruption notice first (EC2 User
        Guide, "Modify an EC2 Fleet")."""
        staying = [m for m in self.living(market) if m.instance.machine.reclaim_at is None]
        units = sum(m.weight for m in staying)
        for member in reversed(staying):
            if units - member.weight >= target:
                units -= member.weight
                if market is Market.SPOT:
                    account.current().machines.notice(member.instance.machine)
                else:
                    member.instance.terminate()

    def _launch(self, on_demand: float, spot: float) -> bool:
        """Launch the missing units; return whether all of them were launched."""
        attempt = Attempt(self)
        came = [attempt.launch(Market.ON_DEMAND, on_demand), attempt.launch(Market.SPOT, spot)]
        self.errors = attempt.errors
        if not all(came):
            self._tell_shortfall()
        return all(came)

    def check_way(self, override: Override, market: Market) -> None:
        """Raise the error that EC2 would answer to one launch by this override. An `instant` fleet launches with its
        caller's permissions."""
        version = self.ec2_backend._get_template_from_args(override.launch_template)
        if self.type == "instant":
            launch = Launch(
                version.template.id, version.data, override.override, market, self.launch_tags, FLEET_TAGS_BY,
                in_fleet=True,
            )  # fmt: skip
            caller.check(calls_of_launch(self.ec2_backend, launch, base_context(self.ec2_backend.region_name)))
        self.ec2_backend.check_run(override.image_id, 1, **self._arguments(override, market))

    def check_addresses(self, override: Override, instances: int) -> None:
        """Raise EC2's error if the override's subnet has no room for this many instances."""
        if override.subnet_id:
            launch_rules.check_addresses(self.ec2_backend, override.subnet_id, instances)

    def afford(self, instances: int) -> EC2ClientError | None:
        """Take the request tokens of this many launches from the caller; return an error if there are too few.

        As met: an `instant` fleet that launched a part told `RequestLimitExceeded` of the rest
        (https://github.com/aws/karpenter-provider-aws/issues/8923). Fleets of the other types launch in their own time.
        """
        if self.type != "instant" or not strict() or account.current().buckets.launch(instances):
            return None
        return EC2ClientError(throttle.CODE, "Request limit exceeded.")

    def launch_one(self, override: Override, market: Market) -> None:
        """Launch an instance."""
        arguments = self._arguments(override, market)
        reservation = self.ec2_backend.run_instances(override.image_id, 1, None, [], **arguments)
        instance: LocalInstance = reservation.instances[0]
        most = override.candidate.max_price
        if market is Market.SPOT and most is not None:
            instance.machine.max_usd = most * override.candidate.weight
        for interface in instance.nics.values():
            interface.add_tags(self.launch_tags.get("network-interface", {}))
        self.members[instance.id] = Member(instance, override.candidate.weight, override)
        self._record_event("EC2 Fleet Instance Change", "instance-change", {"sub-type": "launched"}, instance.id)

    def _arguments(self, override: Override, market: Market) -> dict[str, Any]:
        return {
            "instance_type": override.candidate.instance_type,
            "is_instance_type_default": False,
            "subnet_id": override.subnet_id,
            "placement": None if override.subnet_id else override.candidate.zone,
            "launch_template": override.launch_template,
            "lifecycle": "spot" if market is Market.SPOT else None,
            "fleet_id": self.id,
            "tags": {
                "instance": {**self.launch_tags.get("instance", {}), "aws:ec2:fleet-id": self.id},
                "volume": dict(self.launch_tags.get("volume", {})),
            },
        }

    def _tell_shortfall(self) -> None:
        described = " ".join(sorted({f"{e['ErrorCode']}: {e['ErrorMessage']}" for e in self.errors}))
        detail_type, kind, sub_type = fleet_errors.of_shortfall({e["ErrorCode"] for e in self.errors})
        self._record_event(detail_type, kind, {"sub-type": sub_type, "description": described})

    def _close_if_empty(self) -> None:
        if self.state == "deleted_terminating" and not self.living():
            self.state = "deleted"
            self._record_event("EC2 Fleet State Change", "fleet-change", {"sub-type": "deleted"})

    def _record_event(
        self, detail_type: str, kind: str, detail: dict[str, Any], instance_id: str | None = None
    ) -> None:
        here = account.current()
        now = here.market.clock.now()
        if instance_id is not None:
            instance = self.members[instance_id].instance
            if detail["sub-type"] == "launched":
                now = instance.launch_time  # one moment, stated in two places: the clock may have gone on between them
            about = {
                "instanceType": instance.instance_type,
                "image": instance.image_id,
                "productDescription": "Linux/UNIX",
                "availabilityZone": instance.availability_zone,
            }
            detail = {**detail, "instance-id": instance_id, "description": json.dumps(about)}
        self.history.append((now, kind, detail))
        if self.type != "instant":  # EC2 tells no events of instant fleets
            events.fleet_event(here.region, self.id, detail_type, detail, now)
