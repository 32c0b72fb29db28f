"""The audit of a month as one document: the answer of `audit --json`, and the input of terminal and page."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from everspot_clouds.registry import commitment_plans
from everspot_core.cluster.manifest import Manifest
from everspot_core.costs.prices import HOUR, seconds_between
from everspot_core.governance.audit import MonthFacts, month_facts
from everspot_core.governance.commitments import Span, advised, hourly_use
from everspot_core.governance.measures import (
    Measure,
    OversizedJob,
    ask_for_less_memory,
    best,
    checkpoint_more_often,
    commit_to_use,
    end_idle_instances,
    move_to_spot,
    oversized,
    set_on_demand_floor,
    small_on_gpus,
)
from everspot_core.jobs.records import Role

from everspot_cli.governance.commitment_advice import list_prices, parse_discounts
from everspot_cli.governance.month_ledger import MonthLedger
from everspot_cli.report.model import usd

DEFINITIONS = {
    "total_usd": "what the month's instances cost, as `everspot cost report` counts it; visits to other clusters "
    "are beside",
    "utilisation": "the share of the agents' hours in which jobs worked; the scheduler's own instance is not in it",
    "kinds": "work: a job held it and worked; lost: from an interruption until it trained again; boot: until its agent "
    "reported; idle: held by nobody; shared: the rest of an instance of which jobs hold shares",
    "measures": "Each measure's saving is computed alone, from this month's rows. Two measures may concern the same "
    "dollars, and then save less together. One that saves nothing, or an unknown amount, is not recommended.",
}


def audit_document(
    ledger: MonthLedger, manifest: Manifest, discounts: Sequence[str], allowed: Sequence[str]
) -> dict[str, Any]:
    """Return the document. `allowed`: the types that the cluster may launch.

    Raises:
        CliError: as `parse_discounts`.
    """
    material, rows = ledger.material, ledger.rows
    facts = month_facts(rows, material.bill.jobs, material.records, ledger.month)
    launched = {i.launch.instance_type for i in material.bill.instances if i.launch.role is not Role.SCHEDULER}
    large = oversized(rows, material.submissions, material.records, material.catalogue, {*allowed, *launched})
    measured = sum(1 for record in material.records.values() if record.progress.memory_gib is not None)
    passed_hours = seconds_between(ledger.month.begin, min(material.as_of, ledger.month.end)) / HOUR
    measures = [
        end_idle_instances(rows),
        move_to_spot(rows, material.submissions),
        set_on_demand_floor(rows, passed_hours, material.catalogue),
        ask_for_less_memory(large, measured),
        checkpoint_more_often(rows, material.bill, material.events, ledger.month, material.time_scale),
        _commitment(ledger, manifest.cloud, discounts),
    ]
    chosen = best(measures)
    return {
        "month": ledger.month.name,
        "complete": not ledger.changes,
        "pending_changes": ledger.changes,
        "as_of": material.as_of,
        "time_scale": material.time_scale,
        **_facts(facts),
        "rightsizing": [_oversized_row(o) for o in large],
        "rightsizing_measured_jobs": measured,
        "small_on_gpus": [
            {
                "job_id": s.job_id,
                "instance_type": s.instance_type,
                "gpu": s.gpu,
                "gpu_memory_gib": s.memory_gib,
                "used_gpu_memory_gib": round(s.used_gib, 3),
                "cost_usd": usd(s.usd),
            }
            for s in small_on_gpus(rows, material.records, material.catalogue)
        ],
        "measures": [_measure(m) for m in chosen],
        "other_measures": [_measure(m) for m in measures if m not in chosen],
        "notes": [*([material.note] if material.note else []), *material.bill.notes],
        "left_out": list(material.bill.left_out),
        "definitions": DEFINITIONS,
    }


def _commitment(ledger: MonthLedger, cloud: str, discount_options: Sequence[str]) -> Measure:
    """Return the best commitment on the full hours of the month, with the discounts that are published or given."""
    plans = commitment_plans(cloud)
    discounts = parse_discounts(discount_options, plans)
    launched = [i.launch.launched_at for i in ledger.material.bill.instances]
    until = min(ledger.material.as_of, ledger.month.end)
    if not launched or until <= ledger.month.begin:
        return commit_to_use([])
    span = Span.from_launch(min(launched), until, until - ledger.month.begin)
    advised_uses = []
    for use in hourly_use(ledger.rows, plans, list_prices(ledger.material.catalogue), span):
        discount = discounts.get(use.plan.key, use.plan.discount)
        advice = advised(use, discount) if discount is not None else None
        if advice is not None:
            advised_uses.append((use, advice))
    return commit_to_use(advised_uses)


def _facts(facts: MonthFacts) -> dict[str, Any]:
    lost = facts.lost
    other_costs = {k.kind.value: usd(k.usd) for k in facts.kinds if not k.kind.here}
    return {
        "total_usd": usd(facts.usd),
        "known": facts.is_exact,
        "unpriced_hours": round(float(facts.unpriced_hours), 4),
        "unknown_lengths": list(facts.unknown_lengths),
        "abroad_usd": other_costs.get("abroad", 0.0),
        "egress_usd": other_costs.get("egress", 0.0),
        "utilisation": _share(facts.utilisation),
        "usd_worked_share": _share(facts.usd_worked),
        "kinds": [
            {"kind": k.kind.value, "hours": _hours(k.hours), "cost_usd": usd(k.usd), "share": _share(k.share)}
            for k in facts.kinds
            if k.kind.here
        ],
        "pools": [
            {
                "instance_type": p.pool.instance_type,
                "zone": p.pool.zone,
                "market": p.pool.market.value,
                "hours": _hours(p.hours),
                "utilisation": _share(p.used),
                "cost_usd": usd(p.usd),
                "idle_usd": usd(p.idle_usd),
                "lost_usd": usd(p.lost_usd),
            }
            for p in facts.pools
        ],
        "lost": {
            "cost_usd": usd(lost.usd),
            "interruptions": lost.interruptions,
            "with_notice": lost.with_notice,
            "steps_redone": lost.steps_redone,
            "steps_redone_is_least": lost.is_least,
            "failed_jobs_usd": usd(lost.failed_usd),
            "cancelled_jobs_usd": usd(lost.cancelled_usd),
        },
    }


def _oversized_row(oversized: OversizedJob) -> dict[str, Any]:
    return {
        "job_id": oversized.job_id,
        "instance_type": oversized.instance_type,
        "asked_memory_gib": oversized.asked_gib,
        "used_memory_gib": round(oversized.used_gib, 3),
        "would_do": oversized.would_do,
        "cost_usd": usd(oversized.usd),
        "saving_usd": usd(oversized.saving_usd),
    }


def _measure(measure: Measure) -> dict[str, Any]:
    return {
        "measure": measure.name,
        "what": measure.description,
        "saving_usd": usd(measure.saving_usd) if measure.saving_usd is not None else None,
        "how": measure.how,
        "jobs": list(measure.jobs),
    }


def _share(value: Fraction | None) -> float | None:
    return None if value is None else round(float(value), 4)


def _hours(value: Fraction) -> float:
    return round(float(value), 4)
