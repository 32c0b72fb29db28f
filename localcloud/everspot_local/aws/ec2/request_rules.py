"""Holds page sizes, names of launch templates and lists of ids to EC2's limits.

The figures are those of EC2's own model (botocore `ec2/2016-11-15`); DescribeInstances, DescribeInstanceStatus and
DescribeTags have theirs in the API reference alone.
"""

import re
from typing import Any

from moto.core.utils import get_service_model
from moto.ec2.exceptions import EC2ClientError

from everspot_local.aws.ec2.exceptions import InvalidParameter

PAGES = dict.fromkeys(("DescribeInstances", "DescribeInstanceStatus", "DescribeTags"), (5, 1000))
STATUS_IDS = 100
_TEMPLATE_NAME = re.compile(r"[a-zA-Z0-9().\-/_]{3,128}")
DESCRIPTION = 255


def check_request(action: str, params: dict[str, Any]) -> None:
    """Refuse a request whose own figures and names are out of range.

    Raises:
        EC2ClientError: by EC2's own code.
    """
    size = params.get("MaxResults")
    least, most = PAGES.get(action) or _page_sizes(action)
    if size is not None and not least <= int(size) <= most:
        message = f"Value ( {size} ) for parameter maxResults is invalid. Expecting a value between {least} and {most}."
        raise InvalidParameter(message)
    if action == "DescribeInstanceStatus" and len(params.get("InstanceIds") or []) > STATUS_IDS:
        raise InvalidParameter(f"The maximum number of instance IDs is {STATUS_IDS}.")
    name = params.get("LaunchTemplateName")
    if action == "CreateLaunchTemplate" and name is not None and not _TEMPLATE_NAME.fullmatch(str(name)):
        raise EC2ClientError(
            "InvalidLaunchTemplateName.MalformedException",
            "A launch template name must be between 3 and 128 characters, and may contain letters, numbers, and the "
            "following characters: - ( ) . / _.",
        )
    if len(str(params.get("VersionDescription") or "")) > DESCRIPTION:
        raise InvalidParameter(f"VersionDescription must be at most {DESCRIPTION} characters.")


def _page_sizes(action: str) -> tuple[int, int]:
    shape = get_service_model("ec2").operation_model(action).input_shape
    member = shape.members.get("MaxResults") if shape is not None else None
    limits = member.metadata if member is not None else {}
    return int(limits.get("min", 1)), int(limits.get("max", 10_000))
