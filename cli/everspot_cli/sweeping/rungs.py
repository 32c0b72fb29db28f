"""The rungs of a sweep with a fidelity field: their expected cost before the start, and their cost so far."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from everspot_core.costs.attempts import attempts
from everspot_core.counting import counted
from everspot_core.experiments.fidelity import Fidelity
from everspot_core.experiments.sweep import SweepCost, SweepSpec, Value
from everspot_core.experiments.sweep_plan import is_same_size
from everspot_core.experiments.trial_length import TrialLength, estimate_length, time_run
from everspot_core.jobs.candidates import Candidate
from everspot_core.jobs.changeover import Changeover
from everspot_core.jobs.job import JobSpec

from everspot_cli.session import Session
from everspot_cli.sweeping.planning import find_past_runs, list_fields
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


_HOUR = timedelta(hours=1)


def find_length(
    session: Session, spec: SweepSpec, file_job: JobSpec, trial: JobSpec, start: Changeover
) -> TrialLength | None:
    """Return the length of a trial: by past runs of the job and earlier trials of the sweep, or else by the trial's
    `expected_duration`; None if neither is known.

    Args:
        file_job: of the job's file.
        trial: of full size.
        start: of a trial until it trains, by past changeovers of any jobs.
    """
    runs = []
    for dossier in find_past_runs(session, [file_job.name, spec.name]).values():
        share = _share_of_full_size(dossier.submission.spec, spec.fidelity)
        if share is not None and not dossier.submission.warm_start:
            runs.append(time_run(attempts(dossier.events, record=dossier.record), share))
    measured = estimate_length([run for run in runs if run is not None], start)
    if measured is None and trial.expected_duration is not None:
        work = trial.expected_duration
        return TrialLength(work=(work, work), start=(start.expected, start.upper), typical_work=work)
    return measured


def _share_of_full_size(job: JobSpec, fidelity: Fidelity | None) -> float | None:
    """Return which part of a run of full size a job had to do; None if it is of no rung."""
    if fidelity is None:
        return 1.0
    size = list_fields(job).get(fidelity.field)
    value = next((value for value in fidelity.values if is_same_size(size, value)), None)
    if value is None or fidelity.rung_shares() is None:
        return None if value is None else 1.0
    return float(value) / float(fidelity.values[-1])


@dataclass(frozen=True, kw_only=True)
class RungEstimate:
    """The expected cost of a rung, without boot, interruptions and retries.

    Attributes:
        hours: one trial trains; None if nobody knows how long one of full size takes.
        spot_usd: of all its trials: of the least length at the lowest spot price of the cheapest type, and of the
            greatest length at the highest one.
        on_demand_usd: the same on-demand.
    """

    rung: int
    value: Value | None
    trials: int
    hours: float | None
    spot_usd: tuple[float, float] | None
    on_demand_usd: tuple[float, float] | None


def estimate_rungs(spec: SweepSpec, length: TrialLength | None, candidates: Sequence[Candidate]) -> list[RungEstimate]:
    """Return the expected cost of each rung; without a fidelity field of the only one.

    Args:
        length: of a trial.
        candidates: the types that a trial may run on. The cheapest counts.
    """
    fidelity = spec.fidelity
    sizes = fidelity.rung_sizes(spec.trials) if fidelity is not None else [spec.trials]
    shares = (fidelity.rung_shares() if fidelity is not None else None) or [1.0] * len(sizes)
    spot = min((c.spot for c in candidates if c.spot is not None), key=lambda s: s[0].usd_per_hour, default=None)
    listed = min((c.on_demand.usd_per_hour for c in candidates if c.on_demand is not None), default=None)
    estimates = []
    for rung, (size, share) in enumerate(zip(sizes, shares, strict=True)):
        hours = [size * (each / _HOUR) for each in length.of_share(share)] if length is not None else None
        estimates.append(
            RungEstimate(
                rung=rung,
                value=fidelity.values[rung] if fidelity is not None else None,
                trials=size,
                hours=share * (length.typical_work / _HOUR) if length is not None else None,
                spot_usd=(hours[0] * spot[0].usd_per_hour, hours[1] * spot[1].usd_per_hour) if hours and spot else None,
                on_demand_usd=(hours[0] * listed, hours[1] * listed) if hours and listed is not None else None,
            )
        )
    return estimates


def describe_assumptions(spec: SweepSpec, length: TrialLength | None) -> list[str]:
    """Return what the expected cost assumes, a sentence each."""
    if length is None:
        return ["Without expected_duration in the job's file nobody knows what a trial costs."]
    least, most = (round(x.total_seconds()) for x in length.start)
    if length.runs:
        runs = counted(length.runs, "past run")
        sentences = [f"A trial of full size takes as long as in {runs}, a quarter more or less, on the cheapest type."]
        start = f"Each trial pays for its start beside it: {least} to {most} s, by those measured."
    else:
        sentences = ["A trial of full size takes the job's expected_duration, on the cheapest type that fits."]
        start = f"Each trial pays for its start beside it: {least} s, {most} s at most, by past changeovers."
    if spec.fidelity is not None and spec.fidelity.rung_shares() is None:
        sentences.append(f"The values of {spec.fidelity.field} are no ascending numbers: all rungs count in full.")
    elif spec.fidelity is not None:
        sentences.append(f"The time of a trial is proportional to {spec.fidelity.field}.")
    return [*sentences, start, "Boot, idling, interruptions, retries and trials that end early are not counted."]


def estimate_document(spec: SweepSpec, length: TrialLength | None, candidates: Sequence[Candidate]) -> dict[str, Any]:
    """Return the expected cost of a sweep, for programs."""
    rungs = estimate_rungs(spec, length, candidates)
    return {
        "sweep": spec.name,
        "trials": sum(rung.trials for rung in rungs),
        "start_seconds": [round(x.total_seconds(), 1) for x in length.start] if length is not None else None,
        "past_runs": length.runs if length is not None else 0,
        "expected_spot_usd": _sum_ranges([rung.spot_usd for rung in rungs]),
        "expected_on_demand_usd": _sum_ranges([rung.on_demand_usd for rung in rungs]),
        "budget_usd": spec.budget.dollars,
        "rungs": [
            {
                "rung": rung.rung,
                "value": rung.value,
                "trials": rung.trials,
                "hours_per_trial": round(rung.hours, 4) if rung.hours is not None else None,
                "spot_usd": _sum_ranges([rung.spot_usd]),
                "on_demand_usd": _sum_ranges([rung.on_demand_usd]),
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
    expected = spot or listed
    if budget is not None and expected is not None and expected[1] > budget:
        lines.append(f"The budget of {money(budget)} may be used up before the last trial ends.")
    return [*lines, *document["assumptions"]]


def _sum_ranges(ranges: Sequence[tuple[float, float] | None]) -> list[float] | None:
    """Return the sum of ranges in dollars; None if one is not known."""
    complete = [usd for usd in ranges if usd is not None]
    if len(complete) < len(ranges):
        return None
    return [round(sum(usd[side] for usd in complete), 6) for side in (0, 1)]


def _costs(spot: list[float] | None, listed: list[float] | None) -> str:
    texts = [
        f", {money(usd[0])} to {money(usd[1])} {market}"
        for usd, market in ((spot, "on spot"), (listed, "on-demand"))
        if usd is not None
    ]
    return "".join(texts)
