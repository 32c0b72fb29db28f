"""The jobs of a report that were not run because of `cache`, and what the runs cost whose outputs they have."""

from collections.abc import Mapping, Sequence
from typing import Any

from everspot_core.jobs.records import JobRecord, JobState

from everspot_cli.report.run_figures import RunFigures
from everspot_cli.tables import duration, money

REUSED_COLUMNS = ("job", "outputs of", "hours not run", "dollars not spent")


def describe_reuse(record: JobRecord, run: RunFigures) -> dict[str, Any] | None:
    """Return the run whose outputs a job has, with its hours and dollars; None if the job was run. `run`: of the job
    that computed the outputs."""
    if record.state is not JobState.SUCCEEDED or record.reused_from is None:
        return None
    return {
        "job_id": record.reused_from,
        "hours_not_run": run.hours,
        "usd_not_spent": run.usd,
    }


def sum_reused(jobs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return how many jobs were not run because of `cache`, and the hours and dollars of the runs in their place."""
    reused = [job["reused"] for job in jobs if job["reused"] is not None]
    return {
        "jobs": len(reused),
        "hours_not_run": round(sum(row["hours_not_run"] or 0.0 for row in reused), 4),
        "usd_not_spent": round(sum(row["usd_not_spent"] or 0.0 for row in reused), 6),
    }


def describe_saving(report: Mapping[str, Any]) -> str | None:
    """Return what the cache of stages saved, in one line; None if it saved nothing."""
    saved = report["reused_stages"]
    if not saved["jobs"]:
        return None
    hours = duration(saved["hours_not_run"] * 3600)
    jobs = saved["jobs"]
    stages = "1 cached stage that was" if jobs == 1 else f"{jobs} cached stages that were"
    return f"{money(saved['usd_not_spent'])} and {hours} of {stages} not run again"


def reused_cells(jobs: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Return a row of `REUSED_COLUMNS` for each job that was not run because of `cache`."""
    return [
        [
            job["job_id"],
            job["reused"]["job_id"],
            f"{hours:.2f}" if (hours := job["reused"]["hours_not_run"]) is not None else "—",
            money(usd) if (usd := job["reused"]["usd_not_spent"]) is not None else "—",
        ]
        for job in jobs
        if job["reused"] is not None
    ]
