"""Reads YAML from untrusted authors. Depth, values and aliases are bounded, and only JSON's types are allowed.

PyYAML builds whatever a text describes: aliases that double thirty times, lists nine hundred levels deep, duplicate
keys of which the last one silently wins. This module limits the text before it is parsed, and its values while they are
composed, so that a small file cannot become large. It needs PyYAML, which is in the extras of all who read settings.
"""

import re
from collections.abc import Hashable
from typing import Any

import yaml
from yaml.nodes import CollectionNode, MappingNode, Node, ScalarNode, SequenceNode

from everspot_core.problems import cut

DEPTH = 32
NODES = 20_000  # values in the whole, an alias counted for all that it stands for
SHOWN = 120  # characters of a parser's complaint
_PLAIN = {
    f"tag:yaml.org,2002:{kind}": node
    for node, kinds in (
        (ScalarNode, ("null", "bool", "int", "float", "str")),
        (SequenceNode, ("seq",)),
        (MappingNode, ("map",)),
    )
    for kind in kinds
}


class BadYaml(ValueError):
    """A text that is not taken. The message is what can be said of its file: `is neither YAML nor JSON: …`."""


class _NotOurYaml(yaml.YAMLError):
    """The text is valid YAML, but refused."""


class _Loader(yaml.SafeLoader):
    """Loads only JSON's types. A timestamp stays text; the code that needs it parses it with its zone."""

    def __init__(self, text: str, nodes: int) -> None:
        super().__init__(text)
        self._left = self._most = nodes
        self._depth = 0
        self._below = [0]  # the tallest child so far, for each node that is being composed
        self._made: dict[int, tuple[int, int]] = {}  # by node: its values, its levels

    def compose_node(self, parent: Node | None, index: Any) -> Node | None:
        """The next node. An alias counts as large as its target; one that contains itself is refused."""
        line: int = self.peek_event().start_mark.line + 1  # type: ignore[no-untyped-call]
        aliased = self.check_event(yaml.AliasEvent)
        before, above = self._left, self._depth
        self._bound(above + 1, line)
        self._depth += 1
        self._below.append(0)
        node = super().compose_node(parent, index)
        self._depth -= 1
        levels = 1 + self._below.pop()
        if aliased:
            if id(node) not in self._made:
                raise _NotOurYaml(f"an alias that stands for itself, in line {line}")
            values, levels = self._made[id(node)]
        else:
            values = 1 + before - self._left
            self._made[id(node)] = values, levels
        self._left = before - values
        self._bound(above + levels, line)
        self._below[-1] = max(self._below[-1], levels)
        return node

    def _bound(self, depth: int, line: int) -> None:
        if depth > DEPTH:
            raise _NotOurYaml(f"nested more than {DEPTH} levels deep in line {line}")
        if self._left < 0:
            raise _NotOurYaml(f"more values than the {self._most} that a file may hold, aliases written out")

    def construct_mapping(self, node: MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """A mapping with texts as keys, each given once. Keys that are merged in by `<<` may be overridden."""
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, ScalarNode):
                raise _NotOurYaml(f"a key has to be a text{_at(key)}")
            if key.tag == "tag:yaml.org,2002:merge":
                continue
            if key.value in seen:
                raise _NotOurYaml(f"{cut(repr(key.value), 60)} is given twice{_at(key)}")
            seen.add(key.value)
            key.tag = "tag:yaml.org,2002:str"  # `on:` and `1:` are names, not a boolean and a number
        return super().construct_mapping(node, deep=deep)

    def construct_object(self, node: Node, deep: bool = False) -> Any:
        """A value of one of JSON's kinds."""
        if not isinstance(node, _PLAIN.get(node.tag, ())):
            kind = node.tag.rsplit(":", 1)[-1]
            raise _NotOurYaml(f"a value of the kind {cut(repr(kind), 60)} is not allowed{_at(node)}")
        if isinstance(node, CollectionNode):
            deep = True  # PyYAML's own way to late construction is for recursive structures, of which there are none
        return super().construct_object(node, deep=deep)


# Moments stay texts, 12:30 is no number of base 60, 1_000 and 007 are none at all, and 1e3 is one: as in YAML 1.2.
_INT = re.compile(r"^[-+]?(?:0|[1-9][0-9]*)$")
_FLOAT = re.compile(
    r"^[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?$|^[-+]?[0-9]+[eE][-+]?[0-9]+$"
    r"|^[-+]?\.(?:inf|Inf|INF)$|^\.(?:nan|NaN|NAN)$"
)
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in found if not tag.endswith((":timestamp", ":int", ":float"))]
    for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", _INT, list("-+0123456789"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+.0123456789"))


def load(text: str, *, nodes: int = NODES) -> Any:
    """The content of a text of at most `nodes` values: None, booleans, numbers, texts, lists and mappings. A key is
    given once, and is a text.

    Raises:
        BadYaml: if it is too deep or too large, or no YAML.
    """
    loader = None
    try:
        loader = _Loader(text, nodes)
        return loader.get_single_data()
    except yaml.YAMLError as error:
        raise BadYaml(f"is neither YAML nor JSON: {cut(' '.join(str(error).split()), SHOWN)}") from None
    except (ValueError, LookupError) as error:
        # A number of more digits than Python reads; a text behind `!!int` or `!!bool` that is none.
        raise BadYaml(f"has a value that cannot be read: {cut(str(error).partition(';')[0], SHOWN)}") from None
    finally:
        if loader is not None:
            loader.dispose()


def _at(node: Node) -> str:
    return f" in line {node.start_mark.line + 1}" if node.start_mark else ""
