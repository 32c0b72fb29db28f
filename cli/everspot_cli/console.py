"""The consoles of the command."""

import os
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

_PIPE_WIDTH = 1000
_CONTROL_CODES = {*range(0x20), *range(0x7F, 0xA0)} - {ord("\n"), ord("\t")}
_VISIBLE = dict.fromkeys(_CONTROL_CODES, "\N{REPLACEMENT CHARACTER}")


def without_controls(text: str) -> str:
    """Return the text with its control characters replaced, except newlines and tabs. A terminal would obey them: they
    write its clipboard and its title (ECMA-48; xterm, "Operating System Commands")."""
    return text.translate(_VISIBLE)


class PlainConsole(Console):
    """A console that prints text as it is.

    Square brackets are no markup and `:words:` are no emoji, because most text is a user's: names, tags, messages.
    Control characters in it are replaced. Color and weight come from `style=` and `rich.text.Text`.
    """

    def __init__(self, *, stderr: bool = False, width: int | None = None) -> None:
        super().__init__(stderr=stderr, width=width, highlight=False, markup=False, emoji=False)

    @property
    def table_width(self) -> int:
        """The width for tables. A pipe or a file gets whole rows unless `COLUMNS` names a width."""
        return self.width if self.is_terminal or os.environ.get("COLUMNS") else _PIPE_WIDTH

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the parts of what is printed, without control characters in their texts."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else without_controls(text), style, control)
