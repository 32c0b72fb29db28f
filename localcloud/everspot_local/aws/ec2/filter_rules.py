"""Holds the filters of a request to the names that EC2 documents for its action, and to EC2's limits on their number.

The names are those of EC2's own model (botocore `ec2/2016-11-15`), where each action lists its filters. An action whose
model lists none is not checked.

EC2 API Reference, "Filter": at most 50 filters a request and 200 values a filter.
"""

import html
import re
from functools import lru_cache
from typing import Any

from moto.core.utils import get_service_model
from moto.ec2.exceptions import EC2ClientError

from everspot_local.aws.ec2.exceptions import InvalidParameter

MOST_FILTERS, MOST_VALUES = 50, 200
_LISTED = re.compile(r"<li>\s*<p>\s*<code>([^<]+)</code>")
_ALIAS = re.compile(r"also use <code>([^<]+)</code>")


def check_filters(action: str, params: dict[str, Any]) -> None:
    """Refuse filters that the action does not have, and too many of them.

    Raises:
        EC2ClientError: InvalidParameterValue or FilterLimitExceeded.
    """
    filters = params.get("Filters") or params.get("Filter")
    if not isinstance(filters, list) or not filters:
        return
    if len(filters) > MOST_FILTERS or any(len(f.get("Values") or []) > MOST_VALUES for f in filters):
        raise EC2ClientError("FilterLimitExceeded", "The request uses too many filters or too many filter values.")
    names = filter_names(action)
    for each in filters:
        name = str(each.get("Name") or "null")
        if names and name not in names and not ("tag-key" in names and name.startswith("tag:")):
            raise InvalidParameter(f"The filter '{name}' is invalid")


@lru_cache
def filter_names(action: str) -> frozenset[str]:
    """Return the names of an action's filters; none if its model lists none."""
    shape = get_service_model("ec2").operation_model(action).input_shape
    members = shape.members if shape is not None else {}
    filter_shape = members.get("Filters") or members.get("Filter")
    text = html.unescape(filter_shape.documentation) if filter_shape is not None else ""
    names = {*_LISTED.findall(text), *_ALIAS.findall(text)}
    if any(name.startswith("tag") for name in names):
        names |= {"tag-key", "tag-value"}  # the second is EC2's older filter, which it still takes
    return frozenset(names)
