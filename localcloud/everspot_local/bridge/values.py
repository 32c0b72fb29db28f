"""Values between the two sides: Pulumi's property maps and the upstream provider's typed objects."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from typing import Any

from everspot_local.bridge import wire
from everspot_local.bridge.schema import Field, Node
from everspot_local.bridge.upstream import UNKNOWN, is_unknown

Step = str | int


class BadValue(ValueError):
    """An input that has no place upstream; `path` is where, by Pulumi's names."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(reason)
        self.path = path


def join(path: str, step: Step) -> str:
    """Append a step to a property path, as the engine writes them."""
    if isinstance(step, int):
        return f"{path}[{step}]"
    if not step.replace("_", "a").replace("-", "a").isalnum():
        return f'{path}["{step}"]'
    return f"{path}.{step}" if path else step


def unknown_properties(node: Node, value: Any, path: str = "") -> Iterator[BadValue]:
    """Yield one `BadValue` for every property that the type does not have, or that only the cloud sets."""
    if value is None or wire.is_unknown(value) or wire.is_asset(value):
        return
    if node.kind == "object" and isinstance(value, dict):
        fields = {f.pulumi: f for f in node.fields.values() if f.pulumi}
        for name, part in value.items():
            if name.startswith("__"):
                continue
            if name not in fields or not (fields[name].settable or path):
                near = difflib.get_close_matches(name, fields, 1)
                hint = f" Did you mean {near[0]!r}?" if near and near[0] != name else ""
                yield BadValue(join(path, name), f"Unsupported argument: {name!r} is not expected here.{hint}")
                continue
            f = fields[name]
            yield from unknown_properties(_part(f), part, join(path, name))
    elif node.elem is not None and isinstance(value, list):
        for i, item in enumerate(value):
            yield from unknown_properties(node.elem, item, join(path, i))
    elif node.elem is not None and isinstance(value, dict):
        for key, item in value.items():
            yield from unknown_properties(node.elem, item, join(path, key))


def _part(field: Field) -> Node:
    return field.node.elem if field.flat and field.node.elem else field.node


def empty(node: Node) -> Any:
    """Return the value of an absent property of this type: blocks are never null, but for single ones."""
    if node.block and node.kind in ("list", "set"):
        return []
    return {} if node.block and node.kind == "map" else None


def to_upstream(node: Node, value: Any, path: str = "") -> Any:
    """Convert a Pulumi value to the upstream type.

    Raises:
        BadValue: the value cannot be of that type.
    """
    if wire.is_unknown(value):
        return UNKNOWN
    if node.scalar:
        return _scalar(node, value, path)
    if value is None:
        return empty(node)
    if node.kind == "object":
        if not isinstance(value, dict):
            raise BadValue(path, f"Incorrect attribute value type: an object is needed, not {value!r}")
        return {f.tf: _field(f, value.get(f.pulumi), join(path, f.pulumi)) for f in node.fields.values()}
    elem = node.elem or Node("string")
    if node.kind == "map":
        if not isinstance(value, dict):
            raise BadValue(path, f"Incorrect attribute value type: a map is needed, not {value!r}")
        return {k: to_upstream(elem, v, join(path, k)) for k, v in value.items() if not k.startswith("__")}
    if not isinstance(value, list):
        raise BadValue(path, f"Incorrect attribute value type: a list is needed, not {value!r}")
    return [to_upstream(elem, v, join(path, i)) for i, v in enumerate(value)]


def _field(field: Field, value: Any, path: str) -> Any:
    if not field.pulumi:
        return empty(field.node)
    if field.flat and value is not None and not wire.is_unknown(value):
        value = [value]
    return to_upstream(field.node, value, path)


def _scalar(node: Node, value: Any, path: str) -> Any:
    if value is None or node.kind == "dynamic":
        return value
    if wire.is_asset(value):
        return wire.asset_file(value)
    if node.kind == "string":
        if isinstance(value, str):
            return value
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, int | float):
            return str(int(value)) if float(value).is_integer() else str(value)
        return json.dumps(value)  # documents, such as policies, may be given as objects
    try:
        if node.kind == "bool":
            return value if isinstance(value, bool) else {"true": True, "false": False}[str(value)]
        number = float(value)
        return int(number) if number.is_integer() else number
    except (KeyError, ValueError, TypeError):
        raise BadValue(path, f"Incorrect attribute value type: a {node.kind} is needed, not {value!r}") from None


def without_unknowns(value: Any) -> Any:
    """Return an upstream value with null where something is unknown."""
    if isinstance(value, dict):
        return {k: without_unknowns(v) for k, v in value.items()}
    if isinstance(value, list):
        return [without_unknowns(v) for v in value]
    return None if is_unknown(value) else value


def from_upstream(node: Node, value: Any, scalar: str = "") -> Any:
    """Convert an upstream value to Pulumi's; null parts of objects are left out."""
    if is_unknown(value):
        return wire.UNKNOWN_STRING
    if value is None or node.scalar:
        return _typed(scalar, value)
    if node.kind == "object":
        out: dict[str, Any] = {}
        for f in node.fields.values():
            part = value.get(f.tf)
            if f.flat and isinstance(part, list):
                part = from_upstream(_part(f), part[0]) if part else None
            else:
                part = from_upstream(f.node, part, f.scalar)
            if f.pulumi and part is not None:
                out[f.pulumi] = part
        return out
    elem = node.elem or Node("string")
    if node.kind == "map":
        return {k: from_upstream(elem, v) for k, v in value.items()}
    return [from_upstream(elem, v) for v in value]


def _typed(scalar: str, value: Any) -> Any:
    """Give a text the type that the SDK promises, for upstream has a few booleans and numbers as texts. An empty one is
    None, and what is no text stays as it is."""
    if isinstance(value, str) and scalar == "bool":
        return value == "true" if value else None
    if isinstance(value, str) and scalar in ("int", "float"):
        return float(value) if value else None
    return value
