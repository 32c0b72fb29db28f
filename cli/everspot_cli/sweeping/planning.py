"""Writes the file of a sweep that fits a budget, from the job's file, the prices and past runs of the job.

Each figure has a comment that says where it comes from. What is an assumption is called one.
"""

import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Any

import yaml
from everspot_core.costs.attempts import attempts
from everspot_core.counting import counted
from everspot_core.experiments.fidelity import Fidelity
from everspot_core.experiments.sweep import Direction, SweepSpec, infer_direction
from everspot_core.experiments.sweep_plan import PARALLEL, RESERVE, SweepPlan, find_fidelity, is_same_size, plan_sweep
from everspot_core.experiments.trial_length import measured_starts, median_length, time_run
from everspot_core.governance.run_comparison import describe_partial_run
from everspot_core.jobs.candidates import Candidate
from everspot_core.jobs.changeover import Changeover
from everspot_core.jobs.job import JobSpec
from everspot_core.jobs.job_archive import Dossier
from everspot_core.jobs.recipes import RECIPES
from everspot_core.jobs.records import JobState

from everspot_cli.errors import CliError, Exit
from everspot_cli.job_results import compute_spending, read_dossiers
from everspot_cli.session import Session
from everspot_cli.tables import money

_HOUR = timedelta(hours=1)
_TYPES = 3
"""Types that the file names."""


@dataclass(frozen=True, kw_only=True)
class RunCost:
    """The cost of one run of full size, and where the figure comes from.

    Attributes:
        range_usd: of the cheapest and the dearest past run, or of the assumption.
        most_usd: what it costs at most: the dearest past run, or all of it on-demand, where a trial goes if no spot
            instance is available.
        start_usd: the part of `usd` until it trains, which a smaller trial pays in full.
        source: in words.
        runs: past runs that were measured; 0 if it is an assumption.
    """

    usd: float
    range_usd: tuple[float, float]
    most_usd: float
    start_usd: float
    hours: float | None
    source: str
    runs: int


def find_direction(metric: str, direction: Direction | None) -> Direction:
    """Return whether greater values of the metric are better.

    Raises:
        CliError: if neither the user nor the metric's name says so.
    """
    if direction is not None:
        return direction
    inferred = infer_direction(metric)
    if inferred is None:
        raise CliError(
            f"the name {metric} does not say whether lower or higher is better",
            Exit.USAGE,
            hint="add --direction minimize or --direction maximize",
        )
    return inferred


def measure_run(
    session: Session, spec: JobSpec, fidelity: Fidelity | None, candidates: list[Candidate], start: Changeover
) -> RunCost:
    """Return what a run of full size costs: the median of the job's past runs, or else its `expected_duration` on the
    cheapest type, at its highest spot price of the zones, and a start. `start`: of a trial, until it trains.

    Raises:
        CliError: if neither is known.
    """
    listed_usd = min((c.on_demand.usd_per_hour for c in candidates if c.on_demand is not None), default=0.0)
    past = _past_runs(session, spec, fidelity) if session.has_cluster else {}
    spending = compute_spending(session, past) if past else {}
    costs = [amount.dollars for amount in spending.values() if amount.dollars > 0]
    if costs:
        hours = [d.record.held_seconds / 3600 for d in past.values() if d.record is not None and d.record.held_seconds]
        source = f"measured: the median of {counted(len(costs), 'past run')} of {spec.name}"
        usd, span = median(costs), median(hours) if hours else None
        timed = filter(
            None, (time_run(attempts(dossier.events, record=dossier.record), 1.0) for dossier in past.values())
        )
        starts = measured_starts(timed)
        until_training = median_length(starts) if starts else start.expected
        start_usd = min(usd, usd / span * (until_training / _HOUR)) if span else 0.0
        return RunCost(
            usd=usd, range_usd=(min(costs), max(costs)), most_usd=max(*costs, (span or 0.0) * listed_usd),
            start_usd=start_usd, hours=span, source=source, runs=len(costs),
        )  # fmt: skip
    prices = [(c.spot or (c.on_demand, c.on_demand), c) for c in candidates]
    listed = [
        (high.usd_per_hour, low.usd_per_hour, c.instance_type.name, c.spot is not None)
        for (low, high), c in prices
        if low is not None and high is not None
    ]
    if spec.expected_duration is None or not listed:
        problem = (
            "no price is known of a type that fits" if spec.expected_duration is not None else "it has no past run"
        )
        raise CliError(
            f"what a run of {spec.name} costs is not known: {problem}",
            hint="give expected_duration in its file, or run it once",
        )
    usd_per_hour, least_usd_per_hour, name, is_spot = min(listed)
    span = spec.expected_duration / _HOUR
    first, longest = start.expected / _HOUR, start.upper / _HOUR
    market = "spot, its dearest zone" if is_spot else "on-demand"
    least, most = (first + span) * least_usd_per_hour, (longest + span) * usd_per_hour
    source = (
        f"assumption: expected_duration ({span:g} h) and a start ({start.expected.total_seconds():.0f} s) on {name} at "
        f"${usd_per_hour:g}/h ({market})"
    )
    return RunCost(
        usd=(first + span) * usd_per_hour,
        range_usd=(least, most),
        most_usd=max(most, (longest + span) * listed_usd),
        start_usd=first * usd_per_hour,
        hours=first + span,
        source=source,
        runs=0,
    )


def list_fields(spec: JobSpec) -> dict[str, Any]:
    """Return the values of a job's parameters and variables by field; of a recipe also the defaults."""
    model = RECIPES.get(spec.recipe) if spec.recipe is not None else None
    names = model.model_fields if model is not None else {}
    defaults = {name: field.default for name, field in names.items() if not field.is_required()}
    parameters = {f"parameters.{name}": value for name, value in {**defaults, **spec.parameters}.items()}
    return parameters | {f"env.{name}": value for name, value in spec.env.items()}


def propose_fields(values: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Return the fields to vary, and a comment. They are an assumption: only the author knows what matters."""
    for field, value in values.items():
        is_rate = field.lower().replace("_", "").endswith("learningrate") or field.lower().endswith(("_lr", ".lr"))
        try:
            rate = float(value) if is_rate else 0.0
        except (TypeError, ValueError):
            continue
        if rate > 0:
            return {
                field: {"low": float(f"{rate / 10:.6g}"), "high": float(f"{rate * 3:.6g}"), "log": True}
            }, "assumption: a tenth to three times it"
    return {"env.SEED": {"low": 1, "high": 1000}}, "assumption: no learning rate was found; put your fields here"


def write_plan(
    spec: JobSpec,
    file: Path,
    *,
    metric: str,
    direction: Direction,
    budget: float,
    cost: RunCost,
    fidelity: Fidelity | None,
    plan: SweepPlan,
    candidates: list[Candidate],
) -> str:
    """Return the text of the sweep's file."""
    fields, reason = propose_fields(list_fields(spec))
    types = ", ".join(_describe_type(c) for c in candidates[:_TYPES]) or "none of the catalogue"
    policy = spec.checkpoint
    interval = "auto: weighs its own checkpoints against interruptions" if policy.is_auto else f"{policy.every}"
    rungs = " + ".join(str(size) for size in plan.sizes)
    lines = [
        f"# A sweep of {_scalar(file.name)} for {money(budget)}. Edit it, then: everspot sweep FILE --dry-run",
        f"# types that fit, the cheapest first (catalogue): {types}",
        f"# checkpoint interval of the job: {interval}",
        f"# one run of full size: {money(cost.usd)} ({cost.source})",
        f"# expected: {rungs} trials, {money(plan.expected_usd)} ({_describe_range(plan, cost)}), the start of each in",
        f"# full ({money(cost.start_usd)}); {RESERVE:.0%} of the budget is left for boot,",
        "# idling, interruptions and retries (assumption)",
        f"name: {spec.name[:32].rstrip('-')}-sweep",
        f"job: {_scalar(file.name)}",
        f"metric: {_scalar(metric)}",
        f"direction: {direction.value}",
        f"fields:  # {reason}",
        *(f"  {_scalar(name)}: {_inline(value)}" for name, value in fields.items()),
        f"  budget.dollars: {_inline({'choices': [round(max(2 * cost.most_usd, 0.01), 2)]})}"
        "  # a cap on each trial: twice a run of full size, on-demand",
        f"trials: {plan.trials}",
        f"parallel: {min(PARALLEL, plan.trials)}",
        f"budget: {_inline({'dollars': budget})}",
        f"stop: {_inline({'min_delta': '1%', 'trials': plan.stop_trials})}  # assumption: a quarter of the trials",
    ]
    if fidelity is not None:
        content = fidelity.model_dump(mode="json")
        lines += [f"fidelity: {_inline(content)}  # assumption: time is proportional to {fidelity.field}"]
    return "\n".join(lines) + "\n"


def _scalar(text: str) -> str:
    """Return a text as YAML reads it back, in quotes unless it is plain."""
    is_plain = re.fullmatch(r"[A-Za-z_][\w./-]*", text, re.ASCII) and yaml.safe_load(text) == text
    return text if is_plain else json.dumps(text)


def _inline(mapping: dict[str, Any]) -> str:
    """Return a mapping in one line as YAML reads it back. JSON's 1e-05 would be a text there."""
    text: str = yaml.safe_dump(mapping, default_flow_style=True, sort_keys=False, width=float("inf"))
    return text.strip()


def plan_document(text: str, spec: SweepSpec, cost: RunCost, plan: SweepPlan, budget: float) -> dict[str, Any]:
    """Return the plan for programs. `text`: the file."""
    return {
        "sweep": spec.model_dump(mode="json", exclude_none=True),
        "file": text,
        "run_usd": round(cost.usd, 6),
        "run_range_usd": [round(usd, 6) for usd in cost.range_usd],
        "start_usd": round(cost.start_usd, 6),
        "run_hours": round(cost.hours, 4) if cost.hours is not None else None,
        "run_source": cost.source,
        "past_runs": cost.runs,
        "rung_sizes": list(plan.sizes),
        "expected_usd": round(plan.expected_usd, 6),
        "expected_range_usd": [round(usd, 6) for usd in _expected_range(plan, cost)],
        "reserve_usd": round(budget - plan.expected_usd, 6),
    }


def choose_size(spec: JobSpec, budget: float, cost: RunCost, fidelity: Fidelity | None) -> SweepPlan:
    """Return the size of the sweep.

    Raises:
        CliError: if the budget does not suffice for the smallest sweep.
    """
    plan = plan_sweep(budget, cost.usd, fidelity, cost.start_usd)
    if not plan.trials:
        raise CliError(
            f"{money(budget)} does not suffice for a sweep of {spec.name}: one run of full size costs "
            f"{money(cost.usd)}, and {RESERVE:.0%} are left for boot, interruptions and retries"
        )
    return plan


def find_rungs(spec: JobSpec) -> Fidelity | None:
    """Return the rungs that the job's fields allow; None if no field says how long it trains."""
    return find_fidelity(list_fields(spec))


def _expected_range(plan: SweepPlan, cost: RunCost) -> tuple[float, float]:
    """Return what all trials cost if each is as cheap, or as dear, as its run may be."""
    low, high = (plan.expected_usd * usd / cost.usd for usd in cost.range_usd)
    return low, high


def _describe_range(plan: SweepPlan, cost: RunCost) -> str:
    low, high = _expected_range(plan, cost)
    return f"{money(low)} to {money(high)}" if high > low else "one past run gives no range"


def _describe_type(candidate: Candidate) -> str:
    spot, listed = candidate.spot, candidate.on_demand
    prices = [f"${spot[0].usd_per_hour:.4g} to ${spot[1].usd_per_hour:.4g} spot"] if spot is not None else []
    prices += [f"${listed.usd_per_hour:.4g} on-demand"] if listed is not None else []
    return f"{candidate.instance_type.name} in {candidate.region} ({', '.join(prices)} an hour)"


def find_past_runs(session: Session, names: Collection[str]) -> dict[str, Dossier]:
    """Return the successful runs of the jobs of some names, archived ones included, that ran here from the first step.

    Raises:
        StoreError: if the store could not be asked.
    """
    store = session.store
    dossiers = read_dossiers(session, [job for job, doc in store.jobs.scan().items() if doc.value.spec.name in names])
    dossiers |= {job: d for job, d in store.archive.scan().items() if d.submission.spec.name in names}
    return {
        job: dossier
        for job, dossier in dossiers.items()
        if dossier.record is not None
        and dossier.record.state is JobState.SUCCEEDED
        and describe_partial_run(dossier.submission, dossier.record, attempts(dossier.events)) is None
    }


def _past_runs(session: Session, spec: JobSpec, fidelity: Fidelity | None) -> dict[str, Dossier]:
    """Return the successful runs of a job of this name, of full size."""
    size = fidelity.values[-1] if fidelity is not None else None
    return {
        job: dossier
        for job, dossier in find_past_runs(session, [spec.name]).items()
        if fidelity is None or is_same_size(list_fields(dossier.submission.spec).get(fidelity.field), size)
    }
