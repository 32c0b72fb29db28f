"""`everspot ui`: the web UI."""

import os
import sys
from typing import Annotated

import typer

from everspot_cli.commands.options import Json, current_session
from everspot_cli.errors import need


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("ui")(ui)


def ui(
    context: typer.Context,
    port: Annotated[
        int, typer.Option("--port", metavar="N", min=0, max=65535, help="Its port. Default: a free one.")
    ] = 0,
    no_open: Annotated[
        bool, typer.Option("--no-open", help="Print its address and open no browser, as with --json.")
    ] = False,
    actions: Annotated[bool, typer.Option("--actions", help="Allow cancelling and interrupting jobs in it.")] = False,
    json: Json = False,
) -> None:
    """Show jobs, fleet and spending in a web UI, kept up to date until Ctrl-C.

    Only this machine can reach it, with the token in the printed address. To see it from elsewhere, forward the port
    (ssh -L), with the same number on both sides.
    """
    need("everspot ui", "ui")
    from everspot_cli.ui.guard import Guard, Keys  # only where the extra is installed
    from everspot_cli.ui.opening import Doorway
    from everspot_cli.ui.routes import Pages
    from everspot_cli.ui.serve import bind_socket, serve
    from everspot_cli.ui.sources import Sources

    session = current_session(context, json)
    pages = Pages(Sources(session), acting=actions)
    listener = bind_socket(port)
    keys = Keys(port=listener.getsockname()[1])
    doorway: Doorway | None = None
    if session.json:
        session.answer({"url": keys.url, "port": keys.port, "actions": actions})
        sys.stdout.flush()
    else:
        mode = "Jobs can be cancelled on it." if actions else "Read-only; --actions allows to cancel jobs."
        session.console.print(f"{keys.url}\n{mode} Ctrl-C ends it.", soft_wrap=True)
        if not no_open and _browser():
            doorway = Doorway(keys)
            doorway.open()
    serve(Guard(pages.app(), keys), listener, doorway.remove if doorway is not None else lambda: None)


def _browser() -> bool:
    """Return whether the terminal belongs to a desktop. A text browser would take the terminal over."""
    if not sys.stdout.isatty():
        return False
    return sys.platform in ("darwin", "win32") or bool({"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys())
