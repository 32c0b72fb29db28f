"""Holds a launch template's data, and RunInstances, to EC2's checks of a request before anything is launched.

EC2 does not fully validate a launch template (EC2 User Guide, "Create an Amazon EC2 launch template"): image, type,
sizes and IOPS are looked at when something is launched by it. Values of enumerations are botocore's.
"""

from functools import cache
from typing import Any

from botocore.model import ListShape, Shape, StringShape, StructureShape
from moto.core.utils import get_service_model
from moto.ec2.exceptions import EC2ClientError

from everspot_local.aws.ec2.launch_rules import USER_DATA_BYTES, decoded_size

FREE = {"InstanceType", "ResourceType"}  # a market script may declare types of its own; tags' kinds are moto's check
HOP_LIMITS = (1, 64)


def check_template(action: str, data: dict[str, Any]) -> None:
    """Check the data of CreateLaunchTemplate or CreateLaunchTemplateVersion."""
    check_enumerations(action, "LaunchTemplateData", data)
    check_metadata(data.get("MetadataOptions") or {})
    encoded = data.get("UserData")
    if encoded and decoded_size(str(encoded)) > USER_DATA_BYTES:
        raise EC2ClientError("InvalidUserData.Malformed", f"User data is limited to {USER_DATA_BYTES} bytes.")


def check_metadata(options: dict[str, Any]) -> None:
    """Check the hop limit of the metadata service."""
    hops = options.get("HttpPutResponseHopLimit")
    if hops is not None and not HOP_LIMITS[0] <= int(hops) <= HOP_LIMITS[1]:
        raise EC2ClientError(
            "InvalidParameterValue",
            f"Value ({hops}) for parameter HttpPutResponseHopLimit is invalid. It must be between 1 and 64.",
        )


def check_enumerations(action: str, member: str | None, value: Any) -> None:
    """Refuse texts that EC2's model does not list among the values of their enumeration."""
    shape = _input(action)
    _check(shape.members[member] if member else shape, value, member or "")


def _check(shape: Shape, value: Any, name: str) -> None:
    if value is None or name in FREE:
        return
    if isinstance(shape, StructureShape) and isinstance(value, dict):
        for key, inner in value.items():
            if key in shape.members:
                _check(shape.members[key], inner, key)
    elif isinstance(shape, ListShape) and isinstance(value, list):
        for inner in value:
            _check(shape.member, inner, name)
    elif isinstance(shape, StringShape) and shape.enum and str(value) not in shape.enum and value != "":
        raise EC2ClientError("InvalidParameterValue", f"Value ({value}) for parameter {name} is invalid.")


@cache
def _input(action: str) -> StructureShape:
    return get_service_model("ec2").operation_model(action).input_shape
