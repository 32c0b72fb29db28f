"""Checks a job's deadline at submission: whether it can be kept, cannot be kept, or whether that is unknown."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everspot_core.documents import format_duration
from everspot_core.job import JobSubmission
from everspot_store import BadDocument

from everspot_cli.errors import CliError
from everspot_cli.session import Session
from everspot_cli.tables import duration

if TYPE_CHECKING:
    from everspot_core.schedule.provisioning.feasibility import Feasibility

_MINUTE, _SECOND = timedelta(minutes=1), timedelta(seconds=1)


def bounded(session: Session, submission: JobSubmission) -> JobSubmission:
    """The job with the bound on a changeover by which its deadline is judged, here and later by the plan."""
    if submission.deadline_at is None:
        return submission
    return submission.model_copy(update={"changeover_bound": longest_changeover(session)})


def longest_changeover(session: Session) -> timedelta:
    """How long launch, boot and set-up may take as a rule, by what this cluster's schedulers have measured."""
    from everspot_core.changeover import Experience

    try:
        found = session.store.notes.changeovers()
    except BadDocument:  # it says no more than none would
        found = None
    bound = Experience(found.times if found is not None else ()).lasting()
    return timedelta(seconds=ceil(bound.total_seconds()))


def refuse_too_early(file: Path, said: "Feasibility | None", *, force: bool) -> None:
    """Refuse a deadline that cannot be kept, unless its author insists. One that has passed is refused all the same.

    Raises:
        CliError: if it cannot.
    """
    if said is not None and said.feasible is False and (said.past or not force):
        raise refusal(file, said)


def refusal(file: Path, said: "Feasibility") -> CliError:
    """The error for a deadline that cannot be kept: why, the earliest possible one, and what that costs."""
    problem = _minute(said.deadline) + (" has passed already" if said.past else f" is too early: {_why(said)}")
    if said.earliest is not None:
        problem += f". The earliest is {_minute(said.earliest, up=True)}{_cost(said)}"
    hint = f"`deadline: {_span(said.least, _MINUTE)}` or more can be kept" if said.least is not None else ""
    if not said.past:
        hint += f"{'; ' if hint else ''}--force submits it all the same"
    return CliError(
        f"{file}: the deadline cannot be kept",
        hint=hint,
        problems=[{"field": ", ".join(("deadline", *said.bounds)), "problem": problem}],
    )


def _why(said: "Feasibility") -> str:
    if said.slack is None or said.least is None:
        return "what expected_duration says ends on no date that there is"
    if said.bounds:
        by = " and ".join((*said.bounds, "expected_duration"))
        return f"by {by} the job ends {duration(-said.slack.total_seconds())} later"
    work, changeover = (_span(value, _SECOND) for value in (said.least - said.changeover, said.changeover))
    missing = duration(-said.slack.total_seconds())
    return f"the work takes up to {work} and the changeover before it up to {changeover}, {missing} more than there is"


def deadline_warnings(said: "Feasibility | None", *, force: bool) -> list[str]:
    """Warnings about the deadline of a job that is accepted. `force`: although it cannot be kept."""
    if force and said is not None and said.feasible is False and not said.past:
        return [f"the deadline, {_minute(said.deadline)}, is too early: {_why(said)}; it runs on-demand at once"]
    if said is None or said.feasible is not None:
        return []
    return [
        "without expected_duration nobody knows whether the deadline can be kept: the job takes what there is at once, "
        "and does not wait for spot"
    ]


def warn(session: Session, said: Iterable[str]) -> None:
    """Print warnings to standard error; with `--json` they are part of the answer instead."""
    if not session.json:
        for words in said:
            session.errors.print(f"warning: {words}", style="yellow", soft_wrap=True)


def deadline_row(said: "Feasibility | None") -> dict[str, Any] | None:
    """The facts about the deadline, as JSON."""
    if said is None:
        return None
    return {
        "at": said.deadline,
        "feasible": said.feasible,
        "slack_seconds": said.slack,
        "on_demand_by": said.begin_by,
        "earliest": said.earliest,
        "earliest_on_demand_usd": said.usd,
        "instance_type": said.cheapest.instance_type.name if said.cheapest else None,
        "region": said.cheapest.region if said.cheapest else None,
    }


def sentence(said: "Feasibility") -> str:
    """A sentence on a deadline that can be kept: how much time is to spare, and until when."""
    if said.begin_by is None:
        return f"The deadline, {_minute(said.deadline)}, can be kept, if nothing keeps the job from its hours."
    spare = duration(said.slack.total_seconds()) if said.slack is not None else "—"
    by = _minute(said.begin_by) if said.begin_by is not None else "—"
    return (
        f"The deadline, {_minute(said.deadline)}, can be kept with {spare} to spare; "
        f"on-demand has to begin by {by} at the latest."
    )


def _cost(said: "Feasibility") -> str:
    if said.usd is None or said.cheapest is None:
        return ""
    usd = f"{said.usd:.2f}" if said.usd >= 0.1 else f"{said.usd:.2g}"
    return f", for about ${usd} on-demand ({said.cheapest.instance_type.name} in {said.cheapest.region})"


def _span(value: timedelta, step: timedelta) -> str:
    """A duration in whole steps, rounded up, as it can be written into the file."""
    return format_duration(-(-value // step) * step)


def _minute(moment: datetime, *, up: bool = False) -> str:
    """A moment to the minute. `up`: rounded up, so that it can be written into the file."""
    if up and moment.replace(second=0, microsecond=0) != moment:
        moment += _MINUTE
    return f"{moment:%Y-%m-%d %H:%M} UTC"
