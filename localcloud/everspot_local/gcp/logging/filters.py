"""Stands in for the Logging query language: comparisons of fields with values, joined by AND, OR and NOT.

It knows `=`, `!=`, `:`, and `>=`, `>`, `<=`, `<` of severities; no expressions, no functions, no search for words
without a field. Whatever else is refused when a sink is made. Source: "Logging query language" in the Cloud Logging
documentation (adjacent comparisons are joined by AND; NOT binds first, then OR, then AND).
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from everspot_local.gcp.refusals import bad

Matches = Callable[[Mapping[str, Any]], bool]
LENGTH = 20_000
"""Characters of a filter."""
SEVERITIES = ("DEFAULT", "DEBUG", "INFO", "NOTICE", "WARNING", "ERROR", "CRITICAL", "ALERT", "EMERGENCY")
_TOKEN = re.compile(
    r"\s*(?:--[^\n]*\n?|(?P<text>\"(?:[^\"\\]|\\.)*\")|(?P<sign>!=|>=|<=|=~|!~|[=:<>()\-])"
    r"|(?P<word>[A-Za-z0-9_@/%.*+](?:\.\"(?:[^\"\\]|\\.)*\"|[A-Za-z0-9_@/%.*+\-])*))"
)


def parsed(text: str) -> Matches:
    """Return a function that says whether a filter selects an entry. An empty filter selects every entry.

    Raises:
        ApiError: 400, for what is wrong or not known here.
    """
    if len(text) > LENGTH:
        raise bad(f"The filter is too long: at most {LENGTH} characters.")
    parser = _FilterParser(_tokens(text))
    if not parser.remaining:
        return lambda _entry: True
    matches = parser.conjunction()
    if parser.remaining:
        raise _unparseable(parser.remaining[0])
    return matches


def _tokens(text: str) -> list[str]:
    tokens, at = list[str](), 0
    while text[at:].strip():
        match = _TOKEN.match(text, at)
        if match is None:
            raise _unparseable(text[at : at + 20].strip())
        if match.lastgroup:
            tokens.append(match[match.lastgroup])
        at = match.end()
    return tokens


class _FilterParser:
    def __init__(self, tokens: list[str]) -> None:
        self.remaining = tokens

    def conjunction(self) -> Matches:
        parts = [self._disjunction()]
        while self.remaining and self.remaining[0] != ")":
            if self.remaining[0] == "AND":
                self.remaining.pop(0)
            parts.append(self._disjunction())
        return parts[0] if len(parts) == 1 else lambda entry: all(part(entry) for part in parts)

    def _disjunction(self) -> Matches:
        parts = [self._term()]
        while self.remaining and self.remaining[0] == "OR":
            self.remaining.pop(0)
            parts.append(self._term())
        return parts[0] if len(parts) == 1 else lambda entry: any(part(entry) for part in parts)

    def _term(self) -> Matches:
        token = self._next()
        if token in ("NOT", "-"):
            inner = self._term()
            return lambda entry: not inner(entry)
        if token == "(":  # noqa: S105 - a parenthesis
            grouped = self.conjunction()
            self._close()
            return grouped
        return self._comparison(token)

    def _comparison(self, field: str) -> Matches:
        sign = self._next()
        if sign not in _SIGNS or not re.match(r"[A-Za-z_]", field):
            raise bad(
                f"Unparseable filter: the local cloud knows comparisons by {', '.join(_SIGNS)}, not {field} {sign}"
            )
        values = self._values()
        ordered = sign in ("<", ">", "<=", ">=")
        if ordered and (field != "severity" or any(value not in SEVERITIES for value in values)):
            raise bad(f"Unparseable filter: the local cloud compares severities by {sign}, nothing else")
        path, test = _path(field), _SIGNS[sign]
        return lambda entry: any(test(_at(entry, path), value) for value in values)

    def _values(self) -> list[str]:
        if self.remaining[:1] != ["("]:
            return [_value(self._next())]
        self.remaining.pop(0)
        values = [_value(self._next())]
        while self.remaining and self.remaining[0] == "OR":
            self.remaining.pop(0)
            values.append(_value(self._next()))
        self._close()
        return values

    def _next(self) -> str:
        if not self.remaining:
            raise bad("Unparseable filter: syntax error at its end")
        return self.remaining.pop(0)

    def _close(self) -> None:
        if self._next() != ")":
            raise bad("Unparseable filter: a parenthesis is not closed")


def _value(token: str) -> str:
    if token.startswith('"'):
        return re.sub(r"\\(.)", r"\1", token[1:-1])
    if token in _SIGNS or token in ("(", ")", "AND", "OR", "NOT"):
        raise _unparseable(token)
    return token


def _path(field: str) -> list[str]:
    return [part.strip('"') for part in re.findall(r"\"(?:[^\"\\]|\\.)*\"|[^.]+", field)]


def _at(entry: Mapping[str, Any], path: list[str]) -> str | None:
    value: Any = entry
    for part in path:
        value = value.get(part) if isinstance(value, Mapping) else None
    if value is None or isinstance(value, Mapping | list):
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def _rank(severity: str | None) -> int:
    return SEVERITIES.index(severity) if severity in SEVERITIES else 0


_SIGNS: dict[str, Callable[[str | None, str], bool]] = {
    "=": lambda held, value: held is not None and held.lower() == value.lower(),
    "!=": lambda held, value: held is None or held.lower() != value.lower(),
    ":": lambda held, value: held is not None and (value == "*" or value.lower() in held.lower()),
    ">=": lambda held, value: _rank(held) >= _rank(value),
    "<=": lambda held, value: _rank(held) <= _rank(value),
    ">": lambda held, value: _rank(held) > _rank(value),
    "<": lambda held, value: _rank(held) < _rank(value),
}


def _unparseable(token: str) -> Exception:
    return bad(f"Unparseable filter: syntax error at token {token!r}")
