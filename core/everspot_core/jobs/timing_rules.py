"""Rules between the fields of a job file that concern other jobs and times."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from pydantic import TypeAdapter, ValidationError

from everspot_core.documents import Utc, format_duration, parse_duration
from everspot_core.jobs.run_condition import EXAMPLE, MetricSource, RunCondition
from everspot_core.validation.problems import Problem

MOST_AFTER = 20
LEAST_EVERY = timedelta(minutes=1)
_MOMENT: TypeAdapter[datetime] = TypeAdapter(Utc)


def after_faults(value: Any) -> list[Problem]:
    """Return the faults of the field `after`."""
    if not isinstance(value, list):
        return []
    problems = [
        Problem(f"[{n}]", "must be the name or the id of a job")
        for n, name in enumerate(value)
        if not isinstance(name, str) or not name or len(name) > 100 or not name.isprintable()
    ]
    words = [name for name in value if isinstance(name, str)]
    if len(set(words)) < len(words) or len(words) > MOST_AFTER:
        problems.append(Problem("", f"at most {MOST_AFTER} jobs, each once"))
    return problems


def timing_faults(values: Mapping[str, Any]) -> list[Problem]:
    """Return the faults between fields. `values`: the job's fields, as written or as parsed. A value that is wrong in
    itself is reported elsewhere, and ignored here."""
    problems: list[Problem] = []
    name, after = values.get("name"), values.get("after")
    if isinstance(after, list) and name in after:
        problems.append(Problem("after", "names the job itself, which would wait for ever"))
    interval, deadline, skip = (values.get(key) for key in ("every", "deadline", "skip_if"))
    if skip is not None and interval is None:
        problems.append(Problem("skip_if", "belongs to a series: every is missing"))
    if values.get("continue_from") is not None and interval is None:
        problems.append(Problem("continue_from", "belongs to a series: every is missing"))
    condition = values.get("run_if")
    if isinstance(condition, RunCondition):
        problems += _condition_faults(condition, after if isinstance(after, list) else [])
    if interval is not None and _moment(deadline) is not None:
        problems.append(Problem("deadline", "must be a duration where every makes a series: a moment is one run's"))
    return problems + _deadline_faults(values)


def _condition_faults(condition: RunCondition, after: list[Any]) -> list[Problem]:
    """Return the faults of a condition that compares only numbers, or uses `metric()` without a job in `after`. Names
    of jobs in `after` that are given by id are checked at submission."""
    constant = [comparison for comparison in condition.comparisons if not comparison.refs]
    if constant:
        words = f"{constant[0]} compares numbers alone: name a metric, as in `{EXAMPLE}`"
        return [Problem("run_if", words)]
    if after or all(ref.source is not MetricSource.METRIC for ref in condition.refs):
        return []
    return [
        Problem("run_if", "metric() is of a job of after, which names none: write last(), or name the job in after")
    ]


def too_short_faults(values: Mapping[str, Any]) -> list[Problem]:
    """Return the fault of a deadline, as a duration, that is shorter than the work. `values`: as for
    `timing_faults`."""
    deadline, work = _span(values.get("deadline")), _span(values.get("expected_duration"))
    if deadline is None or work is None or deadline >= work:
        return []
    reason = f"is too early: expected_duration alone is {format_duration(work)}, and a changeover comes before it"
    return [Problem("deadline", reason)]


def _deadline_faults(values: Mapping[str, Any]) -> list[Problem]:
    """Return the fault of a deadline that passes before the job may begin. Submission also checks the job's length and
    window."""
    start, deadline = values.get("start_after"), values.get("deadline")
    for kind in (_moment, _span):
        begin, end = kind(start), kind(deadline)
        if begin is not None and end is not None and end <= begin:
            return [Problem("deadline, start_after", "contradict each other: it is over before the job may begin")]
    return []


def _span(value: Any) -> Any:
    if isinstance(value, str):
        try:
            value = parse_duration(value)
        except ValueError:
            return None
    return value if isinstance(value, timedelta) else None


def _moment(value: Any) -> Any:
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value
    if not isinstance(value, str):
        return None
    try:
        return _MOMENT.validate_python(value)
    except ValidationError:
        return None
