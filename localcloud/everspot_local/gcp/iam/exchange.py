"""Stands in for the Security Token Service: exchanges a proof from AWS for a federated token, and the token of a
service account for a downscoped one.

It sends the signed request that is the proof to the local AWS, and believes its answer alone. It knows no other proofs
than AWS's requests. Its refusals have OAuth's form. Sources: Security Token Service API, `token`; IAM documentation,
"Configure Workload Identity Federation with AWS", "Troubleshoot Workload Identity Federation", "Create a downscoped
token".
"""

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree

from everspot_local.gcp.answers import Reply
from everspot_local.gcp.callers import LIFE, ApiCaller, Sessions
from everspot_local.gcp.iam.boundaries import BadBoundary, read_boundary
from everspot_local.gcp.iam.conditions import Undefined
from everspot_local.gcp.iam.pools import SUBJECT, IdentityPools, PoolEntry
from everspot_local.gcp.router import Handler, Request

AWS_REQUEST = "urn:ietf:params:aws:token-type:aws4_request"
GRANT = "urn:ietf:params:oauth:grant-type:token-exchange"
ACCESS = "urn:ietf:params:oauth:token-type:access_token"
TARGET = "x-goog-cloud-target-resource"
SUBJECT_BYTES = 127
_HOST = re.compile(r"sts(\.[a-z0-9-]+)?\.amazonaws\.com")
_BEGINS = "//iam.googleapis.com/"
Send = Callable[[str, str, Mapping[str, str]], tuple[int, bytes]]


class Refusal(Exception):
    """An exchange that is refused. `code`: OAuth's error code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Exchange:
    """The exchange of proofs for tokens.

    Args:
        pools: by whose providers proofs are taken.
        sessions: which keeps the tokens that are given.
        role: returns a role's permissions, or None for an unknown role.
        send: sends a request to AWS; raises RuntimeError if it does not answer.
    """

    def __init__(
        self, pools: IdentityPools, sessions: Sessions, role: Callable[[str], frozenset[str] | None], send: Send
    ) -> None:
        self._pools, self._sessions, self._role, self._send = pools, sessions, role, send

    def routes(self) -> Mapping[str, Handler]:
        """Return handlers by method id."""
        return {"sts.token": self._token}

    def _token(self, request: Request) -> Reply:
        try:
            answer, status = self._exchanged(request.body), 200
        except Refusal as refusal:
            answer, status = {"error": refusal.code, "error_description": str(refusal)}, 400
        return Reply(json.dumps(answer).encode(), status, "application/json; charset=UTF-8")

    def _exchanged(self, body: Mapping[str, Any]) -> dict[str, Any]:
        if body.get("grantType") != GRANT:
            raise Refusal("unsupported_grant_type", f"grantType has to be {GRANT}.")
        if body.get("requestedTokenType") == body.get("subjectTokenType") == ACCESS:
            return self._downscoped(body)
        if body.get("requestedTokenType") != ACCESS or not body.get("scope"):
            raise Refusal("invalid_request", f"requestedTokenType has to be {ACCESS}, with a scope.")
        audience = str(body.get("audience") or "")
        provider = self._pools.usable(audience.removeprefix(_BEGINS)) if audience.startswith(_BEGINS) else None
        if provider is None:
            raise Refusal(
                "invalid_target",
                'The target service indicated by the "audience" parameters is invalid. This might either be because the'
                " pool or provider is disabled or deleted or because it doesn't exist.",
            )
        if not provider.fields.get("aws"):
            raise Refusal("invalid_grant", "Tokens of other issuers than AWS are not verified here.")
        if body.get("subjectTokenType") != AWS_REQUEST:
            raise Refusal("invalid_request", f"Invalid subjectTokenType for a provider of AWS: it is {AWS_REQUEST}.")
        assertion = self._asserted(str(body.get("subjectToken") or ""), audience)
        caller = _federated(provider, assertion)
        token = self._sessions.token(caller, datetime.now(UTC))
        remaining_seconds = int((token.expires - datetime.now(UTC)).total_seconds())
        return {
            "access_token": token.text, "issued_token_type": ACCESS, "token_type": "Bearer",
            "expires_in": min(remaining_seconds, int(LIFE.total_seconds())),
        }  # fmt: skip

    def _downscoped(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return a downscoped token. The answer has no `expires_in` (Security Token Service API, `token`: absent where
        the subject is a short-lived token of Google's, whose end the new token shares)."""
        try:
            options = json.loads(unquote(str(body.get("options") or "")))
            boundary = read_boundary(options if isinstance(options, dict) else {}, self._role)
        except BadBoundary as error:
            raise Refusal("invalid_request", str(error)) from None
        except ValueError:
            raise Refusal("invalid_request", "options is no serialized JSON object.") from None
        token = self._sessions.downscoped(str(body.get("subjectToken") or ""), boundary, datetime.now(UTC))
        if token is None:
            raise Refusal("invalid_grant", "The subject token is invalid, or has a boundary already.")
        return {"access_token": token.text, "issued_token_type": ACCESS, "token_type": "Bearer"}

    def _asserted(self, subject: str, audience: str) -> dict[str, str]:
        """Return AWS's answer about the signer of the request."""
        try:
            signed = json.loads(unquote(subject))
            url, method = urlsplit(str(signed["url"])), signed["method"]
            headers = {str(each["key"]).lower(): str(each["value"]) for each in signed["headers"]}
        except (ValueError, KeyError, TypeError):
            raise Refusal("invalid_grant", "The subject token is not a serialized AWS request.") from None
        action = parse_qs(url.query).get("Action", [""])[0]
        if method != "POST" or action != "GetCallerIdentity" or not _HOST.fullmatch(url.netloc):
            raise Refusal("invalid_grant", "The subject token is no request for the caller's identity at AWS's STS.")
        if headers.get(TARGET) != audience:
            raise Refusal("invalid_grant", f"The header {TARGET} is not the audience.")
        signed_names = re.search(r"SignedHeaders=([^,]+)", headers.get("authorization", ""))
        if signed_names is None or TARGET not in signed_names[1].split(";"):
            raise Refusal("invalid_grant", f"The header {TARGET} is not signed.")
        try:
            status, answer = self._send("POST", f"/?{url.query}", {**headers, "host": url.netloc})
        except RuntimeError as error:
            raise Refusal("invalid_grant", f"AWS cannot be asked: {error}.") from None
        tree = ElementTree.fromstring(answer.decode())  # noqa: S314 - of the local AWS
        if status != 200:
            code = next((e.text for e in tree.iter() if e.tag.endswith("Code")), "")
            raise Refusal("invalid_grant", f"Received invalid AWS response of type: {code}.")
        identity = {each.tag.rpartition("}")[2].lower(): each.text or "" for each in tree.iter()}
        return {f"assertion.{name}": identity[name] for name in ("arn", "account", "userid")}


def _federated(provider: PoolEntry, assertion: Mapping[str, str]) -> ApiCaller:
    """Return the caller that the signer is here.

    Raises:
        Refusal: if the provider does not take them.
    """
    if assertion["assertion.account"] != provider.fields["aws"]["accountId"]:
        raise Refusal("unauthorized_client", "The AWS account of the credential is not the provider's.")
    try:
        attributes = {name: str(node(assertion)) for name, node in provider.mapping.items()}
        accepted = provider.condition is None or provider.condition({**assertion, **attributes}) is True
    except Undefined as error:
        raise Refusal("invalid_grant", f"An attribute cannot be mapped: {error}.") from None
    if not accepted:
        raise Refusal("unauthorized_client", "The given credential is rejected by the attribute condition.")
    subject = attributes[SUBJECT]
    if not 0 < len(subject.encode()) <= SUBJECT_BYTES:
        raise Refusal(
            "invalid_request", f"The size of mapped attribute {SUBJECT} has to be 1 to {SUBJECT_BYTES} bytes."
        )
    pool = f"iam.googleapis.com/{provider.name.partition('/providers/')[0]}"
    sets = [f"{name}/{value}" for name, value in attributes.items() if name.startswith("attribute.") and value]
    principals = (f"principal://{pool}/subject/{subject}", *(f"principalSet://{pool}/{each}" for each in (*sets, "*")))
    return ApiCaller("", principals=principals)
