"""Stands in for Credential Access Boundaries: the limits of a downscoped token.

A token has what both its service account's policies and one rule of the boundary allow. Only Cloud Storage supports
boundaries, in buckets with uniform bucket-level access, so other services refuse a downscoped token. Sources (IAM
documentation): "Overview of Credential Access Boundaries"; Security Token Service API, `AccessBoundary`.

Google does not publish its answers to roles that do not exist, or to resources that are no buckets; both are refused
here when the token is exchanged.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from everspot_local.gcp.iam.conditions import API_ATTRIBUTE, BadExpression, Undefined, compiled

RULES = 10
"""Rules in a boundary, at most."""
EXPRESSION = 2048
"""Characters of a condition's expression, at most."""
LIST_PREFIX = "storage.googleapis.com/objectListPrefix"
"""The attribute of a listing that has its prefix."""
_RESOURCE = re.compile(r"//storage\.googleapis\.com/(projects/_/buckets/[^/]+)")
_BUCKET = re.compile(r"projects/_/buckets/[^/]+")
_ROLE = "inRole:"
_ATTRIBUTES = ("resource.name", "resource.type", API_ATTRIBUTE)


class BadBoundary(ValueError):
    """A boundary that is refused."""


@dataclass(frozen=True)
class BoundaryRule:
    """What is available in one bucket.

    Attributes:
        bucket: such as `projects/_/buckets/NAME`.
        permissions: of the rule's roles.
        expression: the condition; empty for none.
    """

    bucket: str
    permissions: frozenset[str]
    expression: str


Boundary = tuple[BoundaryRule, ...]


def read_boundary(options: Mapping[str, Any], role: Callable[[str], frozenset[str] | None]) -> Boundary:
    """Read the options of an exchange. `role`: returns a role's permissions, or None for an unknown role.

    Raises:
        BadBoundary: naming the first fault.
    """
    boundary = options.get("accessBoundary")
    if set(options) != {"accessBoundary"} or not isinstance(boundary, dict) or set(boundary) != {"accessBoundaryRules"}:
        raise BadBoundary("options has to be an accessBoundary with accessBoundaryRules.")
    rules = boundary["accessBoundaryRules"]
    if not isinstance(rules, list) or not 0 < len(rules) <= RULES:
        raise BadBoundary(f"An access boundary has 1 to {RULES} rules.")
    return tuple(_rule(rule, role) for rule in rules)


def _rule(rule: Any, role: Callable[[str], frozenset[str] | None]) -> BoundaryRule:
    fields = {"availableResource", "availablePermissions", "availabilityCondition"}
    if not isinstance(rule, dict) or set(rule) - fields:
        raise BadBoundary(f"An access boundary rule has the fields {', '.join(sorted(fields))}.")
    resource = _RESOURCE.fullmatch(str(rule.get("availableResource") or ""))
    if resource is None:
        raise BadBoundary("availableResource has to be //storage.googleapis.com/projects/_/buckets/BUCKET.")
    names = rule.get("availablePermissions")
    if not isinstance(names, list) or not names:
        raise BadBoundary("availablePermissions has to name at least one role.")
    permissions: frozenset[str] = frozenset()
    for name in map(str, names):
        role_permissions = role(name.removeprefix(_ROLE)) if name.startswith(_ROLE) else None
        if role_permissions is None:
            raise BadBoundary(f"availablePermissions: {name} is no {_ROLE}ROLE, or its role is not known here.")
        permissions |= role_permissions
    return BoundaryRule(resource[1], permissions, _expression(rule.get("availabilityCondition")))


def _expression(condition: Any) -> str:
    if condition is None:
        return ""
    expression = condition.get("expression") if isinstance(condition, dict) else None
    if not isinstance(expression, str) or not 0 < len(expression) <= EXPRESSION:
        raise BadBoundary(f"availabilityCondition needs an expression of at most {EXPRESSION} characters.")
    try:
        compiled(expression, _ATTRIBUTES)
    except BadExpression as error:
        raise BadBoundary(f"The condition {expression!r} cannot be evaluated: {error}.") from None
    return expression


def admits(
    boundary: Boundary,
    permission: str,
    resource: str,
    values: Mapping[str, Any],
    is_uniform: Callable[[str], bool],
) -> bool:
    """Return whether a boundary leaves a permission on a resource.

    Args:
        boundary: of the token.
        permission: that the call needs.
        resource: such as `projects/_/buckets/NAME/objects/KEY`.
        values: the request's attributes.
        is_uniform: returns whether a bucket, by its name, has uniform bucket-level access.
    """
    bucket = _BUCKET.match(resource)
    if bucket is None or not is_uniform(bucket[0].rpartition("/")[2]):
        return False
    return any(
        rule.bucket == bucket[0] and permission in rule.permissions and _is_true(rule.expression, values)
        for rule in boundary
    )


def _is_true(expression: str, values: Mapping[str, Any]) -> bool:
    try:
        return not expression or compiled(expression, _ATTRIBUTES)(values) is True
    except Undefined:
        return False
