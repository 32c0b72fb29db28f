"""Stands in for the internet between a cloud and those who issue identity tokens, such as a forge.

A cloud asks an issuer for its keys (OpenID Connect Discovery 1.0, section 4). Here an issuer answers on this machine,
under an address that the action `issuer` names; one without an address is not reached.
"""

import json
import urllib.request
from typing import Any
from urllib.parse import urlsplit

SECONDS = 10.0
CONFIGURATION = "/.well-known/openid-configuration"
_LOOPBACK = ("127.0.0.1", "localhost")


class IssuerUnavailable(RuntimeError):
    """An issuer does not answer, or answers something else than its keys."""


class Issuers:
    """The addresses of issuers, by their URL."""

    def __init__(self) -> None:
        self._addresses: dict[str, str] = {}

    def introduce(self, issuer: str, address: str) -> None:
        """Set where an issuer answers on this machine.

        Raises:
            ValueError: if the issuer is no https URL, or the address is not one of this machine.
        """
        if urlsplit(issuer).scheme != "https" or not urlsplit(issuer).hostname:
            raise ValueError(f"{issuer!r} is not the URL of an issuer, such as https://token.example.com")
        parts = urlsplit(address)
        if parts.scheme != "http" or parts.hostname not in _LOOPBACK or parts.port is None:
            raise ValueError(f"{address!r} is not an address of this machine, such as http://127.0.0.1:8080")
        self._addresses[issuer.rstrip("/")] = address.rstrip("/")

    def keys(self, issuer: str) -> list[dict[str, Any]]:
        """Return an issuer's keys, as JSON Web Keys.

        Raises:
            IssuerUnavailable: without an address, or for an answer that is no such document.
        """
        address = self._addresses.get(issuer)
        if address is None:
            raise IssuerUnavailable(f"{issuer} was not introduced: the action `issuer` says where it answers")
        configuration = _read(f"{address}{CONFIGURATION}")
        if configuration.get("issuer") != issuer:
            raise IssuerUnavailable(f"{address} is not the issuer {issuer}")
        place = str(configuration.get("jwks_uri") or "")
        if not place.startswith((f"{issuer}/", f"{address}/")):
            raise IssuerUnavailable(f"the keys of {issuer} are elsewhere: {place!r}")
        keys = _read(place.replace(issuer, address, 1)).get("keys")
        if not isinstance(keys, list):
            raise IssuerUnavailable(f"{issuer} has no list of keys")
        return keys


def _read(url: str) -> dict[str, Any]:
    try:
        with urllib.request.urlopen(url, timeout=SECONDS) as answer:  # noqa: S310 - loopback, see `introduce`
            document = json.loads(answer.read())
    except (OSError, ValueError) as error:
        raise IssuerUnavailable(f"{url} does not answer: {error}") from None
    if not isinstance(document, dict):
        raise IssuerUnavailable(f"{url} does not answer with an object")
    return document
