"""Names: which upstream type a Pulumi token means, and which property is which attribute.

The rule is the one by which the official plugins are generated: camelCase for snake_case, lists and sets in the plural
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
    head, *rest = name.split("_")
    return head + "".join(part[:1].upper() + part[1:] for part in rest)


def plural(word: str) -> str:
    """Return the English plural in the simple form that the SDK's generator uses."""
    if re.search(r"[^aeiou]y$", word):
        return f"{word[:-1]}ies"
    if re.search(r"(ss|us|x|ch|sh)$", word):
        return f"{word}es"
    if word.endswith("s"):
        return word
    return f"{word}s"


def singular(word: str) -> str:
    """Undo `plural` for a list that holds at most one item."""
    if word.endswith("ies"):
        return f"{word[:-3]}y"
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def upstream_type(table: ProviderTable, token: str, known: Container[str]) -> str:
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
        if candidate in known:
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
        left = set(shapes) - set(claimed) - ({"id"} if not path else set())
        left -= self.table.sdk_ahead.get((upstream, path), set())
        if left and not (token == self.table.provider_token and path in self.table.open_config):
            raise NameMismatch(f"{token}: properties {sorted(left)} of {path or 'the type'} have no attribute upstream")

    def _name(self, upstream: str, where: str, field: Field, shapes: dict[str, Shape]) -> str | None:
        base = camel(field.tf)
        given = self.table.fields.get((upstream, where)) or self.table.everywhere.get(field.tf, "")
        candidates = [given, base]
        if field.node.kind in ("list", "set"):
            candidates[1:] = [plural(base), base, singular(base)]
        return next((c for c in candidates if c in shapes), None)

    def _shape(
        self, token: str, upstream: str, where: str, field: Field, given: Shape | None, returned: Shape | None
    ) -> None:
        shape = given or returned
        node = field.node
        if shape is None:
            raise NameMismatch(f"{token}: {where} has no shape in the SDK")
        if node.kind in ("list", "set"):
            field.flat = shape.kind != "list"
            if field.flat and field.max_items > 1:
                raise NameMismatch(f"{token}: {where} holds up to {field.max_items} items but the SDK takes one")
            if not field.flat:
                given, returned = given and given.of, returned and returned.of
        elif node.kind == "map" and node.elem and not node.elem.scalar:
            given, returned = given and given.of, returned and returned.of
        inner = node
        while inner.elem is not None and inner.kind != "object":
            inner = inner.elem
            if inner.kind in ("list", "set", "map"):
                given, returned = given and given.of, returned and returned.of
        field.scalar = shape.kind if node.scalar else ""
        if inner.kind == "object":
            self._nested(token, upstream, where, inner, given, returned)

    def _nested(
        self, token: str, upstream: str, where: str, node: Node, given: Shape | None, returned: Shape | None
    ) -> None:
        def properties(shape: Shape | None) -> dict[str, Shape]:
            if shape is None:
                return {}
            if shape.kind != "object":
                raise NameMismatch(f"{token}: {where} is an object upstream and {shape.kind} in the SDK")
            return self.sdk.nested(token, shape.cls)

        self._object(token, upstream, where, node, properties(given), properties(returned))
