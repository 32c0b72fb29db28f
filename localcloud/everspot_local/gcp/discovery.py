"""Stands in for Google's routing: finds the method of a request by the official discovery documents.

The documents come with google-api-python-client, which is found and never imported. It does not serve batch requests
nor answers in other forms than JSON and media.
"""

import importlib.util
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote

from everspot_local.gcp.partial import Selection, check_selection, read_selection
from everspot_local.gcp.schemas import Body, query

_COMMON = {"key", "prettyPrint", "quotaUser", "userIp", "upload_protocol", "$.xgafv", "callback"}
"""Parameters that every method takes and that change nothing here."""
_FIELDS = "fields"
"""The parameter that every method takes and that says what of an answer is sent."""
_FORMS = {"alt", "uploadType"}
"""Parameters that every method takes and that say in which form something comes or goes."""


_UNTOLD = {"compute.v1": {"NetworkRoutingConfig": {"deleteBgpAlwaysCompareMed": {"type": "boolean"}}}}
"""Fields that the provider (8.0.0) sends to an API whose document does not have them, by schema: the API takes them."""


@dataclass(frozen=True)
class Method:
    """One method of an API.

    Attributes:
        id: as in the discovery document, such as `compute.instances.insert`.
        path: regular expression of its path.
        answer: schema of its answers; empty for none.
        schemas: of the API, by name.
    """

    id: str
    verb: str
    path: str
    parameters: Mapping[str, Mapping[str, Any]]
    body: Body | None
    answer: Mapping[str, Any]
    schemas: Mapping[str, Any]


@dataclass(frozen=True)
class Match:
    """The method of a request.

    Attributes:
        names: values of the path's parameters.
        media: whether the request uses the upload path.
    """

    method: Method
    names: Mapping[str, str]
    media: bool = False

    def selection(self, text: str) -> Selection:
        """Return what of the answer a query selects; empty for all of it.

        Raises:
            ApiError: if answers do not have it.
        """
        fields = dict(parse_qsl(text)).get(_FIELDS)
        if fields is None:
            return {}
        selection = read_selection(fields)
        check_selection(selection, self.method.schemas, self.method.answer)
        return selection

    def query(self, text: str) -> dict[str, Any]:
        """Return all parameters of the request, those of the path among them.

        Raises:
            ApiError: naming everything that is wrong.
        """
        common = {*_COMMON, _FIELDS}
        pairs = [(name, value) for name, value in parse_qsl(text, keep_blank_values=True) if name not in common]
        forms = {name: value for name, value in pairs if name in _FORMS}
        remaining = ((name, value) for name, value in pairs if name not in _FORMS)
        parameters = dict(self.method.parameters)
        if self.method.body is not None and self.method.body.has("updateMask"):
            # The mask of a message may come in the query, too: so the provider sends Pub/Sub's.
            parameters.setdefault("updateMask", {"type": "string"})
        return {**query(parameters, remaining), **self.names, **forms}


class Api:
    """One API: its methods, by the document of its version.

    Args:
        name: of the document, such as `compute.v1`.
        empties: whether what is empty in a body counts as said; not so on Compute.
    """

    def __init__(self, name: str, *, empties: bool) -> None:
        self._document = document(name)
        self._empties = empties
        self._by_shape: dict[tuple[str, int], list[tuple[str, Method, bool]]] = defaultdict(list)
        for method, paths, uploads in self._methods(self._document):
            for path in paths:
                self._add(method, path, media=False)
            for path in uploads:
                self._add(method, path, media=True)

    def find(self, verb: str, path: str) -> Match | None:
        """Return the method that a request means, or None. `path`: as sent, still quoted, without a query."""
        for shape in (path.count("/"), -1):
            for pattern, method, media in self._by_shape.get((verb, shape), ()):
                if match := _compiled(pattern).fullmatch(path):
                    return Match(method, {_name(k): unquote(v) for k, v in match.groupdict().items()}, media)
        return None

    @property
    def ids(self) -> set[str]:
        """Return the ids of all methods."""
        return {method.id for entries in self._by_shape.values() for _, method, _ in entries}

    def _add(self, method: Method, path: str, *, media: bool) -> None:
        """A pattern that may span any number of parts lies apart."""
        shape = -1 if ".*" in path or ".+" in path else _slashes(path)
        self._by_shape[(method.verb, shape)].append((path, method, media))

    def _methods(self, resource: Mapping[str, Any]) -> Iterator[tuple[Method, list[str], list[str]]]:
        """Return each method with its paths, that of downloads among them, and those of its uploads."""
        for inner in resource.get("resources", {}).values():
            yield from self._methods(inner)
        for definition in resource.get("methods", {}).values():
            uploads = [p["path"] for p in definition.get("mediaUpload", {}).get("protocols", {}).values()]
            path = "/" + self._document["servicePath"] + definition["path"]
            method = Method(
                id=definition["id"],
                verb=definition["httpMethod"],
                path=_pattern(path, definition),
                parameters={**definition.get("parameters", {}), **_described_parameters(definition)},
                body=self._body(definition),
                answer=definition.get("response", {}),
                schemas=self._document["schemas"],
            )
            downloads = [_pattern(f"/download{path}", definition)] if definition.get("useMediaDownloadService") else []
            yield method, [method.path, *downloads], [_pattern(path, definition) for path in sorted(set(uploads))]

    def _body(self, definition: Mapping[str, Any]) -> Body | None:
        if "request" not in definition:
            return None
        patch = definition["httpMethod"] == "PATCH"
        schemas = self._document["schemas"]
        return Body(schemas, definition["request"], definition["id"], empties=self._empties, patch=patch)


def _described_parameters(definition: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the parameters that only the description of a method names: "Google recommends that you set the
    `returnPartialSuccess` parameter to `true`" (compute.v1, revision 20261106)."""
    name = "returnPartialSuccess"
    return {name: {"type": "boolean"}} if f"`{name}`" in definition.get("description", "") else {}


@cache
def document(name: str) -> dict[str, Any]:
    """Return a discovery document by its name.

    Raises:
        FileNotFoundError: if the package with the documents is not installed, or has no document of that name.
    """
    spec = importlib.util.find_spec("googleapiclient")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("google-api-python-client is not installed: pip install google-api-python-client")
    path = Path(spec.origin).parent / "discovery_cache" / "documents" / f"{name}.json"
    contents: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    for schema, fields in _UNTOLD.get(name, {}).items():
        contents["schemas"][schema]["properties"].update(fields)
    return contents


def _pattern(path: str, method: Mapping[str, Any]) -> str:
    """Return a path's template as an expression of what it matches. A parameter that may span parts says which."""
    text = ""
    for piece in re.split(r"(\{\+?[\w.]+\})", path):
        if not piece.startswith("{"):
            text += re.escape(piece)
            continue
        name = piece.strip("{+}")
        pattern = method.get("parameters", {}).get(name, {}).get("pattern", "")
        spans = piece.startswith("{+")
        inner = pattern.removeprefix("^").removesuffix("$").replace("[^/]", "[^/:]") if spans and pattern else "[^/]+"
        text += f"(?P<{_group(name)}>{'.+' if spans and not pattern else inner})"
    return text


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Of two thousand patterns few are ever asked for, and each takes as long to compile as a request to answer."""
    return re.compile(pattern)


def _group(name: str) -> str:
    return name.replace(".", "__dot__")


def _name(group: str) -> str:
    return group.replace("__dot__", ".")


def _slashes(pattern: str) -> int:
    """Return the number of slashes in a pattern's matches. Slashes in its character classes do not count."""
    return re.sub(r"\[[^\]]*\]", "", pattern).count("/")
