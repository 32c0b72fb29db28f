"""Splits answers into pages where moto returns everything, so that clients that ignore NextToken see one page.

Page sizes: 1,000 at most, as the API reference says of most Describe actions, and by default; DescribeInstanceTypes
gives 100. With ids there are no pages: EC2 refuses MaxResults beside them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError, InvalidNextToken

from everspot_local.aws.strict import strict

LARGEST = 1000


@dataclass(frozen=True)
class Paged:
    """An action whose answer has pages.

    Attributes:
        key: name of the list in its answer.
        ids: parameter that names the requested items.
    """

    key: str
    ids: str | None = None
    page: int = LARGEST
    largest: int = LARGEST


ACTIONS = {
    "describe_fleets": Paged("Fleets"),
    "describe_fleet_instances": Paged("ActiveInstances"),
    "describe_fleet_history": Paged("HistoryRecords"),
    "describe_images": Paged("Images", "ImageIds"),
    "describe_instance_types": Paged("InstanceTypes", "InstanceTypes", 100, 100),
    "describe_instance_type_offerings": Paged("InstanceTypeOfferings"),
    "describe_launch_templates": Paged("LaunchTemplates", "LaunchTemplateIds", 200, 200),
    "describe_network_interfaces": Paged("NetworkInterfaces", "NetworkInterfaceIds"),
    "describe_security_groups": Paged("SecurityGroups", "GroupIds"),
    "describe_subnets": Paged("Subnets", "SubnetIds"),
    "describe_tags": Paged("Tags"),
    "describe_volumes": Paged("Volumes", "VolumeIds"),
    "describe_vpc_endpoints": Paged("VpcEndpoints", "VpcEndpointIds"),
    "describe_vpcs": Paged("Vpcs", "VpcIds"),
}


def page(name: str, params: dict[str, Any], answer: Callable[[], Any]) -> Any:
    """Return an action's whole answer, or one page of it."""
    if (paged := ACTIONS.get(name)) is None or not strict():
        return answer()
    page_size = params.get("MaxResults")
    if paged.ids and params.get(paged.ids) and page_size:
        raise EC2ClientError(
            "InvalidParameterCombination",
            f"The parameter {paged.ids} cannot be used with the parameter MaxResults",
        )
    start, size = _start(params.get("NextToken")), min(int(page_size or paged.page), paged.largest)
    whole = {k: v for k, v in params.items() if k not in ("MaxResults", "NextToken")}
    params.clear()
    params.update(whole)
    result = answer()
    if not isinstance(result, ActionResult) or not isinstance(result.result, dict):
        return result
    items = list(result.result.get(paged.key) or [])
    if start and start >= len(items):
        raise InvalidNextToken(str(start))
    more = start + size < len(items)
    token = {"NextToken": f"everspot-{start + size}"} if more else {"NextToken": None}
    return ActionResult({**result.result, paged.key: items[start : start + size], **token})


def _start(token: Any) -> int:
    if not token:
        return 0
    text = str(token).removeprefix("everspot-")
    if not text.isdigit():
        raise InvalidNextToken(str(token))
    return int(text)
