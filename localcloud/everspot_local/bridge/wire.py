"""The engine's property values as plain Python, with its markers for unknowns, secrets and assets."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path
from typing import Any

from google.protobuf import json_format, struct_pb2

from everspot_local.bridge.upstream import BridgeError

# Constants of the engine's wire format (github.com/pulumi/pulumi, sdk/go/common/resource/plugin/rpc.go).
SIGNATURE = "4dabf18193072939515e22adb298388d"
SECRET = "1b47061264138c4ac30d75fd1eb44270"  # noqa: S105 (a type marker)
OUTPUT = "d0e6a833031e9bbcd3f4e8bde6ca49a4"
ASSET = "c44067f5952c0a294b673a41bacd8c17"
ARCHIVE = "0def7320c3a5731c473e5ecbe6d01bc7"
UNKNOWN_STRING = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
UNKNOWNS = {
    UNKNOWN_STRING,
    "1c4a061d-8072-4f0a-a4cb-0ff528b18fe7",
    "3eeb2bf0-c639-47a8-9e75-3b44932eb421",
    "6a19a0b0-7e62-4c92-b797-7f8e31da9cc2",
    "030794c1-ac77-496b-92df-f27374a8bd58",
    "e48ece36-62e2-4504-bad9-02848725956a",
    "dd056dcd-154b-4c76-9bd3-c8f88648b5ff",
}


def plain(value: Any) -> Any:
    """Take off the wrappers of secrets and outputs, which the engine may send whatever was agreed."""
    if isinstance(value, dict):
        kind = value.get(SIGNATURE)
        if kind == SECRET:
            return plain(value.get("value"))
        if kind == OUTPUT:
            return plain(value["value"]) if "value" in value else UNKNOWN_STRING
        return {k: plain(v) for k, v in value.items()}
    return [plain(v) for v in value] if isinstance(value, list) else value


def load(struct: struct_pb2.Struct | None) -> dict[str, Any]:
    """Return the plain values of a property struct."""
    loaded: dict[str, Any] = plain(json_format.MessageToDict(struct)) if struct is not None else {}
    return loaded


def dump(values: dict[str, Any]) -> struct_pb2.Struct:
    """Return the property struct of plain values."""
    struct = struct_pb2.Struct()
    json_format.ParseDict(values, struct)
    return struct


def is_unknown(value: Any) -> bool:
    """Return whether the engine does not know this value yet."""
    return isinstance(value, str) and value in UNKNOWNS


def is_asset(value: Any) -> bool:
    """Return whether this value is a file-like asset."""
    return isinstance(value, dict) and value.get(SIGNATURE) in (ASSET, ARCHIVE)


def asset_file(asset: dict[str, Any]) -> str:
    """Return the path of a file with the asset's content, the same path for the same content.

    Raises:
        BridgeError: it is an archive or remote, which no resource in use here takes.
    """
    if asset[SIGNATURE] == ARCHIVE or asset.get("uri"):
        raise BridgeError("only local files and texts can be given as assets here")
    content = Path(asset["path"]).read_bytes() if asset.get("path") else asset.get("text", "").encode()
    path = Path(tempfile.gettempdir()) / f"pulumi-asset-{hashlib.sha256(content).hexdigest()}"
    if not path.exists():
        fresh = path.with_suffix(".new")
        fresh.write_bytes(content)
        fresh.replace(path)
    return str(path)
