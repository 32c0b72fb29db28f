"""The rungs of a sweep with a fidelity field: their expected cost before the start, and their cost so far."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from everspot_core.counting import counted
from everspot_core.experiments.sweep import SweepCost, SweepSpec, Value
from everspot_core.jobs.candidates import Candidate

from everspot_cli.tables import money


def rung_rows(spec: SweepSpec, costs: Sequence[SweepCost]) -> list[dict[str, Any]]:
    """Return the cost of each rung, for programs; none without a fidelity field."""
    if spec.fidelity is None:
        return []
    return [
        {"rung": rung, "value": value, "trials": cost.trials, "useful_trials": cost.useful, **cost.figures()}
        for rung, (value, cost) in enumerate(zip(spec.fidelity.values, costs, strict=True))
    ]


def describe_rung(row: dict[str, Any]) -> str:
    """Return the cost of a rung in a line."""
    trials = counted(row["trials"], "trial")
    return f"rung {row['rung']} ({row['value']}): {trials}, {row['useful_trials']} useful, {money(row['cost_usd'])}"


@dataclass(frozen=True, kw_only=True)
class RungEstimate:
    """The expected cost of a rung, without boot, interruptions and retries.

    Attributes:
        hours: of one trial; None if nobody has said how long one of full size takes.
        spot_usd: of all its trials, at the lowest and at the highest spot price of the cheapest type.
        on_demand_usd: the same on-demand.
    """

    rung: int
    value: Value | None
    trials: int
    hours: float | None
    spot_usd: tuple[float, float] | None
    on_demand_usd: float | None


def estimate_rungs(spec: SweepSpec, length: timedelta | None, candidates: Sequence[Candidate]) -> list[RungEstimate]:
    """Return the expected cost of each rung; without a fidelity field of the only one.

    Args:
        length: of a trial of full size.
        candidates: the types that a trial may run on. The cheapest counts.
    """
    fidelity = spec.fidelity
    sizes = fidelity.rung_sizes(spec.trials) if fidelity is not None else [spec.trials]
    shares = (fidelity.rung_shares() if fidelity is not None else None) or [1.0] * len(sizes)
    spot = min((c.spot for c in candidates if c.spot is not None), key=lambda s: s[0].usd_per_hour, default=None)
    listed = min((c.on_demand.usd_per_hour for c in candidates if c.on_demand is not None), default=None)
    estimates = []
    for rung, (size, share) in enumerate(zip(sizes, shares, strict=True)):
        hours = share * length.total_seconds() / 3600 if length is not None else None
        total = size * hours if hours is not None else None
        estimates.append(
            RungEstimate(
                rung=rung,
                value=fidelity.values[rung] if fidelity is not None else None,
                trials=size,
                hours=hours,
                spot_usd=(total * spot[0].usd_per_hour, total * spot[1].usd_per_hour) if total and spot else None,
                on_demand_usd=total * listed if total and listed is not None else None,
            )
        )
    return estimates


def describe_assumptions(spec: SweepSpec, length: timedelta | None) -> list[str]:
    """Return what the expected cost assumes, a sentence each."""
    if length is None:
        return ["Without expected_duration in the job's file nobody knows what a trial costs."]
    sentences = ["A trial of full size takes the job's expected_duration, on the cheapest type that fits."]
    if spec.fidelity is not None and spec.fidelity.rung_shares() is None:
        sentences.append(f"The values of {spec.fidelity.field} are no ascending numbers: all rungs count in full.")
    elif spec.fidelity is not None:
        sentences.append(f"The time of a trial is proportional to {spec.fidelity.field}.")
    return [*sentences, "Boot, idling, interruptions, retries and trials that end early are not counted."]


def estimate_document(spec: SweepSpec, length: timedelta | None, candidates: Sequence[Candidate]) -> dict[str, Any]:
    """Return the expected cost of a sweep, for programs."""
    rungs = estimate_rungs(spec, length, candidates)
    spot = [rung.spot_usd for rung in rungs]
    listed = [rung.on_demand_usd for rung in rungs]
    is_known, is_listed = None not in spot, None not in listed
    return {
        "sweep": spec.name,
        "trials": sum(rung.trials for rung in rungs),
        "expected_spot_usd": [round(sum(s[side] for s in spot if s), 6) for side in (0, 1)] if is_known else None,
        "expected_on_demand_usd": round(sum(usd for usd in listed if usd), 6) if is_listed else None,
        "budget_usd": spec.budget.dollars,
        "rungs": [
            {
                "rung": rung.rung,
                "value": rung.value,
                "trials": rung.trials,
                "hours_per_trial": round(rung.hours, 4) if rung.hours is not None else None,
                "spot_usd": [round(usd, 6) for usd in rung.spot_usd] if rung.spot_usd is not None else None,
                "on_demand_usd": round(rung.on_demand_usd, 6) if rung.on_demand_usd is not None else None,
            }
            for rung in rungs
        ],
        "assumptions": describe_assumptions(spec, length),
    }


def describe_estimate(document: dict[str, Any]) -> list[str]:
    """Return the expected cost in lines: each rung, the sum, the budget, and the assumptions."""
    lines = []
    for row in document["rungs"]:
        size = f" ({row['value']})" if row["value"] is not None else ""
        hours = f"{row['hours_per_trial']:.2f} h each" if row["hours_per_trial"] is not None else "of unknown length"
        trials = counted(row["trials"], "trial")
        lines.append(f"rung {row['rung']}{size}: {trials}, {hours}{_costs(row['spot_usd'], row['on_demand_usd'])}")
    spot, listed, budget = (document[name] for name in ("expected_spot_usd", "expected_on_demand_usd", "budget_usd"))
    lines.append(f"expected: {counted(document['trials'], 'trial')}{_costs(spot, listed)}")
    if budget is not None and spot is not None and spot[1] > budget:
        lines.append(f"The budget of {money(budget)} may be used up before the last trial ends.")
    return [*lines, *document["assumptions"]]


def _costs(spot: list[float] | None, listed: float | None) -> str:
    spot_text = f", {money(spot[0])} to {money(spot[1])} on spot" if spot is not None else ""
    return spot_text + (f", {money(listed)} on-demand" if listed is not None else "")
