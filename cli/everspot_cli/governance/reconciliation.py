"""The ledger beside a bill as one document: the answer of `reconcile --json`, and the input of the terminal."""

from collections.abc import Iterable, Mapping
from typing import Any

from everspot_core.costs.prices import total
from everspot_core.governance.chargeback import KEYS
from everspot_core.governance.reconcile import BillSide, Count, MatchKind, Pair, Reconciliation, by_tag

from everspot_cli.governance.month_ledger import MonthLedger
from everspot_cli.report.model import usd

LISTED = 20
"""Most pairs of each sort in the answer, the largest first; all of them are counted."""


def reconcile_document(
    ledger: MonthLedger, bill: BillSide, result: Reconciliation, tables: Iterable[str], repeated: int, tolerance: float
) -> dict[str, Any]:
    """Return the whole reconciliation. `tolerance`: the largest accepted gap, in percent of the larger side."""
    larger = max(result.ledger_usd, result.bill_usd)
    percent = float(100 * result.gap / larger) if larger else 0.0
    return {
        "month": ledger.month.name,
        "complete": not ledger.changes,
        "pending_changes": ledger.changes,
        "as_of": ledger.material.as_of,
        "tables": list(dict.fromkeys(tables)),
        "step": result.step.value,
        "billed_until": bill.until,
        "bill_as_of": bill.as_of,
        "here_usd": usd(result.ledger_usd),
        "there_usd": usd(result.bill_usd),
        "difference_usd": usd(result.ledger_usd - result.bill_usd),
        "gap_usd": usd(result.gap),
        "gap_percent": round(percent, 4),
        "tolerance_percent": tolerance,
        "within_tolerance": percent <= tolerance,
        **{category.value: _sort(result.pairs_with(category)) for category in MatchKind},
        "free_here": result.free,
        "by_tag": {key: lines for key in KEYS if (lines := _tag_lines(result, bill, key))},
        "other_charges": _counts(bill.other_charges),
        "other_months": _counts(bill.other_months),
        "beside": _counts(bill.other_services),
        "elsewhere": {**_count(bill.elsewhere), "instances": len(bill.strangers)},
        "corrections": _count(bill.corrections),
        "committed": _count(bill.committed),
        "repeated_rows": repeated,
        "rows": bill.rows,
        "notes": [*([ledger.material.note] if ledger.material.note else []), *ledger.material.bill.notes],
        "left_out": list(ledger.material.bill.left_out),
    }


def _sort(pairs: list[Pair]) -> dict[str, Any]:
    largest = sorted(pairs, key=lambda pair: (-abs(pair.difference), pair.start, pair.resource))
    return {
        "count": len(pairs),
        "here_usd": usd(total(pair.ledger_usd for pair in pairs)),
        "there_usd": usd(total(pair.bill_usd for pair in pairs)),
        "largest": [
            {
                "resource": pair.resource,
                "start": pair.start,
                "here_usd": usd(pair.ledger_usd),
                "there_usd": usd(pair.bill_usd),
                "difference_usd": usd(pair.difference),
            }
            for pair in largest[:LISTED]
        ],
    }


def _tag_lines(result: Reconciliation, bill: BillSide, key: str) -> list[dict[str, Any]]:
    """Return the lines of a tag. Empty if no instance in the bill has the tag."""
    lines = by_tag(result, bill, key)
    if not any(line.value for line in lines):
        return []
    return [
        {
            "value": line.value or None,
            "in_bill": line.billed,
            "instances": line.resources,
            "here_usd": usd(line.ledger_usd),
            "there_usd": usd(line.bill_usd),
            "difference_usd": usd(line.ledger_usd - line.bill_usd),
        }
        for line in lines
    ]


def _counts(counts: Mapping[str, Count]) -> dict[str, dict[str, Any]]:
    return {name: _count(count) for name, count in sorted(counts.items())}


def _count(count: Count) -> dict[str, Any]:
    return {"rows": count.rows, "usd": usd(count.usd)}
