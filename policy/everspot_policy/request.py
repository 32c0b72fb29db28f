"""The engine's request about a resource, as a rule's subject: plain values, unknown ones marked, secrets noted."""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from everspot_core.cluster.declared import UNKNOWN, secret
from google.protobuf import json_format
from pulumi.runtime.proto import analyzer_pb2 as pb

from everspot_policy.rule import Subject

UNKNOWNS = frozenset(
    {
        UNKNOWN,
        "1c4a061d-8072-4f0a-a4cb-0ff528b18fe7",
        "3eeb2bf0-c639-47a8-9e75-3b44932eb421",
        "6a19a0b0-7e62-4c92-b797-7f8e31da9cc2",
        "030794c1-ac77-496b-92df-f27374a8bd58",
        "e48ece36-62e2-4504-bad9-02848725956a",
        "dd056dcd-154b-4c76-9bd3-c8f88648b5ff",
    }
)
"""The engine's placeholders for values that only the update will know: a text, boolean, number, list, asset, archive or
object (pulumi/sdk, go/common/resource/plugin/rpc.go)."""

SHORTEST = 3
"""Characters of the shortest secret that is redacted: shorter ones are in every word."""


def subject(request: pb.AnalyzeRequest | pb.AnalyzerResource, stack: str, secrets: set[str]) -> Subject:
    """Return the subject of a request. A secret's value is judged like any other, and added to `secrets`: no output may
    contain it."""
    own: set[str] = set()
    inputs = plain(json_format.MessageToDict(request.properties), own.add)
    secrets |= own
    depends = set(request.dependencies) if isinstance(request, pb.AnalyzerResource) else set()
    return Subject(
        request.type,
        inputs if isinstance(inputs, dict) else {},
        name=request.name,
        environment=stack,
        protected=request.options.protect,
        urn=request.urn,
        depends=tuple(sorted(depends)),
        secrets=frozenset(own),
    )


def plain(value: Any, noted: Callable[[str], object], *, hide: bool = False) -> Any:
    """Return a value of the engine's without its markers: secrets opened, and every text in them `noted`; all markers
    of unknown values become the one that rules know. `hide`: whether the value is within a secret."""
    if isinstance(value, Mapping):
        if secret(value):
            return plain(value.get("value"), noted, hide=True)
        return {name: plain(each, noted, hide=hide) for name, each in value.items()}
    if isinstance(value, list):
        return [plain(each, noted, hide=hide) for each in value]
    if isinstance(value, str) and value in UNKNOWNS:
        return UNKNOWN
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        value = int(value)
    if hide and value is not None and not isinstance(value, bool):
        noted(str(value))
    return value


def redacted(text: str, secrets: Iterable[str]) -> str:
    """Return a text without the secrets."""
    for each in sorted(secrets, key=len, reverse=True):
        if len(each) >= SHORTEST:
            text = text.replace(each, "[secret]")
    return text
