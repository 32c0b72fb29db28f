"""Stands in for Compute Engine's rules of names: of resources, labels, links and moments.

It does not shorten names by itself, and knows no domain-scoped projects.
"""

import re
import secrets
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from everspot_local.gcp.answers import ApiError, invalid, required

NAME = "[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?"
"""RFC 1035, 63 characters: the pattern that the discovery document has for a resource's name."""
_PACIFIC = ZoneInfo("America/Los_Angeles")
_LABELS_AT_MOST = 64
# Compute Engine, "Label resources": lower case letters, digits, `_`, `-`, international characters; 63 at most; a key
# begins with a letter. Words of the refusals as met in the provider's issues.
_WORDS = (
    "The {0} can only contain lowercase letters, numeric characters, underscores and dashes. The {0} can be at most 63 "
    "characters long. International characters are allowed."
)


def check_name(name: Any, field: str = "resource.name") -> str:
    """Return a resource's name.

    Raises:
        ApiError: if it is missing, or none that Compute takes.
    """
    if not name:
        raise required(field)
    if not isinstance(name, str) or not re.fullmatch(NAME, name):
        raise invalid(field, name, f"Must be a match of regex '(?:{NAME})'")
    return name


def check_labels(labels: Mapping[str, str] | None, field: str = "resource.labels") -> None:
    """Hold labels to the rules.

    Raises:
        ApiError: for the first key or value that breaks them.
    """
    if len(labels or {}) > _LABELS_AT_MOST:
        raise invalid(field, "", f"The number of labels must not exceed {_LABELS_AT_MOST}.")
    for key, value in (labels or {}).items():
        if not _is_label(key) or not key[:1].isalpha():
            message = f"Label key '{key}' violates format constraints. The key must start with a lowercase character. "
            raise invalid(field, "", message + _WORDS.format("key"))
        if value and not _is_label(value):
            raise invalid(field, "", f"Label value '{value}' violates format constraints. {_WORDS.format('value')}")


def _is_label(text: str) -> bool:
    if not text or len(text) > 63:
        return False
    return all(c in "_-" or (c.isalnum() and c == c.lower()) for c in text)


def tail(link: str) -> str:
    """Return the last part of a link: a name."""
    return link.rstrip("/").rpartition("/")[2]


def resource_path(link: str, scope: str, field: str = "resource") -> str:
    """Return a resource's path (`projects/…`) from any form of link that Compute accepts.

    Args:
        link: a URL, or a part of one from `projects/`, `global/`, `regions/` or `zones/` on.
        scope: what a part that names no project belongs to: `projects/NAME`.
        field: of the request, for what is refused.

    Raises:
        ApiError: for any other form.
    """
    if match := re.search(r"(?:^|/)(projects/.+)$", link):
        return match[1]
    if link.startswith(("global/", "regions/", "zones/")):
        return f"{scope}/{link}"
    raise invalid(field, link, "The URL is malformed.")


def moment(at: datetime) -> str:
    """Write a time as Compute does: to the millisecond, in Pacific time."""
    return at.astimezone(_PACIFIC).isoformat(timespec="milliseconds")


def new_id() -> str:
    """Return a numeric id of a resource or an operation, which no other ever has."""
    return str(10**18 + secrets.randbelow(8 * 10**18))


def already_exists(path: str) -> ApiError:
    """Return Compute's error for a name that is taken."""
    return ApiError(409, "alreadyExists", f"The resource '{path}' already exists")


def in_use(path: str, by: str) -> ApiError:
    """Return Compute's error for a resource that another one still uses."""
    noun = re.sub(r"([A-Z])", r"_\1", path.split("/")[-2]).lower()
    noun = f"{noun[:-3]}y" if noun.endswith("ies") else noun.removesuffix("s")
    return ApiError(
        400, "resourceInUseByAnotherResource", f"The {noun} resource '{path}' is already being used by '{by}'"
    )
