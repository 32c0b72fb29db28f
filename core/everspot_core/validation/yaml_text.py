"""Reads YAML from untrusted authors. Depth, values and aliases are bounded, only JSON's types are allowed, and a value
means the same to every reader (`yaml_readers`).

PyYAML accepts aliases that double thirty times, lists nine hundred levels deep, and duplicate keys, where the last one
silently wins. This module limits the text before it is parsed, and its values while they are composed, so that a small
file cannot become large. It needs PyYAML, which is in every extra that reads settings.
"""

import json
import re
from collections.abc import Collection, Hashable, Iterator
from dataclasses import dataclass
from typing import Any

import yaml
from yaml.nodes import CollectionNode, MappingNode, Node, ScalarNode, SequenceNode

from everspot_core.validation.problems import SHOWN_AT_MOST, Problem, cut
from everspot_core.validation.yaml_readers import is_moment, key_difference, separators, value_difference

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
    """A text that is refused. The message is a predicate, with the file as its subject: `is neither YAML nor JSON: …`.

    Attributes:
        differences: Each value that YAML readers interpret differently, by line and path; empty if something else is
            wrong.
    """

    def __init__(self, message: str, differences: tuple[Problem, ...] = ()) -> None:
        super().__init__(message)
        self.differences = differences


class _NotOurYaml(yaml.YAMLError):
    """The text is valid YAML, but refused."""


class _Loader(yaml.SafeLoader):
    """Loads only JSON's types. A timestamp stays text; the code that needs it parses it with its zone."""

    def __init__(self, text: str, nodes: int) -> None:
        super().__init__(text)
        self._remaining = self._most = nodes
        self._depth = 0
        self._below = [0]  # the tallest child so far, for each node that is being composed
        self._sizes: dict[int, tuple[int, int]] = {}  # by node: its values, its levels
        self.tagged: dict[int, str] = {}  # by node: the tag that its author wrote

    def compose_node(self, parent: Node | None, index: Any) -> Node | None:
        """Return the next node. An alias counts as large as its target; one that contains itself is refused."""
        line: int = self.peek_event().start_mark.line + 1  # type: ignore[no-untyped-call]
        aliased = self.check_event(yaml.AliasEvent)
        tag = None if aliased else self.peek_event().tag  # type: ignore[no-untyped-call]
        before, above = self._remaining, self._depth
        self._bound(above + 1, line)
        self._depth += 1
        self._below.append(0)
        node = super().compose_node(parent, index)
        self._depth -= 1
        levels = 1 + self._below.pop()
        if aliased:
            if id(node) not in self._sizes:
                raise _NotOurYaml(f"an alias that stands for itself, in line {line}")
            values, levels = self._sizes[id(node)]
        else:
            values = 1 + before - self._remaining
            self._sizes[id(node)] = values, levels
            if tag is not None:
                self.tagged[id(node)] = tag
        self._remaining = before - values
        self._bound(above + levels, line)
        self._below[-1] = max(self._below[-1], levels)
        return node

    def compose_scalar_node(self, anchor: Any) -> ScalarNode:
        """Return a scalar. JSON writes characters beyond U+FFFF as two escapes, which PyYAML leaves apart."""
        node: ScalarNode = super().compose_scalar_node(anchor)
        try:
            node.value = node.value.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            raise _NotOurYaml(f"half a character, a lone surrogate, is not allowed{_at(node)}") from None
        return node

    def _bound(self, depth: int, line: int) -> None:
        if depth > DEPTH:
            raise _NotOurYaml(f"nested more than {DEPTH} levels deep in line {line}")
        if self._remaining < 0:
            raise _NotOurYaml(f"more values than the {self._most} that a file may hold, aliases written out")

    def construct_mapping(self, node: MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Return a mapping with texts as keys, each given once. Keys that are merged in by `<<` may be overridden."""
        keys: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, ScalarNode):
                raise _NotOurYaml(f"a key has to be a text{_at(key)}")
            if key.tag == "tag:yaml.org,2002:merge":
                continue
            if key.value in keys:
                raise _NotOurYaml(f"{cut(repr(key.value), 60)} is given twice{_at(key)}")
            keys.add(key.value)
            key.tag = _TEXT  # `on:` and `1:` are names, not a boolean and a number
        return super().construct_mapping(node, deep=deep)

    def construct_object(self, node: Node, deep: bool = False) -> Any:
        """Return a value of one of JSON's kinds."""
        if not isinstance(node, _PLAIN.get(node.tag, ())):
            kind = node.tag.rsplit(":", 1)[-1]
            raise _NotOurYaml(f"a value of the kind {cut(repr(kind), 60)} is not allowed{_at(node)}")
        if isinstance(node, CollectionNode):
            deep = True  # PyYAML constructs late only for recursive structures, which are refused
        return super().construct_object(node, deep=deep)


# As in YAML 1.2, dates stay texts, 1e3 is a number, and 12:30 (base 60), 1_000 and 007 are not numbers.
_INT = re.compile(r"^[-+]?(?:0|[1-9][0-9]*)$")
_FLOAT = re.compile(
    r"^[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?$|^[-+]?[0-9]+[eE][-+]?[0-9]+$"
    r"|^[-+]?\.(?:inf|Inf|INF)$|^\.(?:nan|NaN|NAN)$"
)
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith((":timestamp", ":int", ":float"))]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", _INT, list("-+0123456789"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+.0123456789"))


@dataclass(frozen=True)
class Scalar:
    """One value of a file that is neither a list nor a mapping.

    Attributes:
        path: Its place, such as `config.everspot:cluster.zones[0]`.
        key: The last key of the path.
        text: The value as its author wrote it, without quotes.
        line: The line on which it begins, from 1.
    """

    path: str
    key: str
    text: str
    line: int


def load(
    text: str, *, nodes: int = NODES, strict: bool = True, moments: Collection[str] = (), words: Collection[str] = ()
) -> Any:
    """Return the content of a text: None, booleans, numbers, texts, lists and mappings. A key is given once, and is a
    text.

    Args:
        text: YAML or JSON.
        nodes: Most values that it may have.
        strict: Whether to refuse what readers of YAML take differently.
        moments: Keys whose values are moments or days, and so the same to all who read them as one.
        words: Plain words that the file's format defines. They are texts.

    Raises:
        BadYaml: if it is too deep or too large, or no YAML.
    """
    loader = None
    try:
        if strict:
            _refuse([_problem(line, "", reason) for line, reason in separators(text)])
        loader = _Loader(text, nodes)
        root = loader.get_single_node()
        if root is None:
            return None
        differences = _differences(text, loader, root, moments, words)
        if strict:
            _refuse(differences)
        return loader.construct_document(root)
    except yaml.YAMLError as error:
        raise BadYaml(f"is neither YAML nor JSON: {cut(' '.join(str(error).split()), SHOWN)}") from None
    except (ValueError, LookupError) as error:
        if isinstance(error, BadYaml):
            raise
        # A number with more digits than Python reads, or a text after `!!int` or `!!bool` that has another type.
        raise BadYaml(f"has a value that cannot be read: {cut(str(error).partition(';')[0], SHOWN)}") from None
    finally:
        if loader is not None:
            loader.dispose()


def scalars(text: str, *, nodes: int = NODES) -> list[Scalar]:
    """Return every value of a text that is neither a list nor a mapping, in the order of the file. An alias is not
    repeated.

    Raises:
        BadYaml: if it is too deep or too large, or no YAML.
    """
    loader = None
    try:
        loader = _Loader(text, nodes)
        root = loader.get_single_node()
        return [
            Scalar(place.path, place.key, place.node.value, place.node.start_mark.line + 1)
            for place in ([] if root is None else _places(root))
            if isinstance(place.node, ScalarNode) and not place.is_key
        ]
    except (yaml.YAMLError, ValueError, LookupError) as error:
        raise BadYaml(f"is neither YAML nor JSON: {cut(' '.join(str(error).split()), SHOWN)}") from None
    finally:
        if loader is not None:
            loader.dispose()


@dataclass(frozen=True)
class _Place:
    """A node, and where it lies."""

    node: Node
    path: str
    key: str
    is_key: bool = False


def _places(root: Node) -> Iterator[_Place]:
    """Yield every node once, in the order of the text."""
    visited: set[int] = set()
    pending = [_Place(root, "", "")]
    while pending:
        place = pending.pop()
        if id(place.node) in visited:
            continue
        visited.add(id(place.node))
        yield place
        inner: list[_Place] = []
        if isinstance(place.node, SequenceNode):
            inner = [_Place(node, f"{place.path}[{n}]", place.key) for n, node in enumerate(place.node.value)]
        elif isinstance(place.node, MappingNode):
            for key, value in place.node.value:
                name = key.value if isinstance(key, ScalarNode) else ""
                path = f"{place.path}.{name}" if place.path else name
                inner += [_Place(key, path, name, is_key=True), _Place(value, path, name)]
        pending += reversed(inner)


def _differences(
    text: str, loader: _Loader, root: Node, moments: Collection[str], words: Collection[str]
) -> list[Problem]:
    """Return each value that readers take differently. The format's own words become texts."""
    if _is_json(text):
        return []
    differences: list[Problem] = []
    for place in _places(root):
        node, line = place.node, place.node.start_mark.line + 1
        tag = loader.tagged.get(id(node))
        if tag in _READ_TAGS:
            differences.append(
                _problem(line, place.path, f"has the tag {cut(repr(tag.rsplit(':', 1)[-1]), 40)}: leave it out")
            )
        elif not isinstance(node, ScalarNode) or node.style is not None or tag is not None:
            continue
        elif place.is_key:
            if reason := key_difference(node.value):
                differences.append(_problem(line, place.path, reason))
        elif node.value in words:
            node.tag = _TEXT
        elif place.key in moments and is_moment(node.value):
            continue
        elif reason := value_difference(node.value):
            differences.append(_problem(line, place.path, reason))
    return differences


def _refuse(differences: list[Problem]) -> None:
    if differences:
        more = f"; and {len(differences) - SHOWN_AT_MOST:,} more" if len(differences) > SHOWN_AT_MOST else ""
        message = f"has what readers of YAML take differently: {'; '.join(map(str, differences[:SHOWN_AT_MOST]))}{more}"
        raise BadYaml(message, tuple(differences))


_TEXT = "tag:yaml.org,2002:str"
_READ_TAGS = ("!", *(f"tag:yaml.org,2002:{kind}" for kind in ("null", "bool", "int", "float")))
"""Tags that change how a value is read, which readers do not agree on. `!!str` is a text to all."""


def _problem(line: int, path: str, reason: str) -> Problem:
    where = "".join(char if char.isprintable() else "\ufffd" for char in cut(path, _PATH_AT_MOST))
    return Problem(f"line {line}{f', {where}' if where else ''}", reason)


_PATH_AT_MOST = 100


def _is_json(text: str) -> bool:
    """Return whether a text is JSON, whose numbers and words mean one thing."""
    if text.lstrip("\ufeff \t\r\n")[:1] not in ("{", "["):
        return False
    try:
        json.loads(text.lstrip("\ufeff"), parse_constant=_no_json)
    except (ValueError, RecursionError):
        return False
    return True


def _no_json(constant: str) -> Any:
    raise ValueError(constant)


def _at(node: Node) -> str:
    return f" in line {node.start_mark.line + 1}" if node.start_mark else ""
