"""Translates a model's validation errors into problems: one for each field, with its path and the allowed values."""

import re
from collections.abc import Mapping
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from everspot_core.validation.field_types import NAME, SAID_OF_NAMES, SAY_UNIT
from everspot_core.validation.problems import SHOWN_AT_MOST, BadInputs, Problem, Problems, camel, cut, near, shown

M = TypeVar("M", bound=BaseModel)

_PATH_AT_MOST, _WORDS_AT_MOST = 80, 800
# The members of a union put their type's name into the location: it says nothing to the author.
_UNION = re.compile(r"function-.*|timedelta|datetime")
_SAY_WHEN = (
    "a moment is written with its zone, such as 2026-11-23T08:00:00+01:00, and a duration with its unit, such as 6h"
)
_SHOULD = re.compile(r"^(Input|String|List|Dictionary|Value) should ")
_BY_TYPE = {
    "missing": "is missing",
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "dict_type": "must be a mapping",
    "finite_number": "must be a finite number",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "int_from_float": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "list_type": "must be a list",
    "model_type": "must be a mapping",
    "string_type": "must be a text",
    "time_delta_type": "must be a duration such as 45s, 10m or 1h30m",
}


def translate_errors(error: ValidationError, kind: type[BaseModel]) -> list[Problem]:
    """Return one problem for each wrong field. A field of a union type fails once for each type, and is reported once.

    Problems beyond `SHOWN_AT_MOST` have no text, because they are only counted. `kind`: the model; its fields are the
    allowed ones.
    """
    fields: dict[str, list[dict[str, Any]]] = {}
    for detail in error.errors(include_url=False):
        entry = dict(detail)
        where = _where(entry)
        inner = detail.get("ctx", {}).get("error")
        if isinstance(inner, BadInputs):
            for problem in inner.problems:
                fields.setdefault(_path([*where, problem.path]), []).append({"reason": problem.reason})
        else:
            fields.setdefault(_path(where), []).append(entry)
    return [
        Problem(legible(cut(path, _PATH_AT_MOST)), _reason(entry, kind) if number < SHOWN_AT_MOST else "")
        for number, (path, entry) in enumerate(fields.items())
    ]


def parse_model(problems: Problems, kind: type[M], values: Mapping[str, Any], note: str = "") -> M | None:
    """Return the inputs as a model. If they are wrong, return None and add a problem for each wrong input, followed by
    `note`. Problems name inputs as settings do."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        for fault in translate_errors(error, kind):
            head, dot, inner_path = fault.path.partition(".")
            problems.add(camel(head) + dot + inner_path, fault.reason + note)
        return None


def _reason(entries: list[dict[str, Any]], kind: type[BaseModel]) -> str:
    words = list(dict.fromkeys(_words(fault, kind) for fault in entries[:SHOWN_AT_MOST]))
    # A duration that is out of bounds, or lacks its unit, is no moment either, and nobody meant it to be one.
    relevant = [text for text in words if text.startswith(("a duration lies", "has to be longer", SAY_UNIT))]
    if not relevant and _is_of_moments(entries):
        zone = [text for text in words if text.startswith("a time needs its zone")]
        relevant = zone or [f"{_SAY_WHEN}, not {shown(entries[0]['input'])}"]
    return cut(legible("; and ".join(relevant or words)), _WORDS_AT_MOST)


def _is_of_moments(entries: list[dict[str, Any]]) -> bool:
    """Return whether the field takes durations and moments, and its value is neither."""
    members = [str(part) for fault in entries if "loc" in fault for part in fault["loc"] if _UNION.fullmatch(str(part))]
    return any("timedelta" in part for part in members) and any("datetime" in part for part in members)


def _words(fault: dict[str, Any], kind: type[BaseModel]) -> str:
    if "reason" in fault:
        return str(fault["reason"])
    value, where = fault["input"], _where(fault)
    if fault["type"] == "extra_forbidden":
        return unknown_field(where[-1], _fields(kind, where[:-1]))
    if fault["type"] in ("enum", "literal_error"):
        return f"must be {fault['ctx']['expected']}, not {shown(value)}"
    if fault["type"] == "string_pattern_mismatch" and fault["ctx"]["pattern"] == NAME:
        return f"{SAID_OF_NAMES}, not {shown(value)}"
    message = _BY_TYPE.get(fault["type"]) or _SHOULD.sub("must ", str(fault["msg"]).removeprefix("Value error, "))
    if message.startswith(SAY_UNIT):
        return message
    plain = isinstance(value, str | int | float | bool) and fault["type"] != "missing"
    return f"{message}, not {shown(value)}" if plain and shown(value) not in message else message


def unknown_field(name: str, allowed: list[str]) -> str:
    """Return the problem of an unknown field."""
    return f"unknown field{near(name, allowed)}" + (f"; allowed: {', '.join(allowed)}" if allowed else "")


def _where(fault: dict[str, Any]) -> list[str]:
    return [f"[{part}]" if isinstance(part, int) else part for part in fault["loc"] if not _UNION.fullmatch(str(part))]


def _path(parts: list[str]) -> str:
    return ".".join(part for part in parts if part).replace(".[", "[")


def _fields(kind: type[BaseModel], path: list[str]) -> list[str]:
    """Return the fields of the model at a path; empty if there is no model there."""
    for part in (part for part in path if not part.startswith("[")):
        inner = kind.model_fields[part].annotation if part in kind.model_fields else None
        # An optional model, or a list of one, is that model here.
        models = [m for m in (inner, *get_args(inner)) if isinstance(m, type) and issubclass(m, BaseModel)]
        if not models:
            return []
        kind = models[0]
    return list(kind.model_fields)


def legible(text: str) -> str:
    """Return the text without control characters, which a terminal would obey: names of fields come from the author."""
    return "".join(char if char.isprintable() else "�" for char in text)
