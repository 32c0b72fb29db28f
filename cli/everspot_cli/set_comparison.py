"""Two sets of jobs, chosen by people, as `everspot cost compare --a … --b …` puts them side by side."""

import fnmatch
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from everspot_core.counting import counted, first_few
from everspot_core.governance.comparison import FEW, Comparison, compared, parted_by_chance
from everspot_core.jobs.records import JobState

from everspot_cli.errors import CliError, Exit

_SHOWN = 5
_Row = dict[str, Any]


def compare_sets(
    jobs: Sequence[_Row], partial_runs: Mapping[str, str], a: list[str], b: list[str], metric: str | None
) -> _Row:
    """Return the answer of the command. Only whole runs that succeeded are compared.

    Args:
        jobs: All jobs, as rows of the report.
        partial_runs: The jobs that were no whole run, each with the reason.
        a: The first set.
        b: The second set.
        metric: The metric to compare; None: a common one.

    Raises:
        CliError: if a set chooses no job, no successful one, or one that the other set has too, or if no job of a set
            reports the metric.
    """
    chosen = {"a": _chosen(jobs, a), "b": _chosen(jobs, b)}
    unpriced = {job["job_id"] for job in jobs if not job["cost_known"]}
    succeeded = {
        name: [job for job in rows if job["state"] == JobState.SUCCEEDED.value] for name, rows in chosen.items()
    }
    done = {name: [job for job in rows if job["job_id"] not in partial_runs] for name, rows in succeeded.items()}
    _refuse(chosen, done, {"a": a, "b": b}, metric)
    metric_name = metric or _common_metric(done["a"], done["b"])
    measures = [_measure(done, *figure) for figure in _figures(metric_name, unpriced)]
    return {
        **{name: _side(chosen[name], done[name], unpriced) for name in chosen},
        "confidence": 0.95,
        "measures": [row for row in measures if row is not None],
        "notes": [
            *_partial_notes(succeeded, partial_runs),
            *_notes(chosen, done, unpriced),
            *([] if metric_name else ["No metric is reported by jobs of both sets."]),
        ],
    }


def describe_measure(row: _Row) -> str:
    """Return a sentence on what a measure shows."""
    name = row["measure"]
    if row["a_spread"] == 0 == row["b_spread"]:
        return f"{name}: {_without_spread(row)}"
    if row["low"] is None:
        return f"{name}: a side has but one job, which shows no spread: nothing can be said of the difference."
    least = (
        "" if row["detectable_percent"] is None else f" Below ±{row['detectable_percent']:.0f} % they would show none."
    )
    few = f" A side has fewer than {FEW} jobs, so the interval itself is rough." if row["few"] else ""
    if not row["shown"]:
        return f"{name}: these jobs show no difference.{least}{few}"
    return f"{name}: {_differs(row)}{few}"


def _differs(row: _Row) -> str:
    size = f" by {abs(row['difference_percent']):.1f} %" if row["difference_percent"] is not None else ""
    return f"B's mean is {'higher' if row['difference'] > 0 else 'lower'} than A's{size}."


def _without_spread(row: _Row) -> str:
    if row["shown"]:
        chance = 100 * parted_by_chance(row["a_jobs"], row["b_jobs"])
        return (
            f"{_differs(row)} All jobs of a side have the same value, so there is no interval; of all ways to deal "
            f"these jobs to two sides, {chance:.1g} % part them so."
        )
    if row["few"]:
        same = "all jobs of a side have the same value, and are too few to say how far jobs vary"
        return f"{same}: whether A and B differ is not known."
    return "all jobs of both sides have the same value."


def _chosen(jobs: Sequence[_Row], options: Sequence[str]) -> list[_Row]:
    """Return the jobs that match any of the patterns."""
    words = [pattern.strip() for value in options for pattern in value.split(",") if pattern.strip()]
    return [job for job in jobs if any(_means(pattern, job) for pattern in words)]


def _means(pattern: str, job: _Row) -> bool:
    key, equals, value = pattern.partition("=")
    if equals:
        return key in job["tags"] and fnmatch.fnmatchcase(job["tags"][key], value)
    return any(fnmatch.fnmatchcase(name, pattern) for name in (job["job_id"], job["name"]))


def _refuse(
    chosen: Mapping[str, list[_Row]],
    done: Mapping[str, list[_Row]],
    options: Mapping[str, list[str]],
    metric: str | None,
) -> None:
    """Refuse sets that cannot be compared. The error names all reasons."""
    mistakes = []
    for name, rows in chosen.items():
        words = ", ".join(options[name])
        if not rows:
            mistakes.append((f"--{name}", f"no job has an id, a name or a tag like {words}"))
        elif not done[name]:
            has_success = any(job["state"] == JobState.SUCCEEDED.value for job in rows)
            lacking = "is a whole run that succeeded" if has_success else "has succeeded"
            mistakes.append((f"--{name}", f"none of {counted(len(rows), 'job')} {lacking}: {words}"))
        elif metric is not None and not any(_number(metric)(job) is not None for job in done[name]):
            mistakes.append(("--metric", f"no job of {name.upper()} that succeeded reports {metric!r}"))
    if shared_jobs := sorted({job["job_id"] for job in chosen["a"]} & {job["job_id"] for job in chosen["b"]}):
        mistakes.append(("--a, --b", f"both sets have {first_few(shared_jobs, _SHOWN)}"))
    if mistakes:
        problems = [{"field": field, "problem": problem} for field, problem in mistakes]
        missing = any("no job has" in problem for _, problem in mistakes)
        code = Exit.NOT_FOUND if missing else Exit.USER
        raise CliError("the two sets cannot be compared", code, problems=problems)


_Figure = Callable[[_Row], float | None]


def _figures(metric: str | None, unpriced: set[str]) -> list[tuple[str, str, _Figure]]:
    """Return name, unit and value of each measure. None: a job does not have it."""

    def dollars(job: _Row) -> float | None:
        # A job that travelled has paid other clusters and the way, too.
        priced = job["job_id"] not in unpriced
        return float(job["cost_usd"] + job["abroad_usd"] + job["egress_usd"]) if priced else None

    def useful(job: _Row) -> float | None:
        running_seconds = job["job_duration_seconds"]
        return float(job["useful_seconds"] / running_seconds) if running_seconds else None

    figures: list[tuple[str, str, _Figure]] = [
        ("dollars", "usd", dollars),
        ("duration", "seconds", lambda job: float(job["total_duration_seconds"])),
        ("goodput", "share", useful),
    ]
    return [*figures, (metric, "metric", _number(metric))] if metric else figures


def _number(metric: str) -> _Figure:
    def value(job: _Row) -> float | None:
        reported = job["metrics"].get(metric)
        return float(reported) if isinstance(reported, int | float) and abs(reported) < float("inf") else None

    return value


def _common_metric(a: Sequence[_Row], b: Sequence[_Row]) -> str | None:
    """Return the accuracy if both sides report it, else the first metric that both have, else None."""
    from everspot_cli.report.model import ACCURACY

    common = set.intersection(*({name for job in side for name in job["metrics"]} for side in (a, b)))
    return next((name for name in (*ACCURACY, *sorted(common)) if name in common), None)


def _measure(done: Mapping[str, list[_Row]], name: str, unit: str, figure: _Figure) -> _Row | None:
    """Return the row of a measure, or None if a side has no value."""
    a, b = ([value for job in done[side] if (value := figure(job)) is not None] for side in ("a", "b"))
    return _row(name, unit, compared(a, b)) if a and b else None


def _row(name: str, unit: str, comparison: Comparison) -> _Row:
    percent = comparison.percent(comparison.difference)
    reach = comparison.percent(comparison.reach) if comparison.reach is not None else None
    return {
        "measure": name,
        "unit": unit,
        "a_jobs": comparison.a.count,
        "a_mean": comparison.a.mean,
        "a_spread": comparison.a.spread,
        "b_jobs": comparison.b.count,
        "b_mean": comparison.b.mean,
        "b_spread": comparison.b.spread,
        "difference": comparison.difference,
        "difference_percent": None if percent is None else round(percent, 2),
        "low": comparison.low,
        "high": comparison.high,
        "shown": comparison.shown,
        "detectable_percent": None if reach is None else round(reach, 2),
        "few": comparison.few,
    }


def _side(chosen: Sequence[_Row], done: Sequence[_Row], unpriced: set[str]) -> _Row:
    """Return the row of one set. Its dollars are those of all its jobs, or None if a price is unknown."""
    priced = not any(job["job_id"] in unpriced for job in chosen)
    spent = sum(job["cost_usd"] + job["abroad_usd"] + job["egress_usd"] for job in chosen) if priced else None
    return {
        "jobs": len(done),
        "chosen": len(chosen),
        "job_ids": [job["job_id"] for job in done],
        "first_submitted_at": min(job["submitted_at"] for job in done),
        "last_submitted_at": max(job["submitted_at"] for job in done),
        "cost_usd": None if spent is None else round(spent, 6),
        "usd_per_success": None if spent is None else round(spent / len(done), 6),
    }


def _partial_notes(succeeded: Mapping[str, list[_Row]], partial_runs: Mapping[str, str]) -> list[str]:
    """Return a note on the jobs of each set that succeeded and were no whole run."""
    partial_jobs = [job["job_id"] for rows in succeeded.values() for job in rows if job["job_id"] in partial_runs]
    reasons = [f"{job}: {partial_runs[job]}" for job in partial_jobs]
    return [f"Not compared: {first_few(reasons, _SHOWN)}."] if reasons else []


def _notes(chosen: Mapping[str, list[_Row]], done: Mapping[str, list[_Row]], unpriced: set[str]) -> list[str]:
    """Return notes that a reader of the figures needs."""
    notes = []
    for name in chosen:
        unsuccessful = sum(job["state"] != JobState.SUCCEEDED.value for job in chosen[name])
        if unsuccessful:
            each = _side(chosen[name], done[name], unpriced)["usd_per_success"]
            took = "" if each is None else f" With their dollars, a success of {name.upper()} took ${each:,.4f}."
            notes.append(f"{counted(unsuccessful, 'job')} of {name.upper()} without success: not compared.{took}")
        if lacking := [job["job_id"] for job in done[name] if job["job_id"] in unpriced]:
            notes.append(f"{first_few(lacking, _SHOWN)}: a price is not known, so their dollars are not compared.")
    spans = [(min(j["submitted_at"] for j in done[n]), max(j["submitted_at"] for j in done[n])) for n in ("a", "b")]
    if spans[0][1] < spans[1][0] or spans[1][1] < spans[0][0]:
        notes.append(
            "The sets were submitted at different times: other prices and interruptions are part of what differs."
        )
    notes.append(
        "Each interval stands for itself: of twenty such measures without a difference one shows one by chance."
    )
    return notes
