"""Queues, topics, and the policies of resources."""

from collections.abc import Iterator, Mapping
from typing import Any

from everspot_core.validation.problems import Problem

from everspot_policy.aws.documents import (
    ANYBODY,
    SOURCE_ADDRESS,
    actions,
    allows,
    conditions,
    narrowed,
    others_denied,
    principals,
    statements,
)
from everspot_policy.reading import denied, objects
from everspot_policy.rule import Level, Rule, Severity, Subject, rule

QUEUE = "aws:sqs/queue:Queue"
_NO_RESOURCE_POLICY = (
    "aws:iam/role:Role",
    "aws:ec2/vpcEndpoint:VpcEndpoint",
    "aws:ec2/vpcEndpointPolicy:VpcEndpointPolicy",
)
"""Types with another rule, and endpoints, whose policies limit what is sent through them by everybody in a network."""
_LAMBDA_PERMISSION = "aws:lambda/permission:Permission"
_SHARES = {
    "aws:ec2/amiLaunchPermission:AmiLaunchPermission": ("group", "all"),
    "aws:ec2/snapshotCreateVolumePermission:SnapshotCreateVolumePermission": ("accountId", "all"),
}
"""Types that share an image or a snapshot, with the input and the value that share it with everybody."""
_SEARCH_DOMAINS = ("aws:opensearch/domain:Domain", "aws:elasticsearch/domain:Domain")
NARROWING = (
    "aws:sourcearn", "aws:sourceaccount", "aws:sourceorgid", "aws:principalorgid", "aws:principalorgpaths",
    "aws:principalaccount", "aws:principalarn", "aws:sourcevpc", "aws:sourcevpce", "kms:calleraccount",
    "s3:dataaccesspointaccount", "s3:dataaccesspointarn", "aws:sourceowner", "vpc-lattice-svcs:sourcevpc",
    "vpc-lattice-svcs:sourcevpcowneraccount", SOURCE_ADDRESS,
)  # fmt: skip
"""Keys of conditions that leave somebody named of everybody."""


@rule(
    "aws-queue-encrypted",
    Level.MANDATORY,
    Severity.MEDIUM,
    title="Queues are encrypted",
    remedy="Leave sqsManagedSseEnabled out or set it to true, or set kmsMasterKeyId.",
    types=(QUEUE,),
    checkov=("CKV_AWS_27",),
)
def queue_encrypted(subject: Subject) -> Iterator[Problem]:
    """Find encryption that is switched off. Where nothing is said, SQS encrypts, since 2022."""
    if denied(subject.inputs.get("sqsManagedSseEnabled")) and subject.inputs.get("kmsMasterKeyId") is None:
        yield Problem("sqsManagedSseEnabled", "has to be true where there is no kmsMasterKeyId")


@rule(
    "aws-policy-not-for-everybody",
    Level.MANDATORY,
    Severity.CRITICAL,
    title="Resource policies allow nothing to everybody",
    remedy="Name the principals, or add a condition on aws:SourceArn, aws:SourceAccount or aws:PrincipalOrgID.",
    types=("aws:*",),
    checkov=("CKV_AWS_33", "CKV_AWS_70", "CKV_AWS_72", "CKV_AWS_168", "CKV_AWS_169"),
)
def policy_not_for_everybody(subject: Subject) -> Iterator[Problem]:
    """Find statements that allow something to `*`, and no condition that narrows it."""
    inputs = subject.inputs
    if subject.type in _NO_RESOURCE_POLICY:
        return
    narrowing = any(inputs.get(name) for name in ("sourceArn", "sourceAccount", "principalOrgId"))
    if subject.type == _LAMBDA_PERMISSION and inputs.get("principal") == ANYBODY and not narrowing:
        yield Problem("principal", "is everybody")
    name, everybody_value = _SHARES.get(subject.type, ("", None))
    if name and inputs.get(name) == everybody_value:
        yield Problem(name, "is everybody")
    if subject.type in _SEARCH_DOMAINS and _in_network(inputs):
        return
    for path, value in _policies(inputs):
        for index, statement in statements(value):
            everybody = any(name == ANYBODY for _, name in principals(statement)) or "NotPrincipal" in statement
            if not allows(statement) or not everybody or narrowed(statement, NARROWING) or _mounted(statement):
                continue
            if not others_denied(statement, value, NARROWING):
                allowed = ", ".join(actions(statement)[:3]) or "everything but some"
                yield Problem(f"{path}.Statement[{index}]", f"allows {allowed} to everybody")


def _policies(inputs: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the inputs that may be policies, by their names: `policy`, `resourcePolicy`, `accessPolicies`; also within
    the blocks of a resource."""
    blocks = [("", inputs), *((path, each) for name in sorted(inputs) for path, each in objects(inputs, name))]
    for path, block in blocks:
        for name in sorted(block, key=str):
            if "polic" in str(name).lower():
                yield f"{path}.{name}".lstrip("."), block[name]


def _in_network(inputs: Mapping[str, Any]) -> bool:
    """Return whether a search domain is in a VPC, where security groups admit (Amazon OpenSearch Service Developer
    Guide, "About access policies on VPC domains")."""
    return any(each.get("subnetIds") for _, each in objects(inputs, "vpcOptions"))


def _mounted(statement: Mapping[str, Any]) -> bool:
    """Return whether a statement holds within the network of a file system alone (Amazon EFS User Guide, "Using IAM to
    control access": the condition of its recommended policy)."""
    return any(
        (operator, key, values) == ("bool", "elasticfilesystem:accessedviamounttarget", ["true"])
        for operator, key, values in conditions(statement)
    )


RULES: tuple[Rule, ...] = (queue_encrypted, policy_not_for_everybody)
