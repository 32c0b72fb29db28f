"""The front end of EC2: the checks before an action's own code runs, in EC2's order.

The order is: request rate, tags, filters, parameters of the action. `--lenient` skips the checks.
"""

from collections.abc import Callable
from typing import Any

from moto.ec2.exceptions import EC2ClientError

from everspot_local.aws import account
from everspot_local.aws.account import ACCOUNT
from everspot_local.aws.ec2 import (
    filter_rules,
    gateways,
    launch_rules,
    network_rules,
    quota_rules,
    request_rules,
    tag_rules,
    template_rules,
    throttle,
)
from everspot_local.aws.ec2.exceptions import UnsupportedHere
from everspot_local.aws.strict import strict

Check = Callable[[Any, str, dict[str, Any]], None]


class Throttled(EC2ClientError):
    """The action's token bucket is empty. EC2 answers with status 503, which moto's errors cannot express.

    The words as met: https://github.com/aws/karpenter-provider-aws/issues/8923.
    """

    def __init__(self, action: str) -> None:
        super().__init__(
            throttle.CODE,
            f"Request limit exceeded. Account {ACCOUNT} has been throttled on ec2:{action} because it exceeded its "
            "request rate limit.",
        )


def enter(backend: Any, action: str, params: dict[str, Any]) -> None:
    """Check a request before its action runs.

    Raises:
        EC2ClientError: by EC2's own code, if it would not.
    """
    if not strict():
        return
    if not account.current().buckets.admit(action, params):
        raise Throttled(action)
    tag_rules.check_tags(params)
    filter_rules.check_filters(action, params)
    request_rules.check_request(action, params)
    if (check := _CHECKS.get(action)) is not None:
        check(backend, action, params)


def _template(_backend: Any, action: str, params: dict[str, Any]) -> None:
    template_rules.check_template(action, params.get("LaunchTemplateData") or {})


def _run(_backend: Any, action: str, params: dict[str, Any]) -> None:
    template_rules.check_enumerations(action, None, params)
    template_rules.check_metadata(params.get("MetadataOptions") or {})
    launch_rules.check_user_data(params.get("UserData"))
    launch_rules.check_market_options(params.get("InstanceMarketOptions"))


def _group(_backend: Any, _action: str, params: dict[str, Any]) -> None:
    network_rules.check_group(params)


def _rules(_backend: Any, _action: str, params: dict[str, Any]) -> None:
    network_rules.check_rules(params)


def _delete_group(backend: Any, _action: str, params: dict[str, Any]) -> None:
    network_rules.check_group_deletion(backend, str(params.get("GroupId") or ""))


def _endpoint(backend: Any, _action: str, params: dict[str, Any]) -> None:
    network_rules.check_endpoint(backend, params)


def _nat_gateway(backend: Any, _action: str, params: dict[str, Any]) -> None:
    gateways.check_nat_gateway(backend, params)


def _release(backend: Any, _action: str, params: dict[str, Any]) -> None:
    gateways.check_release(backend, params)


def _detachment(backend: Any, _action: str, params: dict[str, Any]) -> None:
    gateways.check_detachment(backend, params)


def _delete_subnet(backend: Any, _action: str, params: dict[str, Any]) -> None:
    gateways.check_subnet_deletion(backend, params)


def _delete_vpc(backend: Any, _action: str, params: dict[str, Any]) -> None:
    gateways.check_vpc_deletion(backend, params)


def _vpc(backend: Any, _action: str, _params: dict[str, Any]) -> None:
    quota_rules.check_vpcs(len(backend.vpcs))


def _volume(_backend: Any, action: str, _params: dict[str, Any]) -> None:
    raise UnsupportedHere(f"{action}: volumes come and go with their instances")


_CHECKS: dict[str, Check] = {
    "CreateLaunchTemplate": _template,
    "CreateLaunchTemplateVersion": _template,
    "RunInstances": _run,
    "CreateSecurityGroup": _group,
    "AuthorizeSecurityGroupIngress": _rules,
    "AuthorizeSecurityGroupEgress": _rules,
    "UpdateSecurityGroupRuleDescriptionsIngress": _rules,
    "UpdateSecurityGroupRuleDescriptionsEgress": _rules,
    "DeleteSecurityGroup": _delete_group,
    "CreateVpcEndpoint": _endpoint,
    "CreateVpc": _vpc,
    "CreateNatGateway": _nat_gateway,
    "ReleaseAddress": _release,
    "DetachInternetGateway": _detachment,
    "DeleteSubnet": _delete_subnet,
    "DeleteVpc": _delete_vpc,
    "AttachVolume": _volume,
    "DetachVolume": _volume,
}
