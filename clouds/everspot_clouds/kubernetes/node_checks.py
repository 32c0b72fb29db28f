"""Asks AWS for what Karpenter launches nodes with: their role, subnets and security groups, as checks for people.

Karpenter finds subnets and groups by their tags, and makes an instance profile with the role (Karpenter,
"NodeClasses"). If one of them is missing, it says so in the EC2NodeClass only after `pulumi up`, and launches nothing.
"""

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from everspot_core.cluster.checks import Check, Verdict
from everspot_core.cluster.preflight import PreflightPlan
from everspot_core.counting import counted

from everspot_clouds.aws.rules import DNS_SUFFIXES
from everspot_clouds.kubernetes.requirements import find_karpenter

if TYPE_CHECKING:
    from everspot_clouds.kubernetes.client import KubernetesClient

_EC2 = tuple(f"ec2.{suffix}" for suffix in DNS_SUFFIXES)
_ROLE_NOTE = "eks.amazonaws.com/role-arn"
"""Annotation of a service account with its role (Amazon EKS User Guide, "Assign IAM roles to Kubernetes service
accounts")."""
_ANY = ("", "*")
"""Values of a selector's tag that every value meets (Karpenter, "NodeClasses", spec.subnetSelectorTerms)."""


def role_checks(iam: Any, plan: PreflightPlan) -> list[Check]:
    """Check that the nodes' role exists, and that EC2 may take it."""
    from botocore.exceptions import ClientError

    try:
        role = iam.get_role(RoleName=plan.node_role)["Role"]
    except ClientError as error:
        if error.response["Error"]["Code"] != "NoSuchEntity":
            raise
        detail = f"there is no role {plan.node_role}: Karpenter launches no node"
        fix = "name the role of Karpenter's nodes (nodes.role): its name alone, without a path"
        return [Check("user", "node role", Verdict.FAIL, detail, fix)]
    if not _trusts_ec2(role["AssumeRolePolicyDocument"]):
        detail = f"EC2 may not take the role {plan.node_role}: no node gets credentials"
        return [Check("user", "node role", Verdict.FAIL, detail, f"let {_EC2[0]} assume it, or name another role")]
    return [Check("user", "node role", Verdict.OK, role["Arn"])]


def pass_role_checks(
    iam: Any, make_eks: Callable[[], Any], plan: PreflightPlan, client: "KubernetesClient"
) -> list[Check]:
    """Check that Karpenter may pass the nodes' role to EC2. No check without the role, which another check names.

    IAM's simulator knows the policies of Karpenter's role alone, and not those of the organization.
    """
    from botocore.exceptions import ClientError

    karpenter = find_karpenter(client)
    if karpenter is None:
        return []
    controller = _controller_role(make_eks, plan.host_cluster, client, karpenter)
    if not controller:
        detail = "the role of Karpenter's service account is not known, so whether it passes nodes.role is not either"
        return [Check("user", "pass role", Verdict.SKIP, detail, "see that its policy has iam:PassRole for the role")]
    try:
        arn = iam.get_role(RoleName=plan.node_role)["Role"]["Arn"]
    except ClientError as error:
        if error.response["Error"]["Code"] != "NoSuchEntity":
            raise
        return []
    to_ec2 = {"ContextKeyName": "iam:PassedToService", "ContextKeyValues": [_EC2[0]], "ContextKeyType": "string"}
    (result,) = iam.simulate_principal_policy(
        PolicySourceArn=controller, ActionNames=["iam:PassRole"], ResourceArns=[arn], ContextEntries=[to_ec2]
    )["EvaluationResults"]
    if result["EvalDecision"] == "allowed":
        return [Check("user", "pass role", Verdict.OK, f"{controller} may pass it to EC2")]
    detail = f"Karpenter's role {controller} may not pass {plan.node_role} to EC2: it launches no node"
    return [Check("user", "pass role", Verdict.FAIL, detail, f"allow it iam:PassRole for {arn} to {_EC2[0]}")]


def network_checks(ec2: Any, plan: PreflightPlan) -> list[Check]:
    """Check that the tags of the settings find subnets in all zones, and security groups of their VPC."""
    subnets = ec2.describe_subnets(Filters=_filters(plan.subnet_tags))["Subnets"]
    zones = {subnet["AvailabilityZone"] for subnet in subnets}
    missing = [zone for zone in plan.zones if zone not in zones]
    described = _describe(plan.subnet_tags)
    fix = f"tag the nodes' subnets {described}, or correct nodes.subnetTags or capacity.elastic.zones"
    if not subnets:
        detail = f"no subnet in {plan.manifest.region} has the tags {described}: Karpenter launches no node"
        return [Check("user", "node subnets", Verdict.FAIL, detail, fix)]
    if missing:
        detail = f"no subnet with the tags {described} is in {', '.join(missing)}: nothing is launched there"
        checks = [Check("user", "node subnets", Verdict.FAIL, detail, fix)]
    else:
        checks = [Check("user", "node subnets", Verdict.OK, f"{counted(len(subnets), 'subnet')} in all zones")]
    vpcs = {subnet["VpcId"] for subnet in subnets}
    return [*checks, _group_check(ec2, plan, vpcs)]


def _group_check(ec2: Any, plan: PreflightPlan, vpcs: set[str]) -> Check:
    groups = ec2.describe_security_groups(Filters=_filters(plan.security_group_tags))["SecurityGroups"]
    described = _describe(plan.security_group_tags)
    fix = f"tag the nodes' security groups {described}, or correct nodes.securityGroupTags"
    if not groups:
        detail = f"no security group in {plan.manifest.region} has the tags {described}: Karpenter launches no node"
        return Check("user", "node security groups", Verdict.FAIL, detail, fix)
    strange = [group["GroupId"] for group in groups if group["VpcId"] not in vpcs]
    if strange:
        detail = f"{', '.join(strange)} with the tags {described} is of another VPC than the subnets: launches fail"
        return Check("user", "node security groups", Verdict.FAIL, detail, fix)
    return Check("user", "node security groups", Verdict.OK, ", ".join(group["GroupId"] for group in groups))


def _trusts_ec2(document: Any) -> bool:
    """Return whether a trust policy lets EC2 assume the role. boto3 gives the policy parsed."""
    policy = json.loads(document) if isinstance(document, str) else document
    statements = policy.get("Statement", [])
    for statement in [statements] if isinstance(statements, dict) else statements:
        principal = statement.get("Principal", {})
        services = principal.get("Service", []) if isinstance(principal, dict) else []
        names = [services] if isinstance(services, str) else services
        if statement.get("Effect") == "Allow" and set(names) & set(_EC2):
            return True
    return False


def _controller_role(
    make_eks: Callable[[], Any], cluster: str, client: "KubernetesClient", karpenter: Mapping[str, Any]
) -> str:
    """Return the ARN of the role of Karpenter's pods, by the account's annotation or its pod identity association;
    empty if it has neither."""
    namespace = str(karpenter["metadata"]["namespace"])
    account = str(karpenter["spec"]["template"]["spec"].get("serviceAccountName") or "default")
    document = client.find(f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}") or {"metadata": {}}
    if arn := document["metadata"].get("annotations", {}).get(_ROLE_NOTE):
        return str(arn)
    eks = make_eks()
    listed = eks.list_pod_identity_associations(clusterName=cluster, namespace=namespace, serviceAccount=account)
    for association in listed["associations"]:
        answer = eks.describe_pod_identity_association(clusterName=cluster, associationId=association["associationId"])
        return str(answer["association"]["roleArn"])
    return ""


def _filters(tags: Mapping[str, str]) -> list[dict[str, Any]]:
    return [
        {"Name": "tag-key", "Values": [key]} if value in _ANY else {"Name": f"tag:{key}", "Values": [value]}
        for key, value in tags.items()
    ]


def _describe(tags: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in tags.items())
