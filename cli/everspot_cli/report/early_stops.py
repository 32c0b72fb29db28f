"""The jobs of a report that their `stop` has ended, and what they did not spend."""

from collections.abc import Mapping, Sequence
from typing import Any

from everspot_core.costs.bill import JobBill
from everspot_core.costs.not_spent import estimate_not_spent
from everspot_core.costs.prices import total
from everspot_core.jobs.records import JobRecord, JobState, Progress

from everspot_cli.tables import money

EARLY_STOP_COLUMNS = ("job", "why", "steps not done", "hours not spent", "dollars not spent")


def describe_early_stop(record: JobRecord, progress: Progress, own: JobBill, *, cost_known: bool) -> Any:
    """Return why the job's `stop` has ended it, with an estimate of what it did not spend; None if it was not ended.

    There is no estimate if the job has not said how many steps it would have done, or if it has visited other clusters,
    whose hours the bill does not have.
    """
    stop = record.progress.early_stop
    if stop is None or record.state is not JobState.SUCCEEDED:
        return None
    seconds, useful_seconds = total(u.seconds for u in own.usages), total(u.useful_seconds for u in own.usages)
    is_priced = cost_known and seconds > 0
    cost = total(u.cost + u.waived for u in own.usages)  # of later steps nothing would have been free
    not_spent = estimate_not_spent(
        steps=progress.step,
        total_steps=progress.total_steps,
        useful_seconds=float(useful_seconds),
        useful_dollars=float(cost * useful_seconds / seconds) if is_priced else None,
    )
    if record.trips:
        not_spent = None
    return {
        **stop.model_dump(mode="json"),
        "sentence": stop.sentence,
        "steps_not_done": not_spent.steps if not_spent is not None else None,
        "hours_not_spent_estimate": round(not_spent.hours, 4) if not_spent is not None else None,
        "usd_not_spent_estimate": (
            round(not_spent.dollars, 6) if not_spent is not None and not_spent.dollars is not None else None
        ),
    }


def early_stop_cells(jobs: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Return a row of `EARLY_STOP_COLUMNS` for each job that its `stop` has ended."""
    rows = []
    for job in jobs:
        stop = job["early_stop"]
        if stop is None:
            continue
        hours, dollars = stop["hours_not_spent_estimate"], stop["usd_not_spent_estimate"]
        rows.append(
            [
                job["job_id"],
                stop["sentence"].removeprefix("stopped early: "),
                f"{stop['steps_not_done']:,}" if stop["steps_not_done"] is not None else "—",
                f"about {hours:.2f}" if hours is not None else "—",
                f"about {money(dollars)}" if dollars is not None else "—",
            ]
        )
    return rows
