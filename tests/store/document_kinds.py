"""What a stored document is made of, read from its model: its words, what has to be given, what a field takes."""

from collections.abc import Iterator
from contextlib import suppress
from enum import Enum
from typing import Any, get_args, get_origin

from everspot_core.documents import Document
from everspot_core.job import JobSpec
from pydantic import BaseModel, TypeAdapter, ValidationError


def kinds() -> set[type[Document]]:
    """Every kind of document that the store keeps, and the report on a preview, which one job passes to another."""
    rooms = ("everspot_core.", "everspot_store.", "everspot_review.")
    return {kind for kind in _below(Document) if kind.__module__.startswith(rooms)}


def words(kind: type[BaseModel], path: str = "") -> dict[str, list[str]]:
    """The members of every enumeration in it, by the path of the field."""
    found: dict[str, list[str]] = {}
    for name, field in kind.model_fields.items():
        at = f"{path or kind.__name__}.{name}"
        for part in _leaves(field.annotation):
            if isinstance(part, type) and issubclass(part, Enum):
                found[at] = [member.value for member in part]
            elif isinstance(part, type) and issubclass(part, BaseModel):
                found |= words(part, at)
    return found


def takes(kind: type[BaseModel], path: str, word: str) -> bool:
    """Whether the field at a path takes a word."""
    name, _, rest = path.partition(".")
    annotation = kind.model_fields[name].annotation
    if rest:
        inner = [p for p in _leaves(annotation) if isinstance(p, type) and issubclass(p, BaseModel)]
        return any(takes(part, rest, word) for part in inner)
    for value in (word, [word]):
        with suppress(ValidationError):
            TypeAdapter(annotation).validate_python(value)
            return True
    return False


def least(kind: type[BaseModel], full: dict[str, Any]) -> dict[str, Any]:
    """What `full` holds in the fields that have to be given, at every depth."""
    known = {name: field for name, field in kind.model_fields.items() if field.is_required()}
    found = {name: full[name] for name in known}
    for name, field in known.items():
        if get_origin(field.annotation) is dict:  # its values have rules between their fields
            continue
        for part in _leaves(field.annotation):
            if isinstance(part, type) and issubclass(part, BaseModel) and isinstance(found[name], dict):
                found[name] = least(part, found[name])
    if kind is JobSpec:  # which has to have one of two programs
        found |= {name: full[name] for name in ("recipe", "entrypoint", "code") if name in full}
    return found


def _below(kind: type[Any]) -> Iterator[type[Any]]:
    for sub in kind.__subclasses__():
        yield sub
        yield from _below(sub)


def _leaves(annotation: Any) -> Iterator[Any]:
    parts = get_args(annotation)
    if not parts:
        yield annotation
    for part in parts:
        yield from _leaves(part)
