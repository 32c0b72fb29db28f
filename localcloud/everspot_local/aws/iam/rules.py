"""Stands in for IAM's quotas and delays: policy sizes, boundaries that must exist, and roles and instance profiles that
other services know only after a while.

AWS names no time for that: changes are not always immediately visible ("Troubleshoot IAM"); the upstream provider
allows two minutes (`ec2/ec2_instance.go`). Here it is the delay `propagation`.

Lengths and characters of names and tags are in IAM's own model: see `model_limits`. The quotas are the default ones of
"IAM and AWS STS quotas" in the IAM user guide, which also says that white space does not count.
"""

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from moto.ec2.exceptions import EC2ClientError
from moto.ec2.utils import filter_iam_instance_profiles
from moto.iam.exceptions import (
    EntityAlreadyExists,
    InvalidInput,
    LimitExceededException,
    MalformedPolicyDocument,
    NoSuchEntity,
)
from moto.iam.models import IAMBackend, InstanceProfile, Role, iam_backends

from everspot_local.aws import account
from everspot_local.aws.account import ACCOUNT
from everspot_local.aws.strict import strict

INLINE, MANAGED, TRUST, ATTACHED = 10_240, 6_144, 2_048, 10
_create_role = IAMBackend.create_role
_put_boundary = IAMBackend.put_role_permissions_boundary
_put_role_policy = IAMBackend.put_role_policy
_update_trust = IAMBackend.update_assume_role_policy
_create_policy = IAMBackend.create_policy
_create_policy_version = IAMBackend.create_policy_version
_attach = IAMBackend.attach_role_policy
_create_profile = IAMBackend.create_instance_profile
_add_role = IAMBackend.add_role_to_instance_profile
_remove_role = IAMBackend.remove_role_from_instance_profile
_verify_tags = IAMBackend._tag_verification
_filter_profiles = filter_iam_instance_profiles


def create_role(self: IAMBackend, role_name: str, assume_role_policy_document: str, *words: Any, **more: Any) -> Role:
    """Create a role as moto does, within the quota of its trust policy and with a boundary that exists."""
    if strict():
        _fits(assume_role_policy_document, TRUST, f"Cannot exceed quota for ACLSizePerRole: {TRUST}")
        check_trust(assume_role_policy_document)
        _boundary(self, more.get("permissions_boundary") or (words[1] if len(words) > 1 else None))
        if any(role.name.lower() == role_name.lower() for role in self.roles.values()):
            raise EntityAlreadyExists(f"Role with name {role_name} already exists.")
    role = _create_role(self, role_name, assume_role_policy_document, *words, **more)
    _changed(role)
    return role


def is_propagated(role: Any) -> bool:
    """Return whether STS knows of a role. Linked roles belong to services, which know them immediately."""
    usable_from = getattr(role, "everspot_usable_from", None)
    return usable_from is None or not strict() or account.current().market.clock.now() >= usable_from


def update_assume_role_policy(self: IAMBackend, role_name: str, assume_role_policy: str) -> None:
    """Replace a trust policy as moto does, within its quota."""
    if strict():
        _fits(assume_role_policy, TRUST, f"Cannot exceed quota for ACLSizePerRole: {TRUST}")
        check_trust(assume_role_policy)
    _update_trust(self, role_name, assume_role_policy)


def put_role_permissions_boundary(self: IAMBackend, role_name: str, permissions_boundary: str) -> None:
    """Set a role's boundary as moto does, if the policy exists."""
    if strict():
        _boundary(self, permissions_boundary)
    _put_boundary(self, role_name, permissions_boundary)


def put_role_policy(self: IAMBackend, role_name: str, policy_name: str, policy_json: str) -> None:
    """Set an inline policy as moto does, within the quota of all inline policies of the role together."""
    if strict():
        others = [text for name, text in self.get_role(role_name).policies.items() if name != policy_name]
        _fits(
            "".join([*others, policy_json]),
            INLINE,
            f"Maximum policy size of {INLINE} bytes exceeded for role {role_name}",
        )
    _put_role_policy(self, role_name, policy_name, policy_json)


def create_policy(self: IAMBackend, description: str, path: str, policy_document: str, *words: Any, **more: Any) -> Any:
    """Create a managed policy as moto does, within its quota."""
    if strict():
        _fits(policy_document, MANAGED, f"Cannot exceed quota for PolicySize: {MANAGED}")
    return _create_policy(self, description, path, policy_document, *words, **more)


def create_policy_version(self: IAMBackend, policy_arn: str, policy_document: str, set_as_default: bool) -> Any:
    """Create a version of a managed policy as moto does, within its quota."""
    if strict():
        _fits(policy_document, MANAGED, f"Cannot exceed quota for PolicySize: {MANAGED}")
    return _create_policy_version(self, policy_arn, policy_document, set_as_default)


def attach_role_policy(self: IAMBackend, policy_arn: str, role_name: str) -> None:
    """Attach a managed policy as moto does, within the quota of policies per role."""
    attached = self.get_role(role_name).managed_policies
    if strict() and policy_arn not in attached and len(attached) >= ATTACHED:
        raise LimitExceededException(f"Cannot exceed quota for PoliciesPerRole: {ATTACHED}")
    _attach(self, policy_arn, role_name)


def remove_role_from_instance_profile(self: IAMBackend, profile_name: str, role_name: str) -> None:
    """Take a role out of a profile as moto does. One that is not in it is NoSuchEntity (IAM API Reference,
    "RemoveRoleFromInstanceProfile"), where moto fails with status 500, which callers try again for many minutes."""
    if role_name not in {role.name for role in self.get_instance_profile(profile_name).roles}:
        raise NoSuchEntity(f"Cannot find Role {role_name} in Instance Profile {profile_name}.")
    _remove_role(self, profile_name, role_name)


def tag_verification(self: IAMBackend, tags: list[dict[str, str]]) -> dict[str, dict[str, str]]:
    """Check tags as moto does, and refuse the keys that AWS reserves ("Tags for IAM resources")."""
    if strict() and any(tag["Key"].lower().startswith("aws:") for tag in tags):
        raise InvalidInput("aws: prefixed tag key names are not allowed for external use.")
    return _verify_tags(self, tags)


def create_instance_profile(self: IAMBackend, name: str, *words: Any, **more: Any) -> InstanceProfile:
    """Create an instance profile as moto does; EC2 knows it after a delay."""
    profile = _create_profile(self, name, *words, **more)
    _changed(profile)
    return profile


def add_role_to_instance_profile(self: IAMBackend, profile_name: str, role_name: str) -> None:
    """Add a role as moto does; EC2 knows of it after a delay."""
    _add_role(self, profile_name, role_name)
    _changed(self.get_instance_profile(profile_name))


def check_profile(name: str | None, arn: str | None) -> None:
    """Refuse an instance profile that EC2 does not know, or not yet.

    Raises:
        EC2ClientError: InvalidParameterValue, as RunInstances says it.
    """
    if not (name or arn) or not strict():
        return
    profiles: Iterable[Any] = iam_backends[ACCOUNT]["aws"].instance_profiles.values()
    profile = next((p for p in profiles if p.name == name or p.arn == arn), None)
    if profile is None or account.current().market.clock.now() < _usable_from(profile):
        field, value = ("name", name) if name else ("arn", arn)
        raise EC2ClientError(
            "InvalidParameterValue",
            f"Value ({value}) for parameter iamInstanceProfile.{field} is invalid. "
            f"Invalid IAM Instance Profile {field}",
        )


def filter_profiles(account: str, partition: str, iam_instance_profile_arn: Any, iam_instance_profile_name: Any) -> Any:
    """Find the instance profile of a request as moto does. Raise EC2's error if it does not exist."""
    check_profile(iam_instance_profile_name, iam_instance_profile_arn)
    return _filter_profiles(
        account,
        partition=partition,
        iam_instance_profile_arn=iam_instance_profile_arn,
        iam_instance_profile_name=iam_instance_profile_name,
    )


def check_trust(text: str) -> None:
    """Refuse a malformed trust policy, and one that names a missing role or user of this account.

    IAM user guide, "AWS JSON policy elements: Principal": a trust policy has principals and no resources. The words as
    met: `MalformedPolicyDocument: Invalid principal in policy` (the upstream provider tries again, `iam/role.go`).
    """
    try:
        statements = _list(json.loads(text)["Statement"])
    except (ValueError, KeyError, TypeError):
        raise MalformedPolicyDocument("This policy contains invalid Json") from None
    for statement in statements:
        if "Principal" not in statement and "NotPrincipal" not in statement:
            raise MalformedPolicyDocument("AssumeRole policy must contain principals")
        if "Resource" in statement or "NotResource" in statement:
            raise MalformedPolicyDocument("Has prohibited field Resource")
        if absent := absent_principals(statement):
            raise MalformedPolicyDocument(f'Invalid principal in policy: "AWS":"{absent[0]}"')


def absent_principals(statement: Mapping[str, Any]) -> list[str]:
    """Return the roles and users of this account that a statement names and that do not exist. Those of other accounts
    cannot be known here."""
    stated = statement.get("Principal")
    names = [str(name) for name in _list(stated.get("AWS", []))] if isinstance(stated, Mapping) else []
    backend = iam_backends[ACCOUNT]["aws"]
    existing = {*(role.arn for role in backend.roles.values()), *(user.arn for user in backend.users.values())}
    owned = (f"arn:aws:iam::{ACCOUNT}:role/", f"arn:aws:iam::{ACCOUNT}:user/")
    return [name for name in names if name.startswith(owned) and name not in existing]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _changed(entity: Any) -> None:
    market = account.current().market
    entity.everspot_usable_from = market.clock.now() + market.delays.propagation


def _usable_from(profile: Any) -> datetime:
    return profile.everspot_usable_from  # type: ignore[no-any-return]


def _fits(text: str, limit: int, message: str) -> None:
    if len("".join(text.split())) > limit:
        raise LimitExceededException(message)


def _boundary(backend: IAMBackend, arn: str | None) -> None:
    if arn and arn not in {policy.arn for policy in backend.managed_policies.values()}:
        raise NoSuchEntity(f"Scope ARN: {arn} does not exist or is not attachable.")
