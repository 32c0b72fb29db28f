"""Stands in for IAM in front of every service: records each call, and refuses what a role's policies do not allow.

Only the credentials of roles are checked against policies, unless `--no-iam-enforce` lifts that. The account's owner,
with the made-up key of `everspot-local env`, may do everything. Only the region of signatures is checked. moto stores
the policies of a role; this package evaluates them.
"""

import json
from collections.abc import Mapping
from typing import Any

from moto.core.exceptions import ServiceException
from moto.iam.access_control import AssumedRoleAccessKey, CreateAccessKeyFailure, PermissionResult
from moto.iam.models import Policy
from moto.s3.exceptions import BucketAccessDeniedError, S3AccessDeniedError
from moto.s3.models import FakeBucket

from everspot_local.aws import account
from everspot_local.aws.account import ACCOUNT, Account
from everspot_local.aws.iam.caller import Caller, Denial, enter, unauthorized_text
from everspot_local.aws.iam.credentials import check_credentials, session_credentials, session_policy
from everspot_local.aws.iam.policy_language import Call, PolicyDecision, decide
from everspot_local.aws.iam.resources import required_calls
from everspot_local.aws.iam.s3_calls import check_upload
from everspot_local.aws.model_limits import check_request, request_parameters
from everspot_local.aws.parameter_rules import check_parameters
from everspot_local.aws.refusals import Refused
from everspot_local.aws.signatures import check_region
from everspot_local.aws.strict import strict
from everspot_local.market.clock import stamp

THROTTLING = {
    # Where the service's own model names another code (botocore).
    **dict.fromkeys(("autoscaling", "cloudwatch", "iam", "sts"), "Throttling"),
    "sqs": "RequestThrottled",
    "service-quotas": "TooManyRequestsException",
    "resourcegroupstaggingapi": "ThrottledException",
    "ce": "LimitExceededException",
}
"""The codes of refusals because of too many requests. "Common errors" of services that speak JSON:
ThrottlingException."""
CODES = {
    "ec2": "UnauthorizedOperation",
    "ssm": "AccessDeniedException",
    "resourcegroupstaggingapi": "AccessDeniedException",
    "events": "AccessDeniedException",
    "eks": "AccessDeniedException",
    "kms": "AccessDeniedException",
    "ecr": "AccessDeniedException",
    "ce": "AccessDeniedException",
    "budgets": "AccessDeniedException",
}


def enter_normal(self: Any, resource: str = "*") -> None:
    """Check a request to any service but S3, in moto's place: region, parameters, and whether its caller may."""
    _enter(self, None)


def enter_s3(self: Any, bucket_name: str | None = None, key_name: str | None = None) -> None:
    """Check a request to S3, in moto's place: whether its caller may, and whose upload it is."""
    path = f"{bucket_name or '*'}/{key_name}" if key_name else (bucket_name or "*")
    _enter(self, f"arn:aws:s3:::{path}")
    check_upload(self, bucket_name, key_name)


def bucket_permission(self: FakeBucket, action: str, resource: str) -> PermissionResult:
    """Evaluate a bucket policy correctly, and treat the loopback connection as one by TLS."""
    if self.policy is None:
        return PermissionResult.NEUTRAL
    call = Call(action, resource, {"aws:securetransport": ("true",)})
    verdict = decide([json.loads(self.policy)], call, principal="*")
    return PermissionResult.DENIED if verdict is PolicyDecision.DENY else PermissionResult.NEUTRAL


def _enter(handler: Any, s3_resource: str | None) -> None:
    here = account.current()
    service = str(handler.service_name)
    action = _action(handler)
    if action is None:
        return
    if service not in ("ec2", "s3") and here.market.disturbances.occurs("throttle"):
        raise Refused(THROTTLING.get(service, "ThrottlingException"), "Rate exceeded")
    if strict() and service != "sts":
        check_credentials(handler, service)
    if s3_resource is None:
        check_region(handler, service, here.region)
        check_request(handler, service, action)
        check_parameters(service, action, request_parameters(handler), str(handler.region))
    key = _role_key(handler)
    principal = key.arn if key else f"arn:aws:iam::{ACCOUNT}:root"
    try:
        calls = required_calls(handler, service, action, s3_resource)
    except ServiceException:  # it names something that does not exist, which the service itself will say
        calls = [Call(f"{service}:{action}", "*")]
    caller = find_caller(handler)
    enter(caller)
    denied = caller.denied(call for call in calls if not call.later) if caller else None
    _book(here, principal, service, action, calls, denied)
    if denied is not None:
        raise _refusal(service, principal, denied)


def find_caller(handler: Any) -> Caller | None:
    """Return the role that makes a request, with its policies; None may do everything."""
    key = _role_key(handler) if account.current().options.iam_enforce else None
    return role_caller(key.arn, key.backend, key._owner_role_name, session_policy(handler)) if key else None


def _action(handler: Any) -> str | None:
    action: str | list[str] | None = handler._get_action()
    return action[0] if isinstance(action, list) else action


def _role_key(handler: Any) -> AssumedRoleAccessKey | None:
    access_key, token = session_credentials(handler)
    if not token:
        return None
    headers = {"X-Amz-Security-Token": token}
    try:
        return AssumedRoleAccessKey(account_id=ACCOUNT, partition="aws", access_key_id=access_key, headers=headers)
    except CreateAccessKeyFailure:
        return None


def role_caller(principal: str, backend: Any, name: str, session: Mapping[str, Any] | None = None) -> Caller:
    """Return a caller with the policies and the boundary of a role. `backend`: moto's IAM; `name`: of the role;
    `session`: the session policy, if there is one."""

    def read() -> list[Mapping[str, Any]]:
        inline = [backend.get_role_policy(name, policy)[1] for policy in backend.list_role_policies(name)]
        return [_document(policy) for policy in (*inline, *backend.list_attached_role_policies(name)[0])]

    def bound() -> dict[str, Any] | None:
        arn = backend.get_role(name).permissions_boundary_arn
        return _document(backend.get_policy(arn)) if arn else None

    return Caller(principal, read, bound, session)


def _document(policy: Any) -> dict[str, Any]:
    if isinstance(policy, Policy):
        text = next(version.document for version in policy.versions if version.is_default)
    else:
        text = policy if isinstance(policy, str) else policy["policy_document"]
    return json.loads(text)  # type: ignore[no-any-return]


def _book(here: Account, principal: str, service: str, action: str, calls: list[Call], denied: Denial | None) -> None:
    here.calls.write(
        {
            "at": stamp(here.market.clock.now()),
            "principal": principal,
            "service": service,
            "action": action,
            "checked": [{"action": a, "resource": r} for a, r in dict.fromkeys((c.action, c.resource) for c in calls)],
            "allowed": denied is None,
        }
    )


def _refusal(service: str, principal: str, denied: Denial) -> Exception:
    action, resource = denied.call.action, denied.call.resource
    if service == "s3":
        bucket = resource.rpartition(":")[2].partition("/")[0]
        error = BucketAccessDeniedError(bucket=bucket) if bucket != "*" else S3AccessDeniedError()
        # S3 User Guide, "Troubleshoot access denied (403 Forbidden) errors": within an account.
        error.message = (
            f'User: {principal} is not authorized to perform: {action} on resource: "{resource}" {denied.reason}'
        )
        return error
    if service == "ec2":
        message = unauthorized_text(principal, denied)
    else:
        message = f"User: {principal} is not authorized to perform: {action} on resource: {resource}"
    return Refused(CODES.get(service, "AccessDenied"), message, 403)
