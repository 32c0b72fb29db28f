"""Makes any text harmless in Markdown, and measures and cuts it."""

import html
import re
import unicodedata
from collections.abc import Callable, Iterable

Measure = Callable[[str], int]
"""The amount of a limit that a text uses. For two texts together it is the sum."""

_UNSEEN = frozenset({"Cc", "Cf", "Co", "Cs", "Zl", "Zp"})
"""Categories of characters that are invisible or change the direction of the text after them."""

_PROSE = re.compile(r"[A-Za-z][A-Za-z0-9 ,.:;'()→-]*")
_LINKED = re.compile(r"\b[0-9a-f]{7,}\b|\bGH-\d|www\.|:[\w+-]+:|--", re.IGNORECASE)
"""Texts of plain characters that a forge renders as a link, a revision, an emoji or a line."""


def visible(text: str) -> str:
    """Return the text in one line, with invisible characters written out as their numbers."""
    if text.isprintable():
        return text
    return "".join(f"\\u{ord(c):04x}" if unicodedata.category(c) in _UNSEEN else c for c in text)


def cut(text: str, most: int) -> str:
    """Return the text, or its beginning and an ellipsis, of at most so many characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def code(text: str, most: int = 120) -> str:
    """Return a code span for running text: no mention, link, formula or markup begins in one."""
    inner = cut(visible(text[: most + 1]), most).replace("`", "'").strip()
    return f"`{inner or ' '}`"


def cell(text: str, most: int = 60) -> str:
    """Return a code span for a table's cell, which a bar would end also within it."""
    return code(text, most).replace("|", "¦")


def marked(text: str, most: int = 80) -> str:
    """Return the same for a line of HTML, in which Markdown is not read."""
    return f"<code>{html.escape(cut(visible(text[: most + 1]), most))}</code>"


def prose(text: str, most: int = 400) -> str:
    """Return a sentence unchanged, if it contains nothing that could become markup; otherwise a code span."""
    sentence = cut(visible(text[: most + 1]), most)
    return sentence if _PROSE.fullmatch(sentence) and not _LINKED.search(sentence) else code(text, most)


def fence(lines: Iterable[str], kind: str = "") -> list[str]:
    """Return lines within a fence that none of them ends. Each is one line whatever it has in it."""
    inner = [visible(line) for line in lines]
    longest = max((len(run) for line in inner for run in re.findall("`+", line)), default=0)
    around = "`" * max(3, longest + 1)
    return [around + kind, *inner, around]


def units(text: str) -> int:
    """Return the length of a text as a forge counts it: characters beyond the first plane as two, to be on the safe
    side."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def octets(text: str) -> int:
    """Return the length of a text in UTF-8."""
    return len(text.encode("utf-8", "surrogatepass"))


def size(lines: Iterable[str], measure: Measure) -> int:
    """Return the size of lines, each with its end."""
    return sum(measure(line) + 1 for line in lines)
