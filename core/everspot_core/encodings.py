"""Text output on consoles whose encoding lacks some characters."""

import codecs
import io

SUBSTITUTES = {
    "\N{EM DASH}": "-",
    "\N{EN DASH}": "-",
    "\N{HORIZONTAL ELLIPSIS}": "...",
    "\N{RIGHTWARDS ARROW}": "->",
    "\N{MIDDLE DOT}": "-",
    "\N{MULTIPLICATION SIGN}": "x",
    "\N{GREATER-THAN OR EQUAL TO}": ">=",
    "\N{LESS-THAN OR EQUAL TO}": "<=",
    "\N{PLUS-MINUS SIGN}": "+-",
    "\N{LEFT DOUBLE QUOTATION MARK}": '"',
    "\N{RIGHT DOUBLE QUOTATION MARK}": '"',
    "\N{FULL BLOCK}": "#",
    "\N{MEDIUM SHADE}": "=",
    "\N{LIGHT SHADE}": ".",
    "\N{BLACK RIGHT-POINTING SMALL TRIANGLE}": ">",
    "\N{OCTAGONAL SIGN}": "[stop]",
    "\N{WARNING SIGN}": "[warning]",
    "\N{WHITE HEAVY CHECK MARK}": "[ok]",
    "\N{VARIATION SELECTOR-16}": "",
}
"""ASCII text for the characters of the program's own sentences, tables and bars."""

ERROR_HANDLER = "everspot"


def substitute(text: str) -> str:
    """Return ASCII text for characters that cannot be encoded: the substitute, or the escape sequence of Python.

    User text is escaped and not transliterated, so that two different names stay different.
    """
    return "".join(
        SUBSTITUTES[char] if char in SUBSTITUTES else char.encode("ascii", "backslashreplace").decode() for char in text
    )


def degrade_output(*streams: object) -> None:
    """Let text streams write substitutes instead of raising `UnicodeEncodeError`.

    Covers encodings without a character (`PYTHONIOENCODING=latin-1`, cp437, cp1252, ascii), and lone surrogates of file
    names that are not UTF-8, which no encoding has. Streams that are not text files are left as they are.
    """
    codecs.register_error(ERROR_HANDLER, _replace)
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=ERROR_HANDLER)


def _replace(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return substitute(error.object[error.start : error.end]), error.end
