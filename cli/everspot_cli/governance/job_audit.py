"""The audit of one job as one document: what it used of its machines, what that cost, what would help, and whether the
change has helped in a later run."""

from collections.abc import Sequence
from datetime import date
from typing import Any

from everspot_core.costs.prices import Basis
from everspot_core.experiments.precision_comparison import Tolerance
from everspot_core.governance.run_comparison import ComparedRun, changed_fields, common_metric, compare_runs
from everspot_core.jobs.machine_review import LEAST_SECONDS
from everspot_core.jobs.records import JobState
from everspot_core.jobs.utilization import Utilization

from everspot_cli.errors import CliError
from everspot_cli.machine_use import review_job, use_rows
from everspot_cli.report.gather import Material
from everspot_cli.report.model import build, usd
from everspot_cli.report.terminal import percent
from everspot_cli.tables import duration, money

DEFINITIONS = {
    "measured_share": "the measured part of the time for which the job held instances; the rest counts as if it had "
    "been used alike",
    "wasted_gpu_usd": "the part of cost_usd that was paid while no kernel ran on its GPUs",
    "changes": "action and gain follow from what was measured and from list prices; assumes is what nobody measured",
    "list_usd": "useful seconds at list price: neither the spot price of the day nor an interruption is in it",
    "comparison": "one run beside another: runs vary, so that a small difference may be chance. `everspot cost "
    "compare --a --b` compares sets of runs",
}
_MEASURED = ("gpu_share", "cpu_share", "data_wait_share", "io_wait_share", "step_seconds")


def job_audit(
    material: Material, job_id: str, against: str | None, metric: str | None, tolerance: Tolerance, today: date
) -> dict[str, Any]:
    """Return the document.

    Args:
        material: the whole cluster's.
        job_id: the audited job.
        against: the run to compare with; None: the newest later run of the same name that succeeded, if any.
        metric: the metric that has to hold in that run; None: see `common_metric`.
        tolerance: the difference of the metric that does not matter.
        today: the day for computing the age of a price.

    Raises:
        CliError: if too little was measured to judge the job, or if the run to compare with was none or a part of one.
    """
    submission, events = material.submissions[job_id], material.events[job_id]
    use, review = review_job(submission, material.records[job_id], events, material.catalogue)
    if use is None or review is None:
        raise CliError(
            f"{job_id} cannot be audited: {'nothing' if use is None else 'too little'} was measured of it",
            hint=f"a job is judged after {LEAST_SECONDS:.0f} seconds of training; `everspot top {job_id}` shows them",
        )
    report = build(material, today, job_id)
    (row,) = report["jobs"]
    duration_seconds = row["job_duration_seconds"]
    partial_runs = material.partial_runs
    if against in partial_runs:
        raise CliError(f"--against {against} cannot be compared with: {partial_runs[against]}")
    later_runs = _later_runs(material, job_id)
    whole_runs = [job for job in later_runs if job not in partial_runs]
    is_partial = job_id in partial_runs
    other = against or (whole_runs[-1] if whole_runs and not is_partial else None)
    left_out = (
        [job_id] if is_partial and (against or later_runs) else [job for job in later_runs if job in partial_runs]
    )
    return {
        "job_id": job_id,
        "name": submission.spec.name,
        "state": row["state"],
        "as_of": material.as_of,
        "time_scale": material.time_scale,
        "cost_usd": row["cost_usd"],
        "cost_known": row["cost_known"],
        "wasted_gpu_usd": row["machine"]["wasted_gpu_usd"],
        "measured_seconds": use.seconds,
        "measured_share": min(1.0, use.seconds * material.time_scale / duration_seconds) if duration_seconds else None,
        "machine": {name: value for name, value in row["machine"].items() if name not in ("changes", "wasted_gpu_usd")},
        "changes": [
            {"change": c.kind.value, "action": c.action, "gain": c.gain or None, "assumes": c.assumes or None}
            for c in review.changes
        ],
        "comparison": _comparison(material, row, other, metric, tolerance, today) if other is not None else None,
        "list_prices": report["list_prices"],
        "notes": [*report["notes"], *(f"{job} is no whole run: {partial_runs[job]}" for job in left_out)],
        "definitions": DEFINITIONS,
    }


def audit_rows(document: dict[str, Any], use: Utilization) -> list[tuple[str, str]]:
    """Return the audit for people, without its comparison: names and values in display order. `use`: what the job used
    of its machines."""
    machine, least = document["machine"], "" if document["cost_known"] else "≥ "
    rows = [
        ("audit of", f"{document['job_id']}, {document['state']}"),
        ("cost", f"{least}{money(document['cost_usd'])}"),
        ("measured", _describe_measured(document)),
    ]
    if document["wasted_gpu_usd"] is not None:
        wasted = f"{least}{money(document['wasted_gpu_usd'])}"
        rows.append(("wasted", f"{wasted} of it was paid while its GPUs did not compute"))
    rows += use_rows(use)
    rows.append(("used well", f"{'yes' if machine['bottleneck'] == 'none' else 'no'}: {machine['reason']}"))
    for change in document["changes"]:
        assumes = f" Assumed: {change['assumes']}." if change["assumes"] else ""
        gain = f": {change['gain']}" if change["gain"] else ""
        rows.append(("would help", f"{change['action']}{gain}.{assumes}"))
    return rows


def comparison_rows(comparison: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the verdicts of a comparison for people."""
    changed = [f"{c['field']}: {c['before']} → {c['after']}" for c in comparison["changed"]]
    cost, quality = comparison["cost"], comparison["quality"]
    helped = {"better": "yes", "unknown": "unknown"}.get(cost["outcome"], "no")
    metric_held = {"worse": "no", "unknown": "unknown"}.get(quality["outcome"], "yes")
    return [
        ("changed", "; ".join(changed) or "nothing that a job's file says"),
        ("helped", f"{helped}: {cost['reason']}"),
        ("metric held", f"{metric_held}: {quality['reason']}"),
    ]


def figure_rows(comparison: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return the figures of both runs: name, earlier, later."""
    sides = comparison["runs"]
    formats = [
        ("GPUs computed", "gpu_share", _share),
        ("processors busy", "cpu_share", _share),
        ("waits for data", "data_wait_share", _share),
        ("waits for disks", "io_wait_share", _share),
        ("step", "step_seconds", lambda s: "—" if s is None else f"{s:.3g} s"),
        ("useful time", "useful_seconds", duration),
        ("at list price", "list_usd", money),
        ("paid", "cost_usd", money),
    ]
    rows = [(label, shown(sides[0][key]), shown(sides[1][key])) for label, key, shown in formats]
    return [row for row in rows if row[1:] != ("—", "—")]


def _share(value: float | None) -> str:
    return percent(None if value is None else 100 * value)


def _describe_measured(document: dict[str, Any]) -> str:
    share = document["measured_share"]
    part = f", {percent(100 * share)} of the time for which it held instances" if share is not None else ""
    return f"{duration(document['measured_seconds'])} of real time{part}"


def _later_runs(material: Material, job_id: str) -> list[str]:
    """Return the jobs of the same name that were submitted later and succeeded, the newest last."""
    own = material.submissions[job_id]
    later = [
        (submission.submitted_at, other)
        for other, submission in material.submissions.items()
        if submission.spec.name == own.spec.name and submission.submitted_at > own.submitted_at
        if material.records[other].state is JobState.SUCCEEDED
    ]
    return [other for _, other in sorted(later)]


def _comparison(
    material: Material, row: dict[str, Any], later_id: str, metric: str | None, tolerance: Tolerance, today: date
) -> dict[str, Any]:
    (later_row,) = build(material, today, later_id)["jobs"]
    rows = (row, later_row)
    earlier, later = (_run(material, row) for row in rows)
    name = metric or common_metric(earlier, later)
    tolerated = tolerance.absolute(earlier.metrics.get(name, 0.0)) if name is not None else 0.0
    verdict = compare_runs(earlier, later, name, tolerated)
    return {
        "against": later_id,
        "changed": _changed(material, [each["job_id"] for each in rows]),
        "runs": [
            {
                "job_id": row["job_id"],
                "state": row["state"],
                **{figure: (row["machine"] or {}).get(figure) for figure in _MEASURED},
                "useful_seconds": row["useful_seconds"],
                "list_usd": usd(run.list_usd) if run.list_usd is not None else None,
                "cost_usd": row["cost_usd"],
                "metric": run.metrics.get(name) if name is not None else None,
            }
            for row, run in zip(rows, (earlier, later), strict=True)
        ],
        "cost": {"outcome": verdict.cost.outcome.value, "reason": verdict.cost.reason},
        "metric": name,
        "tolerance": str(tolerance),
        "quality": {"outcome": verdict.quality.outcome.value, "reason": verdict.quality.reason},
    }


def _changed(material: Material, ids: Sequence[str]) -> list[dict[str, Any]]:
    fields = changed_fields(*(material.submissions[job_id] for job_id in ids))
    return [{"field": field, "before": before, "after": after} for field, before, after in fields]


def _run(material: Material, row: dict[str, Any]) -> ComparedRun:
    bill = next(bill for bill in material.bill.jobs if bill.job_id == row["job_id"])
    per_epoch = material.records[row["job_id"]].progress.steps_per_epoch
    priced = all(part.basis is not Basis.NONE for usage in bill.usages for part in usage.listed)
    return ComparedRun(
        job_id=row["job_id"],
        succeeded=row["state"] == JobState.SUCCEEDED.value,
        list_usd=bill.on_demand_cost if priced else None,
        epochs=row["steps"] / per_epoch if per_epoch else None,
        metrics={name: float(value) for name, value in row["metrics"].items() if isinstance(value, int | float)},
    )
