"""The common parts of all pages: the frame with the style inside, sections, and tables. They load nothing from the
network."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources

_COLOURED = ("state", "deadline")
_TONE = defaultdict(
    lambda: "run", SUCCEEDED="good", FAILED="bad", CANCELLED="soft", SKIPPED="soft", met="good", missed="bad"
)
_TONE["—"] = "soft"


def build_page(title: str, sections: Iterable[str]) -> str:
    """Return the page of these sections. Empty ones are left out."""
    style = (resources.files("everspot_cli") / "report" / "page.css").read_text()
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(part for part in sections if part)
        + "\n</main>\n</body>\n</html>\n"
    )


def section(title: str, body: str) -> str:
    """Return a heading with its body, which can be scrolled if it is too wide, by keyboard too."""
    attributes = f'role="region" aria-label="{escape(title)}" tabindex="0"'
    return f'<h2>{escape(title)}</h2><div class="scroll" {attributes}>{body}</div>'


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], text_columns: int) -> str:
    """Return a table whose first `text_columns` columns are text. The first column stays in sight on a narrow page, and
    states are coloured."""
    head = "".join(
        f"<th scope=col{' class=l' if index < text_columns else ''}>{escape(name)}</th>"
        for index, name in enumerate(columns)
    )

    def cell(index: int, value: str) -> str:
        kinds = [*(["l"] if index < text_columns else []), *([_TONE[value]] if columns[index] in _COLOURED else [])]
        classes = f' class="{" ".join(kinds)}"' if kinds else ""
        if index == 0:
            return f"<th scope=row{classes}>{escape(value)}</th>"
        return f"<td{classes}>{escape(value)}</td>"

    body = "".join(f"<tr>{''.join(cell(n, value) for n, value in enumerate(row))}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def card(value: str, label: str, small: str = "", tone: str = "") -> str:
    """Return a figure with its label; `small` is the line below it, and `tone` its colour: good or bad."""
    note = f"<small>{escape(small)}</small>" if small else ""
    return f'<div class="card"><span>{escape(label)}</span><b class="{tone}">{escape(value)}</b>{note}</div>'
