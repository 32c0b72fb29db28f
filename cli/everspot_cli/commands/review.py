"""`everspot review`: mounts the commands of the room that judges, where its extra is installed."""

from typing import Any

import typer
from everspot_core.extras import check
from typer.core import TyperGroup

from everspot_cli.errors import CliError, Exit
from everspot_cli.registry import Command


def register(app: typer.Typer) -> None:
    """Add the commands.

    Raises:
        SystemExit: if the extra is not installed, with the sentence that names it.
    """
    check("everspot review", "review")
    from everspot_review.command import app as judging  # only where it is installed

    for info in judging.registered_commands:
        info.cls = Command
    app.add_typer(judging, cls=_Judging)


class _Judging(TyperGroup):
    """The group, with its errors told as those of all commands."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was named."""
        from everspot_review.errors import ReviewError
        from everspot_review.printing import harmless

        try:
            return super().invoke(ctx)
        except ReviewError as error:
            raise CliError(harmless(str(error)), Exit(int(error.code)), hint=harmless(error.hint)) from None
