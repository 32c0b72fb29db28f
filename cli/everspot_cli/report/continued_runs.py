"""The runs of a report that continued from the run before (`continue_from`), compared with the last from scratch."""

from collections.abc import Mapping, Sequence
from typing import Any

from everspot_core.costs.cost import JobBill
from everspot_core.costs.prices import HOUR, rounded, total
from everspot_core.jobs.job import JobSubmission
from everspot_core.jobs.records import JobRecord, JobState
from everspot_core.jobs.series import continued_from

from everspot_cli.tables import duration, money

CONTINUED_COLUMNS = ("run", "continued from", "took", "cost", "from scratch", "took", "cost", "saved")


def find_scratch_runs(
    submissions: Mapping[str, JobSubmission], records: Mapping[str, JobRecord]
) -> dict[str, list[str]]:
    """Return the successful runs of each series that began from scratch, in order of their numbers."""
    runs: dict[str, list[tuple[int, str]]] = {}
    for job_id, submission in submissions.items():
        series = submission.series
        is_done = records[job_id].state is JobState.SUCCEEDED and records[job_id].reused_from is None
        if series is not None and is_done and continued_from(submission) is None:
            runs.setdefault(series.id, []).append((series.run, job_id))
    return {series: [job_id for _, job_id in sorted(numbered)] for series, numbered in runs.items()}


def describe_continuation(
    submission: JobSubmission,
    record: JobRecord,
    bills: Mapping[str, JobBill],
    scratch_runs: Mapping[str, Sequence[str]],
    cost_known: Mapping[str, bool],
) -> dict[str, Any] | None:
    """Return what a continued run saved against the last run of its series from scratch; None if it was not continued.

    Args:
        bills: of all jobs.
        scratch_runs: by series, the successful runs from scratch.
        cost_known: by job, whether all that it cost is known. Else there are no dollars.
    """
    source, series = continued_from(submission), submission.series
    if source is None or series is None:
        return None
    run = next(iter(reversed(scratch_runs.get(series.id, ()))), None)
    own_hours, own_usd = _figures(submission.job_id, bills, cost_known)
    hours, usd = _figures(run, bills, cost_known)
    is_done = record.state is JobState.SUCCEEDED
    return {
        "job_id": source,
        "hours": own_hours,
        "usd": own_usd,
        "from_scratch": run,
        "hours_from_scratch": hours,
        "usd_from_scratch": usd,
        "hours_saved": _subtract(hours, own_hours, 4) if is_done else None,
        "usd_saved": _subtract(usd, own_usd, 6) if is_done else None,
    }


def continued_cells(jobs: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Return a row of `CONTINUED_COLUMNS` for each continued run."""
    return [
        [
            job["job_id"],
            row["job_id"],
            _took(row["hours"]),
            money(row["usd"]),
            row["from_scratch"] or "—",
            _took(row["hours_from_scratch"]),
            money(row["usd_from_scratch"]),
            money(row["usd_saved"]),
        ]
        for job in jobs
        if (row := job["continued"]) is not None
    ]


def _figures(
    job_id: str | None, bills: Mapping[str, JobBill], cost_known: Mapping[str, bool]
) -> tuple[float | None, float | None]:
    """Return the hours and the dollars of a job; None what is not known."""
    bill = bills.get(job_id) if job_id is not None else None
    if bill is None:
        return None, None
    usd = float(rounded(bill.cost, 6)) if cost_known[bill.job_id] else None
    return round(float(total(u.seconds for u in bill.usages) / HOUR), 4), usd


def _subtract(whole: float | None, part: float | None, digits: int) -> float | None:
    return round(whole - part, digits) if whole is not None and part is not None else None


def _took(hours: float | None) -> str:
    return duration(hours * 3600 if hours is not None else None)
