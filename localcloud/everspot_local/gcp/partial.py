"""Stands in for Google's partial responses: what of an answer the parameter `fields` selects.

Source: Cloud Storage documentation, "Partial responses" (the same for all of Google's JSON APIs): fields separated by
commas, `a/b` for a field of a field, `a(b,c)` for several of them, `*` for every one.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from everspot_local.gcp.answers import ApiError

Selection = dict[str, "Selection"]
"""By the field's name what is selected of it; empty for all of it."""
_TOKEN = re.compile(r"[\w.$-]+|[*,/()]")


def read_selection(text: str) -> Selection:
    """Return what a `fields` parameter selects.

    Raises:
        ApiError: if it cannot be read.
    """
    tokens = _TOKEN.findall(text)
    if "".join(tokens) != re.sub(r"\s", "", text):
        raise _invalid(text)
    words = iter([*tokens, ""])
    try:
        selection, end = _read_list(words)
    except StopIteration:
        raise _invalid(text) from None
    if end:
        raise _invalid(text)
    return selection


def _read_list(words: Iterator[str]) -> tuple[Selection, str]:
    """Return a list of fields and the token behind it."""
    selection: Selection = {}
    while True:
        path, separator = [], "/"
        while separator == "/":
            path.append(name := next(words))
            if not name or name in ",/()":
                raise StopIteration
            separator = next(words)
        inner: Selection = {}
        if separator == "(":
            inner, closing = _read_list(words)
            if closing != ")":
                raise StopIteration
            separator = next(words)
        for name in reversed(path[1:]):
            inner = {name: inner}
        _merge(selection, {path[0]: inner})
        if separator != ",":
            return selection, separator


def _merge(target: Selection, more: Selection) -> None:
    for name, inner in more.items():
        if name not in target or not inner or not target[name]:
            target[name] = {} if name in target else inner
        else:
            _merge(target[name], inner)


def check_selection(selection: Selection, schemas: Mapping[str, Any], schema: Mapping[str, Any]) -> None:
    """Refuse fields that answers do not have. `schema`: of the answer, one of the API's `schemas` or a part of one."""
    schema = schemas[schema["$ref"]] if "$ref" in schema else schema
    if schema.get("type") == "array":
        check_selection(selection, schemas, schema["items"])
        return
    properties, others = schema.get("properties", {}), schema.get("additionalProperties")
    for name, inner in selection.items():
        if name == "*":
            for each in properties.values():
                if "$ref" in each or each.get("type") in ("array", "object"):
                    check_selection(inner, schemas, each)
            continue
        below = properties.get(name, others)
        if below is None:
            raise _invalid(name)
        check_selection(inner, schemas, below)


def select(document: Any, selection: Selection) -> Any:
    """Return what is selected of an answer."""
    if not selection:
        return document
    if isinstance(document, list):
        return [select(part, selection) for part in document]
    if not isinstance(document, dict):
        return document
    default = selection.get("*")
    chosen = {name: selection.get(name, default) for name in document}
    return {name: select(document[name], inner) for name, inner in chosen.items() if inner is not None}


def _invalid(what: str) -> ApiError:
    return ApiError(400, "invalidParameter", f"Invalid field selection {what}")
