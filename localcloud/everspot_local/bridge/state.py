"""A resource's state on the way through the engine: outputs carry what upstream wants back under `__meta`."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from typing import Any

from everspot_local.bridge import wire
from everspot_local.bridge.names import Mapping
from everspot_local.bridge.plan import alike, same
from everspot_local.bridge.schema import Field, Node
from everspot_local.bridge.sdk import snake
from everspot_local.bridge.upstream import Upstream, decode, raise_errors
from everspot_local.bridge.values import BadValue, from_upstream, to_upstream

META = "__meta"
# Where SDK-based resources of the upstream provider keep their timeouts, in nanoseconds, in the private part.
TIMEOUTS_KEY = "e2bfb730-ecaa-11e6-8f88-34363bc7c4c0"


@dataclass
class ResourceState:
    """Upstream's state of one resource: its value, and a private part that only upstream reads."""

    value: dict[str, Any] | None = None
    private: bytes = b""
    assets: dict[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """The resource's id; empty before it is created."""
        resource_id = (self.value or {}).get("id")
        return resource_id if isinstance(resource_id, str) else ""

    def outputs(self, mapping: Mapping) -> dict[str, Any]:
        """Return the Pulumi outputs."""
        out: dict[str, Any] = {**from_upstream(mapping.node, self.value), **self.assets}
        meta: dict[str, Any] = {"schema_version": str(mapping.version)}
        if self.private:
            meta["private"] = base64.b64encode(self.private).decode()
        back = to_upstream(mapping.node, out)
        # What the names cannot carry, such as the difference between a null and an empty list that stands for one item.
        value = self.value or {}
        lost = [
            f
            for f in mapping.node.fields.values()
            if f.tf in value
            and f.tf != "id"
            and f.pulumi not in self.assets
            and not same(f.node, back[f.tf], value[f.tf])
        ]
        # A block that is null is an empty one: Terraform takes it so, whatever providers answer.
        residue = {f.tf: value[f.tf] for f in lost if not (f.node.block and value[f.tf] is None)}
        residue = {k: v for k, v in residue.items() if not wire_unknown(v)}
        if residue:
            meta["rest"] = residue
        return {**out, META: json.dumps(meta, sort_keys=True)}


def wire_unknown(value: Any) -> bool:
    """Return whether a value, or a part of it, cannot be stored because it is unknown."""
    try:
        json.dumps(value)
    except TypeError:
        return True
    return False


def load(upstream: Upstream, mapping: Mapping, resource_id: str, outputs: dict[str, Any]) -> ResourceState:
    """Rebuild upstream's state from outputs, upgraded when an older schema wrote them.

    Raises:
        BridgeError: upstream cannot upgrade it.
    """
    meta = json.loads(outputs.get(META) or "{}")
    value = to_upstream(mapping.node, {k: v for k, v in outputs.items() if not k.startswith("__")})
    value.update(meta.get("rest", {}))
    if "id" in value:
        value["id"] = resource_id
    private = base64.b64decode(meta.get("private", ""))
    written = int(meta.get("schema_version", mapping.version))
    if written != mapping.version:
        field_names = {f.pulumi for f in mapping.node.fields.values()}
        # What only the older schema had is for upstream's own upgrade to read.
        value.update({snake(k): v for k, v in outputs.items() if k not in field_names and not k.startswith("__")})
        raw = upstream.pb.RawState(json=json.dumps(value).encode())
        answer = upstream.call("UpgradeResourceState", type_name=mapping.upstream, version=written, raw_state=raw)
        raise_errors(answer.diagnostics)
        value = decode(answer.upgraded_state.msgpack)
    return ResourceState(value, private)


def with_timeout(resource_state: ResourceState, mapping: Mapping, operation: str, seconds: float) -> ResourceState:
    """Return the state with a timeout for one operation, which has no configuration that could carry it.

    Types of upstream's older kind keep their timeouts in the private part, those of the newer kind in the value.
    """
    if not seconds or not _takes_timeout(mapping, operation):
        return resource_state
    try:
        parts = json.loads(resource_state.private or b"{}")
    except ValueError:
        parts = {}
    if TIMEOUTS_KEY in parts:
        parts[TIMEOUTS_KEY][operation] = int(seconds * 1e9)
        return ResourceState(resource_state.value, json.dumps(parts).encode(), resource_state.assets)
    return ResourceState(
        _timed(resource_state.value or {}, mapping, operation, seconds), resource_state.private, resource_state.assets
    )


def _takes_timeout(mapping: Mapping, operation: str) -> bool:
    spot = mapping.node.fields.get("timeouts")
    return spot is not None and operation in spot.node.fields


def _timed(value: dict[str, Any], mapping: Mapping, operation: str, seconds: float) -> dict[str, Any]:
    names = mapping.node.fields["timeouts"].node.fields
    return {**value, "timeouts": {**dict.fromkeys(names), operation: f"{seconds:f}s"}}


def config_with_timeout(config: dict[str, Any], mapping: Mapping, operation: str, seconds: float) -> dict[str, Any]:
    """Return the configuration with a timeout for one operation, if the type knows it."""
    if not seconds or not _takes_timeout(mapping, operation):
        return config
    return _timed(config, mapping, operation, seconds)


def refreshed_inputs(mapping: Mapping, old: dict[str, Any], outputs: dict[str, Any]) -> dict[str, Any]:
    """Return the inputs that describe what is there now: the old ones with today's values, or all non-empty."""
    if old:
        return described(mapping.node, old, outputs)
    settable = {f.pulumi for f in mapping.node.fields.values() if f.settable and f.pulumi in mapping.names.inputs}
    current_inputs = {k: v for k, v in outputs.items() if k in settable and v not in (None, "", 0, False, [], {})}
    return {**current_inputs, "__defaults": []}


def described(node: Node, old: dict[str, Any], outputs: dict[str, Any]) -> dict[str, Any]:
    """Return a resource's old inputs with today's values."""
    fields = {f.pulumi: f for f in node.fields.values()}
    current_inputs = {}
    for name, value in old.items():
        if name.startswith("__"):
            current_inputs[name] = value
        elif name in fields and fields[name].node.kind == "map":
            current_inputs[name] = outputs.get(name)  # keys of the user's own come whole
        else:
            current_inputs[name] = _project(_field_node(fields.get(name)), value, outputs.get(name))
    return current_inputs


def _field_node(field: Field | None) -> Node:
    if field is None:
        return Node("dynamic")
    return field.node.elem if field.flat and field.node.elem else field.node


def _project(node: Node, old: Any, new: Any) -> Any:
    """Cut an output to the parts that were given as inputs."""
    if wire.is_asset(old) or new is None:
        return old if wire.is_asset(old) else new
    elem = node.elem or Node("dynamic")
    if isinstance(old, dict) and isinstance(new, dict):
        fields = {f.pulumi: f for f in node.fields.values()}
        return {
            k: _project(elem if node.kind == "map" else _field_node(fields.get(k)), v, new[k])
            for k, v in old.items()
            if k in new
        }
    if isinstance(old, list) and isinstance(new, list):
        if node.kind == "set":
            return _as_written(elem, old, new)
        if len(old) == len(new):
            return [_project(elem, o, n) for o, n in zip(old, new, strict=True)]
    return new


def _as_written(elem: Node, old: list[Any], new: list[Any]) -> list[Any]:
    """Return a set's elements in the order of the old inputs.

    Upstream has sets in an order of its own, while `ignoreChanges` names the places in the program's list. An element
    that is still there keeps its place. One that is not gives its place to one that is new, as long as there are such;
    the other new ones come last, with everything that is known of them.
    """
    unplaced = list(new)
    places: list[Any] = []
    for before in old:
        match = next((n for n, item in enumerate(unplaced) if _matches_input(elem, before, item)), None)
        places.append(None if match is None else unplaced.pop(match))
    projected = []
    for before, item in zip(old, places, strict=True):
        if item is None and unplaced:
            item = unplaced.pop(0)
        if item is not None:
            projected.append(_project(elem, before, item))
    return [*projected, *unplaced]


def _matches_input(elem: Node, input_value: Any, upstream_value: Any) -> bool:
    """Return whether an input describes an element of a set, apart from fields that it leaves to the provider."""
    try:
        return alike(elem, to_upstream(elem, input_value), to_upstream(elem, upstream_value))
    except BadValue:
        return False
