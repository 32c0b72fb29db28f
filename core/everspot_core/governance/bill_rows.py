"""Reads rows of a cloud's own bill, of any of its tables, into one type. Unreadable cells are reported by line."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

from everspot_core.governance.invoicing import BillTable, Invoicing
from everspot_core.validation.problems import Problem, shown

CURRENCY = "USD"
_NUMBER = re.compile(r"[+-]?(?:\d{1,30}(?:\.\d{0,40})?|\.\d{1,40})(?:[eE][+-]?\d{1,2})?")
_LONGEST = timedelta(days=32)  # of what one row is charged for: a month, where clocks are put forward and back


@dataclass(frozen=True, slots=True, kw_only=True)
class BillRow:
    """One row of a bill.

    Attributes:
        resource: as the bill has it.
        instance: the id of the instance, if the resource is one.
        charge: a category of FOCUS, or the table's own word if that is unknown.
        tags: with keys as people wrote them, as far as the bill keeps them.
        timed: whether the row is for an instance's time, and not, for example, for its traffic.
        as_of: up to when everything counts, if the row has it.
    """

    start: datetime
    end: datetime
    cost: Fraction
    charge: str
    resource: str
    instance: str | None
    service: str
    meter: str
    timed: bool
    tags: Mapping[str, str]
    correction: bool
    committed: bool
    as_of: datetime | None = None


class UnknownTable(ValueError):
    """The columns do not match any known table. The message names the missing columns of the nearest table."""


def find_table(columns: Sequence[str], invoicing: Invoicing) -> BillTable:
    """Return the table that has these columns.

    Raises:
        UnknownTable: if no table's required columns are all there.
    """
    present = set(columns)
    twice = sorted({name for name in present if columns.count(name) > 1})
    if twice:
        raise UnknownTable(f"has the columns {', '.join(twice)} more than once")
    missing = {table.name: [c for c in table.required if c not in present] for table in invoicing.tables}
    for table in invoicing.tables:
        if not missing[table.name]:
            return table
    name, lacks = min(missing.items(), key=lambda pair: len(pair[1]))
    table_names = " or ".join(missing)
    if len(lacks) == len(invoicing.tables[0].required):
        raise UnknownTable(f"has none of the columns of {table_names}")
    raise UnknownTable(f"lacks the columns {', '.join(lacks)} of {name} (read are: {table_names})")


def read_row(
    raw: Mapping[str, Any], table: BillTable, invoicing: Invoicing, cost: str = "billed"
) -> BillRow | list[Problem]:
    """Return one row, or everything that is wrong with it. `cost`: which of the table's costs."""
    problems: list[Problem] = []
    start, end = (_moment(raw, column, problems) for column in (table.start, table.end))
    amount = _amount(raw.get(table.costs[cost]), table.costs[cost], problems)
    currency = _text(raw.get(table.currency)).upper()
    if currency != CURRENCY:
        problems.append(Problem(table.currency, f"is {shown(currency)}; the ledger has dollars ({CURRENCY}) only"))
    if start is not None and end is not None and not timedelta(0) < end - start <= _LONGEST:
        problems.append(Problem(table.end, "has to be after the start, by a month at most"))
    as_of = _moment(raw, table.as_of, problems) if _text(raw.get(table.as_of)) else None
    if problems or start is None or end is None or amount is None:
        return problems
    charge = _text(raw.get(table.charge))
    meter = next((text for column in table.meters if (text := _text(raw.get(column)))), "")
    resource = _text(raw.get(table.resource))
    return BillRow(
        start=start,
        end=end,
        cost=amount,
        charge=table.charges.get(charge, charge),
        resource=resource,
        instance=invoicing.instance_id(resource),
        service=_text(raw.get(table.service)),
        meter=meter,
        timed=invoicing.measures_time(meter),
        tags={
            invoicing.tag_key(key): value
            for column in (*table.tags_beside, table.tags)
            for key, value in _tags(raw.get(column))
        },
        correction=bool(table.correction) and _text(raw.get(table.correction)) != "",
        as_of=as_of,
        committed=charge in table.committed_words or bool(table.committed and _text(raw.get(table.committed))),
    )


def plain_key(key: str) -> str:
    """Return a tag's key as bills may write it: small letters, digits, and `_` for every other character."""
    return re.sub(r"[^a-z0-9]", "_", key.lower())


def _text(value: Any) -> str:
    return "" if value is None else str(value).strip()


def _moment(raw: Mapping[str, Any], column: str, problems: list[Problem]) -> datetime | None:
    text = _text(raw.get(column))
    try:
        moment = datetime.fromisoformat(text.removesuffix(" UTC"))
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        problems.append(Problem(column, f"is {shown(text)}, not a time such as 2026-10-01T00:00:00Z"))
        return None


def _amount(value: Any, column: str, problems: list[Problem]) -> Fraction | None:
    """Return the exact amount. Numbers beyond all bounds are refused, because a few letters would make one of
    gigabytes."""
    text = _text(value)
    if _NUMBER.fullmatch(text) is None:
        problems.append(Problem(column, f"is {shown(text)}, not a number"))
        return None
    return Fraction(Decimal(text))


def _tags(value: Any) -> Iterable[tuple[str, str]]:
    """Return keys and values of a JSON object, or of a list of keys and values; empty for anything else."""
    if isinstance(value, str):
        try:
            value = json.loads(value) if value.strip() else None
        except (ValueError, RecursionError):
            return []
    if isinstance(value, Mapping):
        return [(str(key), _text(item)) for key, item in value.items()]
    if isinstance(value, list):
        pairs = [
            {str(k).lower(): v for k, v in pair_object.items()}
            for pair_object in value
            if isinstance(pair_object, Mapping)
        ]
        return [(_text(pair.get("key")), _text(pair.get("value"))) for pair in pairs if _text(pair.get("key"))]
    return []
