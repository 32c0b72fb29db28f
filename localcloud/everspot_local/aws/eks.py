"""Adds to moto's EKS what it lacks: pod identity associations, and the public parameters of EKS's images.

An association names the role of a service account's pods (Amazon EKS API Reference, CreatePodIdentityAssociation). The
images are AL2023's for x86_64 without an accelerator, in every version (Amazon EKS User Guide, "Retrieve recommended
Amazon Linux AMI IDs"). Each parameter has the same image of moto, in which there is nothing.
"""

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from moto.core.responses import ActionResult
from moto.eks import urls
from moto.eks.exceptions import ResourceInUseException, ResourceNotFoundException
from moto.eks.models import eks_backends
from moto.eks.responses import EKSResponse
from moto.ssm.models import Parameter, SimpleSystemManagerBackend

from everspot_local.aws.account import ACCOUNT

Document = dict[str, Any]
IMAGE = "ami-12c6146b"
"""An image of Amazon Linux for x86_64 that moto has in every region."""
_AL2023 = "amazon-eks-node-al2023-x86_64-standard"
_PARAMETER = re.compile(
    rf"/aws/service/eks/optimized-ami/1\.\d+/amazon-linux-2023/x86_64/standard/({_AL2023}-1\.\d+-v\d+|recommended)/image_id"
)
_PATH = "{0}/clusters/(?P<name>[^/]+)/pod-identity-associations"
URL_PATHS = {
    **urls.url_paths,
    f"{_PATH}$": urls.response.dispatch,
    f"{_PATH}/(?P<associationId>[^/]+)$": urls.response.dispatch,
}
_moto_get_parameter = SimpleSystemManagerBackend.get_parameter


def create_pod_identity_association(self: EKSResponse) -> ActionResult:
    """CreatePodIdentityAssociation: a service account has one role."""
    associations, cluster = _associations(self), _cluster_name(self)
    namespace, account = self._get_param("namespace"), self._get_param("serviceAccount")
    if find_association(self.region, cluster, namespace, account) is not None:
        raise ResourceInUseException(
            clusterName=cluster, nodegroupName=None, addonName=None,
            message=f"Association already exists for {namespace}/{account}",
        )  # fmt: skip
    name, now = f"a-{uuid4().hex[:17]}", datetime.now(UTC)
    associations[name] = {
        "clusterName": cluster,
        "namespace": namespace,
        "serviceAccount": account,
        "roleArn": self._get_param("roleArn"),
        "associationArn": f"arn:aws:eks:{self.region}:{ACCOUNT}:podidentityassociation/{cluster}/{name}",
        "associationId": name,
        "tags": self._get_param("tags") or {},
        "createdAt": now,
        "modifiedAt": now,
        "disableSessionTags": bool(self._get_param("disableSessionTags")),
    }
    return ActionResult({"association": associations[name]})


def describe_pod_identity_association(self: EKSResponse) -> ActionResult:
    """DescribePodIdentityAssociation."""
    return ActionResult({"association": _association(self)})


def update_pod_identity_association(self: EKSResponse) -> ActionResult:
    """UpdatePodIdentityAssociation: another role, session tags or none."""
    association = _association(self)
    association |= {"roleArn": self._get_param("roleArn") or association["roleArn"], "modifiedAt": datetime.now(UTC)}
    if (disabled := self._get_param("disableSessionTags")) is not None:
        association["disableSessionTags"] = bool(disabled)
    return ActionResult({"association": association})


def delete_pod_identity_association(self: EKSResponse) -> ActionResult:
    """DeletePodIdentityAssociation."""
    association = _association(self)
    return ActionResult({"association": _associations(self).pop(association["associationId"])})


def list_pod_identity_associations(self: EKSResponse) -> ActionResult:
    """ListPodIdentityAssociations, in a single page."""
    fields = ("clusterName", "namespace", "serviceAccount", "associationArn", "associationId")
    filters = {key: self._get_param(key) for key in ("namespace", "serviceAccount") if self._get_param(key)}
    listed = [
        {field: each[field] for field in fields}
        for each in _of_cluster(_associations(self).values(), _cluster_name(self))
        if filters.items() <= each.items()
    ]
    return ActionResult({"associations": listed})


METHODS = (
    create_pod_identity_association,
    describe_pod_identity_association,
    update_pod_identity_association,
    delete_pod_identity_association,
    list_pod_identity_associations,
)


def find_association(region: str, cluster: str, namespace: str, account: str) -> Document | None:
    """Return the association of a service account; None if it has none."""
    place = (namespace, account)
    associations = _of_cluster(_stored(region).values(), cluster)
    return next((each for each in associations if (each["namespace"], each["serviceAccount"]) == place), None)


def get_parameter(self: SimpleSystemManagerBackend, name: str) -> Parameter | None:
    """Return a parameter of the account, or one of the public ones of EKS's images."""
    if not _PARAMETER.fullmatch(name):
        return _moto_get_parameter(self, name)
    return Parameter(  # type: ignore[abstract]  # moto makes them so too
        account_id=self.account_id, name=name, value=IMAGE, parameter_type="String", description=None,
        allowed_pattern=None, keyid=None, last_modified_date=datetime.now(UTC), version=1, data_type="text",
    )  # fmt: skip


def _cluster_name(handler: EKSResponse) -> str:
    """Return the request's cluster, which exists."""
    return str(handler.eks_backend.describe_cluster(handler._get_param("name")).name)


def _association(handler: EKSResponse) -> Document:
    name = handler._get_param("associationId")
    association = _associations(handler).get(name)
    if association is None or association["clusterName"] != _cluster_name(handler):
        raise ResourceNotFoundException(
            clusterName=None, nodegroupName=None, fargateProfileName=None, addonName=None,
            message=f"Association: {name} not found",
        )  # fmt: skip
    return association


def _associations(handler: EKSResponse) -> dict[str, Document]:
    return _stored(str(handler.region))


def _stored(region: str) -> dict[str, Document]:
    """Return the associations of a region by their ids, which end with moto's own state."""
    return eks_backends[ACCOUNT][region].__dict__.setdefault("pod_identity_associations", {})  # type: ignore[no-any-return]


def _of_cluster(associations: Iterable[Document], cluster: str) -> list[Document]:
    return [each for each in associations if each["clusterName"] == cluster]
