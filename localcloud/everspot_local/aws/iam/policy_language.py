"""Stands in for AWS's policy evaluation: whether documents allow an action on a resource in a context.

moto's own evaluation takes every resource of most services for `*`, and denies where a condition is one that it does
not know. This one knows the operators below, `NotAction` and `NotResource`; an operator that it does not know raises.
It does not do variables or organizations.
"""

import fnmatch
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import Any

Context = Mapping[str, tuple[str, ...]]


class PolicyDecision(Enum):
    """The result of policies. IMPLICIT: no statement applies, so the call is not allowed."""

    ALLOW = "allow"
    DENY = "deny"
    IMPLICIT = "implicit"


class UnknownCondition(ValueError):
    """A condition operator that the local cloud cannot evaluate."""


@dataclass(frozen=True)
class Call:
    """One action on one resource. Context keys are lower case, for example `aws:sourcearn`. `later`: the decision is
    made while the request is carried out, and the answer shows what was not allowed."""

    action: str
    resource: str = "*"
    context: Context = field(default_factory=dict)
    later: bool = False


def decide(documents: Iterable[Mapping[str, Any]], call: Call, principal: str | None = None) -> PolicyDecision:
    """Evaluate policies for a call; an explicit denial wins over every permission.

    Args:
        documents: policies, parsed.
        principal: for resource policies: a service or ARN that a statement's Principal must name.

    Raises:
        UnknownCondition: if it would depend on one.
    """
    verdict = PolicyDecision.IMPLICIT
    for document in documents:
        for statement in _list(document["Statement"]):
            if not _concerns(statement, call, principal):
                continue
            if statement["Effect"] == "Deny":
                return PolicyDecision.DENY
            verdict = PolicyDecision.ALLOW
    return verdict


def _concerns(statement: Mapping[str, Any], call: Call, principal: str | None) -> bool:
    return (
        _names(statement, "Action", call.action, ignore_case=True)
        and _names(statement, "Resource", call.resource)
        and (principal is None or _is_principal(statement.get("Principal"), principal))
        and _conditions_hold(statement.get("Condition", {}), call.context)
    )


def _names(statement: Mapping[str, Any], element: str, value: str, *, ignore_case: bool = False) -> bool:
    def matches(patterns: Any) -> bool:
        return any(like(p, value, ignore_case=ignore_case) for p in _list(patterns))

    if f"Not{element}" in statement:
        return not matches(statement[f"Not{element}"])
    return matches(statement.get(element, "*"))


def _is_principal(stated: Any, principal: str) -> bool:
    principals = _list(stated) if not isinstance(stated, Mapping) else [p for ps in stated.values() for p in _list(ps)]
    return "*" in principals or principal in principals


def like(pattern: str, value: str, *, ignore_case: bool = False) -> bool:
    """Return whether a pattern with `*` and `?` matches the whole value."""
    return _compiled(pattern, ignore_case).match(value) is not None


@lru_cache(maxsize=4096)
def _compiled(pattern: str, ignore_case: bool) -> re.Pattern[str]:
    escaped = pattern.replace("[", "[[]")  # fnmatch knows character classes, policies do not
    return re.compile(fnmatch.translate(escaped), re.IGNORECASE if ignore_case else 0)


_OPERATORS: dict[str, Callable[[str, str], bool]] = {
    "StringEquals": lambda wanted, given: wanted == given,
    "StringEqualsIgnoreCase": lambda wanted, given: wanted.lower() == given.lower(),
    "StringLike": like,
    "ArnEquals": like,
    "ArnLike": like,
    "Bool": lambda wanted, given: wanted.lower() == given.lower(),
}
_NEGATED = {
    "StringNotEquals": "StringEquals",
    "StringNotEqualsIgnoreCase": "StringEqualsIgnoreCase",
    "StringNotLike": "StringLike",
    "ArnNotEquals": "ArnEquals",
    "ArnNotLike": "ArnLike",
}


def _conditions_hold(conditions: Mapping[str, Mapping[str, Any]], context: Context) -> bool:
    return all(
        _is_satisfied(operator, tuple(str(w) for w in _list(values)), context.get(key.lower()))
        for operator, keys in conditions.items()
        for key, values in keys.items()
    )


def _is_satisfied(operator: str, values: tuple[str, ...], context_values: tuple[str, ...] | None) -> bool:
    quantifier, _, name = operator.rpartition(":")
    if_exists = name.endswith("IfExists")
    name = name.removesuffix("IfExists")
    if name == "Null":
        return (context_values is None) == (values[0].lower() == "true")
    negated = name in _NEGATED
    test = _OPERATORS.get(_NEGATED.get(name, name))
    if test is None or quantifier not in ("", "ForAnyValue", "ForAllValues"):
        raise UnknownCondition(f"the local cloud does not know the policy condition {operator}")
    if context_values is None:
        return if_exists or negated or quantifier == "ForAllValues"
    results = [any(test(w, g) for w in values) != negated for g in context_values]
    return all(results) if quantifier == "ForAllValues" or negated else any(results)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
