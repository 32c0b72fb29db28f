"""Policy documents of IAM and of resources, read without trust."""

from collections.abc import Iterator, Mapping
from typing import Any

from everspot_policy.reading import document, mapping, texts

ANYBODY = "*"


def statements(value: Any) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The statements of a policy document, given as text or as it is, with their places. None of a hidden one."""
    found = document(value)
    listed = found.get("Statement") if isinstance(found, Mapping) else None
    for index, each in enumerate(listed if isinstance(listed, list) else [listed]):
        if isinstance(each, Mapping):
            yield index, each


def allows(statement: Mapping[str, Any]) -> bool:
    """Whether a statement allows something."""
    return statement.get("Effect") == "Allow"


def actions(statement: Mapping[str, Any]) -> list[str]:
    """The actions that a statement names, in lower case, as IAM compares them."""
    return [each.lower() for each in texts(statement.get("Action"))]


def everywhere(statement: Mapping[str, Any]) -> bool:
    """Whether a statement is about all resources."""
    return ANYBODY in texts(statement.get("Resource")) or "NotResource" in statement


def principals(statement: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Whom a statement is for: kind (`AWS`, `Service`, `Federated`) and name; everybody is `*` of the kind `AWS`."""
    given = statement.get("Principal")
    if given == ANYBODY:
        yield "AWS", ANYBODY
    for kind, names in mapping(given).items():
        for name in texts(names):
            yield str(kind), name


def conditions(statement: Mapping[str, Any]) -> Iterator[tuple[str, str, list[str]]]:
    """The conditions of a statement: operator and key in lower case, and the values."""
    for operator, keys in mapping(statement.get("Condition")).items():
        for key, values in mapping(keys).items():
            listed = values if isinstance(values, list) else [values]
            yield str(operator).lower(), str(key).lower(), texts([str(v) if isinstance(v, bool) else v for v in listed])
