"""The job's identity token, renewed before each run of the engine: clouds take one that is minutes old, and a job with
several environments lasts longer. A step of the workflow has named the file and the audience; which cloud takes the
token, and for which role, is told to the cloud's own clients by variables of theirs."""

import json
import os
import urllib.request
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote, urlsplit

from everspot_review.errors import UnavailableError

FILE = "EVERSPOT_ID_TOKEN_FILE"
AUDIENCE = "EVERSPOT_ID_TOKEN_AUDIENCE"
ENDPOINT = "ACTIONS_ID_TOKEN_REQUEST_URL"
BEARER = "ACTIONS_ID_TOKEN_REQUEST_TOKEN"
ANSWERED_IN = timedelta(seconds=30)


class IdentityError(UnavailableError):
    """The job has no identity token; a sentence for people."""


def renew(variables: Mapping[str, str]) -> bool:
    """Write a fresh token into the file, readable by this user alone. Whether the job has tokens at all.

    Raises:
        IdentityError: if it should have one and gets none. Neither token is in the message.
    """
    file, audience, endpoint, bearer = (variables.get(name, "") for name in (FILE, AUDIENCE, ENDPOINT, BEARER))
    if not file or not audience:
        return False
    if not endpoint or not bearer:
        raise IdentityError(
            f"{FILE} is set, but the job gets no identity token: it needs `permissions: id-token: write`"
        )
    if urlsplit(endpoint).scheme not in ("https", "http"):
        raise IdentityError(f"{ENDPOINT} has to begin with https://")
    join = "&" if "?" in endpoint else "?"
    request = urllib.request.Request(
        f"{endpoint}{join}audience={quote(audience, safe='')}", headers={"Authorization": f"bearer {bearer}"}
    )
    try:
        with urllib.request.urlopen(request, timeout=ANSWERED_IN.total_seconds()) as answer:
            token = str(json.loads(answer.read())["value"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise IdentityError(f"the job's identity token cannot be had: {type(error).__name__}") from None
    target = Path(file)
    part = target.with_name(f".{target.name}.new")
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
        out.write(token)
    part.replace(target)
    return True
