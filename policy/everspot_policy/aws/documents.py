"""Policy documents of IAM and of resources, read without trust."""

import re
from collections.abc import Container, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from everspot_policy.addresses import closed_ranges
from everspot_policy.reading import document, mapping, texts

ANYBODY = "*"
EQUAL = frozenset({"stringequals", "stringequalsignorecase", "stringlike", "arnequals", "arnlike"})
"""Operators of a condition that hold for nobody but those whose key is there and has one of the values."""

SOURCE_ADDRESS = "aws:sourceip"

_ORGANIZATION = re.compile(r"o-[a-z0-9]+(/.*)?")


def statements(value: Any) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the statements of a policy document, given as text or as an object, with their places; none of a hidden
    document."""
    content = document(value)
    listed = content.get("Statement") if isinstance(content, Mapping) else None
    for index, each in enumerate(listed if isinstance(listed, list) else [listed]):
        if isinstance(each, Mapping):
            yield index, each


def allows(statement: Mapping[str, Any]) -> bool:
    """Return whether a statement allows something."""
    return statement.get("Effect") == "Allow"


def actions(statement: Mapping[str, Any]) -> list[str]:
    """Return the actions that a statement names, in lower case, as IAM compares them."""
    return [each.lower() for each in texts(statement.get("Action"))]


def everywhere(statement: Mapping[str, Any]) -> bool:
    """Return whether a statement is about all resources."""
    return any(_all(each) for each in texts(statement.get("Resource"))) or "NotResource" in statement


def covers(pattern: str, action: str) -> bool:
    """Return whether an action's pattern, with `*` and `?` as wildcards, matches an action, both in lower case."""
    return fnmatchcase(action, pattern.replace("[", "[[]"))


IDENTITIES = ("role", "user", "group", "policy")
"""The kinds of resources of IAM by which permissions are given."""
_PARTITIONS = ("aws", "aws-cn", "aws-us-gov", "aws-eusc")
_SOME_NAMES = ("x", "acme-0123456789/Ops_team+ci=1,@Z")
"""Names of one and of many characters. A pattern that matches both singles out no identity."""


def matches_every(resource: str, kind: str) -> bool:
    """Return whether a resource stands for all roles, users, groups or policies of an account.

    A wildcard also stands for colons, and AWS completes an ARN with too few parts by wildcards (IAM User Guide,
    "IAM JSON policy elements: Resource").
    """
    parts = resource.split(":")
    parts += ["*"] * (6 - len(parts))
    complete, account = ":".join(parts), parts[4]
    if not account or set(account) & set("*?"):
        account = "123456789012"
    return any(
        all(covers(complete, f"arn:{partition}:iam::{account}:{kind}/{name}") for name in _SOME_NAMES)
        for partition in _PARTITIONS
    )


def _all(pattern: str) -> bool:
    return ANYBODY in pattern and not pattern.strip("*?")


def principals(statement: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the principals of a statement: kind (`AWS`, `Service`, `Federated`) and name; everybody is `*` of the kind
    `AWS`."""
    principal = statement.get("Principal")
    if principal == ANYBODY:
        yield "AWS", ANYBODY
    for kind, names in mapping(principal).items():
        for name in texts(names):
            yield str(kind), name


def conditions(statement: Mapping[str, Any]) -> Iterator[tuple[str, str, list[str]]]:
    """Yield the conditions of a statement: operator and key in lower case, and the values."""
    for operator, keys in mapping(statement.get("Condition")).items():
        for key, values in mapping(keys).items():
            listed = values if isinstance(values, list) else [values]
            yield str(operator).lower(), str(key).lower(), texts([str(v) if isinstance(v, bool) else v for v in listed])


def narrowed(statement: Mapping[str, Any], keys: Container[str]) -> bool:
    """Return whether a condition on one of the keys limits a statement to named principals. Unknown values count as
    names."""
    return any(
        key in keys and _singles_out(operator.removeprefix("foranyvalue:"), key, values)
        for operator, key, values in conditions(statement)
    )


def others_denied(statement: Mapping[str, Any], document: Any, keys: Container[str]) -> bool:
    """Return whether another statement of the document denies all that a statement allows to everybody but those whom
    conditions on the keys name. Negated operators also hold where the key is absent."""
    return any(
        each.get("Effect") == "Deny" and _reaches(each, statement) and _spares_named(each, keys)
        for _, each in statements(document)
    )


def _reaches(denial: Mapping[str, Any], statement: Mapping[str, Any]) -> bool:
    """Return whether a denial is for everybody, and for all actions and resources of a statement."""
    if not any(name == ANYBODY for _, name in principals(denial)) or "NotResource" in denial:
        return False
    resources = texts(statement.get("Resource")) or [ANYBODY]
    return all(
        any(_contains(pattern, each) for pattern in patterns)
        for each, patterns in [
            *((each, actions(denial)) for each in actions(statement) or [ANYBODY]),
            *((each, texts(denial.get("Resource")) or [ANYBODY]) for each in resources),
        ]
    )


def _contains(pattern: str, other: str) -> bool:
    """Return whether a pattern matches all that another one does."""
    return pattern == other or ("?" not in pattern and covers(pattern, other))


def _spares_named(denial: Mapping[str, Any], keys: Container[str]) -> bool:
    """Return whether a denial's conditions all hold for everybody but those whom they name."""
    negated = [(operator.removesuffix("ifexists"), key, values) for operator, key, values in conditions(denial)]
    return bool(negated) and all(
        key in keys and "not" in operator and _singles_out(operator.replace("not", "", 1), key, values)
        for operator, key, values in negated
    )


def _singles_out(operator: str, key: str, values: list[str]) -> bool:
    if key == SOURCE_ADDRESS:
        return operator == "ipaddress" and closed_ranges(values)
    return operator in EQUAL and all(_names(value) for value in values)


def _names(value: str) -> bool:
    """Return whether a value names somebody: an account, an organization, or a resource with a unique name. Of the
    variables only those of the resource do, because everybody is equal to itself."""
    if "${" in value:
        return value.lower().startswith("${aws:resource")
    if not {"*", "?"} & set(value) or _ORGANIZATION.fullmatch(value):
        return True
    _, _, _, _, account, name = [*value.split(":", 5), *[ANYBODY] * 5][:6]
    # Buckets have no account in their names, and no two of them have the same.
    return account.isdecimal() if account else re.match(r"[^*?]{3}", name) is not None
