"""How an instance on Google Cloud proves to another cloud who it is, and how peers are let into a bucket there.

The metadata server signs a token of the instance's service account (Compute Engine documentation, "Verify the identity
of VMs"). A peer from another cloud is let in by Workload Identity Federation: its proof is exchanged for a federated
token (Security Token Service API, `token`), which may do one thing: become the service account that was made for that
peer (IAM Service Account Credentials API, `generateAccessToken`). A service account of Google Cloud needs none of it.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import requests
from everspot_core.clock import Clock

from everspot_clouds.base import CloudError, MetadataError, Prover, Trouble
from everspot_clouds.base.proof import JWT, Proof
from everspot_clouds.gcp import endpoints
from everspot_clouds.gcp.metadata import MetadataServer
from everspot_clouds.gcp.rules import SCOPE

LIFE = timedelta(hours=1)
"""How long a token lasts: the longest that a project allows by itself (generateAccessToken, `lifetime`)."""
STORAGE_SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"
"""The scope of a peer's token: objects, and nothing else."""
_TIME = (5.0, 15.0)  # seconds to connect, and between two bytes
_WAYS = "the peer's setting `federation` has to name this cluster's scheduler, and the network has to reach Google"


def proof(region: str, clock: Clock) -> Prover:
    """Proofs of the instance's service account: identity tokens of the metadata server."""
    server = MetadataServer(endpoints.metadata_base(), clock)

    def token(audience: str) -> Proof:
        path = f"instance/service-accounts/default/identity?audience={quote(audience, safe='')}&format=full"
        try:
            text = server.get(path)
        except MetadataError as error:
            raise CloudError(f"the metadata server gives no identity token: {error}", Trouble.TRANSIENT) from None
        if not text:
            raise CloudError("this instance has no service account to prove who it is", Trouble.CREDENTIALS)
        return Proof(JWT, text.strip(), region)

    return token


def credentials(identity: str, audience: str, prove: Prover) -> Callable[[], dict[str, Any]]:
    """Tokens of a service account, for the buckets of a peer on Google Cloud.

    Args:
        identity: the service account's email.
        audience: the provider of the workload identity pool, projects/NUMBER/locations/global/workloadIdentityPools/….
        prove: proves who asks.
    """
    provider = f"//iam.googleapis.com/{audience}"

    def impersonated() -> dict[str, Any]:
        shown = prove(provider)
        exchanged = _post(
            f"{endpoints.base('sts')}/token",
            {
                "grantType": "urn:ietf:params:oauth:grant-type:token-exchange",
                "audience": provider,
                "scope": SCOPE,
                "requestedTokenType": "urn:ietf:params:oauth:token-type:access_token",
                "subjectTokenType": shown.kind,
                "subjectToken": shown.text,
            },
            f"{audience} does not take this cluster's proof",
        )
        token_answer = _post(
            f"{endpoints.base('iamcredentials')}/projects/-/serviceAccounts/{identity}:generateAccessToken",
            {"scope": [STORAGE_SCOPE], "lifetime": f"{int(LIFE.total_seconds())}s"},
            f"{identity} cannot be used",
            token=str(exchanged.get("access_token", "")),
        )
        ends = datetime.fromisoformat(str(token_answer["expireTime"]))
        return {"token": str(token_answer["accessToken"]), "expires_at": ends.astimezone(UTC)}

    return impersonated


def _post(url: str, body: dict[str, Any], failed: str, *, token: str = "") -> dict[str, Any]:
    """Make one attempt. Messages contain no token."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        answer = requests.post(url, json=body, headers=headers, timeout=_TIME)
        content = answer.json() if answer.content else {}
    except (requests.RequestException, ValueError) as error:
        raise CloudError(f"{failed}: {type(error).__name__}", Trouble.TRANSIENT, _WAYS) from None
    if answer.status_code >= 500 or answer.status_code == 429:
        raise CloudError(f"{failed}: {_words(content)}", Trouble.TRANSIENT, _WAYS)
    if answer.status_code >= 400:
        raise CloudError(f"{failed}: {_words(content)}", Trouble.CREDENTIALS, _WAYS)
    return content if isinstance(content, dict) else {}


def _words(content: Any) -> str:
    """Return a refusal's words: the exchange tells them as OAuth does, the other APIs in Google's own form."""
    error = content.get("error") if isinstance(content, dict) else None
    if isinstance(error, dict):
        return str(error.get("message") or error.get("status") or "")
    return str((content or {}).get("error_description") or error or "no reason given")
