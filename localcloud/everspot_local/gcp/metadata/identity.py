"""Stands in for Google's signature under the identity tokens of instances, and for the keys that verify it.

Tokens keep real time: those who verify them do. Sources: Compute Engine documentation, "Verify the identity of VMs"
(claims; `azp` and `sub` are the service account's unique id; a token is good for an hour); the keys' place is
`jwks_uri` of https://accounts.google.com/.well-known/openid-configuration.
"""

import base64
import hashlib
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from cryptography.hazmat.primitives.asymmetric import rsa
from google.auth import jwt
from google.auth.crypt import RSASigner

ISSUER = "https://accounts.google.com"
PATH = "/oauth2/v3/certs"
LIFE = timedelta(hours=1)
_EXPONENT, _BITS = 65537, 2048


class Signer:
    """Signs identity tokens. The key is made when it is first needed."""

    def token(self, audience: str, unique_id: str, email: str, now: datetime, more: Mapping[str, Any]) -> str:
        """Return a token of a service account for an audience. `now`: real time. `more`: further claims."""
        seconds = int(now.timestamp())
        claims = {
            "iss": ISSUER, "aud": audience, "azp": unique_id, "sub": unique_id, "iat": seconds,
            "exp": seconds + int(LIFE.total_seconds()), "email": email, "email_verified": True, **more,
        }  # fmt: skip
        return str(jwt.encode(RSASigner(self._private, self.key["kid"]), claims).decode())

    @cached_property
    def key(self) -> dict[str, str]:
        """Return the key that verifies the tokens, as a JSON Web Key."""
        numbers = self._private.public_key().public_numbers()
        n, e = (_text(value.to_bytes((value.bit_length() + 7) // 8, "big")) for value in (numbers.n, numbers.e))
        kid = hashlib.sha256(n.encode()).hexdigest()[:40]
        return {"kty": "RSA", "use": "sig", "alg": "RS256", "kid": kid, "n": n, "e": e}

    @cached_property
    def _private(self) -> rsa.RSAPrivateKey:
        return rsa.generate_private_key(_EXPONENT, _BITS)


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
