"""Stands in for AWS's Security Token Service where roles are assumed: by an identity token, or by a role.

A token has to be signed by its issuer's keys, be in date, name an audience of the identity provider, and fit the role's
trust policy. Google is built into AWS. Every other issuer needs an identity provider in IAM, and has to be introduced
by the action `issuer`. It evaluates an inline session policy, and refuses managed ones and tags of a request. How AWS
packs a policy is not published, so only its plain length is checked, and none has room beside the tags of EKS Pod
Identity. Tokens and credentials keep real time.

Sources: STS API Reference, "AssumeRoleWithWebIdentity" (errors); IAM user guide, "Available keys for AWS OIDC
federation": for Google's tokens `accounts.google.com:aud` is the claim `azp` if there is one, and `:oaud` is `aud`; of
GitHub's tokens AWS compares the claims in `GITHUB_CLAIMS` beside `aud` and `sub`.
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
from everspot_local.aws.iam.credentials import set_transitive_tags, transitive_tags
from everspot_local.aws.iam.policy_language import Call, Context, PolicyDecision, UnknownCondition, decide
from everspot_local.aws.iam.rules import is_propagated
from everspot_local.aws.refusals import NOT_IMPLEMENTED, Refused, in_own_words
from everspot_local.aws.strict import strict
from everspot_local.machines.issuers import IssuerUnavailable
from everspot_local.machines.lifecycle import Machines
from everspot_local.machines.second_cloud import SecondCloudUnavailable

GOOGLE = "accounts.google.com"
GITHUB = "token.actions.githubusercontent.com"
GITHUB_CLAIMS = (
    *("actor", "actor_id", "enterprise_id", "environment", "job_workflow_ref", "ref", "repository", "repository_id"),
    "workflow",
)
CERTIFICATES = "/oauth2/v3/certs"
"""Google's keys (https://accounts.google.com/.well-known/openid-configuration, jwks_uri)."""
SHORTEST = 900
LONGEST_CHAINED = 3600
"""Seconds of a role that a role's session has assumed (IAM user guide, "Role chaining")."""
SESSION_POLICY = 2048
"""Characters of an inline session policy (IAM user guide, "IAM and AWS STS quotas"). White space counts here."""
_UNREADABLE = "The ID Token provided is not a valid JWT. (You may see this error if you sent an Access Token)"
_UNSIGNED = (
    "Couldn't retrieve verification key from your identity provider, please reference AssumeRoleWithWebIdentity "
    "documentation for requirements"
)
_assume_role = TokenResponse.assume_role


@in_own_words
def assume_role(self: TokenResponse) -> ActionResult:
    """Answer AssumeRole for principals that the trust policy names. The account's owner may assume every role here,
    once STS knows of it."""
    assumed_role = self.backend.get_assumed_role_from_access_key(self.get_access_key())
    tags = transitive_tags(assumed_role)
    _check_supported(self)
    if strict() and assumed_role is None:
        _role(self._get_param("RoleArn"), "AssumeRole", f"arn:aws:iam::{ACCOUNT}:root")
    if strict() and assumed_role is not None:
        role = _role(self._get_param("RoleArn"), "AssumeRole", assumed_role.arn)
        external_id = self._get_param("ExternalId")
        context = {"sts:externalid": (str(external_id),)} if external_id else {}
        begins = f"User: {assumed_role.arn} is not authorized to perform"
        _check_trust(role, "AssumeRole", assumed_role.role_arn, context, begins)
        if tags:
            _check_trust(role, "TagSession", assumed_role.role_arn, context, begins)
            _check_packed_size(self)
        if _check_duration(self, role) > LONGEST_CHAINED:
            message = (
                "The requested DurationSeconds exceeds the 1 hour session limit for roles assumed by role chaining."
            )
            raise Refused("ValidationError", message)
    answer = _assume_role(self)
    result: Any = answer.result
    set_transitive_tags(result["Credentials"], tags)
    return answer


@in_own_words
def assume_role_with_web_identity(self: TokenResponse) -> ActionResult:
    """Return credentials of a role to a caller with an identity token that the role trusts."""
    arn, session = self._get_param("RoleArn"), self._get_param("RoleSessionName")
    _check_supported(self)
    issuer, provider, claims = _verified(str(self._get_param("WebIdentityToken") or ""))
    role = _role(arn, "AssumeRoleWithWebIdentity", "")
    context = _context(issuer, claims)
    _check_trust(role, "AssumeRoleWithWebIdentity", provider, context, "Not authorized to perform")
    duration = _check_duration(self, role)
    credentials = self.backend.assume_role(
        region_name=self.region,
        role_session_name=session,
        role_arn=arn,
        policy=self._get_param("Policy") or "",
        duration=duration,
        external_id="",
    )
    return ActionResult(
        {
            "Credentials": credentials,
            "SubjectFromWebIdentityToken": claims["sub"],
            "AssumedRoleUser": {"AssumedRoleId": credentials.user_id, "Arn": credentials.arn},
            "Provider": provider,
            "Audience": claims["aud"],
        }
    )


def _check_supported(handler: TokenResponse) -> None:
    """Refuse managed session policies and session tags: what is not evaluated would give more than was asked for.
    Refuse a malformed inline session policy."""
    for name in ("PolicyArns", "Tags", "TransitiveTagKeys"):
        if handler._get_param(name):
            raise Refused("NotImplemented", f"The local cloud does not support {name} of a session.", NOT_IMPLEMENTED)
    policy = handler._get_param("Policy")
    if policy is not None:
        _check_session_policy(str(policy))


def _check_session_policy(text: str) -> None:
    if len(text) > SESSION_POLICY:
        constraint = f"failed to satisfy constraint: Member must have length less than or equal to {SESSION_POLICY}"
        raise Refused("ValidationError", f"1 validation error detected: Value at 'policy' {constraint}")
    try:
        statements = json.loads(text)["Statement"]
        statements = statements if isinstance(statements, list) else [statements]
        complete = all("Effect" in each and _has(each, "Action") and _has(each, "Resource") for each in statements)
    except (ValueError, KeyError, TypeError):
        raise Refused("MalformedPolicyDocument", "Syntax errors in policy.") from None
    if any("Principal" in each or "NotPrincipal" in each for each in statements):
        raise Refused("MalformedPolicyDocument", "Policy document should not specify a principal.")
    if not statements or not complete:
        raise Refused("MalformedPolicyDocument", "Syntax errors in policy.")


def _check_packed_size(handler: TokenResponse) -> None:
    """Refuse an inline session policy of a session with the tags of EKS Pod Identity, which take 74% of the room for
    both (https://github.com/aws/containers-roadmap/issues/2413). EKS itself takes a policy without tags alone."""
    if handler._get_param("Policy"):
        raise Refused(
            "PackedPolicyTooLarge", "Packed policy consumes 112% of allotted space, please use smaller policy."
        )


def _has(statement: dict[str, Any], element: str) -> bool:
    return element in statement or f"Not{element}" in statement


def _verified(token: str) -> tuple[str, str, dict[str, Any]]:
    """Return a token's issuer without its scheme, the principal that trust policies call it by, and its claims."""
    try:
        claims, kid = jwt.decode(token, verify=False), str(jwt.decode_header(token).get("kid"))
        url, ends = str(claims["iss"]), int(claims["exp"])
        issuer = url.removeprefix("https://")
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Refused("InvalidIdentityToken", _UNREADABLE) from None
    provider = None if issuer == GOOGLE else _provider(issuer)
    key = _key(issuer, url, kid)
    try:
        jwt.decode(token, certs={kid: key})
    except InvalidValue:  # signed, but not in date, or signed in another way than by RS256
        now = int(datetime.now(UTC).timestamp())
        if ends > now:
            raise Refused("InvalidIdentityToken", _UNSIGNED) from None
        message = f"Token expired: current date/time {now} must be before the expiration date/time {ends}"
        raise Refused("ExpiredTokenException", message) from None
    except ValueError:
        raise Refused("InvalidIdentityToken", _UNSIGNED) from None
    audiences = None if provider is None else provider.client_id_list
    if not claims.get("aud") or not claims.get("sub") or (audiences is not None and claims["aud"] not in audiences):
        raise Refused("InvalidIdentityToken", "Incorrect token audience")
    return issuer, issuer if provider is None else str(provider.arn), dict(claims)


def _provider(issuer: str) -> Any:
    """Return the account's identity provider of an issuer."""
    providers = iam_backends[ACCOUNT]["aws"].open_id_providers.values()
    provider = next((each for each in providers if each.url.rstrip("/") == issuer.rstrip("/")), None)
    if provider is None:
        raise Refused("InvalidIdentityToken", f"No OpenIDConnect provider found in your account for https://{issuer}")
    return provider


def _context(issuer: str, claims: dict[str, Any]) -> Context:
    """Return the condition keys of a token's claims; a claim that AWS does not compare has none."""
    if issuer == GOOGLE:
        own = {"aud": claims.get("azp") or claims["aud"], "oaud": claims["aud"], "sub": claims["sub"]}
    else:
        compared = ("aud", "sub", *(GITHUB_CLAIMS if issuer == GITHUB else ()))
        own = {name: claims[name] for name in compared if name in claims}
    return {f"{issuer}:{name}": (str(value),) for name, value in own.items()}


def _key(issuer: str, url: str, kid: str) -> bytes:
    """Return an issuer's public key of an id, as PEM."""
    machines = account.current().machines
    try:
        keys = _google_keys(machines) if issuer == GOOGLE else machines.issuers.keys(url)
    except (SecondCloudUnavailable, IssuerUnavailable):
        raise Refused(
            "IDPCommunicationError", "The identity provider is currently unavailable. Please try again later."
        ) from None
    key = next((key for key in keys if key.get("kid") == kid), None)
    if key is None or key.get("kty") != "RSA":
        raise Refused("InvalidIdentityToken", _UNSIGNED)
    numbers = RSAPublicNumbers(*(int.from_bytes(_bytes(key[part]), "big") for part in ("e", "n")))
    return numbers.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def _google_keys(machines: Machines) -> list[dict[str, Any]]:
    status, body = machines.second_cloud.send("GET", CERTIFICATES)
    if status != 200:
        raise SecondCloudUnavailable(f"the other cloud answered {status}")
    return json.loads(body)["keys"]  # type: ignore[no-any-return]


def _role(arn: str, action: str, caller_arn: str) -> Any:
    iam_role = next((role for role in iam_backends[ACCOUNT]["aws"].roles.values() if role.arn == arn), None)
    if iam_role is None or not is_propagated(iam_role):  # STS does not say whether there is such a role
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
