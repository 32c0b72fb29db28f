"""Stands in for Google's validation of requests: bodies by the schemas of the official discovery documents.

A schema does not say which fields exclude each other, or which are required for other reasons; those rules are in the
modules of the resources.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from everspot_local.gcp.answers import ApiError, required

Schema = Mapping[str, Any]
_RANGES = {
    "int32": (-(2**31), 2**31 - 1), "uint32": (0, 2**32 - 1), "int64": (-(2**63), 2**63 - 1), "uint64": (0, 2**64 - 1),
}  # fmt: skip


class BadField(ValueError):
    """An error in a body by its schema. `path`: of the field."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(message)
        self.path = path


class Body:
    """Bodies of one method's requests.

    Args:
        schemas: of the API, by name.
        schema: of the body.
        method: id of the method; schemas name required fields by it.
        empties: whether what is empty counts as said, as on APIs newer than Compute.
        patch: whether it changes what is there: what is empty counts as said, and nothing is required.
    """

    def __init__(
        self, schemas: Mapping[str, Schema], schema: Schema, method: str, *, empties: bool, patch: bool = False
    ) -> None:
        self._schemas, self._schema, self._method, self._empties = schemas, schema, method, empties or patch
        self._patch = patch

    def has(self, field: str) -> bool:
        """Return whether a body may have a field."""
        schema = self._schemas[self._schema["$ref"]] if "$ref" in self._schema else self._schema
        return field in schema.get("properties", {})

    def read(self, body: Any) -> dict[str, Any]:
        """Return a body with every value in the form of answers.

        Raises:
            ApiError: naming everything that is wrong in it.
        """
        bad: list[BadField] = []
        document = self._value(self._schema, {} if body is None else body, "resource", bad)
        if bad:
            raise refusal(bad)
        if not self._patch:  # what is not said in a patch stays as it is
            self._check_required(self._schema, document, "resource")
        return document  # type: ignore[no-any-return]

    def _value(self, schema: Schema, value: Any, path: str, bad: list[BadField]) -> Any:
        schema = self._schemas[schema["$ref"]] if "$ref" in schema else schema
        kind = schema.get("type", "object")
        if value is None or kind == "any":
            return value
        if kind == "object":
            return self._object(schema, value, path, bad)
        if kind == "array":
            if not isinstance(value, list):
                bad.append(BadField(path, f"Invalid value at '{path}' (array expected), {json.dumps(value)[:80]}"))
                return None
            parts = [self._value(schema["items"], part, f"{path}[{i}]", bad) for i, part in enumerate(value)]
            return [part for part in parts if part is not None]
        try:
            return _scalar(schema, value, path)
        except BadField as error:
            bad.append(error)
            return None

    def _object(self, schema: Schema, value: Any, path: str, bad: list[BadField]) -> dict[str, Any]:
        if not isinstance(value, dict):
            bad.append(BadField(path, f"Invalid value at '{path}' (object expected), {json.dumps(value)[:80]}"))
            return {}
        properties, more = schema.get("properties", {}), schema.get("additionalProperties")
        fields = {}
        for key, part in value.items():
            inner = properties.get(key, more)
            if inner is None:
                # An unknown name with an empty value is accepted: the provider sends a router's `initialNatIps` like
                # this, which Compute's schema lacks (resource_compute_router_nat.go).
                if part is not None and part != []:
                    bad.append(_unknown(key, path))
                continue
            read = self._value(inner, part, f"{path}.{key}", bad)
            # A map keeps an empty value; of a message, what is empty is what was not sent.
            if (
                self._empties
                or (key not in properties and read is not None)
                or _is_set(read)
                or _is_metadata(path, key)
            ):
                fields[key] = read
        return fields

    def _check_required(self, schema: Schema, value: Any, path: str) -> None:
        schema = self._schemas[schema["$ref"]] if "$ref" in schema else schema
        if not isinstance(value, dict):
            return
        for key, inner in schema.get("properties", {}).items():
            if self._method in inner.get("annotations", {}).get("required", ()) and not _is_set(value.get(key)):
                raise required(f"{path}.{key}")
            if key in value:
                self._check_required(inner, value[key], f"{path}.{key}")


def _scalar(schema: Schema, value: Any, path: str) -> Any:
    """Return a value in the form of answers: long integers as text, short ones as numbers."""
    kind, form = schema.get("type"), schema.get("format", "")
    if kind == "boolean":
        if not isinstance(value, bool):
            raise _wrong(path, "TYPE_BOOL", value)
        return value
    if form in _RANGES:
        number = _integer(value, form, path)
        return str(number) if form.endswith("64") else number
    if kind == "integer":
        return _integer(value, "int32", path)
    if kind == "number":
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _wrong(path, "TYPE_DOUBLE", value)
        return value
    if not isinstance(value, str):
        raise _wrong(path, "TYPE_STRING", value)
    if value and "enum" in schema and value not in schema["enum"]:
        raise BadField(path, f"Invalid value at '{path}' ({path.rpartition('.')[2]}), {json.dumps(value)}")
    if value and "pattern" in schema and not re.fullmatch(schema["pattern"], value):
        raise BadField(
            path, f"Invalid value for field '{path}': '{value}'. Must be a match of regex '{schema['pattern']}'"
        )
    return value


def _integer(value: Any, form: str, path: str) -> int:
    low, high = _RANGES[form]
    try:
        number = int(value)
    except (TypeError, ValueError):
        raise _wrong(path, f"TYPE_{form.upper()}", value) from None
    if (
        isinstance(value, bool)
        or number != (value if isinstance(value, float) else number)
        or not low <= number <= high
    ):
        raise _wrong(path, f"TYPE_{form.upper()}", value)
    return number


def _wrong(path: str, kind: str, value: Any) -> BadField:
    return BadField(path, f"Invalid value at '{path}' ({kind}), {json.dumps(value)}")


def _unknown(key: str, path: str) -> BadField:
    return BadField(path, f"Invalid JSON payload received. Unknown name \"{key}\" at '{path}': Cannot find field.")


def _is_set(value: Any) -> bool:
    return value is not None and value not in ("", [], {})


def _is_metadata(path: str, key: str) -> bool:
    """Return whether this is a metadata entry, which may be empty (Compute, "About VM metadata")."""
    return key == "value" and bool(re.search(r"(?i)metadata\.items\[\d+\]$", path))


def query(parameters: Mapping[str, Schema], pairs: Iterator[tuple[str, str]]) -> dict[str, Any]:
    """Return a query's values by name, typed; a parameter that may be repeated has a list.

    Raises:
        ApiError: naming everything that is wrong.
    """
    values: dict[str, Any] = {}
    bad: list[BadField] = []
    for name, text in pairs:
        schema = parameters.get(name)
        if schema is None:
            reason = f"Cannot bind query parameter. Field '{name}' could not be found in request message."
            bad.append(BadField("", f'Invalid JSON payload received. Unknown name "{name}": {reason}'))
            continue
        try:
            value = _scalar(schema, _typed(schema, text), name)
        except BadField as error:
            bad.append(error)
            continue
        if schema.get("repeated"):
            values.setdefault(name, []).append(value)
        else:
            values[name] = value
    if bad:
        raise refusal(bad)
    for name, schema in parameters.items():
        if schema.get("required") and schema.get("location") == "query" and name not in values:
            raise ApiError(400, "required", f"Required parameter: {name}", domain="global")
    return values


def _typed(schema: Schema, text: str) -> Any:
    if schema.get("type") == "boolean" and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if schema.get("type") == "number":
        try:
            return float(text)
        except ValueError:
            return text
    return text


def refusal(bad: list[BadField]) -> ApiError:
    """Return the front end's error: every bad field, in words and by its path."""
    violations = [{"field": each.path, "description": str(each)} for each in bad]
    detail = {"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": violations}
    return ApiError(400, "badRequest", "\n".join(map(str, bad)), details=[detail])
