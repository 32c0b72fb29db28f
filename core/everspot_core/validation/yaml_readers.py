"""Finds values that YAML readers interpret differently: a plain `2026-01-31` is a date to one and a text to another.

Three readings are compared: Go's yaml.v3, with which the Pulumi engine reads settings (its `resolve.go`); PyYAML, which
follows YAML 1.1 (its `resolver.py`); and the core schema of YAML 1.2. A value is allowed if all three read it the same:
`12`, `1.5`, `.inf`, `true`, `null`, `~`, and plain texts. `y` and `n` are texts to all three, though YAML 1.1 lists
them as booleans.
"""

import math
import re

from everspot_core.validation.problems import cut

_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?[0-9]+\.[0-9]*(?:[eE][-+][0-9]+)?|\.[0-9]+(?:[eE][-+][0-9]+)?")
_ENDLESS = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_NULL = re.compile(r"~|null|Null|NULL|")
_BOOL = re.compile(r"true|True|TRUE|false|False|FALSE")

_LARGEST = 2**63 - 1  # yaml.v3 reads a larger whole number as a float

_WORD = re.compile(r"yes|Yes|YES|no|No|NO|on|On|ON|off|Off|OFF")
_RADIX = re.compile(r"[-+]?0(?:[xX][0-9a-fA-F_]+|[oO][0-7_]+|[bB][01_]+)")
_ZERO = re.compile(r"[-+]?0[0-9_]+")
_SIXTIES = re.compile(r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?")
_NUMBER = re.compile(r"[-+]?(?:\.[0-9][0-9_]*|[0-9][0-9_]*(?:\.[0-9_]*)?)(?:[eE][-+]?[0-9][0-9_]*)?")
_MOMENT = re.compile(
    r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}"
    r"(?:(?:[Tt]|[ \t]+)[0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}(?:\.[0-9]*)?(?:[ \t]*(?:Z|[-+][0-9]{1,2}(?::?[0-9]{2})?))?)?"
)

_SEPARATORS = {"\x85": "U+0085", "\u2028": "U+2028", "\u2029": "U+2029"}
"""Characters that end a line in YAML 1.1 and not in 1.2, by what their author has to write in quotes."""


def is_moment(text: str) -> bool:
    """Return whether a plain text is a date or a moment to some readers."""
    return _MOMENT.fullmatch(text) is not None


def value_difference(text: str) -> str:
    """Return how readers differ about a plain value, and what to write instead; empty if they agree."""
    quoted = f'write "{cut(text, 60)}" for the text'
    if _WORD.fullmatch(text):
        return f"{text} is a boolean to some: {quoted}, or {str(text.lower() in ('yes', 'on')).lower()}"
    if _MOMENT.fullmatch(text):
        return f"{cut(text, 60)} is a date to some, and written otherwise by them: {quoted}"
    if _SIXTIES.fullmatch(text):
        return f"{cut(text, 60)} is a number of base 60 to some: {quoted}"
    if _RADIX.fullmatch(text) or _ZERO.fullmatch(text):
        return f"{cut(text, 60)} is a number to some, and not the same one to all: {quoted}"
    if text in ("=", "<<"):
        return f"{text} has a meaning of its own to some: {quoted}"
    if not _NUMBER.fullmatch(text):
        return ""
    if _INT.fullmatch(text):
        large = len(text) > 20 or abs(int(text)) > _LARGEST
        return (
            f"{cut(text, 60)} is larger than some readers' whole numbers: give a smaller one, or {quoted}"
            if large
            else ""
        )
    if _FLOAT.fullmatch(text) and math.isfinite(float(text)):
        return ""
    return f"{cut(text, 60)} is a number to some and a text to others: {quoted}{_as_number(text)}"


def key_difference(text: str) -> str:
    """Return how readers differ about a plain key, and what to write instead; empty if it is a text to all."""
    if text == "<<":
        return "<< merges mappings for some readers only: write the keys out"
    plain = any(kind.fullmatch(text) for kind in (_INT, _FLOAT, _ENDLESS, _NULL, _BOOL))
    if plain or value_difference(text):
        return f'the key {cut(text, 60) or "(empty)"} is no text to some: write "{cut(text, 60)}"'
    return ""


def separators(text: str) -> list[tuple[int, str]]:
    """Return the line of each character that ends a line for some readers only, and what is wrong with it."""
    if not any(char in text for char in _SEPARATORS):
        return []
    return [
        (number, f"{name} ends a line for some readers only: write \\u{name[2:]} in double quotes")
        for number, line in enumerate(text.split("\n"), 1)
        for char, name in _SEPARATORS.items()
        if char in line
    ]


def _as_number(text: str) -> str:
    """Return how to write a number so that all readers agree, as the end of a sentence; empty if no way exists."""
    plain = text.replace("_", "")
    if _INT.fullmatch(plain):
        return f", or {plain} for the number"
    number = float(plain)
    if not math.isfinite(number):
        return ""
    written = repr(number)
    if "e" in written and "." not in written:
        head, _, tail = written.partition("e")
        written = f"{head}.0e{tail}"
    return f", or {written} for the number"
