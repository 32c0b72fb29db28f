"""A proof of an instance's identity, which another cloud accepts."""

from collections.abc import Callable
from dataclasses import dataclass

AWS_REQUEST = "urn:ietf:params:aws:token-type:aws4_request"
"""Type of a proof that is a signed request for the caller's identity (Security Token Service API of Google Cloud,
`token`, subjectTokenType)."""
JWT = "urn:ietf:params:oauth:token-type:jwt"
"""Type of a proof that is an OpenID Connect token (RFC 8693, section 3)."""


@dataclass(frozen=True)
class Proof:
    """A proof of identity by the cloud of an instance, made out to one audience; good for some minutes up to an hour.

    `kind`: its type, as RFC 8693 names it. `region`: of the instance.
    """

    kind: str
    text: str
    region: str


Prover = Callable[[str], Proof]
"""Makes a proof out to an audience. Raises `CloudError` if the instance has no identity."""
