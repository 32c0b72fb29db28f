"""The base of every document that Everspot stores or passes between machines."""

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    PlainSerializer,
    SerializationInfo,
    TypeAdapter,
    ValidationInfo,
)

_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(d|h|m|s)")
_NUMBER = re.compile(r"[-+0-9.eE_]+")  # of seconds since 1970, as which pydantic would take it; a moment has `:` too
_MOST_DAYS = 3650
_LONGEST_TEXT = 64  # characters of a duration
_UNIT = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds"}


def parse_duration(value: Any) -> Any:
    """Return `"1h30m"`, `"45s"`, `"2d"`, or a number of seconds, as a `timedelta` from 0 to ten years.

    Raises:
        ValueError: if the value has none of these forms or is out of range.
    """
    if isinstance(value, bool):
        raise ValueError(f"{value} is not a duration; write for example 45s, 10m, 1h30m or 2d")
    if isinstance(value, int | float):
        return _span({"seconds": value})
    if not isinstance(value, str):
        return value
    text = value.strip().lower()
    parts = _DURATION_PART.findall(text[:_LONGEST_TEXT])
    if not parts or "".join(n + u for n, u in parts) != text:
        shown = value if len(value) <= _LONGEST_TEXT else f"{value[:_LONGEST_TEXT]}…"
        raise ValueError(f"{shown!r} is not a duration; write for example 45s, 10m, 1h30m or 2d")
    return _span({_UNIT[u]: sum(float(n) for n, v in parts if v == u) for _, u in parts})


def _span(parts: dict[str, float]) -> timedelta:
    try:
        span = timedelta(**parts)
    except (OverflowError, ValueError):  # more than a timedelta holds; not a number
        span = timedelta.max
    if not timedelta(0) <= span <= timedelta(days=_MOST_DAYS):
        raise ValueError(f"a duration lies between 0s and {_MOST_DAYS}d")
    return span


def format_duration(value: timedelta) -> str:
    """Return the shortest text that `parse_duration` reads back: `5400 s` is `1h30m`."""
    seconds = value.total_seconds()
    text = ""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        whole = int(seconds // size)
        if whole:
            text, seconds = f"{text}{whole}{unit}", seconds - whole * size
    if seconds or not text:
        text += f"{seconds:g}s"
    return text


def _as_utc(value: datetime) -> datetime:
    if value.tzinfo is None:
        raise ValueError("a time needs its zone, for example 2026-01-31T12:00:00Z")
    try:
        return value.astimezone(UTC)
    except OverflowError as error:  # pydantic takes no other error for a wrong value
        raise ValueError("a time lies between the years 1 and 9999 in UTC") from error


Duration = Annotated[
    timedelta,
    BeforeValidator(parse_duration),
    PlainSerializer(lambda d: d.total_seconds(), return_type=float, when_used="json"),
]
"""A span of time. Text such as `1h30m` is read; JSON carries seconds."""


def _no_number(value: Any) -> Any:
    if isinstance(value, bool | int | float) or (isinstance(value, str) and _NUMBER.fullmatch(value.strip())):
        raise ValueError("a moment is written with its zone, for example 2026-01-31T12:00:00Z")
    return value


Utc = Annotated[datetime, BeforeValidator(_no_number), AfterValidator(_as_utc)]
"""A point in time, always with a time zone and kept in UTC."""


_STORED = "stored"


def is_stored(info: ValidationInfo | SerializationInfo) -> bool:
    """Return whether the value is being read from, or written into, a document that programs write, and is no person's
    input or answer to one."""
    return info.context is not None and bool(info.context.get(_STORED))


class Frozen(BaseModel):
    """An immutable value that people write. Unknown fields are refused, so that a misspelt setting is an error. They
    are ignored in a document that `Document.read` reads, because a newer program may have written it."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Stored(BaseModel):
    """An immutable value inside a stored document, which only programs write. Unknown fields are ignored, so that an
    older reader can read the documents of a newer writer."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Document(BaseModel):
    """A stored document. `read` ignores unknown fields at every depth, so that an older reader can read the documents
    of a newer writer."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    version: int = 1

    @classmethod
    def read(cls, data: bytes | str) -> Self:
        """Return the document in the JSON `data`. Unknown fields, which a newer writer may have added, are left out at
        every depth, even in parts that refuse them where people write them.

        Raises:
            pydantic.ValidationError: if it is no such document.
        """
        return cls.model_validate_json(data, extra="ignore", context={_STORED: True})

    @classmethod
    def read_strictly(cls, data: bytes | str) -> Self:
        """Like `read`, but unknown fields are refused. Use it only to report them, because a newer release may have
        written the document.

        Raises:
            pydantic.ValidationError: if it is no such document, or has an unknown field.
        """
        return cls.model_validate_json(data, extra="forbid")

    def to_json(self) -> bytes:
        """Return the document as UTF-8 JSON.

        Lone surrogates, which UTF-8 cannot hold, are written as a text such as `\\udce9`. Names of files that are not
        UTF-8 have them, and so have the errors of programs about these files.
        """
        try:
            return self.model_dump_json(exclude_none=True, by_alias=True, context={_STORED: True}).encode()
        except ValueError:
            values = self.model_dump(mode="json", exclude_none=True, by_alias=True, context={_STORED: True})
            return TypeAdapter(Any).dump_json(_escape_surrogates(values))


def _escape_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        return {_escape_surrogates(name): _escape_surrogates(item) for name, item in value.items()}
    return [_escape_surrogates(item) for item in value] if isinstance(value, list) else value
