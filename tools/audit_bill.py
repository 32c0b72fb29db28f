#!/usr/bin/env python3
"""Recompute the bill from the market's own log, by nothing but the standard library and that log.

It shares no code with Everspot's report, so that a fault in one is not a fault in both. The log has one JSON object a
line: {"event": "launch", "at", "id", "type", "zone", "market", "usd_per_hour" (on-demand only)},
{"event": "end", "at", "id", "interrupted"} and {"event": "price", "at", "type", "zone", "usd"} (spot).

    audit_bill.py market.jsonl [--cloud gcp] [--until 2026-01-31T12:00:00Z] [--json]

Rules: seconds from launch to end, 60 at least, at the price of each second; a spot instance that the market took
before it was an hour old (on Google Cloud: a minute) costs nothing; what has no end yet counts until `--until`, by
default the log's last line.
"""

import argparse
import json
import sys
from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

MICROSECOND = timedelta(microseconds=1)
MINIMUM = timedelta(seconds=60)
FREE = {"aws": timedelta(hours=1), "gcp": timedelta(minutes=1)}
"""The age below which a spot instance that the market takes costs nothing, by cloud. EC2 User Guide, "Billing for
interrupted Spot Instances"; Compute Engine documentation, "Spot VMs", on preemption within the first minute."""


def moment(text: str) -> datetime:
    """A time with its zone."""
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError(f"{text!r} has no zone")
    return time


def read(path: Path) -> list[dict[str, Any]]:
    """The log's lines; a last line that is cut off is left out."""
    lines = path.read_text().splitlines()
    entries = []
    for number, line in enumerate(lines, 1):
        try:
            entries.append(json.loads(line, parse_float=Fraction, parse_int=Fraction))
        except ValueError:
            if number < len(lines):
                raise SystemExit(f"{path}:{number} is not JSON") from None
    return entries


def spot_cost(prices: list[tuple[datetime, Fraction]], start: datetime, end: datetime) -> Fraction:
    """Dollars for a span: every price counts from its moment until the next; the first one before it too."""
    cost = Fraction(0)
    for index, (since, usd) in enumerate(prices):
        a = start if index == 0 else max(start, since)
        b = end if index == len(prices) - 1 else min(end, prices[index + 1][0])
        if b > a:
            cost += Fraction((b - a) // MICROSECOND, 3_600_000_000) * usd
    return cost


def audit(lines: list[dict[str, Any]], until: datetime, cloud: str = "aws") -> list[dict[str, Any]]:
    """Return the cost of every instance."""
    prices: dict[tuple[str, str], dict[datetime, Fraction]] = {}
    for line in lines:
        if line["event"] == "price":
            prices.setdefault((line["type"], line["zone"]), {})[moment(line["at"])] = Fraction(line["usd"])
    ends = {line["id"]: line for line in lines if line["event"] == "end" and moment(line["at"]) <= until}
    bill = []
    for line in lines:
        if line["event"] != "launch" or moment(line["at"]) >= until:
            continue
        start, end = moment(line["at"]), ends.get(line["id"])
        stop = moment(end["at"]) if end else until
        paid_until = max(stop, start + MINIMUM)
        interrupted = end is not None and end["interrupted"]
        if line["market"] == "spot" and interrupted and stop - start < FREE[cloud]:
            cost = Fraction(0)
        elif line["market"] == "spot":
            points = sorted(prices.get((line["type"], line["zone"]), {}).items())
            if not points:
                raise SystemExit(f"the log has no price for {line['type']} in {line['zone']}")
            cost = spot_cost(points, start, paid_until)
        else:
            cost = Fraction((paid_until - start) // MICROSECOND, 3_600_000_000) * Fraction(line["usd_per_hour"])
        bill.append({"id": line["id"], "market": line["market"], "type": line["type"], "zone": line["zone"],
                     "seconds": float((stop - start).total_seconds()), "cost": cost})  # fmt: skip
    return bill


def shown(amount: Fraction) -> Decimal:
    """Six decimals, for display."""
    exact = Decimal(amount.numerator) / Decimal(amount.denominator)
    return exact.quantize(Decimal("0.000001"), rounding=ROUND_HALF_UP)


def main() -> None:
    """Print the bill."""
    parser = argparse.ArgumentParser(description="Recompute the bill from the market's own log.")
    parser.add_argument("log", type=Path, help="market.jsonl")
    parser.add_argument("--cloud", choices=FREE, default="aws", help="whose rules of billing count")
    parser.add_argument("--until", type=moment, help="market time up to which running instances count")
    parser.add_argument("--json", action="store_true", help="answer with JSON")
    options = parser.parse_args()
    lines = read(options.log)
    until = options.until or max((moment(line["at"]) for line in lines), default=None)
    if until is None:
        sys.exit("the log is empty")
    bill = audit(lines, until, options.cloud)
    total = shown(sum((row["cost"] for row in bill), Fraction(0)))
    if options.json:
        rows = [{**row, "cost": float(shown(row["cost"]))} for row in bill]
        print(json.dumps({"until": until.isoformat(), "total_usd": float(total), "instances": rows}, indent=2))
        return
    for row in bill:
        print(f"{row['id']:22} {row['market']:10} {row['type']:14} {row['zone']:12} "
              f"{row['seconds']:10.1f} s  ${shown(row['cost'])}")  # fmt: skip
    print(f"total ${total}")


if __name__ == "__main__":
    main()
