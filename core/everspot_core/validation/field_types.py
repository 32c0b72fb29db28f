"""Types of the fields that people fill in. They are stricter than pydantic's: `true`, for example, is not a number."""

import math
import re
from datetime import timedelta
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, PlainSerializer, StringConstraints, ValidationInfo

from everspot_core.documents import is_stored, parse_duration
from everspot_core.validation.problems import shown

_PERCENT = re.compile(r"(\d{1,6}(?:\.\d{1,12})?) ?%")


def _number(value: Any) -> Any:
    if isinstance(value, bool | str):
        raise ValueError(f"has to be a number, not {shown(value)}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("has to be a finite number")
    return value


def parse_percentage(value: Any) -> Any:
    """Return the number before the sign of a text such as `20%`.

    Raises:
        ValueError: if it is no such text.
    """
    match = _PERCENT.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"has to be a percentage such as 20%, not {shown(value)}")
    return round(float(match[1]), 4)


def _flag(value: Any) -> Any:
    if not isinstance(value, bool):
        raise ValueError(f"has to be true or false, not {shown(value)}")
    return value


def _some(value: Any, info: ValidationInfo) -> Any:
    if value == timedelta(0) and not is_stored(info):  # a stored one is read as an earlier release took it
        raise ValueError("has to be longer than 0s")
    return value


def parse_given(value: Any, info: ValidationInfo) -> Any:
    """Return a duration that a person writes, or that a stored document holds as seconds; other values unchanged.

    Raises:
        ValueError: if a text or a number is no duration, or has no unit.
    """
    span = parse_duration(value)
    if isinstance(value, int | float) and value and info.mode == "python" and not is_stored(info):  # 0 has none
        raise ValueError(f"{SAY_UNIT}: {value:g}s, {value:g}m, {value:g}h or {value:g}d")
    return span


def is_printable(text: str) -> bool:
    """Return whether a text has no control characters: no system takes a NUL in a path, and no terminal should get an
    escape."""
    return all(char.isprintable() or char == "\t" for char in text)


def _printable(text: str) -> str:
    if not is_printable(text):
        raise ValueError("has characters that cannot be printed")
    return text


SAY_UNIT = "has to say its unit"
Given = Annotated[
    timedelta,
    BeforeValidator(parse_given),
    PlainSerializer(lambda d: d.total_seconds(), return_type=float, when_used="json"),
]
"""A duration that a person writes. A bare number is refused, because nobody means seconds by `deadline: 6`. In JSON
that programs wrote, a number is seconds."""
NAME = r"^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$"
SAID_OF_NAMES = "1 to 40 small letters, digits and hyphens, with neither end a hyphen"
Name = Annotated[str, StringConstraints(pattern=NAME)]
Whole = Annotated[int, BeforeValidator(_number)]
Number = Annotated[float, BeforeValidator(_number)]
Flag = Annotated[bool, BeforeValidator(_flag)]
"""A boolean of YAML or JSON. Words such as `"no"` and the numbers 1 and 0 are refused."""
Span = Annotated[Given, AfterValidator(_some)]
"""A duration that is longer than zero."""
Percent = Annotated[
    float,
    BeforeValidator(parse_percentage),
    PlainSerializer(lambda share: f"{share:.7g}%", return_type=str, when_used="json"),
]
"""A percentage with its sign, such as `20%`, as the number before the sign."""
Line = Annotated[str, StringConstraints(max_length=1024), AfterValidator(_printable)]
