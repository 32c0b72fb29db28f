"""Stands in for AWS's Security Token Service where roles are assumed: by an identity token of Google, or by a role.

A token has to be signed by Google's keys, be in date, and fit the role's trust policy. Of identity providers there is
Google alone, which is built into AWS. It knows no session policies, no tags of sessions and no external ids. Tokens and
credentials keep real time.

Sources: STS API Reference, "AssumeRoleWithWebIdentity" (errors); IAM user guide, "Available keys for AWS OIDC
federation": for Google's tokens `accounts.google.com:aud` is the claim `azp` if there is one, and `:oaud` is `aud`.
"""

import base64
import json
from datetime import UTC, datetime
from typing import Any

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from google.auth import jwt
from google.auth.exceptions import InvalidValue
from moto.core.responses import ActionResult
from moto.iam.models import iam_backends
from moto.sts.responses import TokenResponse

from everspot_local.aws import account
from everspot_local.aws.account import ACCOUNT
from everspot_local.aws.iam.policy_language import Call, Context, PolicyDecision, UnknownCondition, decide
from everspot_local.aws.refusals import Refused, in_own_words
from everspot_local.aws.strict import strict
from everspot_local.machines.second_cloud import SecondCloudUnavailable

ISSUER = "accounts.google.com"
CERTIFICATES = "/oauth2/v3/certs"
"""Google's keys (https://accounts.google.com/.well-known/openid-configuration, jwks_uri)."""
SHORTEST = 900
_UNREADABLE = "The ID Token provided is not a valid JWT. (You may see this error if you sent an Access Token)"
_UNSIGNED = (
    "Couldn't retrieve verification key from your identity provider, please reference AssumeRoleWithWebIdentity "
    "documentation for requirements"
)
_assume_role = TokenResponse.assume_role


@in_own_words
def assume_role(self: TokenResponse) -> ActionResult:
    """Answer AssumeRole for principals that the trust policy names. The account's owner may assume every role here."""
    assumed_role = self.backend.get_assumed_role_from_access_key(self.get_access_key())
    if strict() and assumed_role is not None:
        role = _role(self._get_param("RoleArn"), "AssumeRole", assumed_role.arn)
        _check_trust(
            role, "AssumeRole", assumed_role.role_arn, {}, f"User: {assumed_role.arn} is not authorized to perform"
        )
        _check_duration(self, role)
    return _assume_role(self)


@in_own_words
def assume_role_with_web_identity(self: TokenResponse) -> ActionResult:
    """Return credentials of a role to a caller with a token of Google's that the role trusts."""
    arn, session = self._get_param("RoleArn"), self._get_param("RoleSessionName")
    claims = _claims(str(self._get_param("WebIdentityToken") or ""))
    role = _role(arn, "AssumeRoleWithWebIdentity", "")
    context = {
        f"{ISSUER}:aud": (str(claims.get("azp") or claims["aud"]),),
        f"{ISSUER}:oaud": (str(claims["aud"]),),
        f"{ISSUER}:sub": (str(claims["sub"]),),
    }
    _check_trust(role, "AssumeRoleWithWebIdentity", ISSUER, context, "Not authorized to perform")
    duration = _check_duration(self, role)
    credentials = self.backend.assume_role(
        region_name=self.region, role_session_name=session, role_arn=arn, policy="", duration=duration, external_id=""
    )
    return ActionResult(
        {
            "Credentials": credentials,
            "SubjectFromWebIdentityToken": claims["sub"],
            "AssumedRoleUser": {"AssumedRoleId": credentials.user_id, "Arn": credentials.arn},
            "Provider": ISSUER,
            "Audience": claims["aud"],
        }
    )


def _claims(token: str) -> dict[str, Any]:
    try:
        claims, kid = jwt.decode(token, verify=False), str(jwt.decode_header(token).get("kid"))
        issuer, ends = str(claims["iss"]).removeprefix("https://"), int(claims["exp"])
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Refused("InvalidIdentityToken", _UNREADABLE) from None
    if issuer != ISSUER:
        raise Refused("InvalidIdentityToken", f"No OpenIDConnect provider found in your account for https://{issuer}")
    key = _key(kid)
    try:
        jwt.decode(token, certs={kid: key})
    except InvalidValue:  # signed, but not in date, or signed in another way than Google does
        now = int(datetime.now(UTC).timestamp())
        if ends > now:
            raise Refused("InvalidIdentityToken", _UNSIGNED) from None
        message = f"Token expired: current date/time {now} must be before the expiration date/time {ends}"
        raise Refused("ExpiredTokenException", message) from None
    except ValueError:
        raise Refused("InvalidIdentityToken", _UNSIGNED) from None
    if not claims.get("aud") or not claims.get("sub"):
        raise Refused("InvalidIdentityToken", "Incorrect token audience")
    return dict(claims)


def _key(kid: str) -> bytes:
    """Return Google's public key of an id, as PEM."""
    try:
        status, body = account.current().machines.second_cloud.send("GET", CERTIFICATES)
    except SecondCloudUnavailable:
        status, body = 0, b""
    if status != 200:
        raise Refused(
            "IDPCommunicationError", "The identity provider is currently unavailable. Please try again later."
        )
    key = next((key for key in json.loads(body)["keys"] if key["kid"] == kid), None)
    if key is None:
        raise Refused("InvalidIdentityToken", _UNSIGNED)
    numbers = RSAPublicNumbers(*(int.from_bytes(_bytes(key[part]), "big") for part in ("e", "n")))
    return numbers.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def _role(arn: str, action: str, caller_arn: str) -> Any:
    iam_role = next((role for role in iam_backends[ACCOUNT]["aws"].roles.values() if role.arn == arn), None)
    if iam_role is None:  # STS does not say whether there is such a role
        begins = f"User: {caller_arn} is not authorized to perform" if caller_arn else "Not authorized to perform"
        raise Refused("AccessDenied", f"{begins}: sts:{action}" + (f" on resource: {arn}" if caller_arn else ""), 403)
    return iam_role


def _check_trust(role: Any, action: str, principal: str, context: Context, begins: str) -> None:
    trust = role.assume_role_policy_document
    document = json.loads(trust) if isinstance(trust, str) else trust
    try:
        verdict = decide([document], Call(f"sts:{action}", context=context), principal)
    except UnknownCondition:
        verdict = PolicyDecision.IMPLICIT
    if verdict is not PolicyDecision.ALLOW:
        raise Refused("AccessDenied", f"{begins}: sts:{action}", 403)


def _check_duration(handler: TokenResponse, role: Any) -> int:
    duration = int(handler._get_int_param("DurationSeconds", 3600))
    if duration < SHORTEST:
        raise Refused("ValidationError", f"Value {duration} at 'durationSeconds' has to be at least {SHORTEST}")
    if duration > int(role.max_session_duration or 3600):
        message = "The requested DurationSeconds exceeds the MaxSessionDuration set for this role."
        raise Refused("ValidationError", message)
    return duration


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
