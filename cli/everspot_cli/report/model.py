"""The report as one document: the answer of `report --json`, and the input of terminal and page."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from fractions import Fraction
from typing import Any

from everspot_core.capacity.catalogue import zone_region
from everspot_core.costs.attempts import Interruption
from everspot_core.costs.bill import JobBill, Usage, savings_percent
from everspot_core.costs.gpu_waste import wasted_gpu_cost
from everspot_core.costs.prices import HOUR, Basis, rounded, total
from everspot_core.governance.pipelines import ACCURACY as ACCURACY
from everspot_core.governance.usage import visit_rows
from everspot_core.jobs.job import JobSubmission
from everspot_core.jobs.records import JobRecord, JobState, Market, Role

from everspot_cli.machine_use import review_document, review_job
from everspot_cli.report.changeovers import changeover_rows
from everspot_cli.report.continued_runs import describe_continuation, find_scratch_runs
from everspot_cli.report.early_stops import describe_early_stop
from everspot_cli.report.gather import Material
from everspot_cli.report.reused_stages import describe_reuse, sum_reused
from everspot_cli.report.run_figures import RunFigures
from everspot_cli.report.shard_traffic import describe_traffic, sum_streamed
from everspot_cli.report.shares import shares
from everspot_cli.report.sweeps import sweep_rows
from everspot_cli.rows import latest_progress, restarts_from_zero
from everspot_cli.visits import move_fields

DEFINITIONS = {
    "cost_usd": "every second of every instance from launch to end (60 at least), at the price of its moment; a spot "
    "instance that the cloud takes within its free time is free",
    "on_demand_cost_usd": "the same fleet and the same useful work on-demand without interruptions: the jobs' useful "
    "seconds and the seconds of boot and idling at list price; seconds lost to interruptions are not in it",
    "free_usd": "what those free spot instances would have cost, had they been billed: it is in the savings, and on "
    "instances that live longer than that time it would not be",
    "jobs and the rest": "a job pays from its assignment to its release; boot, idling and the scheduler are the rest",
    "abroad_usd, egress_usd": "what visits to other clusters cost, by the bills of these clusters at the visits' end, "
    "or so far, and what was copied to and from them at the price of the manifest; cost_usd is without both",
    "cost_known": "whether all that the job cost, here and elsewhere, is known; its dollars are a lower bound if not",
    "lost_seconds": "from the notice (without one: from the last durable checkpoint) until training runs again, or the "
    "job departs to another cluster or ends",
    "steps_redone": "the last step that the interrupted attempt reported, minus the step that was resumed from; "
    "at least, where it ended without a last word: it reports with each renewal of its lease",
    "redone_seconds": "from the last durable checkpoint until the end of each interrupted attempt, which is computed "
    "again; a program that keeps no checkpoint redoes all of the attempt",
    "notice_to_durable_seconds": "from the moment of the notice until the checkpoint was published, market time",
    "changeovers": "from the wish for an instance until the job works on it, by part: market time, measured when an "
    "attempt has ended; upper is what deadlines reckon with",
    "sweeps": "cost_usd of all trials of a sweep, divided by all of them and by the useful ones: those that ran to "
    "their end and reported the metric; what ended early, failed or was cancelled is in the sum; boot and idling are "
    "not",
    "wasted_gpu_usd": "the part of a job's cost that was paid while no kernel ran on its GPUs: cost_usd times that "
    "share of the measured time; what was not measured counts as if it had been used alike",
    "early_stop": "what a job that its `stop` ended did not spend: an estimate, from the useful hours and dollars of a "
    "step so far, of the steps up to its total_steps",
    "continued": "of a run with `continue_from`: its hours and cost_usd, those of the last successful run of its "
    "series that began from scratch, and the difference, which is negative where it cost more",
    "reused": "of a job that was not run because of `cache`: the hours and the cost_usd of the run whose outputs it "
    "has, as that run was billed; a dash if a price of it is unknown",
    "streamed": "of streamed datasets: fetched_bytes were downloaded; cached_bytes are the sizes of the shards that a "
    "process opened and found in its machine's cache, and would otherwise have fetched; an attempt without a last word "
    "counts as of its lease's last renewal, and visits to other clusters are in the reports there",
    "accuracy": "the lowest final test accuracy of the jobs that report one",
}


def build(material: Material, today: date, only: str | None = None) -> dict[str, Any]:
    """Return the whole report, or with `only` the report of one job, whose cost is then its own without boot and
    idling."""
    bills = [b for b in material.bill.jobs if only is None or b.job_id == only]
    usages = [u for u in material.bill.usages if only is None or u.job_id == only]
    strokes = [_interruption(i) for b in bills for i in b.interruptions]
    runs = _Runs(material)
    jobs = [_job(material, b, runs) for b in bills]
    return {
        "cluster": material.cluster,
        "scope": only or "cluster",
        "as_of": _utc(material.as_of),
        "time_scale": material.time_scale,
        **_money(usages),
        **_hours(usages),
        "unpriced_hours": _unpriced_hours(usages),
        "unknown_lengths": _unknown_lengths(material, None if only is None else bills),
        "abroad_usd": round(sum((job["abroad_usd"] for job in jobs), 0.0), 6),
        "egress_usd": round(sum((job["egress_usd"] for job in jobs), 0.0), 6),
        "jobs": jobs,
        "reused_stages": sum_reused(jobs),
        "streamed": sum_streamed(jobs),
        "cost_by_tag": shares(jobs, {job for job, own in material.submissions.items() if own.visit is not None}),
        "sweeps": [] if only else sweep_rows(material.sweeps, jobs),
        "interruptions": sorted(strokes, key=lambda s: s["at"]),
        "steps_redone_after_notice": sum(s["steps_redone"] or 0 for s in strokes if s["with_notice"]),
        "steps_redone_total": sum(s["steps_redone"] or 0 for s in strokes),
        "steps_redone_is_least": any(s["steps_redone_is_least"] for s in strokes),
        "redone_seconds": sum(s["redone_seconds"] or 0 for s in strokes),
        "lost_seconds": sum(job["lost_seconds"] for job in jobs),
        "notice_to_durable_seconds": [
            s["notice_to_durable_seconds"] for s in strokes if s["notice_to_durable_seconds"] is not None
        ],
        "accuracy": min((job["accuracy"] for job in jobs if job["accuracy"] is not None), default=None),
        "usage": _usage_rows(usages),
        "instances": [] if only else [_instance(material, i) for i in material.bill.instances],
        "changeovers": [] if only else changeover_rows(material.changeovers),
        "list_prices": _list_prices(material, usages, today),
        "notes": [*([material.note] if material.note else []), *material.bill.notes],
        "left_out": list(material.bill.left_out),
        "definitions": DEFINITIONS,
    }


def usd(amount: Fraction) -> float:
    """Return dollars with six decimals, so that the parts still add up to the cent."""
    return float(rounded(amount, 6))


def _utc(moment: datetime | None) -> str | None:
    return moment.isoformat().replace("+00:00", "Z") if moment else None


def _money(usages: Sequence[Usage]) -> dict[str, Any]:
    def sums(chosen: Iterable[Usage]) -> tuple[Fraction, Fraction]:
        parts = list(chosen)
        return total(u.cost for u in parts), total(u.on_demand_cost for u in parts)

    cost, listed = sums(usages)
    job_cost, job_listed = sums(u for u in usages if u.job_id is not None)
    idle_cost, idle_listed = sums(u for u in usages if u.job_id is None)
    scheduler_cost, _ = sums(u for u in usages if u.launch.role is Role.SCHEDULER)
    waived = total(u.waived for u in usages)
    saved = savings_percent(cost, listed)
    saved_if_billed = savings_percent(cost + waived, listed)
    job_saved = savings_percent(job_cost, job_listed)
    return {
        "cost_usd": usd(cost),
        "on_demand_cost_usd": usd(listed),
        "savings_usd": usd(listed - cost),
        "savings_percent": round(saved, 2) if saved is not None else None,
        "free_usd": usd(waived),
        "savings_percent_if_billed": round(saved_if_billed, 2) if saved_if_billed is not None else None,
        "jobs_cost_usd": usd(job_cost),
        "jobs_on_demand_cost_usd": usd(job_listed),
        "jobs_savings_percent": round(job_saved, 2) if job_saved is not None else None,
        "idle_and_boot_cost_usd": usd(idle_cost),
        "idle_and_boot_on_demand_cost_usd": usd(idle_listed),
        "scheduler_cost_usd": usd(scheduler_cost),
    }


def _hours(usages: Sequence[Usage]) -> dict[str, float]:
    def hours(market: Market) -> float:
        return round(float(total(u.instance_seconds for u in usages if u.launch.market is market) / HOUR), 4)

    return {"spot_hours": hours(Market.SPOT), "on_demand_hours": hours(Market.ON_DEMAND)}


def _unpriced_hours(usages: Sequence[Usage]) -> float:
    """Return the hours without a known price. No sum contains them, so every sum is then a lower bound."""
    cut = (s.seconds * usage.share for usage in usages for s in usage.paid if s.basis is Basis.NONE)
    return round(float(total(cut) / HOUR), 4)


def _unknown_lengths(material: Material, bills: Sequence[JobBill] | None) -> list[str]:
    """Return the instances whose end nobody reported, or those of some jobs. They are billed for the least time, and
    what jobs held of the time after it is in no sum, so sums are lower bounds."""
    endless = material.bill.unknown_lengths
    if bills is None:
        return list(endless)
    instance_ids = {attempt.instance_id for own in bills for attempt in own.attempts}
    return [name for name in endless if name in instance_ids]


def _usage_rows(usages: Sequence[Usage]) -> list[dict[str, Any]]:
    pools: dict[tuple[str, str, str], list[Usage]] = defaultdict(list)
    for usage in usages:
        pools[(usage.launch.market.value, usage.launch.instance_type, usage.launch.zone)].append(usage)
    return [
        {
            "market": market,
            "instance_type": kind,
            "zone": zone,
            "instances": len({u.launch.instance_id for u in own}),
            "hours": round(float(total(u.instance_seconds for u in own) / HOUR), 4),
            "cost_usd": usd(total(u.cost for u in own)),
            "mean_usd_per_hour": _mean(own),
        }
        for (market, kind, zone), own in sorted(pools.items())
    ]


def _mean(usages: Sequence[Usage]) -> float | None:
    seconds = total(u.instance_seconds for u in usages)
    return usd(total(u.cost for u in usages) * HOUR / seconds) if seconds else None


class _Runs:
    """The runs of a report by their jobs, with which other ones are compared."""

    def __init__(self, material: Material) -> None:
        self._material = material
        self._bills = {bill.job_id: bill for bill in material.bill.jobs}
        self._scratch_runs = find_scratch_runs(material.submissions, material.records)

    def figures(self, job_id: str | None) -> RunFigures:
        """Return the hours and dollars of a job."""
        bill = self._bills.get(job_id) if job_id is not None else None
        if bill is None:
            return RunFigures()
        return RunFigures.from_bill(bill, cost_known=_cost_known(self._material, bill))

    def scratch_run(self, submission: JobSubmission) -> str | None:
        """Return the last successful run of the job's series that began from scratch."""
        return self._scratch_runs.get(submission.series.id) if submission.series is not None else None


def _job(material: Material, own: JobBill, runs: _Runs) -> dict[str, Any]:
    submission, record = material.submissions[own.job_id], material.records[own.job_id]
    until = min(record.changed_at, material.as_of) if record.state.final else material.as_of
    progress = latest_progress(record, material.events[own.job_id])
    strokes = [_interruption(i) for i in own.interruptions]
    money = _money(own.usages)
    scratch_run = runs.scratch_run(submission) if submission.spec.continue_from is not None else None
    deadline, moves, cost_known = submission.deadline_at, move_fields(record), _cost_known(material, own)
    return {
        "job_id": own.job_id,
        "name": submission.spec.name,
        "state": record.state.value,
        "priority": submission.spec.priority.value,
        "tags": dict(submission.spec.tags),
        "submitted_at": _utc(submission.submitted_at),
        "ended_at": _utc(record.changed_at) if record.state.final else None,
        "deadline_at": _utc(deadline),
        "deadline_met": _deadline_met(record, deadline, until),
        "total_duration_seconds": max(0.0, (until - submission.submitted_at).total_seconds()),
        "job_duration_seconds": float(total(u.seconds for u in own.usages)),
        "useful_seconds": float(total(u.useful_seconds for u in own.usages)),
        "lost_seconds": float(own.lost_seconds),
        "steps": progress.step,
        "total_steps": progress.total_steps,
        "cost_usd": money["cost_usd"],
        "on_demand_cost_usd": money["on_demand_cost_usd"],
        # A failed job has no useful result, so a comparison with its on-demand cost means nothing.
        "savings_percent": None if record.state is JobState.FAILED else money["savings_percent"],
        "free_usd": money["free_usd"],
        **_hours(own.usages),
        "usage": _usage_rows(own.usages),
        "abroad_usd": moves["abroad_usd"],
        "egress_usd": moves["egress_usd"],
        "cost_known": cost_known,
        "trips": moves["trips"],
        "attempts": len(own.attempts),
        "interruptions": len(strokes),
        "steps_redone": sum(s["steps_redone"] or 0 for s in strokes),
        "steps_redone_is_least": any(s["steps_redone_is_least"] for s in strokes),
        "redone_seconds": sum(s["redone_seconds"] or 0 for s in strokes),
        "from_zero": restarts_from_zero(submission, record),
        "errors": record.errors,
        "metrics": progress.metrics,
        "accuracy": _accuracy(progress.metrics),
        "detail": record.detail,
        "early_stop": describe_early_stop(record, progress, own, cost_known=cost_known),
        "continued": describe_continuation(
            submission,
            record,
            RunFigures.from_bill(own, cost_known=cost_known),
            scratch_run,
            runs.figures(scratch_run),
        ),
        "reused": describe_reuse(record, runs.figures(record.reused_from)),
        "streamed": describe_traffic(record, material.events[own.job_id]),
        "machine": _machine(material, own),
    }


def _machine(material: Material, own: JobBill) -> dict[str, Any] | None:
    """Return what the job used of its machines, and what would help; None if nothing was measured."""
    job = own.job_id
    use, review = review_job(material.submissions[job], material.records[job], material.events[job], material.catalogue)
    document = review_document(use, review)
    if document is None:
        return None
    wasted = wasted_gpu_cost(own.cost, use)
    return {**document, "wasted_gpu_usd": usd(wasted) if wasted is not None else None}


def _cost_known(material: Material, own: JobBill) -> bool:
    away = visit_rows(own.job_id, material.records[own.job_id], material.as_of)
    here = all(s.basis is not Basis.NONE for usage in own.usages for s in usage.paid)
    return here and not _unknown_lengths(material, [own]) and all(row.is_exact for row in away)


def _deadline_met(record: JobRecord, deadline: datetime | None, until: datetime) -> bool | None:
    """Return whether the deadline was met. None without a deadline, for a cancelled job, and while it can still be
    met."""
    if deadline is None or record.state in (JobState.CANCELLED, JobState.SKIPPED):
        return None
    if record.state is JobState.SUCCEEDED:
        return until <= deadline
    return False if record.state is JobState.FAILED or until > deadline else None


def _accuracy(metrics: Mapping[str, Any]) -> float | None:
    values = (metrics[name] for name in ACCURACY if isinstance(metrics.get(name), int | float))
    return next((float(value) for value in values), None)


def _interruption(stroke: Interruption) -> dict[str, Any]:
    attempt = stroke.attempt
    return {
        "job_id": attempt.job_id,
        "epoch": attempt.epoch,
        "kind": stroke.kind,
        "with_notice": stroke.with_notice,
        "source": attempt.notice_source,
        "instance_id": attempt.instance_id,
        "at": _utc(attempt.notice_at or attempt.end),
        "released_at": _utc(attempt.end),
        "notice_to_durable_seconds": attempt.notice_to_durable_seconds,
        "last_step": attempt.last_step,
        "resumed_from": stroke.resumed_step,
        "steps_redone": stroke.steps_redone,
        "steps_redone_is_least": stroke.steps_redone_is_least,
        "redone_seconds": stroke.seconds_redone,
        "resumed_at": _utc(stroke.resumed_at),
        "resumed_on": stroke.resumed_on,
        "changeover_seconds": stroke.changeover_seconds,
    }


def _instance(material: Material, own: Any) -> dict[str, Any]:
    launch = own.launch
    return {
        "instance_id": launch.instance_id,
        "role": launch.role.value,
        "instance_type": launch.instance_type,
        "zone": launch.zone,
        "market": launch.market.value,
        "launched_at": _utc(launch.launched_at),
        "ended_at": None if own.running else _utc(own.end),
        "interrupted": own.interrupted,
        "length_known": not own.unknown,
        "free": own.free,
        "cost_usd": usd(own.cost),
        "jobs": sorted({u.job_id for u in own.usages if u.job_id is not None}),
        "jobs_cost_usd": usd(total(u.cost for u in own.usages if u.job_id is not None)),
    }


def _list_prices(material: Material, usages: Sequence[Usage], today: date) -> list[dict[str, Any]]:
    list_prices = []
    for kind, region in sorted({(u.launch.instance_type, _region(u.launch.zone)) for u in usages}):
        price = material.catalogue.on_demand(kind, region)
        if price is not None:
            list_prices.append(
                {
                    "instance_type": kind,
                    "region": region,
                    "usd_per_hour": price.usd_per_hour,
                    "as_of": str(price.as_of) if price.as_of else None,
                    "age": price.age(today),
                    "source": price.source,
                    "note": price.note,
                }
            )
    return list_prices


def _region(zone: str) -> str:
    try:
        return zone_region(zone)
    except ValueError:
        return zone
