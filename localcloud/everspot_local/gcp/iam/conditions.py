"""Stands in for the Common Expression Language of IAM conditions: the subset that conditions of ours may be written in.

What it does not know is refused when a policy is set, never taken for true or false: no macros, no arithmetic, no
ternaries, no tags, no attributes of APIs, and of functions only those below. Sources (IAM documentation): "Overview of
IAM Conditions", "Attribute reference for IAM Conditions"; the language itself: github.com/google/cel-spec,
doc/langdef.md ("Logical operators": an error in one operand does not matter where the other one decides).
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any

API_ATTRIBUTE = "api.getAttribute"
"""The function that reads an attribute of an API. Conditions of policies do not know it here."""
OPERATORS_AT_MOST = 12
"""IAM quotas: logical operators in a condition expression."""
_TOKEN = re.compile(
    r"\s*(?:(?P<text>\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*')|(?P<number>\d+)|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<sign>&&|\|\||==|!=|<=|>=|[!<>().,\[\]]))"
)
_ATTRIBUTES = ("resource.name", "resource.type", "resource.service", "request.time", "destination.ip",
               "destination.port")  # fmt: skip

Values = Mapping[str, Any]
Node = Callable[[Values], Any]
"""An expression that can be evaluated."""


class BadExpression(ValueError):
    """An expression that is invalid, or that the local cloud does not support."""


class Undefined(Exception):
    """An attribute that this request does not have: an error while the expression is evaluated."""


def check_expression(expression: str) -> None:
    """Make sure that an expression can be evaluated.

    Raises:
        BadExpression: saying what is wrong with it, or not known here.
    """
    compiled(expression)


def is_true(expression: str, values: Values) -> bool:
    """Return whether a condition is true. `values`: the request's attributes; an expression that needs another one
    grants nothing."""
    try:
        return compiled(expression)(values) is True
    except Undefined:
        return False


@lru_cache(maxsize=1024)
def compiled(expression: str, attributes: tuple[str, ...] = _ATTRIBUTES) -> Node:
    """Compile an expression over these attributes; a `Node` raises `Undefined` for an attribute without a value.

    Raises:
        BadExpression: saying what is wrong with it, or not known here.
    """
    parser = _ExpressionParser(_tokens(expression), attributes)
    node = parser.either()
    if parser.remaining:
        raise BadExpression(f"unexpected {parser.remaining[0][1]!r}")
    if parser.operators > OPERATORS_AT_MOST:
        raise BadExpression(f"{parser.operators} logical operators; at most {OPERATORS_AT_MOST} are allowed")
    return node


def _tokens(expression: str) -> list[tuple[str, str]]:
    tokens, at = list[tuple[str, str]](), 0
    while expression[at:].strip():
        match = _TOKEN.match(expression, at)
        if match is None:
            raise BadExpression(f"not understood from {expression[at : at + 20].strip()!r} on")
        tokens.append((str(match.lastgroup), match[str(match.lastgroup)]))
        at = match.end()
    return tokens


@dataclass
class _ExpressionParser:
    remaining: list[tuple[str, str]]
    attributes: tuple[str, ...]
    operators: int = field(default=0)

    def either(self) -> Node:
        parts = [self._conjunction()]
        while self._take("||"):
            self.operators += 1
            parts.append(self._conjunction())
        return parts[0] if len(parts) == 1 else lambda values: _decide(parts, values, deciding=True)

    def _conjunction(self) -> Node:
        parts = [self._compared()]
        while self._take("&&"):
            self.operators += 1
            parts.append(self._compared())
        return parts[0] if len(parts) == 1 else lambda values: _decide(parts, values, deciding=False)

    def _compared(self) -> Node:
        operand = self._unary()
        sign = self.remaining[0][1] if self.remaining else ""
        if sign not in _COMPARISONS:
            return operand
        self.remaining.pop(0)
        return _applied(_COMPARISONS[sign], [operand, self._unary()], sign)

    def _unary(self) -> Node:
        if self._take("!"):
            self.operators += 1
            negated = self._unary()
            return lambda values: not _boolean(negated(values))
        return self._called(self._primary())

    def _called(self, node: Node) -> Node:
        while self._take("."):
            name = self._name()
            if name not in _METHODS:
                raise BadExpression(f"{name} is not known; known are {', '.join(_METHODS)}")
            method, arguments = _METHODS[name], self._arguments()
            node = _applied(method, [node, *arguments], name)
        return node

    def _primary(self) -> Node:
        if not self.remaining:
            raise BadExpression("it ends too early")
        kind, token = self.remaining.pop(0)
        if kind == "text":
            text = re.sub(r"\\(.)", r"\1", token[1:-1])
            return lambda _values: text
        if kind == "number":
            return lambda _values: int(token)
        if token == "(":  # noqa: S105 - a parenthesis
            inner = self.either()
            self._need(")")
            return inner
        if token == "[":  # noqa: S105 - a bracket
            parts = self._until("]")
            return lambda values: [part(values) for part in parts]
        return self._identifier(token)

    def _identifier(self, name: str) -> Node:
        if name in ("true", "false"):
            return lambda _values: name == "true"
        if name == "timestamp":
            return _applied(_timestamp, self._arguments(), name)
        if not self._take("."):
            raise BadExpression(f"{name} is not known")
        full = f"{name}.{self._name()}"
        if full not in self.attributes:
            raise BadExpression(f"{full} is not known; known are {', '.join(self.attributes)}")
        return self._api_attribute() if full == API_ATTRIBUTE else lambda values: _value(values, full)

    def _api_attribute(self) -> Node:
        arguments = self._arguments()
        if len(arguments) != 2:
            raise BadExpression(f"{API_ATTRIBUTE} takes the name of an attribute and a default value")
        name, default = arguments
        return lambda values: values.get(name(values), default(values))

    def _arguments(self) -> list[Node]:
        self._need("(")
        return self._until(")")

    def _until(self, end: str) -> list[Node]:
        parts: list[Node] = []
        while not self._take(end):
            if parts:
                self._need(",")
            parts.append(self.either())
        return parts

    def _name(self) -> str:
        if not self.remaining or self.remaining[0][0] != "name":
            raise BadExpression("a name is missing after a full stop")
        return self.remaining.pop(0)[1]

    def _take(self, sign: str) -> bool:
        if self.remaining and self.remaining[0] == ("sign", sign):
            self.remaining.pop(0)
            return True
        return False

    def _need(self, sign: str) -> None:
        if not self._take(sign):
            raise BadExpression(f"{sign!r} is missing")


def _decide(parts: Sequence[Node], values: Values, *, deciding: bool) -> bool:
    """Evaluate `||` (deciding: true) or `&&` (deciding: false)."""
    undefined: Undefined | None = None
    for part in parts:
        try:
            if _boolean(part(values)) is deciding:
                return deciding
        except Undefined as error:
            undefined = error
    if undefined is not None:
        raise undefined
    return not deciding


def _applied(function: Callable[..., Any], arguments: list[Node], name: str) -> Node:
    def node(values: Values) -> Any:
        try:
            return function(*(part(values) for part in arguments))
        except (TypeError, AttributeError, ValueError):
            raise Undefined(name) from None

    return node


def _value(values: Values, name: str) -> Any:
    if name not in values:
        raise Undefined(name)
    return values[name]


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise Undefined("no boolean")
    return value


def _timestamp(text: str) -> datetime:
    """Read a time in the form of RFC 3339, with its zone."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("no zone")
    return moment


def _in(element: Any, other: Any) -> bool:
    if not isinstance(other, list):
        raise Undefined("no list")
    return element in other


def _extract(text: str, template: str) -> str:
    """Return the text at the place of `{name}` in the template; empty where the text does not fit ("Extracting
    values")."""
    before, _, remainder = template.partition("{")
    after = remainder.partition("}")[2]
    _, separator, tail = text.partition(before)
    if before and not separator:
        return ""
    value, separator, _ = tail.partition(after) if after else (tail, "", "")
    return value if separator or not after else ""


def _less(operand: Any, other: Any) -> bool:
    if type(operand) is not type(other):
        raise Undefined("values of different types")
    return bool(operand < other)


_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": lambda one, other: bool(one == other),
    "!=": lambda one, other: bool(one != other),
    "<": _less,
    ">": lambda one, other: _less(other, one),
    "<=": lambda one, other: not _less(other, one),
    ">=": lambda one, other: not _less(one, other),
    "in": _in,
}
_METHODS: dict[str, Callable[..., Any]] = {
    "startsWith": lambda text, start: text.startswith(start),
    "endsWith": lambda text, end: text.endswith(end),
    "extract": _extract,
}
