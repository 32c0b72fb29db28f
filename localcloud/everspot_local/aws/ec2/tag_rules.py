"""Holds tags to EC2's limits, wherever a request names them: in CreateTags, and beside whatever it creates.

EC2 User Guide, "Tag your Amazon EC2 resources", tag restrictions: 50 tags a resource, keys of 128 and values of 256
Unicode characters, no key that begins with `aws:`.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from moto.ec2.exceptions import EC2ClientError, TagLimitExceeded

MOST, LONGEST_KEY, LONGEST_VALUE = 50, 128, 256


def check_tags(params: dict[str, Any]) -> None:
    """Check the tags of one request."""
    for tags in _groups(params):
        for tag in tags:
            _check(str(tag.get("Key") or ""), str(tag.get("Value") or ""))
        keys = Counter(str(tag.get("Key")) for tag in tags)
        for key, count in keys.items():
            if count > 1:
                raise EC2ClientError("InvalidParameterValue", f"Duplicate tag key '{key}' specified.")
        if len(keys) > MOST:
            raise TagLimitExceeded


def _groups(params: dict[str, Any]) -> Iterator[list[dict[str, Any]]]:
    if "Resources" in params and "Tags" in params:
        yield params["Tags"]
    template = params.get("LaunchTemplateData") or {}
    for holder, name in ((params, "TagSpecifications"), (params, "TagSpecification"), (template, "TagSpecifications")):
        for specification in holder.get(name) or []:
            yield specification.get("Tags") or []


def _check(key: str, value: str) -> None:
    if key.lower().startswith("aws:"):
        problem = "Tag keys starting with 'aws:' are reserved for internal use"
    elif not key:
        problem = "Tag key cannot be empty"
    elif len(key) > LONGEST_KEY:
        problem = f"Tag key exceeds the maximum length of {LONGEST_KEY} characters"
    elif len(value) > LONGEST_VALUE:
        problem = f"Tag value exceeds the maximum length of {LONGEST_VALUE} characters"
    else:
        return
    raise EC2ClientError("InvalidParameterValue", problem)
