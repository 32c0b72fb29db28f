"""Stands in for the `filter` of Compute's lists: comparisons of fields, joined by AND and OR, in parentheses.

It reads `=`, `!=`, `<`, `<=`, `>`, `>=`, `:` and the older `eq` and `ne`, which match a whole value by an expression
(RE2's, read as Python's). Only numbers have an order: a moment or another text after `<` or `>` is refused, as met
(https://github.com/googleapis/google-api-go-client/issues/256). It does not read functions, `NOT`, nor fields that do
not exist: such a comparison is false. Compute API, `instances.list`, `filter`.
"""

import operator as operators
import re
from collections.abc import Callable, Mapping
from typing import Any

from everspot_local.gcp.answers import ApiError

Test = Callable[[Mapping[str, Any]], bool]
_ORDERED: Mapping[str, Callable[[float, float], bool]] = {
    "<": operators.lt, "<=": operators.le, ">": operators.gt, ">=": operators.ge,
}  # fmt: skip
_TOKENS = re.compile(
    r"""\s*(?:(?P<open>\()|(?P<close>\))|(?P<op>!=|<=|>=|=|<|>|:)|"(?P<double>[^"]*)"|'(?P<single>[^']*)'"""
    r"""|(?P<word>[^\s()!<>=:"']+))"""
)


def matcher(text: str) -> Test:
    """Return a function that says whether a filter selects a resource; an empty filter selects every one.

    Raises:
        ApiError: if the text is no filter that can be read.
    """
    tokens = _tokens(text)
    if not tokens:
        return lambda _: True
    test, remaining = _either(tokens, text)
    if remaining:
        raise _bad(text)
    return test


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens, at = [], 0
    stripped = text.strip()
    while at < len(stripped):
        token = _TOKENS.match(stripped, at)
        if token is None:
            raise _bad(text)
        kind = str(token.lastgroup)
        tokens.append(("word" if kind == "word" else "text" if kind in ("double", "single") else kind, token[kind]))
        at = token.end()
    return tokens


def _either(tokens: list[tuple[str, str]], text: str) -> tuple[Test, list[tuple[str, str]]]:
    tests = []
    while True:
        test, tokens = _all(tokens, text)
        tests.append(test)
        if not (tokens and tokens[0] == ("word", "OR")):
            return (lambda d: any(t(d) for t in tests)), tokens
        tokens = tokens[1:]


def _all(tokens: list[tuple[str, str]], text: str) -> tuple[Test, list[tuple[str, str]]]:
    """Parse a sequence of expressions, with AND or without."""
    tests = []
    while True:
        test, tokens = _term(tokens, text)
        tests.append(test)
        if tokens and tokens[0] == ("word", "AND"):
            tokens = tokens[1:]
        elif not tokens or tokens[0][0] == "close" or tokens[0] == ("word", "OR"):
            return (lambda d: all(t(d) for t in tests)), tokens


def _term(tokens: list[tuple[str, str]], text: str) -> tuple[Test, list[tuple[str, str]]]:
    if tokens and tokens[0][0] == "open":
        test, remaining = _either(tokens[1:], text)
        if not remaining or remaining[0][0] != "close":
            raise _bad(text)
        return test, remaining[1:]
    if len(tokens) < 3 or tokens[0][0] != "word" or tokens[2][0] not in ("word", "text"):
        raise _bad(text)
    (_, name), (kind, operator), (_, value) = tokens[:3]
    if kind != "op" and operator not in ("eq", "ne"):
        raise _bad(text)
    # A value may hold colons and more: an unquoted URL or a moment.
    remaining = tokens[3:]
    while len(remaining) >= 2 and remaining[0] == ("op", ":") and tokens[2][0] == "word":
        value, remaining = f"{value}:{remaining[1][1]}", remaining[2:]
    if operator in _ORDERED and _number(value) is None:
        raise _bad(text)
    return (lambda d: _compare(_field(d, name), operator, value)), remaining


def _field(document: Any, name: str) -> Any:
    """Read a field's path; labels' keys have no dots."""
    for part in name.split("."):
        document = document.get(part) if isinstance(document, Mapping) else None
    return document


def _compare(field_value: Any, operator: str, value: str) -> bool:
    if operator in ("!=", "ne"):
        return not _compare(field_value, "=" if operator == "!=" else "eq", value)
    if field_value is None:
        return False
    text = str(field_value).lower() if isinstance(field_value, bool) else str(field_value)
    if operator == "eq":
        return re.fullmatch(value, text) is not None
    if operator == "=":
        # Case does not count; `*` at the end stands for anything.
        head = value.lower()
        return text.lower().startswith(head[:-1]) if head.endswith("*") else text.lower() == head
    if operator == ":":
        return value == "*" or value.lower() in text.lower()
    field_number, right = _number(text), _number(value)
    return field_number is not None and right is not None and _ORDERED[operator](field_number, right)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _bad(text: str) -> ApiError:
    return ApiError(400, "invalid", f"Invalid value for field 'filter': '{text}'. Invalid list filter expression.")
