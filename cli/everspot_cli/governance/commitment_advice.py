"""Advice on commitments from the ledger, as `everspot cost commitments` tells it."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from everspot_clouds.registry import commitment_plans
from everspot_core.capacity.catalogue import Catalogue
from everspot_core.costs.ledger import LaunchRecord
from everspot_core.governance.commitments import (
    LEAST_HOURS,
    Advice,
    CommitmentPlan,
    HourlyUse,
    ListPrice,
    Span,
    advised,
    hourly_use,
    region,
    whole_use,
)
from everspot_core.governance.usage import usage_rows

from everspot_cli.errors import CliError, Exit
from everspot_cli.report.gather import Material

MONTH = timedelta(days=30)
NOTES = (
    "Commitments do not cover Spot. Use on Spot counts only in the floor of all use.",
    "Choose one plan for each use: two plans of a cloud cannot cover the same use.",
    "What is committed to already is not known here: subtract it.",
    "Savings are of the observed hours. Whether the use goes on for the term is yours to judge.",
)


def parse_discounts(options: Sequence[str], plans: Sequence[CommitmentPlan]) -> dict[str, float]:
    """Return the discounts by plan from options PLAN=PERCENT.

    Raises:
        CliError: if one is no percentage, or of no plan of this cloud; all are named.
    """
    plan_keys, discounts, problems = {plan.key for plan in plans}, dict[str, float](), list[dict[str, str]]()
    for text in options:
        key, _, value = text.partition("=")
        try:
            percent = float(value.strip().removesuffix("%"))
        except ValueError:
            percent = -1.0
        if key not in plan_keys:
            problems.append({"field": "--discount", "problem": f"{key!r} is not one of {', '.join(sorted(plan_keys))}"})
        elif not 0 < percent < 100:
            problems.append(
                {"field": "--discount", "problem": f"{text!r}: a discount is a percentage between 0 and 100"}
            )
        else:
            discounts[key] = percent / 100
    if problems:
        raise CliError("the discounts cannot be read", Exit.USAGE, problems=problems)
    return discounts


def list_prices(catalogue: Catalogue) -> ListPrice:
    """Return the function that gives a launch's list price of today."""

    def find_price(launch: LaunchRecord) -> float | None:
        price = catalogue.on_demand(launch.instance_type, region(launch))
        return price.usd_per_hour if price is not None else None

    return find_price


def build_advice(material: Material, cloud: str, months: int, discount_options: Sequence[str]) -> dict[str, Any]:
    """Return the answer of the command.

    Raises:
        CliError: as `parse_discounts`.
    """
    plans = commitment_plans(cloud)
    discounts = parse_discounts(discount_options, plans)
    launched = [i.launch.launched_at for i in material.bill.instances]
    span = Span.from_launch(min(launched, default=material.as_of), material.as_of, months * MONTH)
    rows = usage_rows(material.bill, since=span.begin, until=span.end)
    listed = list_prices(material.catalogue)
    whole = whole_use(rows, listed, span)
    plan_rows = [_row(use, discounts) for use in hourly_use(rows, plans, listed, span)]
    return {
        "begin": span.begin,
        "end": span.end,
        "hours": span.hours,
        "least_hours": LEAST_HOURS,
        "all_use": None
        if whole is None
        else {
            "floor_usd_per_hour": round(whole.floor_usd, 6),
            "spot_share": round(whole.spot_share, 4),
            "spot_discount": None if whole.spot_discount is None else round(whole.spot_discount, 4),
        },
        "plans": sorted(plan_rows, key=lambda row: -(row["advice"] or {"saved_usd": -1.0})["saved_usd"]),
        "unpriced_hours": round(sum(float(row.unpriced_seconds) for row in rows) / 3600, 4),
        "notes": [*([material.note] if material.note else []), *NOTES],
    }


def _row(use: HourlyUse, discounts: Mapping[str, float]) -> dict[str, Any]:
    plan = use.plan
    discount = discounts.get(plan.key, plan.discount)
    advice = advised(use, discount) if discount is not None else None
    return {
        "plan": plan.key,
        "name": plan.name,
        "years": plan.years,
        "scope": use.scope,
        "floor_usd_per_hour": round(use.floor, 6),
        "mean_usd_per_hour": round(sum(use.dollars) / len(use.dollars), 6),
        "discount": discount,
        "discount_from": "given" if plan.key in discounts else "published" if discount is not None else "unknown",
        "at_most": plan.at_most,
        "source": plan.source,
        "as_of": str(plan.as_of),
        "rates_at": plan.rates_at,
        "advice": None if advice is None else _advice(advice),
        "why_not": _why_not(use, discount) if advice is None else None,
    }


def _why_not(use: HourlyUse, discount: float | None) -> str:
    if len(use.dollars) < LEAST_HOURS:
        return f"{len(use.dollars) / 24:.1f} days are known, and {LEAST_HOURS // 24} is the least to judge by"
    if discount is None:
        plan = use.plan
        return f"its discount is not known: --discount {plan.key}=PERCENT, as stated by {plan.rates_at}"
    return "nothing of it is in use in nearly every hour"


def _advice(advice: Advice) -> dict[str, Any]:
    return {
        "covers_usd_per_hour": round(advice.covers_usd, 6),
        "pays_usd_per_hour": round(advice.pays_usd, 6),
        "instances": advice.units,
        "break_even": round(advice.break_even, 4),
        "utilisation": round(advice.utilisation, 4),
        "worst_week": round(advice.worst_week, 4),
        "saved_usd": round(advice.saved_usd, 6),
        "saved_last_month_usd": round(advice.saved_last_month_usd, 6),
        "owed_usd": round(advice.owed_usd, 2),
        "sureness": advice.sureness.value,
    }
