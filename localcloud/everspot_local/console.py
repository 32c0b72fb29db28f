"""The consoles of the local cloud's commands and demonstrations."""

from rich.console import Console


class PlainConsole(Console):
    """A console that prints text as it is.

    Square brackets are no markup and `:words:` are no emoji, because most text is a user's: names, tags, messages.
    Color and weight come from `style=` and `rich.text.Text`.
    """

    def __init__(self, *, stderr: bool = False, width: int | None = None) -> None:
        super().__init__(stderr=stderr, width=width, highlight=False, markup=False, emoji=False)
