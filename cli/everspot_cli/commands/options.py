"""Arguments that several commands share."""

from datetime import timedelta
from typing import Annotated

import typer

from everspot_cli.errors import CliError, Exit
from everspot_cli.session import Session

Json = Annotated[bool, typer.Option("--json", help="Answer with JSON.")]
JobId = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="The job's id, or the beginning of it. If several jobs match, the only one that has not ended.",
    ),
]
EndedJobId = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="The job's id, or the beginning of it. If several jobs match, the only one that has ended.",
    ),
]
Name = Annotated[str | None, typer.Option("--name", metavar="NAME", help="Override the job's name.")]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="FIELD=VALUE",
        help="Override a field of the job, such as parameters.epochs=5; repeatable.",
    ),
]
Env = Annotated[
    list[str] | None, typer.Option("--env", metavar="KEY=VALUE", help="Add an environment variable; repeatable.")
]
WaitForCapacity = Annotated[
    bool,
    typer.Option("--wait-for-capacity", help="Accept the job even if no instance type of the cluster can hold it."),
]
Month = Annotated[
    str | None,
    typer.Option("--month", metavar="YYYY-MM", help="A month of the calendar in UTC. Default: the present one."),
]
Watch = Annotated[
    bool,
    typer.Option(
        "--watch",
        "-w",
        help="Keep the table up to date until Ctrl-C; without a terminal, print a line for each change.",
    ),
]


def current_session(context: typer.Context, json: bool = False) -> Session:
    """Return the session of this run. `--json` counts before and after the command's name."""
    session: Session = context.obj
    session.json = session.json or json
    return session


def parse_duration_option(text: str, option: str) -> timedelta:
    """Return the duration that an option gives.

    Raises:
        CliError: if it is no duration.
    """
    from everspot_core.documents import parse_duration  # most commands have no durations

    try:
        value: timedelta = parse_duration(text)
    except ValueError as error:
        raise CliError(f"{option}: {error}", Exit.USAGE) from None
    return value
