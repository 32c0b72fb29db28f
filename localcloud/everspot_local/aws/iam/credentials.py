"""Stands in for the check of a request's credentials: temporary keys have to be known, whole and in date.

Keys that begin with `ASIA` are temporary, and come with a session token (IAM user guide, "Unique identifiers"). Every
other key counts as the owner's, which is made up. Credentials keep real time. STS has checks of its own in
`signed_identity`.

Codes: "Common errors" of the services; EC2 error codes (AuthFailure, RequestExpired); S3 error responses.
"""

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs, urlsplit

from moto.s3.exceptions import S3ClientError
from moto.sts.models import sts_backends

from everspot_local.aws.account import ACCOUNT
from everspot_local.aws.refusals import Refused

TEMPORARY = "ASIA"
_CREDENTIAL = re.compile(r"Credential=([^/,\s]+)/")
_INVALID = "The security token included in the request is invalid."
_EXPIRED = "The security token included in the request is expired"


def session_credentials(handler: Any) -> tuple[str, str]:
    """Return the key id and the session token of a request, from its headers or from a presigned URL."""
    token = str(handler.headers.get("X-Amz-Security-Token") or "")
    scope = _CREDENTIAL.search(str(handler.headers.get("Authorization") or ""))
    key = scope[1] if scope else str(handler.get_access_key())  # moto finds ids of 20 characters alone
    query = {name.lower(): values[0] for name, values in parse_qs(urlsplit(str(handler.uri)).query).items()}
    signer = query.get("x-amz-credential") or query.get("awsaccesskeyid")
    if signer:
        return signer.partition("/")[0], query.get("x-amz-security-token", "")
    return key, token


def session_policy(handler: Any) -> dict[str, Any] | None:
    """Return the session policy of the request's temporary credentials, or None if they have none."""
    key, _ = session_credentials(handler)
    assumed_role = sts_backends[ACCOUNT]["aws"].get_assumed_role_from_access_key(key)
    policy = assumed_role.policy if assumed_role is not None else None
    return json.loads(policy) if policy else None


def set_transitive_tags(assumed_role: Any, tags: Mapping[str, str]) -> None:
    """Give a session tags that go over to the sessions of roles that it assumes."""
    assumed_role.__dict__["transitive_tags"] = dict(tags)


def transitive_tags(assumed_role: Any) -> dict[str, str]:
    """Return the tags of a session that go over to the sessions of roles that it assumes."""
    return assumed_role.__dict__.get("transitive_tags", {}) if assumed_role is not None else {}


def check_credentials(handler: Any, service: str) -> None:
    """Refuse temporary credentials that STS has not given, or whose time is over.

    Raises:
        Refused: by the code of the service.
        S3ClientError: the same of S3.
    """
    key, token = session_credentials(handler)
    if not token and not key.startswith(TEMPORARY):
        return
    assumed_role = sts_backends[ACCOUNT]["aws"].get_assumed_role_from_access_key(key)
    if assumed_role is None or assumed_role.session_token != token:
        raise _invalid(handler, service, key_exists=assumed_role is not None)
    if assumed_role.expiration.replace(tzinfo=UTC) <= datetime.now(UTC):
        raise _expired(handler, service)


def _invalid(handler: Any, service: str, *, key_exists: bool) -> Exception:
    if service == "s3" and key_exists:
        return S3ClientError("InvalidToken", "The provided token is malformed or otherwise invalid.")
    if service == "s3":
        message = "The AWS Access Key Id you provided does not exist in our records."
        return S3ClientError("InvalidAccessKeyId", message)
    if service == "ec2":
        return Refused("AuthFailure", "AWS was not able to validate the provided access credentials", 401)
    if "json" in handler.headers.get("Content-Type", ""):
        return Refused("UnrecognizedClientException", _INVALID)
    return Refused("InvalidClientTokenId", _INVALID, 403)


def _expired(handler: Any, service: str) -> Exception:
    if service == "s3":
        return S3ClientError("ExpiredToken", "The provided token has expired.")
    if service == "ec2":
        return Refused("RequestExpired", "Request has expired.")
    if "json" in handler.headers.get("Content-Type", ""):
        return Refused("ExpiredTokenException", _EXPIRED)
    return Refused("ExpiredToken", _EXPIRED, 403)
