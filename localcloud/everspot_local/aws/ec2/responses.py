"""Stands in for EC2's answers: moto's, one at a time under the market's lock, with our own fleets and Spot prices.

It does not know attribute-based selection, nor Spot requests outside fleets.
"""

from base64 import b64encode
from collections.abc import Callable
from datetime import datetime
from typing import Any

from moto.core.common_types import TYPE_RESPONSE
from moto.core.responses import ActionResult
from moto.core.utils import camelcase_to_underscores
from moto.ec2.responses import EC2Response
from moto.ec2.utils import parse_user_data

from everspot_local.aws import account
from everspot_local.aws.ec2 import (
    door,
    eventual_consistency,
    fleet_rules,
    image_copies,
    images,
    instance_status,
    pages,
    scores,
    throttle,
)
from everspot_local.aws.ec2.exceptions import (
    EC2ClientError,
    MissingParameter,
    ServiceLinkedRoleMissing,
    UnsupportedHere,
)
from everspot_local.aws.ec2.fleet_documents import fleet_document, launched
from everspot_local.aws.ec2.fleets import LocalFleet
from everspot_local.aws.ec2.prices import price_history
from everspot_local.market.clock import stamp

FORBIDDEN = 403
CONSOLE_BYTES = 64 << 10
"""EC2 API Reference, GetConsoleOutput: "the most recent 64 KB"."""
CHECKS_BEFORE_DRY_RUN = ("run_instances", "create_fleet")
"""Actions that EC2 checks as a whole before it answers a dry run: a launch that it would refuse is refused."""


class LocalEC2Response(EC2Response):
    """EC2's actions, each in a method of its name."""

    def call_action(self) -> TYPE_RESPONSE:
        """Check a call at the door, then carry it out alone, because the market's thread changes the same instances."""
        action = str(self._get_action())
        name = camelcase_to_underscores(action)
        method = getattr(self, name, None)
        if method is not None:  # the handler lives for one request: what is set on it shadows its class
            setattr(self, name, lambda: self._answer(action, name, method))
        with account.current().market.lock:
            status, headers, body = super().call_action()
        return (self._refused_with or status), headers, body

    _refused_with: int | None = None

    def _answer(self, action: str, name: str, method: Callable[[], Any]) -> Any:
        try:
            door.enter(self.ec2_backend, action, self.params)
            if name not in CHECKS_BEFORE_DRY_RUN:
                self.error_on_dryrun()
            return pages.page(name, self.params, method)
        except door.Throttled:
            self._refused_with = throttle.STATUS
            raise
        except ServiceLinkedRoleMissing:
            self._refused_with = FORBIDDEN
            raise

    def describe_instances(self) -> ActionResult:
        """Answer DescribeInstances, which knows nothing yet of new instances."""
        eventual_consistency.check_ids(self.ec2_backend, self._get_param("InstanceIds", []))
        return super().describe_instances()

    def describe_instance_status(self) -> ActionResult:
        """Answer DescribeInstanceStatus, which knows nothing yet of new instances."""
        ids = self._get_param("InstanceIds", [])
        eventual_consistency.check_ids(self.ec2_backend, ids)
        include_all = bool(self._get_bool_param("IncludeAllInstances", False))
        instances = self.ec2_backend.describe_instance_status(ids, include_all, None)
        filters: dict[str, Any] = self._filters_from_querystring()
        matches = instance_status.select(instances, filters)
        return ActionResult({"InstanceStatuses": [instance_status.status_document(i) for i in matches]})

    def get_console_output(self) -> ActionResult:
        """Answer GetConsoleOutput: the end of the output of the instance's programs, which Nitro returns
        immediately."""
        instance = self.ec2_backend.get_instance(self._get_param("InstanceId"))
        here = account.current()
        log = here.machines.processes.folder(instance.id) / "console.log"
        output = log.read_bytes()[-CONSOLE_BYTES:] if log.is_file() else b""
        at = here.market.clock.now()
        return ActionResult({"InstanceId": instance.id, "Timestamp": at, "Output": b64encode(output).decode()})

    def describe_capacity_reservations(self) -> ActionResult:
        """Answer DescribeCapacityReservations: the account has none, and nobody can make one here."""
        if ids := self._get_param("CapacityReservationIds", []):
            raise EC2ClientError(
                "InvalidCapacityReservationId.NotFound", f"The capacity reservation ID '{ids[0]}' does not exist"
            )
        return ActionResult({"CapacityReservations": []})

    def describe_placement_groups(self) -> ActionResult:
        """Answer DescribePlacementGroups: the account has none, and nobody can make one here."""
        if names := self._get_param("GroupNames", []) or self._get_param("GroupIds", []):
            raise EC2ClientError("InvalidPlacementGroup.Unknown", f"The Placement Group '{names[0]}' is unknown.")
        return ActionResult({"PlacementGroups": []})

    def describe_tags(self) -> ActionResult:
        """Answer DescribeTags, without the tags of new instances."""
        self.error_on_dryrun()
        tags = self.ec2_backend.describe_tags(filters=self._filters_from_querystring())
        return ActionResult({"Tags": eventual_consistency.visible_tags(self.ec2_backend, tags)})

    def register_image(self) -> ActionResult:
        """Answer RegisterImage, and keep what EC2 checks of an image at a launch."""
        self.error_on_dryrun()
        return ActionResult({"ImageId": images.register(self.ec2_backend, self.params).id})

    def create_image(self) -> ActionResult:
        """Answer CreateImage."""
        self.error_on_dryrun()
        return ActionResult({"ImageId": image_copies.create(self.ec2_backend, self.params).id})

    def copy_image(self) -> ActionResult:
        """Answer CopyImage."""
        self.error_on_dryrun()
        return ActionResult({"ImageId": image_copies.copy(self.ec2_backend, self.params).id})

    def deregister_image(self) -> ActionResult:
        """Answer DeregisterImage."""
        self.error_on_dryrun()
        snapshots = image_copies.deregister(self.ec2_backend, self.params)
        results = [{"SnapshotId": snapshot, "ReturnCode": "success"} for snapshot in snapshots]
        return ActionResult({"Return": True, "DeleteSnapshotResults": results})

    def get_ebs_default_kms_key_id(self) -> ActionResult:
        """Answer GetEbsDefaultKmsKeyId: the alias of AWS's own key until a customer chooses another."""
        self.error_on_dryrun()
        return ActionResult({"KmsKeyId": self.ec2_backend.default_kms_key_id or "alias/aws/ebs"})

    def create_launch_template_version(self) -> ActionResult:
        """Answer CreateLaunchTemplateVersion. moto decodes this one's user data, which then no instance could read."""
        if self._get_param("SourceVersion"):
            raise UnsupportedHere("SourceVersion of CreateLaunchTemplateVersion")
        data = self.params.get("LaunchTemplateData") or {}
        if "UserData" in data:
            data["UserData"] = parse_user_data(data["UserData"])
        return super().create_launch_template_version()

    def create_fleet(self) -> ActionResult:
        """Answer CreateFleet."""
        self.error_on_dryrun()
        fleet = self.ec2_backend.create_fleet(self.params)
        result: dict[str, Any] = {"FleetId": fleet.id}
        if fleet.type == "instant":
            result.update(Instances=launched(fleet), Errors=fleet.errors)
        return ActionResult(result)

    def modify_fleet(self) -> ActionResult:
        """Answer ModifyFleet."""
        self.error_on_dryrun()
        supported = {"DryRun", "FleetId", "ExcessCapacityTerminationPolicy", "LaunchTemplateConfigs",
                 "TargetCapacitySpecification", "Context"}  # fmt: skip
        if unknown := sorted(set(self.params) - supported):
            raise UnsupportedHere(f"{', '.join(unknown)} of ModifyFleet")
        fleet: LocalFleet = self.ec2_backend.local_fleet(self._get_param("FleetId"))
        specification = self._get_param("TargetCapacitySpecification")
        targets = fleet.targets.modified(specification) if specification else None
        if configs := self._get_param("LaunchTemplateConfigs"):
            fleet.use_configs(configs)
        fleet.modify(targets, self._get_param("ExcessCapacityTerminationPolicy"))
        fleet.context = self._get_param("Context") or fleet.context
        return ActionResult({"Return": True})

    def delete_fleets(self) -> ActionResult:
        """Answer DeleteFleets."""
        self.error_on_dryrun()
        terminate = self._get_bool_param("TerminateInstances")
        if terminate is None:
            raise MissingParameter("TerminateInstances")
        done, failed = [], []
        ids = self._get_param("FleetIds", [])
        fleet_rules.check_deletion(self.ec2_backend, ids)
        for fleet_id in ids:
            fleet = self.ec2_backend.fleets.get(fleet_id)
            if fleet is None or fleet.deleted:
                error = {"Code": "fleetIdDoesNotExist", "Message": f"The fleet ID '{fleet_id}' does not exist"}
                failed.append({"FleetId": fleet_id, "Error": error})
            elif fleet.type == "instant" and not terminate:
                error = {"Code": "fleetNotInDeletableState", "Message": "Instant fleets are deleted with instances"}
                failed.append({"FleetId": fleet_id, "Error": error})
            else:
                before = fleet.state
                fleet.delete(terminate)
                state = "deleted_terminating" if fleet.state == "deleted" else fleet.state
                done.append({"FleetId": fleet_id, "PreviousFleetState": before, "CurrentFleetState": state})
        return ActionResult({"SuccessfulFleetDeletions": done, "UnsuccessfulFleetDeletions": failed})

    def describe_fleets(self) -> ActionResult:
        """Answer DescribeFleets. Instant fleets are shown only if they are requested by id."""
        ids = self._get_param("FleetIds", [])
        if ids:
            fleets = [self.ec2_backend.local_fleet(i) for i in ids]
        else:
            fleets = [f for f in self.ec2_backend.fleets.values() if f.type != "instant"]
        for name, values in self._filters_from_querystring().items():
            read = {"fleet-state": lambda f: f.state, "type": lambda f: f.type}.get(name)
            if read is None:
                raise UnsupportedHere(f"the filter '{name}' of DescribeFleets")
            fleets = [f for f in fleets if read(f) in values]
        return ActionResult({"Fleets": [fleet_document(f) for f in fleets]})

    def describe_fleet_instances(self) -> ActionResult:
        """Answer DescribeFleetInstances."""
        fleet: LocalFleet = self.ec2_backend.local_fleet(self._get_param("FleetId"))
        if fleet.type == "instant":
            raise UnsupportedHere("DescribeFleetInstances of instant fleets, as the real EC2; describe the fleet")
        active = [
            {
                "InstanceId": m.instance.id,
                "InstanceType": m.instance.instance_type,
                "SpotInstanceRequestId": m.instance.spot_instance_request_id,
                "InstanceHealth": "healthy",
            }
            for m in fleet.living()
        ]
        return ActionResult({"ActiveInstances": active, "FleetId": fleet.id})

    def describe_fleet_history(self) -> ActionResult:
        """Answer DescribeFleetHistory."""
        fleet: LocalFleet = self.ec2_backend.local_fleet(self._get_param("FleetId"))
        start: datetime = self._get_param("StartTime")
        if start is None:
            raise MissingParameter("StartTime")
        kind = self._get_param("EventType")
        records = [
            {
                "Timestamp": stamp(at),
                "EventType": event_type,
                "EventInformation": {
                    "InstanceId": detail.get("instance-id"),
                    "EventSubType": detail.get("sub-type"),
                    "EventDescription": detail.get("description"),
                },
            }
            for at, event_type, detail in fleet.history
            if stamp(at) >= stamp(start) and kind in (None, event_type)
        ]
        last = stamp(account.current().market.clock.now())
        return ActionResult(
            {"FleetId": fleet.id, "HistoryRecords": records, "StartTime": stamp(start), "LastEvaluatedTime": last}
        )

    def describe_spot_price_history(self) -> ActionResult:
        """Answer DescribeSpotPriceHistory."""
        return ActionResult(price_history(account.current().market, self.params))

    def get_spot_placement_scores(self) -> ActionResult:
        """Answer GetSpotPlacementScores."""
        self.error_on_dryrun()
        return ActionResult(scores.answer(self.ec2_backend.score_configurations, self.params))

    def terminate_instances(self) -> ActionResult:
        """Answer TerminateInstances. Auto Scaling groups replace lost members later, not before the answer."""
        self.error_on_dryrun()
        ended = self.ec2_backend.terminate_instances(self._get_param("InstanceIds", []))
        return ActionResult(
            {
                "TerminatingInstances": [
                    {
                        "InstanceId": instance.id,
                        "CurrentState": {"Code": instance.state_code, "Name": instance.state},
                        "PreviousState": previous,
                    }
                    for instance, previous in ended
                ]
            }
        )

    def request_spot_instances(self) -> ActionResult:
        """Refuse: AWS calls this API legacy, and Everspot does not use it."""
        raise UnsupportedHere("RequestSpotInstances; use CreateFleet")

    def request_spot_fleet(self) -> ActionResult:
        """Refuse: AWS calls this API legacy, and Everspot does not use it."""
        raise UnsupportedHere("RequestSpotFleet; use CreateFleet")
