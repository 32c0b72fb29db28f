"""Stands in for GetCallerIdentity of the Security Token Service, which other clouds rely on.

Here alone the signature of a request is checked (Signature Version 4, "Elements of an AWS API request signature"): a
signed request is handed on as a proof, and each of its headers counts. That holds for roles' credentials; the owner's
made-up key opens everything as it is.
"""

import hashlib
import hmac
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from moto.core.responses import ActionResult
from moto.sts.responses import TokenResponse

from everspot_local.aws.account import ACCOUNT
from everspot_local.aws.refusals import Refused, in_own_words
from everspot_local.aws.strict import strict

FRESH = timedelta(minutes=15)
"""The real time for which a signature is valid."""
TEMPORARY = "ASIA"
"""The beginning of the ids of keys that come with a session token."""
_MADE_UP = ":user/moto"
"""The end of the ARN that moto gives to unknown keys, which are the owner's here."""
_HEADER = re.compile(
    r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/([^/]+)/aws4_request,"
    r" *SignedHeaders=([^,]+), *Signature=(\w+)"
)
_get_caller_identity = TokenResponse.get_caller_identity


@in_own_words
def get_caller_identity(self: TokenResponse) -> ActionResult:
    """Answer GetCallerIdentity for known keys and correctly signed requests, and for the owner as the root user."""
    key = self.get_access_key()
    assumed_role = self.backend.get_assumed_role_from_access_key(key)
    if strict() and assumed_role is None and key.startswith(TEMPORARY):
        raise Refused("InvalidClientTokenId", "The security token included in the request is invalid.", 403)
    if strict() and assumed_role is not None:
        _check(self, assumed_role)
    answer = _get_caller_identity(self)
    result: dict[str, Any] = answer.result  # type: ignore[assignment]
    if not str(result["Arn"]).endswith(_MADE_UP):
        return answer
    return ActionResult({"UserId": ACCOUNT, "Account": ACCOUNT, "Arn": f"arn:aws:iam::{ACCOUNT}:root"})


def _check(handler: Any, assumed_role: Any) -> None:
    headers = {name.lower(): value for name, value in handler.headers.items()}
    if headers.get("x-amz-security-token") != assumed_role.session_token:
        raise Refused("InvalidClientTokenId", "The security token included in the request is invalid.", 403)
    if assumed_role.expiration.replace(tzinfo=UTC) <= datetime.now(UTC):
        raise Refused("ExpiredToken", "The security token included in the request is expired", 403)
    authorization = _HEADER.fullmatch(headers.get("authorization", ""))
    stamp = headers.get("x-amz-date", "")
    try:
        at = datetime.strptime(stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except ValueError:
        authorization = None
    if authorization is None:
        raise Refused("IncompleteSignature", "Authorization header requires 'Credential', 'SignedHeaders', 'Signature'")
    if abs(datetime.now(UTC) - at) > FRESH:
        raise Refused("SignatureDoesNotMatch", f"Signature expired: {stamp} is not within {FRESH} of now", 403)
    if not hmac.compare_digest(
        _signature(handler, headers, authorization, stamp, assumed_role.secret_access_key), authorization[6]
    ):
        message = "The request signature we calculated does not match the signature you provided."
        raise Refused("SignatureDoesNotMatch", message, 403)


def _signature(handler: Any, headers: Mapping[str, str], authorization: re.Match[str], stamp: str, secret: str) -> str:
    _, day, region, service, names, _ = authorization.groups()
    parts = urlsplit(handler.uri)
    pairs = sorted((quote(k, safe="-_.~"), quote(v, safe="-_.~")) for k, v in parse_qsl(parts.query, True))
    canonical_headers = "".join(f"{name}:{' '.join(headers.get(name, '').split())}\n" for name in names.split(";"))
    # What was sent as a form, moto has as one.
    payload = hashlib.sha256(urlencode(list(handler.form_data.items())).encode()).hexdigest()
    query = "&".join(f"{key}={value}" for key, value in pairs)
    canonical = "\n".join([handler.method, parts.path or "/", query, canonical_headers, names, payload])
    scope = f"{day}/{region}/{service}/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = f"AWS4{secret}".encode()
    for part in (day, region, service, "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
