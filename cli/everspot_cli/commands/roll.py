"""`everspot cluster roll`: replaces running instances by ones of the current image and settings."""

from datetime import timedelta
from typing import Annotated, Any

import typer
from everspot_core.documents import format_duration
from everspot_core.jobs.records import InstanceRecord, InstanceState, Order, Role, RollRequest

from everspot_cli.commands.options import Json, current_session, parse_duration_option
from everspot_cli.errors import CliError, Exit
from everspot_cli.requests import user
from everspot_cli.session import Session

POLL = timedelta(seconds=1)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("roll")(roll)


def roll(
    context: typer.Context,
    wait: Annotated[bool, typer.Option("--wait", help="Return when no old instance is left.")] = False,
    show: Annotated[bool, typer.Option("--show", help="Only show the progress.")] = False,
    timeout: Annotated[str, typer.Option("--timeout", help="Longest wait with --wait.")] = "1h",
    json: Json = False,
) -> None:
    """Replace instances of an older image or older settings, including busy ones, a quarter at a time.

    Busy instances are drained first. Without this command idle instances are replaced automatically, and busy ones when
    their job leaves them.
    """
    session = current_session(context, json)
    limit = parse_duration_option(timeout, "--timeout")
    generation = session.manifest.generation
    if not generation:
        raise CliError(
            "cluster.json names no generation: old and new instances cannot be distinguished",
            hint="`pulumi up` writes it; a cluster on a folder has none",
        )
    if not show:
        session.store.request_roll(RollRequest(at=session.now, by=user(), generation=generation))
    progress = _wait(session, generation, limit) if wait else _look(session, generation)
    if session.json:
        session.answer({"requested": not show, **progress})
    else:
        session.console.print(_words(progress))


def _wait(session: Session, generation: str, limit: timedelta) -> dict[str, Any]:
    began, printed = session.clock.monotonic(), ""
    while (progress := _look(session, generation))["old"]:
        if session.clock.monotonic() - began >= limit:
            raise CliError(
                f"not done within {format_duration(limit)}: {', '.join(progress['old'])} are still old",
                Exit.USER,
                hint="is the scheduler alive? `everspot doctor` checks",
            )
        if not session.json and (words := _words(progress)) != printed:
            printed = words
            session.console.print(words)
        session.clock.sleep(POLL)
    return progress


def _look(session: Session, generation: str) -> dict[str, Any]:
    """Return the progress of the roll. `leaving` are among the `old` ones."""
    store = session.store
    assignments, ends = store.assignments.scan(), set(store.ends.scan())
    agents = [d.value for i, d in store.instances.scan().items() if i not in ends and _is_live_agent(d.value)]
    old = sorted(a.instance_id for a in agents if a.generation not in ("", generation))
    return {
        "generation": generation,
        "current": sorted(a.instance_id for a in agents if a.instance_id not in old),
        "old": old,
        "busy": sorted(a.instance_id for a in agents if a.instance_id in old and (a.job_id is not None or a.residents)),
        "leaving": [i for i in old if i in assignments and assignments[i].value.order is Order.LEAVE],
    }


def _is_live_agent(record: InstanceRecord) -> bool:
    return record.role is Role.AGENT and record.state is not InstanceState.GONE


def _words(progress: dict[str, Any]) -> str:
    current, old, leaving = (len(progress[name]) for name in ("current", "old", "leaving"))
    if not old:
        return f"All {current} instances are of generation {progress['generation']}."
    return (
        f"{current} of {current + old} instances are of generation {progress['generation']}; {leaving} of the {old} "
        f"old ones are leaving, {len(progress['busy'])} of them hold a job."
    )
