"""Adds to moto's EKS the access entries of a cluster with their policies, which open the API server to IAM's roles.

Source: Amazon EKS API Reference, CreateAccessEntry, AssociateAccessPolicy, DisassociateAccessPolicy and
ListAssociatedAccessPolicies. The local Kubernetes itself does not heed them.
"""

from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

from moto.core.responses import ActionResult
from moto.eks import urls
from moto.eks.exceptions import ResourceInUseException, ResourceNotFoundException
from moto.eks.responses import EKSResponse

from everspot_local.aws.account import ACCOUNT

Document = dict[str, Any]
_PATH = "{0}/clusters/(?P<name>[^/]+)/access-entries"
_POLICIES = f"{_PATH}/(?P<principalArn>arn:[^/]+/.+)/access-policies"
URL_PATHS = {
    f"{_PATH}$": urls.response.dispatch,
    f"{_POLICIES}$": urls.response.dispatch,
    f"{_POLICIES}/(?P<policyArn>arn:.+)$": urls.response.dispatch,
}


def create_access_entry(self: EKSResponse) -> ActionResult:
    """CreateAccessEntry: a role has one in a cluster."""
    entries, cluster, principal = _entries(self), _cluster_name(self), str(self._get_param("principalArn"))
    if principal in entries:
        raise ResourceInUseException(
            clusterName=cluster, nodegroupName=None, addonName=None,
            message="The specified access entry resource is already in use on this cluster.",
        )  # fmt: skip
    entries[principal] = {}
    name = principal.rpartition("/")[2]
    now, arn = datetime.now(UTC), f"arn:aws:eks:{self.region}:{ACCOUNT}:access-entry/{cluster}/role/{ACCOUNT}/{name}"
    entry = {
        "clusterName": cluster, "principalArn": principal, "accessEntryArn": arn, "createdAt": now, "modifiedAt": now,
        "kubernetesGroups": self._get_param("kubernetesGroups") or [], "tags": self._get_param("tags") or {},
        "type": self._get_param("type") or "STANDARD",
    }  # fmt: skip
    return ActionResult({"accessEntry": entry})


def associate_access_policy(self: EKSResponse) -> ActionResult:
    """AssociateAccessPolicy: a policy again has the new scope."""
    policies, arn, now = _policies(self), str(self._get_param("policyArn")), datetime.now(UTC)
    began = policies.get(arn, {}).get("associatedAt", now)
    scope = self._get_param("accessScope")
    policies[arn] = {"policyArn": arn, "accessScope": scope, "associatedAt": began, "modifiedAt": now}
    place = {"clusterName": _cluster_name(self), "principalArn": _principal(self)}
    return ActionResult({**place, "associatedAccessPolicy": policies[arn]})


def disassociate_access_policy(self: EKSResponse) -> ActionResult:
    """DisassociateAccessPolicy."""
    if _policies(self).pop(unquote(str(self._get_param("policyArn"))), None) is None:
        raise _not_found("The specified policy is not associated with the access entry.")
    return ActionResult({})


def list_associated_access_policies(self: EKSResponse) -> ActionResult:
    """ListAssociatedAccessPolicies, in a single page."""
    policies = list(_policies(self).values())
    place = {"clusterName": _cluster_name(self), "principalArn": _principal(self)}
    return ActionResult({**place, "associatedAccessPolicies": policies})


METHODS = (
    create_access_entry,
    associate_access_policy,
    disassociate_access_policy,
    list_associated_access_policies,
)


def _cluster_name(handler: EKSResponse) -> str:
    """Return the request's cluster, which exists."""
    return str(handler.eks_backend.describe_cluster(handler._get_param("name")).name)


def _principal(handler: EKSResponse) -> str:
    return unquote(str(handler._get_param("principalArn")))


def _policies(handler: EKSResponse) -> dict[str, Document]:
    """Return the policies of the request's access entry, which exists."""
    entries = _entries(handler)
    if (principal := _principal(handler)) not in entries:
        raise _not_found("The specified principalArn could not be found. You can view your available access entries.")
    return entries[principal]


def _entries(handler: EKSResponse) -> dict[str, dict[str, Document]]:
    """Return the entries of the request's cluster by their roles, which end with moto's own state."""
    entries = handler.eks_backend.__dict__.setdefault("access_entries", {})
    return entries.setdefault(_cluster_name(handler), {})  # type: ignore[no-any-return]


def _not_found(message: str) -> ResourceNotFoundException:
    return ResourceNotFoundException(
        clusterName=None, nodegroupName=None, fargateProfileName=None, addonName=None, message=message
    )
