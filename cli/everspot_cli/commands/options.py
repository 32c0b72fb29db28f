"""Arguments that several commands share."""

from typing import Annotated

import typer

from everspot_cli.session import Session

Json = Annotated[bool, typer.Option("--json", help="Answer with JSON.")]
JobId = Annotated[str, typer.Argument(metavar="ID", help="The job's id, or the beginning of it if that is unique.")]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Keep the table up to date until Ctrl-C.")]


def session_of(context: typer.Context, json: bool = False) -> Session:
    """The session of this run; `--json` counts wherever it stands."""
    session: Session = context.obj
    session.json = session.json or json
    return session
