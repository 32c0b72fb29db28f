"""Reads the fields of a stored document from its model: names, mandatory fields, and accepted values."""

from collections.abc import Iterator
from contextlib import suppress
from enum import Enum
from typing import Any, get_args, get_origin

from everspot_core.documents import Document
from everspot_core.jobs.job import JobSpec
from pydantic import BaseModel, TypeAdapter, ValidationError


def kinds() -> set[type[Document]]:
    """Every kind of document that the store keeps, and the report on a preview, which one job passes to another."""
    rooms = ("everspot_core.", "everspot_store.", "everspot_review.")
    return {kind for kind in _below(Document) if kind.__module__.startswith(rooms)}


def words(kind: type[BaseModel], path: str = "") -> dict[str, list[str]]:
    """The members of every enumeration in it, by the path of the field."""
    members: dict[str, list[str]] = {}
    for name, field in kind.model_fields.items():
        at = f"{path or kind.__name__}.{name}"
        for part in _leaf_types(field.annotation):
            if isinstance(part, type) and issubclass(part, Enum):
                members[at] = [member.value for member in part]
            elif isinstance(part, type) and issubclass(part, BaseModel):
                members |= words(part, at)
    return members


def accepts(kind: type[BaseModel], path: str, member: str) -> bool:
    """Return whether the field at a path accepts a text."""
    name, _, tail = path.partition(".")
    annotation = kind.model_fields[name].annotation
    if tail:
        inner = [p for p in _leaf_types(annotation) if isinstance(p, type) and issubclass(p, BaseModel)]
        return any(accepts(part, tail, member) for part in inner)
    for value in (member, [member]):
        with suppress(ValidationError):
            TypeAdapter(annotation).validate_python(value)
            return True
    return False


def least(kind: type[BaseModel], full: dict[str, Any]) -> dict[str, Any]:
    """Return the mandatory fields of `full`, at every depth."""
    required_fields = {name: field for name, field in kind.model_fields.items() if field.is_required()}
    required = {name: full[name] for name in required_fields}
    for name, field in required_fields.items():
        if get_origin(field.annotation) is dict:  # its values have rules between their fields
            continue
        for part in _leaf_types(field.annotation):
            if isinstance(part, type) and issubclass(part, BaseModel) and isinstance(required[name], dict):
                required[name] = least(part, required[name])
    if kind is JobSpec:  # which has to have one of two programs
        required |= {name: full[name] for name in ("recipe", "entrypoint", "code") if name in full}
    return required


def _below(kind: type[Any]) -> Iterator[type[Any]]:
    for sub in kind.__subclasses__():
        yield sub
        yield from _below(sub)


def _leaf_types(annotation: Any) -> Iterator[Any]:
    parts = get_args(annotation)
    if not parts:
        yield annotation
    for part in parts:
        yield from _leaf_types(part)
