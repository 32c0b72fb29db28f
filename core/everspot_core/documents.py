"""The base of every document that Everspot stores or passes between machines."""

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, PlainSerializer

_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(d|h|m|s)")
_UNIT = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds"}


def parse_duration(value: Any) -> Any:
    """`"1h30m"`, `"45s"`, `"2d"`, or a number of seconds, as a `timedelta`.

    Raises:
        ValueError: if a string is none of these.
    """
    if not isinstance(value, str):
        return value
    text = value.strip().lower()
    parts = _DURATION_PART.findall(text)
    if not parts or "".join(n + u for n, u in parts) != text:
        raise ValueError(f"{value!r} is not a duration; write for example 45s, 10m, 1h30m or 2d")
    try:
        return timedelta(**{_UNIT[u]: sum(float(n) for n, v in parts if v == u) for _, u in parts})
    except OverflowError:
        raise ValueError(f"{value[:40]!r} is longer than time itself is counted") from None


def format_duration(value: timedelta) -> str:
    """The shortest text that `parse_duration` reads back: `5400 s` is `1h30m`."""
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
    return value.astimezone(UTC)


Duration = Annotated[
    timedelta,
    BeforeValidator(parse_duration),
    PlainSerializer(lambda d: d.total_seconds(), return_type=float, when_used="json"),
]
"""A span of time. Text such as `1h30m` is read; JSON carries seconds."""

Utc = Annotated[datetime, AfterValidator(_as_utc)]
"""A moment, always with a zone, kept in UTC."""


class Frozen(BaseModel):
    """Immutable value. Unknown fields are refused, so that a misspelt setting is an error and not a silence."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Document(BaseModel):
    """A stored document. Unknown fields are ignored, so that an older reader survives a newer writer."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    version: int = 1

    def to_json(self) -> bytes:
        """The document as UTF-8 JSON."""
        return self.model_dump_json(exclude_none=True).encode()
