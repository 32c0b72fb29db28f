"""`run_if`: a stage runs only if metrics of other jobs meet a condition.

The grammar (blanks separate words):

    condition  = comparison { "and" comparison }
    comparison = sum ( ">" | ">=" | "<" | "<=" ) sum
    sum        = value { ( "+" | "-" ) ( value | percentage ) }
    value      = number | "metric(" job "." name ")" | "last(" job "." name ")"

`metric` is the metric of a job of `after`, `last` that of the latest successful job of a name. A percentage refers to
the sum before it. Nothing else is evaluated, and no text is executed.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer

LONGEST = 500
"""The most characters of a condition."""
_EXACT = 1e15
"""Whole numbers below this are written without an exponent."""
_TOKEN = re.compile(
    r"\s*(?:(?P<metric>(?P<source>metric|last)\(\s*(?P<job>[a-z0-9][a-z0-9-]{0,39})\.(?P<name>[A-Za-z_][\w./-]{0,99})\s*\))"
    r"|(?P<number>(?:\d{1,15}(?:\.\d{1,15})?|\.\d{1,15})(?:e[+-]?\d{1,2})?)(?P<percent>\s*%)?"
    r"|(?P<sign>>=|<=|[><+-])|(?P<word>and)\b)"
)
_COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    ">": lambda left_sum, right_sum: left_sum > right_sum,
    ">=": lambda left_sum, right_sum: left_sum >= right_sum,
    "<": lambda left_sum, right_sum: left_sum < right_sum,
    "<=": lambda left_sum, right_sum: left_sum <= right_sum,
}
EXAMPLE = "metric(train.accuracy) > last(deployed.accuracy) + 0.5%"


class MetricSource(StrEnum):
    """Where a metric comes from: a job of `after` (`metric`), or the latest successful job of a name (`last`)."""

    METRIC = "metric"
    LAST = "last"


@dataclass(frozen=True, slots=True)
class MetricRef:
    """A metric of another job."""

    source: MetricSource
    job: str
    name: str

    def __str__(self) -> str:
        """Return it as a person writes it."""
        return f"{self.source.value}({self.job}.{self.name})"


@dataclass(frozen=True, slots=True)
class Term:
    """A part of a sum: a number, a percentage of the sum before it, or a metric.

    Attributes:
        sign: 1 or -1.
        number: the value of a number or a percentage; unused if `ref` is set.
    """

    sign: int
    number: float = 0.0
    is_percent: bool = False
    ref: MetricRef | None = None

    def __str__(self) -> str:
        """Return it as a person writes it, without its sign."""
        if self.ref is not None:
            return str(self.ref)
        number = f"{self.number:.0f}" if self.number.is_integer() and self.number < _EXACT else repr(self.number)
        return f"{number}%" if self.is_percent else number


@dataclass(frozen=True, slots=True)
class MetricComparison:
    """Two sums and the sign between them."""

    left_sum: tuple[Term, ...]
    sign: str
    right_sum: tuple[Term, ...]

    def __str__(self) -> str:
        """Return it as a person writes it."""
        return f"{_write_sum(self.left_sum)} {self.sign} {_write_sum(self.right_sum)}"

    @property
    def refs(self) -> tuple[MetricRef, ...]:
        """The metrics that it names."""
        return tuple(term.ref for term in (*self.left_sum, *self.right_sum) if term.ref is not None)


@dataclass(frozen=True, slots=True)
class ConditionResult:
    """Whether a condition holds. `words`: the comparison with its figures."""

    is_met: bool
    words: str


@dataclass(frozen=True, slots=True)
class RunCondition:
    """A conjunction of comparisons."""

    comparisons: tuple[MetricComparison, ...]

    @classmethod
    def parse(cls, text: str) -> "RunCondition":
        """Return the condition of a text such as `metric(train.accuracy) > last(deployed.accuracy) + 0.5%`.

        Raises:
            ValueError: naming the part that is wrong.
        """
        if len(text) > LONGEST:
            raise ValueError(f"has {len(text)} characters, of {LONGEST} that are allowed")
        return _Parser(text).read_condition()

    def __str__(self) -> str:
        """Return the condition as a person writes it."""
        return " and ".join(map(str, self.comparisons))

    @property
    def refs(self) -> tuple[MetricRef, ...]:
        """The metrics that it names, each once."""
        return tuple(dict.fromkeys(ref for comparison in self.comparisons for ref in comparison.refs))

    def judge(self, values: Mapping[MetricRef, float | None]) -> ConditionResult:
        """Return whether the condition holds. A comparison with a value of None holds, because no successful job exists
        yet to compare with.

        Raises:
            KeyError: if a metric is not among the values.
        """
        words = []
        for comparison in self.comparisons:
            left_sum, right_sum = _add(comparison.left_sum, values), _add(comparison.right_sum, values)
            if left_sum is None or right_sum is None:
                words.append(f"{comparison}, and there is nothing to compare with")
                continue
            is_met = _COMPARE[comparison.sign](left_sum, right_sum)
            figures = f"{comparison} ({left_sum:.6g} {comparison.sign} {right_sum:.6g})"
            if not is_met:
                return ConditionResult(False, f"{figures} does not hold")
            words.append(figures)
        return ConditionResult(True, " and ".join(words))


def _add(terms: tuple[Term, ...], values: Mapping[MetricRef, float | None]) -> float | None:
    amount = 0.0
    for term in terms:
        value = term.number if term.ref is None else values[term.ref]
        if value is None:
            return None
        amount += term.sign * (abs(amount) * value / 100 if term.is_percent else value)
    return amount


def _write_sum(terms: tuple[Term, ...]) -> str:
    first, *others = terms
    head = f"{'-' if first.sign < 0 else ''}{first}"
    return " ".join([head, *(f"{'-' if term.sign < 0 else '+'} {term}" for term in others)])


class _Parser:
    """A parser with one token of lookahead."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text.strip(), 0
        self._match: re.Match[str] | None = None
        self._advance()

    def read_condition(self) -> RunCondition:
        comparisons = [self._read_comparison()]
        while self._match is not None:
            if self._match["word"] is None:
                raise self._fault("`and` or the end")
            self._advance()
            comparisons.append(self._read_comparison())
        return RunCondition(tuple(comparisons))

    def _read_comparison(self) -> MetricComparison:
        left_sum = self._read_sum()
        sign = self._match["sign"] if self._match is not None else None
        if sign not in _COMPARE:
            raise self._fault("one of > >= < <=")
        self._advance()
        return MetricComparison(left_sum, str(sign), self._read_sum())

    def _read_sum(self) -> tuple[Term, ...]:
        terms = [self._read_term(self._read_sign() or 1, first=True)]
        while (sign := self._read_sign()) is not None:
            terms.append(self._read_term(sign, first=False))
        return tuple(terms)

    def _read_sign(self) -> int | None:
        sign = self._match["sign"] if self._match is not None else None
        if sign not in ("+", "-"):
            return None
        self._advance()
        return 1 if sign == "+" else -1

    def _read_term(self, sign: int, *, first: bool) -> Term:
        match = self._match
        if match is None or (match["metric"] is None and match["number"] is None):
            raise self._fault("a number, metric(JOB.NAME) or last(JOB.NAME)")
        if match["metric"] is not None:
            term = Term(sign, ref=MetricRef(MetricSource(match["source"]), match["job"], match["name"]))
        else:
            term = Term(sign, float(match["number"]), is_percent=match["percent"] is not None)
            if term.is_percent and first:
                raise self._fault("a value before the percentage, of which it is a part")
            if not math.isfinite(term.number):
                raise self._fault("a finite number")
        self._advance()
        return term

    def _advance(self) -> None:
        if self._match is not None:
            self._at = self._match.end()
        self._match = _TOKEN.match(self._text, self._at)
        if self._match is None and self._text[self._at :].strip():
            raise self._fault("a number, metric(JOB.NAME), last(JOB.NAME), > >= < <= + - or `and`")

    def _fault(self, expected: str) -> ValueError:
        remaining = self._text[self._at :].strip()
        place = f"at {remaining[:40]!r}" if remaining else "at its end"
        return ValueError(f"{place} needs {expected}, as in `{EXAMPLE}`")


def _read(value: Any) -> Any:
    if isinstance(value, RunCondition):
        return value
    if not isinstance(value, str):
        raise ValueError(f"must be a text such as `{EXAMPLE}`")
    return RunCondition.parse(value)


Condition = Annotated[RunCondition, BeforeValidator(_read), PlainSerializer(str, return_type=str)]
"""A condition, written as text in job files and documents."""
