"""Tables that keep themselves up to date."""

from collections.abc import Callable
from datetime import timedelta

from rich.console import RenderableType
from rich.live import Live

from everspot_cli.session import Session

REFRESH = timedelta(seconds=2)


def watch(session: Session, draw: Callable[[], RenderableType], done: Callable[[], bool] = lambda: False) -> None:
    """Draw again and again until `done` or Ctrl-C."""
    with Live(draw(), console=session.console, auto_refresh=False, transient=False) as live:
        while not done():
            session.clock.sleep(REFRESH)
            live.update(draw(), refresh=True)
