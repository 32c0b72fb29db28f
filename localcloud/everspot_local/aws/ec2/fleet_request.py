"""Stands in for how EC2 combines a fleet's launch templates and overrides into a list of ways to launch."""

from dataclasses import dataclass
from typing import Any

from everspot_core.capacity.allocation import Launchable
from moto.ec2.exceptions import EC2ClientError

from everspot_local.aws.ec2.exceptions import (
    InvalidFleetConfig,
    InvalidParameter,
    MissingParameter,
    UnknownInstanceType,
)
from everspot_local.aws.ec2.fleet_options import only
from everspot_local.aws.strict import strict

# botocore: CreateFleetRequest.LaunchTemplateConfigs, and FleetLaunchTemplateConfigRequest.Overrides for the types
# `request` and `maintain`. An `instant` fleet may name more pools (EC2 User Guide, "EC2 Fleet quotas", note 4).
MOST_CONFIGS = 50
MOST_OVERRIDES = 300
LEAST_PRICE = 0.001
_TEMPLATE = {"LaunchTemplateId", "LaunchTemplateName", "Version"}
_OVERRIDE = {
    "InstanceType", "MaxPrice", "SubnetId", "AvailabilityZone", "WeightedCapacity", "Priority", "ImageId",
}  # fmt: skip


@dataclass(frozen=True)
class Override:
    """One way to launch: a position in the request, and what to launch by it.

    `fault`: the override's error, which an `instant` fleet reports at its launch; the zone may be unknown then.
    """

    launch_template: dict[str, Any]
    specification: dict[str, Any]
    override: dict[str, Any]
    candidate: Launchable
    subnet_id: str | None
    image_id: str
    fault: EC2ClientError | None = None


def read_overrides(backend: Any, configs: list[dict[str, Any]], known_types: Any, *, instant: bool) -> list[Override]:
    """Return every way to launch that a request names, in its order.

    Raises:
        EC2ClientError: as EC2 refuses the request.
    """
    if not configs:
        raise MissingParameter("LaunchTemplateConfigs")
    if len(configs) > MOST_CONFIGS:
        raise InvalidFleetConfig(f"A fleet may have at most {MOST_CONFIGS} launch template configurations.")
    overrides: list[Override] = []
    for config in configs:
        specification = config.get("LaunchTemplateSpecification")
        if not specification:
            raise MissingParameter("LaunchTemplateConfigs.LaunchTemplateSpecification")
        only(specification, _TEMPLATE, "LaunchTemplateConfigs.LaunchTemplateSpecification")
        if strict() and specification.get("LaunchTemplateId") and specification.get("LaunchTemplateName"):
            raise EC2ClientError(
                "InvalidParameterCombination",
                "A launch template is specified by its ID or by its name, not by both.",
            )
        if strict() and not specification.get("Version"):
            # botocore, FleetLaunchTemplateSpecificationRequest: "otherwise the request fails".
            raise MissingParameter("LaunchTemplateConfigs.LaunchTemplateSpecification.Version")
        version = backend._get_template_from_args(specification)
        pinned = {"LaunchTemplateId": version.template.id, "Version": str(version.number)}
        for override in config.get("Overrides") or [{}]:
            reader = _Reader(backend, known_types, specification, pinned, version.data, instant)
            overrides.extend(reader.read(override))
    if not instant and len(overrides) > MOST_OVERRIDES:
        raise InvalidFleetConfig(f"A fleet may have at most {MOST_OVERRIDES} launch specifications.")
    if strict():
        _check_pools(overrides)
    return overrides


def _check_pools(overrides: list[Override]) -> None:
    """A fleet names a pool once: not by two subnets of one zone either (EC2 User Guide, "EC2 Fleet quotas")."""
    pools = [(o.candidate.instance_type, o.candidate.zone) for o in overrides if o.fault is None]
    if len(set(pools)) != len(pools):
        raise InvalidFleetConfig("The fleet configuration contains duplicate instance pools.")


@dataclass(frozen=True)
class _Reader:
    """Reads the overrides of one launch template."""

    backend: Any
    known_types: Any
    specification: dict[str, Any]
    pinned: dict[str, Any]
    template: dict[str, Any]
    instant: bool

    def read(self, override: dict[str, Any]) -> list[Override]:
        """Return one way to launch for each zone that an override may use.

        Raises:
            EC2ClientError: as EC2 refuses the override.
        """
        only(override, _OVERRIDE, "LaunchTemplateConfigs.Overrides")
        instance_type = override.get("InstanceType") or self.template.get("InstanceType")
        image_id = override.get("ImageId") or self.template.get("ImageId")
        if not instance_type:
            raise InvalidFleetConfig("The fleet configuration needs an instance type in the override or the template.")
        if not image_id:
            raise InvalidFleetConfig("The fleet configuration needs an image in the override or the launch template.")
        if instance_type not in self.known_types:
            raise UnknownInstanceType(instance_type)
        interfaces = self.template.get("NetworkInterfaces") or [{}]
        subnet_id = override.get("SubnetId") or interfaces[0].get("SubnetId")
        zones, fault = self._zones(override, subnet_id)
        max_price, weight = _max_price(override.get("MaxPrice")), float(override.get("WeightedCapacity") or 1)
        if weight <= 0:
            raise InvalidParameter(f"Invalid value '{weight:g}' for WeightedCapacity; it must be greater than 0")
        priority = _priority(override.get("Priority"))
        return [
            Override(
                launch_template=self.pinned,
                specification=self.specification,
                override=override,
                candidate=Launchable(
                    instance_type=instance_type, zone=zone, weight=weight, priority=priority, max_price=max_price
                ),
                subnet_id=subnet_id,
                image_id=image_id,
                fault=fault,
            )
            for zone in zones
        ]

    def _zones(self, override: dict[str, Any], subnet_id: str | None) -> tuple[list[str], EC2ClientError | None]:
        if not subnet_id:
            zone = override.get("AvailabilityZone")
            return ([zone] if zone else sorted(self.backend.get_default_subnets())), None
        try:
            return [self.backend.get_subnet(subnet_id).availability_zone], None
        except EC2ClientError as error:
            # An `instant` fleet reports launch errors for each override, for example a missing image.
            if not self.instant:
                raise
            return [str(override.get("AvailabilityZone") or "")], error


def _priority(value: Any) -> float | None:
    """Read a Priority, or return None without one.

    botocore, FleetLaunchTemplateOverridesRequest, says "whole numbers starting at 0" of a Double. EC2 takes fractions:
    Karpenter sends prices (https://github.com/aws/karpenter-provider-aws, `pkg/providers/instance/instance.go`).
    """
    if value is None:
        return None
    priority = float(value)
    if strict() and not 0 <= priority < float("inf"):
        raise InvalidParameter(f"Invalid value '{value}' for Priority; it must be a number of at least 0")
    return priority


def _max_price(text: Any) -> float | None:
    """Read a MaxPrice, in dollars per unit hour, or return None without one.

    botocore, FleetLaunchTemplateOverridesRequest: it must be more than $0.001.
    """
    if not text:
        return None
    try:
        price = float(text)
    except ValueError:
        raise InvalidParameter(f"Invalid value '{text}' for MaxPrice") from None
    if strict() and not LEAST_PRICE < price < float("inf"):
        raise InvalidParameter(f"Invalid value '{text}' for MaxPrice; it must be more than {LEAST_PRICE}")
    return price
