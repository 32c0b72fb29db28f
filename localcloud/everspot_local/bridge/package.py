"""The package's schema for programs that generate code: `pulumi import` prints imported resources as a program.

It has the resources of the services that were built, with the names and types that the bridge itself goes by. No
documentation, functions, enums or aliases: those come with the SDK.
"""

from __future__ import annotations

import json
from typing import Any

from everspot_local.bridge.names import Mapping, NameMismatch
from everspot_local.bridge.resources import ProviderResources
from everspot_local.bridge.schema import Field, Node
from everspot_local.bridge.sdk import SdkError

# The folder before the slash is the module: in cloud:net/router:Router it is `net`, in every language.
META = {"moduleFormat": "(.*)(?:/[^/]*)"}
SCALARS = {"string": "string", "bool": "boolean", "number": "number", "int": "integer", "float": "number"}


def package_schema(resources: ProviderResources) -> str:
    """Return the schema as JSON; takes about three seconds."""
    package = resources.table.package
    resource_schemas: dict[str, Any] = {}
    types: dict[str, Any] = {}
    for token in resources.sdk.registry:
        try:
            mapping = resources.mapping(token)
        except (NameMismatch, SdkError):  # a service that was not built, which would be refused by name
            continue
        resource_schemas[token] = _resource(package, mapping, types)
    schema = {
        "name": package,
        "version": resources.sdk.version,
        "meta": META,
        "resources": resource_schemas,
        "types": types,
    }
    return json.dumps(schema)


def _resource(package: str, mapping: Mapping, types: dict[str, Any]) -> dict[str, Any]:
    fields = [f for f in mapping.node.fields.values() if f.pulumi and f.tf != "id"]
    settable = [f for f in fields if f.settable and f.pulumi in mapping.names.inputs]
    module, _, name = mapping.token.removeprefix(f"{package}:").rpartition(":")
    prefix = f"{package}:{module.partition('/')[0]}/{name}"
    return {
        "properties": {f.pulumi: _property(f, f"{prefix}{_upper(f.pulumi)}", types) for f in fields},
        "inputProperties": {f.pulumi: _property(f, f"{prefix}{_upper(f.pulumi)}", types) for f in settable},
        "requiredInputs": [f.pulumi for f in settable if f.required],
    }


def _property(field: Field, name: str, types: dict[str, Any]) -> dict[str, Any]:
    if field.scalar in SCALARS and field.node.scalar:
        return {"type": SCALARS[field.scalar]}
    node = field.node.elem if field.flat and field.node.elem else field.node
    return _type(node, name, types)


def _type(node: Node, name: str, types: dict[str, Any]) -> dict[str, Any]:
    if node.kind == "object":
        token = f"{name}:{name.rpartition('/')[2]}"
        inner = [f for f in node.fields.values() if f.pulumi]
        types[token] = {
            "type": "object",
            "properties": {f.pulumi: _property(f, f"{name}{_upper(f.pulumi)}", types) for f in inner},
            "required": [f.pulumi for f in inner if f.required],
        }
        return {"$ref": f"#/types/{token}"}
    elem = node.elem or Node("string")
    if node.kind == "map":
        return {"type": "object", "additionalProperties": _type(elem, name, types)}
    if node.kind in ("list", "set"):
        return {"type": "array", "items": _type(elem, name, types)}
    return {"$ref": "pulumi.json#/Any"} if node.kind == "dynamic" else {"type": SCALARS[node.kind]}


def _upper(name: str) -> str:
    return name[:1].upper() + name[1:]
