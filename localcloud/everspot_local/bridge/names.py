"""Names: which upstream type a Pulumi token means, and which property is which attribute.

The rule is that of the generator of the official plugins: camelCase for snake_case, lists and sets in the plural
unless they hold at most one item (then the item stands alone). Each name that the rule yields is looked up in the
installed SDK; one that is not found there, or found twice, raises `NameMismatch`: a wrong rule fails loudly.
"""

from __future__ import annotations

import re
from collections.abc import Container
from dataclasses import dataclass

from everspot_local.bridge.schema import Field, Node
from everspot_local.bridge.sdk import Names, Sdk, Shape, snake
from everspot_local.bridge.table import ProviderTable

# Attributes that the SDK leaves out on purpose, in every type: Pulumi has options of its own for them.
HIDDEN = {"timeouts", "id"}


class NameMismatch(LookupError):
    """The upstream schema and the SDK do not agree under the naming rule."""


@dataclass(frozen=True)
class Mapping:
    """One type with its names in place: `node` carries them."""

    token: str
    upstream: str
    node: Node
    names: Names
    version: int = 0


def camel(name: str) -> str:
    """Return the camelCase form of a snake_case name."""
    head, *tail = name.split("_")
    return head + "".join(part[:1].upper() + part[1:] for part in tail)


def plural(noun: str) -> str:
    """Return the English plural in the simple form that the SDK's generator uses."""
    if re.search(r"[^aeiou]y$", noun):
        return f"{noun[:-1]}ies"
    if re.search(r"(ss|us|x|ch|sh)$", noun):
        return f"{noun}es"
    if noun.endswith("s"):
        return noun
    return f"{noun}s"


def singular(noun: str) -> str:
    """Undo `plural` for a list that holds at most one item."""
    if noun.endswith("ies"):
        return f"{noun[:-3]}y"
    return noun[:-1] if noun.endswith("s") and not noun.endswith("ss") else noun


def upstream_type(table: ProviderTable, token: str, upstream_types: Container[str]) -> str:
    """Return the upstream type that a resource or function token means.

    Raises:
        NameMismatch: none of the names by rule is known upstream.
    """
    _, module, name = token.split(":")
    folder = module.split("/")[0]
    name = snake(name[3:] if name.startswith("get") and name[3:4].isupper() else name)
    name = re.sub(f"{table.version_suffix}$", "", name)
    candidates = [table.types.get(token, f"{table.prefix}_{table.folders.get(folder, folder)}_{name}")]
    if folder in table.bare_folders:
        candidates.append(f"{table.prefix}_{name}")
    for candidate in candidates:
        if candidate in upstream_types:
            return candidate
    raise NameMismatch(f"{token}: the upstream provider that was built here does not serve {' or '.join(candidates)}")


class Namer:
    """Puts the SDK's names into upstream schemas."""

    def __init__(self, sdk: Sdk, table: ProviderTable) -> None:
        self.sdk = sdk
        self.table = table

    def assign(self, token: str, upstream: str, node: Node, names: Names) -> None:
        """Fill in `pulumi`, `flat` and `scalar` of every field below `node`.

        Raises:
            NameMismatch: a name is missing on either side.
        """
        self._object(token, upstream, "", node, names.inputs, names.outputs)

    def _object(
        self, token: str, upstream: str, path: str, node: Node, inputs: dict[str, Shape], outputs: dict[str, Shape]
    ) -> None:
        shapes = {**inputs, **outputs}
        claimed: dict[str, str] = {}
        for field in node.fields.values():
            where = f"{path}.{field.tf}" if path else field.tf
            name = self._name(upstream, where, field, shapes)
            if name is None:
                if field.tf in HIDDEN and not path:
                    continue
                raise NameMismatch(f"{token}: attribute {where} of {upstream} has no property in the SDK")
            if name in claimed:
                raise NameMismatch(f"{token}: {claimed[name]} and {field.tf} both claim the property {name}")
            claimed[name] = field.tf
            # A resource's id travels beside its properties; a function's is one of them.
            field.pulumi = "" if name == "id" and not path and ":get" not in token else name
            self._shape(token, upstream, where, field, inputs.get(name), outputs.get(name))
        unclaimed = set(shapes) - set(claimed) - ({"id"} if not path else set())
        unclaimed -= self.table.sdk_ahead.get((upstream, path), set())
        if unclaimed and not (token == self.table.provider_token and path in self.table.open_config):
            raise NameMismatch(
                f"{token}: properties {sorted(unclaimed)} of {path or 'the type'} have no attribute upstream"
            )

    def _name(self, upstream: str, where: str, field: Field, shapes: dict[str, Shape]) -> str | None:
        base = camel(field.tf)
        override = self.table.fields.get((upstream, where)) or self.table.everywhere.get(field.tf, "")
        candidates = [override, base]
        if field.node.kind in ("list", "set"):
            candidates[1:] = [plural(base), base, singular(base)]
        return next((c for c in candidates if c in shapes), None)

    def _shape(
        self, token: str, upstream: str, where: str, field: Field, input_shape: Shape | None, returned: Shape | None
    ) -> None:
        shape = input_shape or returned
        node = field.node
        if shape is None:
            raise NameMismatch(f"{token}: {where} has no shape in the SDK")
        if node.kind in ("list", "set"):
            field.flat = shape.kind != "list"
            if field.flat and field.max_items > 1:
                raise NameMismatch(f"{token}: {where} holds up to {field.max_items} items but the SDK takes one")
            if not field.flat:
                input_shape, returned = input_shape and input_shape.element, returned and returned.element
        elif node.kind == "map" and node.elem and not node.elem.scalar:
            input_shape, returned = input_shape and input_shape.element, returned and returned.element
        inner = node
        while inner.elem is not None and inner.kind != "object":
            inner = inner.elem
            if inner.kind in ("list", "set", "map"):
                input_shape, returned = input_shape and input_shape.element, returned and returned.element
        field.scalar = shape.kind if node.scalar else ""
        if inner.kind == "object":
            self._nested(token, upstream, where, inner, input_shape, returned)

    def _nested(
        self, token: str, upstream: str, where: str, node: Node, input_shape: Shape | None, returned: Shape | None
    ) -> None:
        def properties(shape: Shape | None) -> dict[str, Shape]:
            if shape is None:
                return {}
            if shape.kind != "object":
                raise NameMismatch(f"{token}: {where} is an object upstream and {shape.kind} in the SDK")
            return self.sdk.nested(token, shape.cls)

        self._object(token, upstream, where, node, properties(input_shape), properties(returned))
