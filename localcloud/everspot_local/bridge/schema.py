"""The upstream provider's schema as a tree of nodes, one shape for attributes, nested blocks and object types."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

BLOCK_KINDS = {2: "list", 3: "set", 4: "map"}
SINGLE = (1, 5)


@dataclass
class Node:
    """One type: `string`, `number`, `bool`, `dynamic`, `list`, `set`, `map` or `object`."""

    kind: str
    elem: Node | None = None
    fields: dict[str, Field] = field(default_factory=dict)
    block: bool = False

    @property
    def scalar(self) -> bool:
        """Return whether a value of this type has no parts."""
        return self.kind in ("string", "number", "bool", "dynamic")


@dataclass
class Field:
    """A named part of an object. `pulumi`, `flat` and `scalar` are filled in by `names`."""

    tf: str
    node: Node
    required: bool = False
    optional: bool = False
    computed: bool = False
    sensitive: bool = False
    max_items: int = 0
    pulumi: str = ""
    flat: bool = False
    scalar: str = ""

    @property
    def settable(self) -> bool:
        """Return whether a configuration may contain it."""
        return self.required or self.optional or self.node.block


def from_cty(type_: Any) -> Node:
    """Build a node from a cty type in its JSON form, such as `["list", "string"]`."""
    if isinstance(type_, str):
        return Node(type_)
    kind, arg = type_[0], type_[1]
    if kind == "object":
        return Node("object", fields={n: Field(n, from_cty(t), optional=True) for n, t in arg.items()})
    return Node(kind, elem=from_cty(arg))


def from_block(block: Any) -> Node:
    """Build an object node from a `Schema.Block` message."""
    node = Node("object", block=True)
    for a in block.attributes:
        node.fields[a.name] = Field(
            a.name, from_cty(json.loads(a.type)), a.required, a.optional, a.computed, a.sensitive
        )
    for b in block.block_types:
        inner = from_block(b.block)
        shape = inner if b.nesting in SINGLE else Node(BLOCK_KINDS[b.nesting], elem=inner, block=True)
        required = b.min_items > 0
        node.fields[b.type_name] = Field(b.type_name, shape, required, not required, max_items=b.max_items)
    return node
