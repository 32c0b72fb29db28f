"""Checks of tags and ARNs against what every AWS service in use accepts, before any resource is made.

Sources: the service models of botocore. IAM's `tagKeyType` and `tagValueType` are the strictest: letters, digits,
separators and `_.:/=+-@`, 128 and 256 characters; EC2 and S3 document the same set ("Tag your Amazon EC2 resources",
"Tag restrictions"). Fifty tags per resource: EC2, S3, SQS, EventBridge and Auto Scaling alike. IAM takes keys that
differ in case only for the same key (IAM User Guide, "Rules for tagging in IAM and AWS STS").
"""

import re
import unicodedata
from collections.abc import Mapping

from everspot_core.validation.problems import Problems, shown

TAGS_AT_MOST = 50
"""Most tags of one resource, on every service in use."""

KEY_AT_MOST = 128
"""Most characters of a tag's key."""

VALUE_AT_MOST = 256
"""Most characters of a tag's value."""

_SIGNS = "_.:/=+-@"
_ALLOWED = f"letters, digits, spaces and {_SIGNS}"

ZONE = re.compile(r"^[a-z]{2,4}(?:-[a-z]+)+-\d+(?:[a-z]|-[a-z]+-\d+[a-z])\Z")
"""Name of an availability zone or local zone."""

_ARN = re.compile(
    r"^arn:aws[a-z-]*:(?P<service>[a-z0-9-]+):(?P<region>[a-z0-9-]*):(?P<account>\d{12}|aws)?:(?P<rest>\S+)\Z"
)

_BUCKET = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{2,254}\Z")
"""Name of a bucket; the longest and those with capitals are older than 2018 (Amazon S3 User Guide, "General purpose
bucket naming rules")."""


def tag_problems(problems: Problems, tags: Mapping[str, object], *, own: int, reserved: tuple[str, ...]) -> None:
    """Add a problem for each mistake in tags, under the tag's key.

    `own`: number of tags that are added to these on the resource with the most; `reserved`: prefixes that users may not
    set.
    """
    most = TAGS_AT_MOST - own
    problems.need(len(tags) <= most, "", f"at most {most} tags of one's own, {len(tags)} are given: AWS allows 50")
    keys: dict[str, str] = {}
    for key, value in tags.items():
        name = shown(key).strip("'\"")
        lower = key.lower()
        for prefix in reserved:
            problems.need(not lower.startswith(prefix), name, f"tags under {prefix} cannot be set")
        same = keys.setdefault(lower, key)
        problems.need(same == key, name, f"differs from {same} in case only; IAM takes both for one")
        problems.need(
            0 < len(key) <= KEY_AT_MOST, name, f"the key has {len(key)} characters; 1 to {KEY_AT_MOST} are allowed"
        )
        _characters(problems, name, "key", key)
        if not problems.need(isinstance(value, str), name, f"has to be a text, not {shown(value)}"):
            continue
        text = str(value)
        problems.need(len(text) <= VALUE_AT_MOST, name, f"has {len(text)} characters; {VALUE_AT_MOST} are allowed")
        _characters(problems, name, "value", text)


def _characters(problems: Problems, name: str, part: str, text: str) -> None:
    bad = sorted({c for c in text if c not in _SIGNS and not _is_plain(c)})
    listed = " ".join(repr(c) for c in bad[:5])
    problems.need(not bad, name, f"the {part} has {listed}; IAM allows {_ALLOWED}")


def _is_plain(char: str) -> bool:
    """Return whether a character is a letter, a digit or a space. The end of a line is not a space."""
    category = unicodedata.category(char)
    return category[0] in "LN" or category == "Zs"


def arn_problem(value: str, service: str, resource: str, *, open_end: bool = False) -> str | None:
    """Return the mistake in an ARN of a service's resource, or None. A permission for an ARN with a wildcard would
    cover everything that the wildcard matches.

    Args:
        value: The ARN.
        service: The service that it has to belong to.
        resource: How the resource part begins, such as `key/`.
        open_end: Whether it may end in `*`, after a part of the resource's own name.
    """
    match = _ARN.match(value)
    if match is None:
        return f"{shown(value)} is not an ARN (arn:aws:{service}:…:{resource}…)"
    if match["service"] != service or not match["rest"].startswith(resource) or match["rest"] == resource:
        return f"{shown(value)} is not the ARN of {service} {resource}…"
    name = match["rest"].removeprefix(resource)
    if any(sign in (name[:-1] if open_end and len(name) > 1 else name) for sign in "*?"):
        return f"{shown(value)} has a wildcard: name each one{', or end its name in *' if open_end else ''}"
    if service == "s3" and not _BUCKET.match(name):
        return f"{shown(value)} is not the ARN of a bucket, such as arn:aws:s3:::my-bucket"
    return None
