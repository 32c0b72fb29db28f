"""`everspot submit` and `everspot retry`: what is checked and told of a job before it is taken, and taking it."""

import typer

from everspot_cli.commands.submit import command, retry


def register(app: typer.Typer) -> None:
    """Add the commands."""
    command.register(app)
    retry.register(app)
