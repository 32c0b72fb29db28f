"""Finds manual additions to a stack's security groups and roles.

A group's rules and a role's policies are separate resources to the provider, so a refresh of the group, or of the role,
does not look at them. A refresh only finds rules and policies that are written into the group or the role itself
(`ingress`, `egress`; `inlinePolicies`, `managedPolicyArns`).
"""

import os
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from everspot_clouds.base.drift import AddedByHand, KeptResource, of_type

GROUPS = ("aws:ec2/securityGroup:SecurityGroup", "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup")
RULES = (
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule",
    "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule",
    "aws:ec2/securityGroupRule:SecurityGroupRule",
)
ROLE = "aws:iam/role:Role"
INLINE = "aws:iam/rolePolicy:RolePolicy"
ATTACHED = ("aws:iam/rolePolicyAttachment:RolePolicyAttachment", "aws:iam/policyAttachment:PolicyAttachment")
CALLS = ("ec2:DescribeSecurityGroupRules", "iam:ListAttachedRolePolicies", "iam:ListRolePolicies")
"""The calls that this module makes. A role that may refresh is allowed most of them anyway."""

TYPES = (*GROUPS, ROLE)
GROUPS_AT_ONCE = 200
"""Values of one filter (Amazon EC2 API Reference, "Filtering")."""


def added_by_hand(resources: Sequence[KeptResource]) -> list[AddedByHand]:
    """Return the rules and policies that the cloud has and none of the resources declares. Asks with the environment's
    credentials.

    Raises:
        CloudError: if the cloud refuses or does not answer.
    """
    import boto3  # imported here, because other clouds do not need it
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError

    from everspot_clouds.aws.errors import to_cloud_error

    config = Config(connect_timeout=5, read_timeout=30, retries={"total_max_attempts": 5, "mode": "standard"})
    try:
        added = _rules(resources, lambda region: boto3.client("ec2", region_name=region, config=config))
        if of_type(resources, ROLE):  # a service without regions
            added += _policies(resources, boto3.client("iam", region_name=_region(resources), config=config))
        return added
    except (BotoCoreError, ClientError) as error:
        raise to_cloud_error(error) from None


def _rules(resources: Sequence[KeptResource], client: Any) -> list[AddedByHand]:
    """Return the rules of the stack's groups that nobody declares. A direction that a group declares itself is left to
    the refresh."""
    declared = {rule.id for rule in of_type(resources, *RULES)}
    declared |= {str(rule.outputs.get("securityGroupRuleId")) for rule in of_type(resources, *RULES)}
    # The older kind of rule has an id of the provider's own, and may stand for several rules of the cloud.
    older = {
        (str(rule.value("securityGroupId")), rule.value("type") == "egress")
        for rule in of_type(resources, RULES[2])
        if not rule.outputs.get("securityGroupRuleId")
    }
    groups: dict[str | None, dict[str, KeptResource]] = defaultdict(dict)
    for group in of_type(resources, *GROUPS):
        groups[_region([group])][group.id] = group
    added: list[AddedByHand] = []
    for region, own in groups.items():
        ids = sorted(own)
        pages = client(region).get_paginator("describe_security_group_rules")
        for first in range(0, len(ids), GROUPS_AT_ONCE):
            filters = [{"Name": "group-id", "Values": ids[first : first + GROUPS_AT_ONCE]}]
            for rule in (rule for page in pages.paginate(Filters=filters) for rule in page["SecurityGroupRules"]):
                group, out = own[rule["GroupId"]], bool(rule["IsEgress"])
                inside = group.inputs.get("egress" if out else "ingress") is not None
                if not inside and rule["SecurityGroupRuleId"] not in declared and (group.id, out) not in older:
                    kind = "egress rule" if out else "ingress rule"
                    added.append(AddedByHand(group.urn, kind, _rule(rule), rule["SecurityGroupRuleId"]))
    return added


def _rule(rule: dict[str, Any]) -> str:
    protocol = "all protocols" if rule["IpProtocol"] == "-1" else rule["IpProtocol"]
    low, high = rule.get("FromPort", -1), rule.get("ToPort", -1)
    ports = "all ports" if low in (-1, None) else f"port {low}" if low == high else f"ports {low}-{high}"
    peer = (
        rule.get("CidrIpv4")
        or rule.get("CidrIpv6")
        or rule.get("PrefixListId")
        or rule.get("ReferencedGroupInfo", {}).get("GroupId")
    )
    return f"{protocol}, {ports}, {'to' if rule['IsEgress'] else 'from'} {peer}"


def _policies(resources: Sequence[KeptResource], iam: Any) -> list[AddedByHand]:
    """Return the policies of the stack's roles that nobody declares. A kind of policy that a role declares itself is
    left to the refresh."""
    attached = {
        (str(role), str(policy.value("policyArn")))
        for policy in of_type(resources, *ATTACHED)
        for role in [policy.value("role"), *(policy.value("roles") or ())]
    }
    inline = {(str(policy.value("role")), str(policy.value("name"))) for policy in of_type(resources, INLINE)}
    added: list[AddedByHand] = []
    for role in of_type(resources, ROLE):
        if role.inputs.get("managedPolicyArns") is None:
            for page in iam.get_paginator("list_attached_role_policies").paginate(RoleName=role.id):
                for policy in page["AttachedPolicies"]:
                    arn = policy["PolicyArn"]
                    if (role.id, arn) not in attached:
                        added.append(AddedByHand(role.urn, "attached policy", arn, arn))
        if role.inputs.get("inlinePolicies") is None:
            for page in iam.get_paginator("list_role_policies").paginate(RoleName=role.id):
                for name in page["PolicyNames"]:
                    if (role.id, name) not in inline:
                        added.append(AddedByHand(role.urn, "inline policy", name, f"{role.id}:{name}"))
    return added


def _region(resources: Sequence[KeptResource]) -> str | None:
    """Return the region of the first resource that names one; else the environment's counts."""
    for resource in resources:
        arn = str(resource.outputs.get("arn") or "").split(":")
        region = resource.outputs.get("region") or (arn[3] if len(arn) > 3 else "")
        if region:
            return str(region)
    return os.environ.get("AWS_REGION")  # boto3 itself reads AWS_DEFAULT_REGION only
