"""Times each part of the demonstration, prints it while it runs, and prints a summary at the end."""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from everspot_local.console import PlainConsole


@dataclass
class Phases:
    """The finished parts, with their real seconds."""

    console: PlainConsole
    began: float = field(default_factory=time.monotonic)
    done: list[tuple[str, float]] = field(default_factory=list)

    @property
    def minutes(self) -> float:
        """Return the minutes since the beginning."""
        return (time.monotonic() - self.began) / 60

    @contextlib.contextmanager
    def phase(self, title: str, name: str) -> Iterator[None]:
        """Announce a part by its title and add its time under its name. A part that fails counts too."""
        self.console.print(f"▸ {title}", style="bold")
        began = time.monotonic()
        try:
            yield
        finally:
            self.done.append((name, time.monotonic() - began))
        self.console.print(f"  done in {self.done[-1][1]:.0f} s")

    def line(self) -> str:
        """Return all parts in one line."""
        parts = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in self.done)
        return f"time: {self.minutes:.1f} min ({parts})"
