"""The runs of a report that continued from the run before (`continue_from`), compared with the last from scratch."""

from collections.abc import Mapping, Sequence
from typing import Any

from everspot_core.jobs.job import JobSubmission
from everspot_core.jobs.records import JobRecord, JobState
from everspot_core.jobs.series import continued_from

from everspot_cli.report.run_figures import RunFigures
from everspot_cli.tables import duration, money

CONTINUED_COLUMNS = ("run", "continued from", "took", "cost", "from scratch", "took", "cost", "saved")


def find_scratch_runs(submissions: Mapping[str, JobSubmission], records: Mapping[str, JobRecord]) -> dict[str, str]:
    """Return the last successful run of each series that began from scratch."""
    runs: dict[str, tuple[int, str]] = {}
    for job_id, submission in submissions.items():
        series = submission.series
        is_done = records[job_id].state is JobState.SUCCEEDED and records[job_id].reused_from is None
        if series is not None and is_done and continued_from(submission) is None:
            runs[series.id] = max(runs.get(series.id, (0, "")), (series.run, job_id))
    return {series: job_id for series, (_, job_id) in runs.items()}


def describe_continuation(
    submission: JobSubmission, record: JobRecord, own: RunFigures, scratch_run: str | None, scratch: RunFigures
) -> dict[str, Any] | None:
    """Return what a continued run saved against the last run of its series from scratch; None if it was not continued.

    Args:
        own: figures of the run.
        scratch_run: the last successful run of its series from scratch; None: there is none.
        scratch: figures of that one.
    """
    source = continued_from(submission)
    if source is None or submission.series is None:
        return None
    is_done = record.state is JobState.SUCCEEDED
    return {
        "job_id": source,
        "hours": own.hours,
        "usd": own.usd,
        "from_scratch": scratch_run,
        "hours_from_scratch": scratch.hours,
        "usd_from_scratch": scratch.usd,
        "hours_saved": _subtract(scratch.hours, own.hours, 4) if is_done else None,
        "usd_saved": _subtract(scratch.usd, own.usd, 6) if is_done else None,
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


def _subtract(whole: float | None, part: float | None, digits: int) -> float | None:
    return round(whole - part, digits) if whole is not None and part is not None else None


def _took(hours: float | None) -> str:
    return duration(hours * 3600 if hours is not None else None)
