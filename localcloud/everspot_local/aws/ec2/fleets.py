"""Stands in for EC2 Fleet: one that launches by the market's pools, and heals if it is of type `maintain`.

It does not rebalance capacity, nor replace unhealthy instances that still run (instances here have no status checks).
On-demand members that end are replaced like Spot ones.
"""

import json
import logging
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from everspot_core.allocation import Allocation, AllocationRequest, Placement, Refusal, allocate
from everspot_core.records import Market
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models.core import TaggedEC2Resource
from moto.ec2.utils import convert_tag_spec, random_fleet_id

from everspot_local.aws import account
from everspot_local.aws.ec2 import fleet_errors, fleet_request
from everspot_local.aws.ec2.exceptions import InvalidFleetConfig, ServiceLinkedRoleMissing
from everspot_local.aws.ec2.instances import LocalInstance
from everspot_local.aws.ec2.roles import service_linked_role_exists
from everspot_local.aws.events import source as events

log = logging.getLogger(__name__)
NEEDED_ROLES = {"AWSServiceRoleForEC2Fleet": "EC2 Fleet", "AWSServiceRoleForEC2Spot": "EC2 Spot Instances"}


@dataclass
class Member:
    """An instance that the fleet launched, and how much of the target it fills."""

    instance: LocalInstance
    weight: float
    override: fleet_request.Override


class LocalFleet(TaggedEC2Resource):
    """A fleet. Its members are counted as fulfilled while they are pending or running."""

    def __init__(self, backend: Any, request: dict[str, Any]) -> None:
        fleet_request.check(request)
        self.ec2_backend = backend
        self.id = random_fleet_id()
        self.type: str = request.get("Type") or "maintain"
        if self.type != "instant":
            _need_roles()
        self.targets = fleet_request.read_targets(request["TargetCapacitySpecification"])
        self.excess_policy = request.get("ExcessCapacityTerminationPolicy") or "termination"
        self.context: str | None = request.get("Context")
        self.replace_unhealthy = bool(request.get("ReplaceUnhealthyInstances"))
        self.with_expiration = bool(request.get("TerminateInstancesWithExpiration"))
        self.spot_options = request.get("SpotOptions") or {}
        self.spot_strategy = fleet_request.spot_strategy(request)
        self.on_demand_strategy = fleet_request.on_demand_strategy(request)
        tags = convert_tag_spec(request.get("TagSpecifications") or [])
        self.instance_tags: dict[str, str] = tags.get("instance", {})
        self.use_configs(request.get("LaunchTemplateConfigs") or [])
        self.add_tags(tags.get("fleet", {}))
        self.created = account.current().market.clock.now()
        self.state = "submitted"
        self.members: dict[str, Member] = {}
        self.errors: list[dict[str, Any]] = []
        self.history: list[tuple[datetime, str, dict[str, Any]]] = []
        self._asking = False

    def use_configs(self, configs: list[dict[str, Any]]) -> None:
        """Launch by these from now on; what runs stays."""
        known = account.current().market.pools.catalogue.types
        self.overrides = fleet_request.read_overrides(self.ec2_backend, configs, known)
        self.configs = configs

    def begin(self) -> None:
        """Launch: at once if `instant`, else shortly after the answer."""
        if self.type == "instant":
            self.state = "active"
            self._launch(*self._missing())
            return
        self._tell("EC2 Fleet State Change", "fleet-change", {"sub-type": "submitted"})
        self._ask_later(account.current().market.delays.submit)

    @property
    def deleted(self) -> bool:
        """Whether it launches nothing any more."""
        return self.state.startswith("deleted")

    def living(self, market: Market | None = None) -> list[Member]:
        """Members that are pending or running, oldest first."""
        return [m for m in self.members.values() if m.instance.alive and market in (None, m.instance.market)]

    def fulfilled(self, market: Market | None = None) -> float:
        """Capacity units of the living members."""
        return sum(m.weight for m in self.living(market))

    def modify(self, targets: fleet_request.Targets | None, excess_policy: str | None) -> None:
        """Carry out a ModifyFleet."""
        if self.type != "maintain":
            raise InvalidFleetConfig(f"Fleets of type {self.type} cannot be modified.")
        if self.deleted:
            raise InvalidFleetConfig(f"Fleet {self.id} is deleted.")
        self.targets = targets or self.targets
        self.excess_policy = excess_policy or self.excess_policy
        self.state = "modifying"
        self._tell("EC2 Fleet State Change", "fleet-change", {"sub-type": "modify_in_progress"})
        self._ask_later(account.current().market.delays.submit)

    def delete(self, terminate: bool) -> None:
        """Launch nothing any more, and end the members if asked to."""
        self.state = "deleted_terminating" if terminate else "deleted_running"
        self._tell("EC2 Fleet State Change", "fleet-change", {"sub-type": self.state})
        if terminate:
            for member in self.living():
                member.instance.terminate()
        self._close_if_empty()

    def member_ended(self, instance_id: str) -> None:
        """One of its instances came to an end: replace it, if that is what this fleet does."""
        self._tell("EC2 Fleet Instance Change", "instance-change", {"sub-type": "terminated"}, instance_id)
        if self.deleted:
            self._close_if_empty()
        elif self.type == "maintain":
            self._ask_later(account.current().market.delays.replace)

    def _ask_later(self, delay: Any) -> None:
        if not self._asking:
            self._asking = True
            account.current().market.timeline.after(delay, self._ask)

    def _ask(self) -> None:
        """Bring the fleet to its targets. Whatever goes wrong, it is asked again: a fleet of type `maintain` that was
        not would stay as it is for good."""
        self._asking = False
        if self.deleted:
            return
        satisfied = False
        try:
            satisfied = self._reach_targets()
        except Exception:
            log.exception("fleet %s could not be brought to its targets and asks again", self.id)
        if self.type == "maintain" and not satisfied:
            self._ask_later(account.current().market.delays.retry)

    def _reach_targets(self) -> bool:
        if self.state in ("submitted", "modifying"):
            self.state = "active"
            self._tell("EC2 Fleet State Change", "fleet-change", {"sub-type": "active"})
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
        """End the newest members that are more than the target needs. A Spot one gets its notice first (EC2 User Guide,
        "Modify an EC2 Fleet")."""
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
        """Launch what is missing; whether all of it came. What one way cannot give is asked of the others."""
        self.errors = []
        refused: dict[Market, set[int]] = {market: set() for market in Market}
        missing = {Market.ON_DEMAND: on_demand, Market.SPOT: spot}
        for market in (Market.ON_DEMAND, Market.SPOT):
            while missing[market] > 0:
                allocation, ways = self._allocate(market, missing[market], refused[market])
                failed = [
                    way for p in allocation.placements if (way := self._try(p, ways[p.candidate], missing)) is not None
                ]
                if not failed:
                    self.errors += [self._error(refusal, ways[refusal.candidate]) for refusal in allocation.refusals]
                    break
                refused[market].update(failed)
        if any(units > 0 for units in missing.values()):
            self._tell_shortfall()
        return all(units <= 0 for units in missing.values())

    def _allocate(self, market: Market, units: float, refused: set[int]) -> tuple[Allocation, list[int]]:
        """Placements, and the overrides by the positions that they name."""
        pools = account.current().market.pools
        ways = [i for i in range(len(self.overrides)) if i not in refused]
        if not ways:
            return Allocation(placements=(), refusals=(), on_demand_shortfall=0, spot_shortfall=0), ways
        keys = dict.fromkeys(
            (self.overrides[i].candidate.instance_type, self.overrides[i].candidate.zone) for i in ways
        )
        found = [pool for kind, zone in keys if (pool := pools.get(kind, zone)) is not None]
        request = AllocationRequest(
            candidates=tuple(self.overrides[i].candidate for i in ways),
            on_demand=units if market is Market.ON_DEMAND else 0,
            spot=units if market is Market.SPOT else 0,
            spot_strategy=self.spot_strategy,
            on_demand_strategy=self.on_demand_strategy,
            instance_pools_to_use=int(self.spot_options.get("InstancePoolsToUseCount") or 1),
        )
        return allocate(request, [view for pool in found if (view := pool.view(market)) is not None]), ways

    def _try(self, placement: Placement, way: int, missing: dict[Market, float]) -> int | None:
        """Launch one instance; the way by which it could not, which is not tried again this time."""
        override = self.overrides[way]
        try:
            self._launch_one(placement, override)
        except EC2ClientError as error:
            found = self._error_document(override, placement.market, error.code, error.message)
            if found not in self.errors:
                self.errors.append(found)
            return way
        missing[placement.market] -= placement.weight
        return None

    def _launch_one(self, placement: Placement, override: fleet_request.Override) -> None:
        reservation = self.ec2_backend.run_instances(
            override.image_id,
            1,
            None,
            [],
            instance_type=placement.instance_type,
            is_instance_type_default=False,
            subnet_id=override.subnet_id,
            placement=None if override.subnet_id else placement.zone,
            launch_template=override.launch_template,
            lifecycle="spot" if placement.market is Market.SPOT else None,
            fleet_id=self.id,
            tags={"instance": {**self.instance_tags, "aws:ec2:fleet-id": self.id}},
        )
        instance: LocalInstance = reservation.instances[0]
        self.members[instance.id] = Member(instance, placement.weight, override)
        self._tell("EC2 Fleet Instance Change", "instance-change", {"sub-type": "launched"}, instance.id)

    def _error(self, refusal: Refusal, way: int) -> dict[str, Any]:
        override = self.overrides[way]
        pool = account.current().market.pools.get(override.candidate.instance_type, override.candidate.zone)
        return self._error_document(
            override, refusal.market, *fleet_errors.of_refusal(refusal, override.candidate, pool)
        )

    def _error_document(
        self, override: fleet_request.Override, market: Market, code: str, message: str
    ) -> dict[str, Any]:
        return {
            "LaunchTemplateAndOverrides": self.override_document(override),
            "Lifecycle": market.value,
            "ErrorCode": code,
            "ErrorMessage": message,
        }

    def override_document(self, override: fleet_request.Override) -> dict[str, Any]:
        """An override as answers name it."""
        document: dict[str, Any] = {"LaunchTemplateSpecification": override.launch_template}
        if override.override:
            document["Overrides"] = override.override
        return document

    def _tell_shortfall(self) -> None:
        described = " ".join(sorted({f"{e['ErrorCode']}: {e['ErrorMessage']}" for e in self.errors}))
        detail_type, kind, sub_type = fleet_errors.of_shortfall({e["ErrorCode"] for e in self.errors})
        self._tell(detail_type, kind, {"sub-type": sub_type, "description": described})

    def _close_if_empty(self) -> None:
        if self.state == "deleted_terminating" and not self.living():
            self.state = "deleted"
            self._tell("EC2 Fleet State Change", "fleet-change", {"sub-type": "deleted"})

    def _tell(self, detail_type: str, kind: str, detail: dict[str, Any], instance_id: str | None = None) -> None:
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


def _need_roles() -> None:
    for role, service in NEEDED_ROLES.items():
        if not service_linked_role_exists(role):
            raise ServiceLinkedRoleMissing(role, service)
