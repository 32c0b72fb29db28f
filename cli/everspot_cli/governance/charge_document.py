"""The charges of a month as one document, from which `--json`, terminal, page and CSV are made."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from everspot_core.costs.prices import HOUR, Basis, total
from everspot_core.governance.chargeback import KEYS, ChargeLine, Charges, LineKind, apportioned, charges
from everspot_core.governance.pipelines import JobOutcome, PipelineRun, pipelines
from everspot_core.governance.usage import Sums, UsageKind, open_ended, visit_rows
from everspot_core.jobs.machine_review import job_use

from everspot_cli.governance.month_ledger import MonthLedger
from everspot_cli.report.model import usd
from everspot_cli.report.shares import VISITORS

PLACES = 6
LABELS = {
    LineKind.UNTAGGED: "(without the tag)",
    LineKind.VISITORS: VISITORS,
    LineKind.LOST: "(lost to interruptions)",
    LineKind.BOOT: "(boot)",
    LineKind.IDLE: "(idle)",
    LineKind.DRAIN: "(drain)",
    LineKind.SHARED: "(unused shares)",
    LineKind.SCHEDULER: "(scheduler)",
}
DEFINITIONS = {
    "value": "what jobs with this value worked, here and at other clusters, and what was copied for that; time lost is "
    "in a line of its own, and which part of that line is theirs stands beside it",
    LABELS[LineKind.UNTAGGED]: "the same of jobs that do not have the tag",
    LABELS[LineKind.VISITORS]: "jobs that visit from other clusters: their home charges them, by this cluster's bill",
    LABELS[LineKind.LOST]: "time in which jobs held instances and an interruption made it useless: from the notice, or "
    "the last durable checkpoint, until training again",
    LABELS[LineKind.BOOT]: "from the launch of instances until their agents reported",
    LABELS[LineKind.IDLE]: "instances that were up and had no job",
    LABELS[LineKind.DRAIN]: "nodes beneath agents, from the end of their last agent until they were gone",
    LABELS[LineKind.SHARED]: "what jobs left of instances that they share",
    LABELS[LineKind.SCHEDULER]: "the scheduler's own instance",
    "wasted_gpu_usd": "the part of gpu_usd, which is work here of jobs whose GPUs were measured, that was paid while "
    "no kernel ran on them; a job's share is that of all its measured time",
    "pipelines": "jobs that are chained by `after`: all that they cost in whichever month, of runs that ended in this "
    "one or go on; a point is 0.01 of an accuracy, else 1, gained over the run before",
}


def charge_document(ledger: MonthLedger, keys: Sequence[str], metric: str | None) -> dict[str, Any]:
    """Return the charges of a month. `keys`: tags; without any, the usual tags that jobs of the month have, at least
    the team."""
    material, rows = ledger.material, ledger.rows
    used_keys = {key for row in rows if row.job_id for key in material.submissions[row.job_id].spec.tags}
    chosen = list(dict.fromkeys(keys)) or [key for key in KEYS if key in used_keys] or [KEYS[0]]
    whole, here = Sums.sum_rows(rows), Sums.sum_rows(row for row in rows if row.kind.here)
    measured = {job: job_use(material.records[job], material.events[job]) for job in material.records}
    uses = {job: use for job, use in measured.items() if use is not None}
    return {
        "month": ledger.month.name,
        "complete": not ledger.changes,
        "pending_changes": ledger.changes,
        "as_of": material.as_of,
        "total_usd": usd(whole.cost),
        "cost_usd": usd(here.cost),
        "abroad_usd": usd(Sums.sum_rows(row for row in rows if row.kind is UsageKind.ABROAD).cost),
        "egress_usd": usd(Sums.sum_rows(row for row in rows if row.kind is UsageKind.EGRESS).cost),
        "on_demand_cost_usd": usd(here.on_demand_cost),
        "known": whole.is_exact,
        "unpriced_hours": round(float(whole.unpriced_seconds / HOUR), 4),
        "unknown_lengths": open_ended(rows),
        "by": {key: _lines(charges(rows, material.submissions, key, uses)) for key in chosen},
        "pipelines": [_pipeline(run) for run in _runs(ledger, metric)],
        "notes": [*([material.note] if material.note else []), *material.bill.notes],
        "left_out": list(material.bill.left_out),
        "definitions": DEFINITIONS,
    }


def _lines(charges: Charges) -> list[dict[str, Any]]:
    costs = apportioned([line.sums.cost for line in charges.lines], PLACES)
    return [_line(line, cost) for line, cost in zip(charges.lines, costs, strict=True)]


def _line(line: ChargeLine, cost: Fraction) -> dict[str, Any]:
    return {
        "kind": line.kind.value,
        "value": line.value if line.kind is LineKind.VALUE else LABELS[line.kind],
        "jobs": line.jobs,
        "instance_hours": round(float(line.sums.seconds / HOUR), 4),
        "cost_usd": float(cost),
        "on_demand_cost_usd": usd(line.sums.on_demand_cost),
        "lost_usd": usd(line.lost),
        "gpu_usd": usd(line.gpu_cost),
        "wasted_gpu_usd": usd(line.wasted_gpu_cost),
        "gpu_utilization": round(float(line.gpu_utilization), 4) if line.gpu_utilization is not None else None,
        "known": line.sums.is_exact,
        "unpriced_hours": round(float(line.sums.unpriced_seconds / HOUR), 4),
    }


def _runs(ledger: MonthLedger, metric: str | None) -> list[PipelineRun]:
    """Return the runs that had begun by the end of the month and had not ended before the month began."""
    material, end = ledger.material, ledger.month.end
    runs = pipelines(material.submissions, _outcomes(ledger), metric)
    return [
        run
        for run in runs
        if run.submitted_at < end and (run.ended_at is None or run.ended_at >= ledger.month.begin)
        if run.ended_at is None or run.ended_at < end
    ]


def _outcomes(ledger: MonthLedger) -> dict[str, JobOutcome]:
    material = ledger.material
    endless = {i.launch.instance_id for i in material.bill.instances if i.unknown}
    outcomes = {}
    for bill in material.bill.jobs:
        record = material.records[bill.job_id]
        away = list(visit_rows(bill.job_id, record, material.as_of))
        unpriced = any(
            usage.launch.instance_id in endless or any(s.basis is Basis.NONE for s in usage.paid)
            for usage in bill.usages
        )
        outcomes[bill.job_id] = JobOutcome(
            cost=bill.cost + total(row.cost for row in away),
            is_exact=not unpriced and all(row.is_exact for row in away),
            ended_at=record.changed_at if record.state.final else None,
            succeeded=record.state.value == "SUCCEEDED",
            metrics=record.progress.metrics,
        )
    return outcomes


def _pipeline(run: PipelineRun) -> dict[str, Any]:
    return {
        "pipeline": run.name,
        "submitted_at": run.submitted_at,
        "ended_at": run.ended_at,
        "succeeded": run.succeeded,
        "cost_usd": usd(run.cost),
        "known": run.is_exact,
        "stages": [
            {"stage": s.name, "jobs": list(s.jobs), "cost_usd": usd(s.cost), "known": s.is_exact} for s in run.stages
        ],
        "metric": run.metric,
        "value": run.value,
        "gain": run.gain,
        "point": run.point,
        "usd_per_point": usd(run.usd_per_point) if run.usd_per_point is not None else None,
    }
