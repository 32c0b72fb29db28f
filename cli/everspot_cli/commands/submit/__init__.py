"""`everspot submit` and `everspot retry`: the checks before a job is accepted, and its submission."""

import typer

from everspot_cli.commands.submit import command, retry


def register(app: typer.Typer) -> None:
    """Add the commands."""
    command.register(app)
    retry.register(app)
