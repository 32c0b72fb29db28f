"""The job's identity token, renewed before each run of the engine: clouds accept only tokens that are minutes old, and
a job with several environments lasts longer. A step of the workflow has named files and audiences. Environment
variables tell the cloud's own clients which cloud takes the token, and for which role."""

import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from datetime import timedelta
from http.client import HTTPException
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import quote, urlsplit

from everspot_clouds.webhook import NoRedirects

from everspot_review.errors import UnavailableError

TOKENS = "EVERSPOT_ID_TOKENS"
"""The variable that says which file a token is written to and to whom it is made out: FILE=AUDIENCE, several with
blanks between them, one for each cloud."""

ENDPOINT = "ACTIONS_ID_TOKEN_REQUEST_URL"
BEARER = "ACTIONS_ID_TOKEN_REQUEST_TOKEN"
REQUEST_TIMEOUT = timedelta(seconds=30)


class IdentityError(UnavailableError):
    """The job has no identity token; a sentence for people."""


def renew(variables: Mapping[str, str]) -> bool:
    """Write fresh tokens into their files, readable by this user alone. Whether the job has any.

    Raises:
        IdentityError: if it should have one and gets none. No token is in the message.
    """
    tokens, endpoint, bearer = (variables.get(name, "") for name in (TOKENS, ENDPOINT, BEARER))
    if not tokens.split():
        return False
    if not endpoint or not bearer:
        raise IdentityError(f"{TOKENS} is set, but the job gets no identity token: `permissions: id-token: write`")
    if not _is_private(endpoint):
        raise IdentityError(f"{ENDPOINT} has to begin with https://")
    for each in tokens.split():
        file, _, audience = each.partition("=")
        if not file or not audience:
            raise IdentityError(f"{TOKENS} has to be FILE=AUDIENCE, with blanks between several")
        _write(Path(file), _request_token(endpoint, bearer, audience))
    return True


def _is_private(endpoint: str) -> bool:
    """Return whether nobody on the way can read a request to this address."""
    parts = urlsplit(endpoint)
    try:
        return parts.scheme == "https" or (parts.scheme == "http" and ip_address(parts.hostname or "").is_loopback)
    except ValueError:
        return False


def _request_token(endpoint: str, bearer: str, audience: str) -> str:
    join = "&" if "?" in endpoint else "?"
    request = urllib.request.Request(
        f"{endpoint}{join}audience={quote(audience, safe='')}", headers={"Authorization": f"bearer {bearer}"}
    )
    try:
        with urllib.request.build_opener(NoRedirects).open(request, timeout=REQUEST_TIMEOUT.total_seconds()) as answer:
            return str(json.loads(answer.read())["value"])
    except (OSError, HTTPException, ValueError, KeyError, TypeError) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        raise IdentityError(f"the job's identity token cannot be had: {type(error).__name__}") from None


def _write(target: Path, token: str) -> None:
    part = target.with_name(f".{target.name}.new")
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
        out.write(token)
    part.replace(target)
