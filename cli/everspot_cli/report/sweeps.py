"""The cost of sweeps: of all trials together, per trial, and per useful trial."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from everspot_core.experiments.sweep import (
    SweepCost,
    SweepRecord,
    SweepSpec,
    is_useful,
    retried_sweep,
    trial_rung,
    trial_sweep,
)
from everspot_core.jobs.job import JobSubmission
from everspot_core.jobs.records import JobState
from everspot_store import BadDocument, Store

from everspot_cli.session import run_in_parallel
from everspot_cli.sweeping.rungs import rung_rows


def read_sweeps(store: Store, submissions: Mapping[str, JobSubmission]) -> dict[str, SweepRecord]:
    """Return the sweeps that have trials among these jobs, by name. A sweep whose document cannot be read is left out;
    the report still shows its jobs.

    Raises:
        StoreError: if the store could not be asked.
    """

    def read_record(name: str) -> SweepRecord | None:
        try:
            return store.studies.get(name)
        except BadDocument:
            return None

    names = sorted({name for job, s in submissions.items() if (name := trial_sweep(job, s.spec.tags)) is not None})
    records = run_in_parallel(*(lambda name=name: read_record(name) for name in names)) if names else []
    return {name: record for name, record in zip(names, records, strict=True) if record is not None}


def sweep_rows(sweeps: Mapping[str, SweepRecord], jobs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each sweep, the most expensive first. `jobs`: the rows of all jobs."""
    trials: dict[str, list[dict[str, Any]]] = defaultdict(list)
    retried_usd: dict[str, float] = defaultdict(float)
    for job in jobs:
        name = trial_sweep(job["job_id"], job["tags"])
        if name is not None and name in sweeps:
            trials[name].append(job)
        elif (name := retried_sweep(job["job_id"], job["tags"])) is not None:
            retried_usd[name] += job["cost_usd"]
    rows = [_row(sweeps[name].spec, name, own, retried_usd[name]) for name, own in trials.items()]
    return sorted(rows, key=lambda row: (-row["cost_usd"], row["sweep"]))


def _row(spec: SweepSpec, name: str, trials: Sequence[dict[str, Any]], retried_usd: float) -> dict[str, Any]:
    own_cost = _cost(spec.metric, trials)
    cost = replace(own_cost, dollars=own_cost.dollars + retried_usd)
    rungs = [[t for t in trials if trial_rung(t["job_id"]) == rung] for rung in range(spec.rungs)]
    rung_costs = [_cost(spec.metric, rung) for rung in rungs]
    return {
        "sweep": name,
        "metric": spec.metric,
        "trials": cost.trials,
        "useful_trials": cost.useful,
        **cost.figures(),
        "rungs": rung_rows(spec, rung_costs),
    }


def _cost(metric: str, trials: Sequence[dict[str, Any]]) -> SweepCost:
    useful = sum(is_useful(JobState(t["state"]), t["metrics"].get(metric)) for t in trials)
    return SweepCost(trials=len(trials), useful=useful, dollars=sum(t["cost_usd"] for t in trials))
