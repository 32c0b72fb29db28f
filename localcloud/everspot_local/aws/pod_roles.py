"""Stands in for EKS Auth's AssumeRoleForPodIdentity: credentials of a role for the pods of a service account.

EKS has to be allowed to assume the role, with the tags that name the pods (Amazon EKS User Guide, "Create IAM role with
trust policy required by EKS Pod Identity"). The tags are transitive, unless the association disables them.
"""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from moto.iam.models import iam_backends
from moto.sts.models import sts_backends

from everspot_local.aws import eks
from everspot_local.aws.account import ACCOUNT
from everspot_local.aws.iam.credentials import set_transitive_tags
from everspot_local.aws.iam.policy_language import Call, PolicyDecision, UnknownCondition, decide
from everspot_local.market.clock import stamp

EKS = "pods.eks.amazonaws.com"
LIFE = timedelta(hours=6)
"""Real time, as the programs that use the credentials wait in real time."""


@dataclass(frozen=True)
class PodRoles:
    """The roles of the pods of one EKS cluster, by its associations."""

    region: str
    cluster: str

    def find(self, namespace: str, account: str) -> str | None:
        """Return the ARN of the role of a service account's pods; None if it has none."""
        association = eks.find_association(self.region, self.cluster, namespace, account)
        return None if association is None else str(association["roleArn"])

    def assume(self, namespace: str, account: str) -> dict[str, str] | None:
        """Return credentials of the role of a service account's pods; None if it has none, or if the role's trust
        policy does not allow it."""
        association = eks.find_association(self.region, self.cluster, namespace, account)
        if association is None:
            return None
        tags = {"eks-cluster-name": self.cluster, "kubernetes-namespace": namespace}
        tags |= {"kubernetes-service-account": account}
        disabled = association["disableSessionTags"]
        return _assume(self.region, association["roleArn"], f"eks-{self.cluster}-{uuid4()}", {} if disabled else tags)


def _assume(region: str, role_arn: str, session: str, tags: dict[str, str]) -> dict[str, str] | None:
    """Return credentials of a role as the Pod Identity Agent states them; None if its trust policy does not allow it.

    `tags`: the session's tags, with which a trust policy may name the pods.
    """
    name = role_arn.rpartition("/")[2]
    trust = iam_backends[ACCOUNT]["aws"].get_role(name).assume_role_policy_document
    document = json.loads(trust) if isinstance(trust, str) else trust
    context = {f"aws:requesttag/{key}": (value,) for key, value in tags.items()}
    calls = [
        Call(action, role_arn, dict(context)) for action in ("sts:AssumeRole", *(["sts:TagSession"] if tags else []))
    ]
    try:
        if any(decide([document], call, principal=EKS) is not PolicyDecision.ALLOW for call in calls):
            return None
    except UnknownCondition:
        return None
    assumed = sts_backends[ACCOUNT]["aws"].assume_role(
        region_name=region,
        role_session_name=session[:64],
        role_arn=role_arn,
        policy="",
        duration=int(LIFE.total_seconds()),
        external_id="",
    )
    set_transitive_tags(assumed, tags)
    return {
        "AccessKeyId": assumed.access_key_id,
        "SecretAccessKey": assumed.secret_access_key,
        "Token": assumed.session_token,
        "AccountId": ACCOUNT,
        "Expiration": stamp(datetime.now(UTC) + LIFE),
    }
