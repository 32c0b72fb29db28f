"""Stands in for STS behind an instance profile: role credentials that moto knows, renewed before they expire.

EC2 has to be allowed to assume the role. If its trust policy does not let EC2, the document says so: EC2 User Guide,
"Retrieve security credentials from instance metadata", the code AssumeRoleUnauthorizedAccess.
"""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from moto.iam.models import iam_backends
from moto.sts.models import sts_backends

from everspot_local.aws.account import ACCOUNT
from everspot_local.aws.ec2.instances import LocalInstance
from everspot_local.aws.iam.policy_language import Call, PolicyDecision, UnknownCondition, decide
from everspot_local.aws.strict import strict
from everspot_local.market.clock import stamp

LIFE = timedelta(hours=6)  # real time, as the programs that use them wait in real time
RENEW_BEFORE = timedelta(hours=1)


class RoleCredentials:
    """Credentials of instances' roles; each instance has one set at a time."""

    def __init__(self, region: str) -> None:
        self._region = region
        self._issued: dict[str, tuple[datetime, dict[str, Any]]] = {}

    def role_name(self, instance: LocalInstance) -> str | None:
        """Return the name of the role in the instance's profile, or None without a role."""
        arn = instance.profile_arn
        if arn is None:
            return None
        profile = next((p for p in iam_backends[ACCOUNT]["aws"].get_instance_profiles() if p.arn == arn), None)
        return None if profile is None or not profile.roles else str(profile.roles[0].name)

    def role_credentials(self, instance: LocalInstance, life: timedelta = LIFE) -> dict[str, Any] | None:
        """Return the document of `iam/security-credentials/ROLE`, or None without a role."""
        name = self.role_name(instance)
        if name is None:
            return None
        now = datetime.now(UTC)
        if strict() and not _ec2_may_assume(name):
            message = f"EC2 cannot assume the role {name}."
            return {"Code": "AssumeRoleUnauthorizedAccess", "Message": message, "LastUpdated": stamp(now)}
        expires, document = self._issued.get(instance.id, (now, {}))
        if not document or expires - now < RENEW_BEFORE:
            expires = now + life
            document = self._assume(instance, name, now, expires)
            self._issued[instance.id] = (expires, document)
        return document

    def _assume(self, instance: LocalInstance, name: str, now: datetime, expires: datetime) -> dict[str, Any]:
        role = iam_backends[ACCOUNT]["aws"].get_role(name)
        assumed = sts_backends[ACCOUNT]["aws"].assume_role(
            region_name=self._region,
            role_session_name=instance.id,
            role_arn=role.arn,
            policy="",
            duration=int((expires - now).total_seconds()),
            external_id="",
        )
        return {
            "Code": "Success",
            "LastUpdated": stamp(now),
            "Type": "AWS-HMAC",
            "AccessKeyId": assumed.access_key_id,
            "SecretAccessKey": assumed.secret_access_key,
            "Token": assumed.session_token,
            "Expiration": stamp(expires),
        }


def _ec2_may_assume(name: str) -> bool:
    trust = iam_backends[ACCOUNT]["aws"].get_role(name).assume_role_policy_document
    document = json.loads(trust) if isinstance(trust, str) else trust
    try:
        return decide([document], Call("sts:AssumeRole"), principal="ec2.amazonaws.com") is PolicyDecision.ALLOW
    except UnknownCondition:
        return False
