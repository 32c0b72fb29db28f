"""Types of the fields that people fill in: stricter than what pydantic takes, since `true` is no number here."""

import math
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, StringConstraints

from everspot_core.problems import shown


def _number(value: Any) -> Any:
    if isinstance(value, bool | str):
        raise ValueError(f"has to be a number, not {shown(value)}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("has to be a finite number")
    return value


def printable(text: str) -> str:
    """No control characters: no system takes a NUL in a path or a word, and no terminal should be sent an escape."""
    if not all(char.isprintable() or char in "\t" for char in text):
        raise ValueError("has characters that cannot be printed")
    return text


NAME = r"^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$"
SAID_OF_NAMES = "1 to 40 small letters, digits and hyphens, with neither end a hyphen"
Name = Annotated[str, StringConstraints(pattern=NAME)]
Whole = Annotated[int, BeforeValidator(_number)]
Number = Annotated[float, BeforeValidator(_number)]
Line = Annotated[str, StringConstraints(max_length=1024), AfterValidator(printable)]
