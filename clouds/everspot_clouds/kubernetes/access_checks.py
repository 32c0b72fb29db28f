"""Asks EKS whether the roles of a repository's pull requests may read more than a preview needs."""

from collections.abc import Iterator
from typing import Any

from everspot_core.cluster.checks import Check, Verdict

from everspot_clouds.aws.rules import BOOTSTRAP
from everspot_clouds.kubernetes.rules import READERS, READING_ROLES

_SHOW_SECRETS = frozenset(
    {
        *("AmazonEKSAdminViewPolicy", "AmazonEKSEditPolicy", "AmazonEKSAdminPolicy"),
        *("AmazonEKSClusterAdminPolicy", "AmazonEKSSecretReaderPolicy"),
    }
)
"""EKS's policies that show Secrets (Amazon EKS User Guide, "Review access policy permissions")."""


def access_checks(eks: Any, cluster: str, caller: str) -> list[Check]:
    """Return a check of each reading role that may read the Secrets of an EKS cluster; none if no role may.

    Args:
        eks: The client of EKS.
        cluster: The EKS cluster.
        caller: The ARN of the person, of whose account the roles are.
    """
    _, partition, _, _, account, _ = caller.split(":", 5)
    checks = []
    for name in READING_ROLES:
        role = f"arn:{partition}:iam::{account}:role/{BOOTSTRAP}-{name}"
        for policy in _policies(eks, cluster, role):
            title = policy.rpartition("/")[2]
            if title in _SHOW_SECRETS:
                detail = f"whoever opens a pull request reads all Secrets of {cluster}: {BOOTSTRAP}-{name} has {title}"
                fix = (
                    f"aws eks disassociate-access-policy --cluster-name {cluster} --principal-arn {role} "
                    f"--policy-arn {policy}, and give its access entry the group {READERS} (CHANGELOG.md)"
                )
                checks.append(Check("user", "cluster access", Verdict.FAIL, detail, fix))
    return checks


def _policies(eks: Any, cluster: str, role: str) -> Iterator[str]:
    """Yield the ARNs of the policies of a role's access entry; none without an entry or a cluster."""
    from botocore.exceptions import ClientError

    try:
        pages = eks.get_paginator("list_associated_access_policies").paginate(clusterName=cluster, principalArn=role)
        for page in pages:
            yield from (str(policy["policyArn"]) for policy in page["associatedAccessPolicies"])
    except ClientError as error:
        if error.response["Error"]["Code"] != "ResourceNotFoundException":
            raise
