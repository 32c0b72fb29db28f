"""Checks a job's deadline at submission: whether it can be kept, cannot be kept, or whether that is unknown."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from everspot_core.documents import format_duration

from everspot_cli.errors import CliError
from everspot_cli.session import Session
from everspot_cli.tables import duration

if TYPE_CHECKING:
    from everspot_core.schedule.provisioning.feasibility import Feasibility

_MINUTE, _SECOND = timedelta(minutes=1), timedelta(seconds=1)


def refuse_too_early(subject: str, verdict: "Feasibility | None", *, force: bool) -> None:
    """Refuse a deadline that cannot be kept, unless its author insists. One that has passed is refused all the same.

    Raises:
        CliError: if it cannot.
    """
    if verdict is not None and verdict.feasible is False and (verdict.past or not force):
        raise refusal(subject, verdict)


def refusal(subject: str, verdict: "Feasibility") -> CliError:
    """Return the error for a deadline that cannot be kept: why, the earliest possible one, and what that costs."""
    problem = _minute(verdict.deadline) + (
        " has passed already" if verdict.past else f" is too early: {_explain_shortfall(verdict)}"
    )
    if verdict.earliest is not None:
        problem += f". The earliest is {_minute(verdict.earliest, up=True)}{_cost(verdict)}"
    hint = f"`deadline: {_span(verdict.least, _MINUTE)}` or more can be kept" if verdict.least is not None else ""
    if not verdict.past:
        hint += f"{'; ' if hint else ''}--force submits it all the same"
    return CliError(
        f"{subject}: the deadline cannot be kept",
        hint=hint,
        problems=[{"field": ", ".join(("deadline", *verdict.bounds)), "problem": problem}],
    )


def _explain_shortfall(verdict: "Feasibility") -> str:
    if verdict.slack is None or verdict.least is None:
        return "what expected_duration says ends on no date that there is"
    if verdict.bounds:
        by = " and ".join((*verdict.bounds, "expected_duration"))
        return f"by {by} the job ends {duration(-verdict.slack.total_seconds())} later"
    work, changeover = (_span(value, _SECOND) for value in (verdict.least - verdict.changeover, verdict.changeover))
    missing = duration(-verdict.slack.total_seconds())
    return f"the work takes up to {work} and the changeover before it up to {changeover}, {missing} more than there is"


def deadline_warnings(verdict: "Feasibility | None", *, force: bool) -> list[str]:
    """Warnings about the deadline of a job that is accepted. `force`: although it cannot be kept."""
    if force and verdict is not None and verdict.feasible is False and not verdict.past:
        return [
            f"the deadline, {_minute(verdict.deadline)}, is too early: {_explain_shortfall(verdict)}; "
            "it runs on-demand immediately"
        ]
    if verdict is None or verdict.feasible is not None:
        return []
    return [
        "without expected_duration nobody knows whether the deadline can be kept: the job takes any capacity "
        "immediately, and does not wait for spot"
    ]


def warn(session: Session, warnings: Iterable[str]) -> None:
    """Print warnings to standard error; with `--json` they are part of the answer instead."""
    if not session.json:
        for words in warnings:
            session.errors.print(f"warning: {words}", style="yellow", soft_wrap=True)


def deadline_row(verdict: "Feasibility | None") -> dict[str, Any] | None:
    """Return the facts about the deadline, as JSON."""
    if verdict is None:
        return None
    return {
        "at": verdict.deadline,
        "feasible": verdict.feasible,
        "slack_seconds": verdict.slack,
        "on_demand_by": verdict.begin_by,
        "earliest": verdict.earliest,
        "earliest_on_demand_usd": verdict.usd,
        "instance_type": verdict.cheapest.instance_type.name if verdict.cheapest else None,
        "region": verdict.cheapest.region if verdict.cheapest else None,
    }


def sentence(verdict: "Feasibility") -> str:
    """Return a sentence on a deadline that can be kept: how much time is to spare, and until when."""
    if verdict.begin_by is None:
        return f"The deadline, {_minute(verdict.deadline)}, can be kept, if nothing keeps the job from its hours."
    spare = duration(verdict.slack.total_seconds()) if verdict.slack is not None else "—"
    by = _minute(verdict.begin_by) if verdict.begin_by is not None else "—"
    return (
        f"The deadline, {_minute(verdict.deadline)}, can be kept with {spare} to spare; "
        f"on-demand has to begin by {by} at the latest."
    )


def _cost(verdict: "Feasibility") -> str:
    if verdict.usd is None or verdict.cheapest is None:
        return ""
    usd = f"{verdict.usd:.2f}" if verdict.usd >= 0.1 else f"{verdict.usd:.2g}"
    return f", for about ${usd} on-demand ({verdict.cheapest.instance_type.name} in {verdict.cheapest.region})"


def _span(value: timedelta, step: timedelta) -> str:
    """Return a duration in whole steps, rounded up, as it can be written into the file."""
    return format_duration(-(-value // step) * step)


def _minute(moment: datetime, *, up: bool = False) -> str:
    """Return a moment to the minute. `up`: rounded up, so that it can be written into the file."""
    if up and moment.replace(second=0, microsecond=0) != moment:
        moment += _MINUTE
    return f"{moment:%Y-%m-%d %H:%M} UTC"
