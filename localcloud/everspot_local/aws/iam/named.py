"""Stands in for the Service Authorization Reference of IAM, KMS and S3 Control: which resource a call names.

Sources: Service Authorization Reference, "Actions, resources, and condition keys for AWS Identity and Access
Management", "… for AWS Key Management Service", "… for Amazon S3"; IAM API Reference, AddRoleToInstanceProfile (who
puts a role into a profile passes it to EC2).
"""

import base64
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from moto.core.exceptions import ServiceException
from moto.iam.exceptions import NotFoundException
from moto.iam.models import iam_backends
from moto.kms.models import kms_backends

from everspot_local.aws.account import ACCOUNT
from everspot_local.aws.iam.policy_language import Call, Context

_IAM = f"arn:aws:iam::{ACCOUNT}:"
_KEY_ID = 36  # characters that moto's ciphertexts begin with
BOUND_BY = "iam:permissionsboundary"
"""The boundary that a request sets, or that the role has which it is about."""


def iam_calls(action: str, parameters: Mapping[str, Any], context: Context) -> Iterator[Call]:
    """Return the permissions that a call of IAM needs. `parameters`: its parameters."""
    name = f"iam:{action}"
    role, profile = parameters.get("RoleName"), parameters.get("InstanceProfileName")
    if profile is not None:
        yield Call(name, f"{_IAM}instance-profile/{profile}", context)
        if action == "AddRoleToInstanceProfile":
            yield Call("iam:PassRole", _role_arn(role), {**context, "iam:passedtoservice": ("ec2.amazonaws.com",)})
    elif role is not None:
        bound = parameters.get("PermissionsBoundary") or _current_boundary(str(role))
        yield Call(name, _role_arn(role, parameters.get("Path")), {**context, BOUND_BY: (bound,)} if bound else context)
    elif action == "CreateServiceLinkedRole":
        service = str(parameters.get("AWSServiceName"))
        arn = f"{_IAM}role/aws-service-role/{service}/AWSServiceRole"
        yield Call(name, arn, {**context, "iam:awsservicename": (service,)})
    else:
        yield Call(name, _other(parameters), context)


def _other(parameters: Mapping[str, Any]) -> str:
    """Return the resource of a call about neither a role nor an instance profile."""
    for parameter in ("PolicyArn", "OpenIDConnectProviderArn"):
        if parameters.get(parameter):
            return str(parameters[parameter])
    if parameters.get("PolicyName"):
        return f"{_IAM}policy/{parameters['PolicyName']}"
    if parameters.get("Url"):
        return f"{_IAM}oidc-provider/{str(parameters['Url']).removeprefix('https://')}"
    return "*"


def _role_arn(name: object, path: object = None) -> str:
    try:
        return str(iam_backends[ACCOUNT]["aws"].get_role(str(name)).arn)
    except NotFoundException:
        return f"{_IAM}role{path or '/'}{name}"


def _current_boundary(role: str) -> str | None:
    try:
        boundary = iam_backends[ACCOUNT]["aws"].get_role(role).permissions_boundary_arn
    except NotFoundException:
        return None
    return str(boundary) if boundary else None


def kms_calls(action: str, parameters: Mapping[str, Any], region: str, context: Context) -> Iterator[Call]:
    """Return the permissions that a call of KMS needs. A ciphertext names its key; calls about an alias need both."""
    name = f"kms:{action}"
    alias = parameters.get("AliasName")
    key = (
        parameters.get("TargetKeyId")
        or parameters.get("KeyId")
        or alias
        or _key_in_ciphertext(parameters.get("CiphertextBlob"))
    )
    if alias:
        yield Call(name, f"arn:aws:kms:{region}:{ACCOUNT}:{alias}", context)
    yield Call(name, _key_arn(str(key), region) if key else "*", context)


def _key_in_ciphertext(ciphertext: object) -> str | None:
    if not isinstance(ciphertext, str):
        return None
    try:
        return base64.b64decode(ciphertext)[:_KEY_ID].decode()
    except ValueError:
        return None


def _key_arn(key: str, region: str) -> str:
    if re.match(r"arn:[^:]*:kms:[^:]*:[^:]*:key/", key):
        return key
    backend = kms_backends[ACCOUNT][region]
    try:
        return str(backend.keys[backend.any_id_to_key_id(key)].arn)
    except (KeyError, ServiceException):  # which the service itself will say
        return f"arn:aws:kms:{region}:{ACCOUNT}:key/{key}"


def s3_control(uri: str) -> str:
    """Return the resource whose tags a request of S3 Control is about: its ARN is in the path."""
    match = re.search(r"/tags/(arn:[^?]+)", unquote(uri))
    return match[1] if match else "*"
