"""The state of ECR's registry that moto has not: the tokens of its clients, and the layers of its images."""

import base64
import secrets
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from everspot_local.aws.iam.caller import Caller

LIFE = timedelta(hours=12)
"""How long a token is valid (ECR API Reference, "GetAuthorizationToken"), in real time, as all credentials."""


@dataclass(frozen=True)
class RegistryToken:
    """A token of GetAuthorizationToken. `caller`: for whom it was issued; None may do everything."""

    caller: Caller | None
    region: str
    ends_at: datetime


@dataclass
class RegistryState:
    """The state of the account's registry that moto has not.

    Attributes:
        tokens: by password.
        blobs: of a repository, by its name and the blob's digest.
        uploads: the bytes so far, by the upload's id.
        signatures: of the URLs of layers.
    """

    tokens: dict[str, RegistryToken] = field(default_factory=dict)
    blobs: dict[tuple[str, str], bytes] = field(default_factory=dict)
    uploads: dict[str, bytes] = field(default_factory=dict)
    signatures: set[str] = field(default_factory=set)

    def issue_token(self, caller: Caller | None, region: str) -> tuple[str, datetime]:
        """Return a token, and its end."""
        password, ends_at = secrets.token_urlsafe(96), datetime.now(UTC) + LIFE
        self.tokens[password] = RegistryToken(caller, region, ends_at)
        return base64.b64encode(f"AWS:{password}".encode()).decode(), ends_at

    def expire_tokens(self) -> None:
        """Let every token end now."""
        self.tokens.clear()
