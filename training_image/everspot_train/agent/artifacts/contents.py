"""Checks by a file's content whether the file is whole, if its format shows that.

A program that is killed during a write leaves the beginning of a file. Most checkpoint formats show that: archives of
torch and numpy end with a directory, safetensors files and numpy arrays begin with their size, and JSON and pickles
have an end mark.
"""

import ast
import json
import os
import re
import struct
import zipfile
from collections.abc import Collection
from enum import Enum
from pathlib import Path
from typing import BinaryIO

_EMPTY_IS_TORN = (".pt", ".pth", ".ckpt", ".bin", ".safetensors", ".npz", ".npy", ".pkl", ".pickle", ".json")
_ZIP, _NUMPY, _PICKLE = b"PK\x03\x04", b"\x93NUMPY", re.compile(rb"\x80[\x02-\x05]")
_LEGACY_TORCH = (0x1950A86A20F9469CFC6C).to_bytes(10, "little")
"""The magic number of torch's format before it used archives. The format ends with the bytes of tensors, and not like a
pickle (torch/serialization.py)."""
_LONGEST_JSON = 64 << 20
_LONGEST_HEADER = 100 << 20  # safetensors' own limit


class Wholeness(Enum):
    """The result of a check of a file's content."""

    WHOLE = "whole"
    TORN = "torn"
    UNKNOWN = "unknown"


def check_content(path: Path, name: bytes, siblings: Collection[bytes] = ()) -> Wholeness:
    """Check a file. `name`: its name. `siblings`: the names in its folder, which must include the shards of an index.

    Raises:
        OSError: if it cannot be read.
    """
    ending = Path(name.decode("utf-8", "replace")).suffix.lower()
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size == 0:
            return Wholeness.TORN if ending in _EMPTY_IS_TORN else Wholeness.UNKNOWN
        head = file.read(10)
        try:
            if ending == ".safetensors":
                return _judge(_safetensors_size(file, size) == size)
            if head.startswith(_ZIP):
                zipfile.ZipFile(file).infolist()
                return Wholeness.WHOLE
            if head.startswith(_NUMPY):
                return _numpy(file, size)
            if ending == ".json" and size <= _LONGEST_JSON:
                file.seek(0)
                return _json(file.read(), siblings)
            if ending in (".pkl", ".pickle") and _PICKLE.match(head):
                file.seek(-1, os.SEEK_END)
                if file.read(1) == b".":
                    return Wholeness.WHOLE
                file.seek(0)
                return Wholeness.UNKNOWN if _LEGACY_TORCH in file.read(64) else Wholeness.TORN
        except (NotImplementedError, RecursionError, MemoryError):  # too large or too deep to be read
            return Wholeness.UNKNOWN
        except (ValueError, SyntaxError, LookupError, TypeError, AttributeError, struct.error, zipfile.BadZipFile):
            return Wholeness.TORN
    return Wholeness.UNKNOWN


def _judge(whole: bool) -> Wholeness:
    return Wholeness.WHOLE if whole else Wholeness.TORN


def _safetensors_size(file: BinaryIO, size: int) -> int:
    file.seek(0)
    (length,) = struct.unpack("<Q", file.read(8))
    if length > min(size, _LONGEST_HEADER):
        return -1
    header = json.loads(file.read(length))
    ends = [tensor["data_offsets"][1] for name, tensor in header.items() if name != "__metadata__"]
    return 8 + int(length) + max(ends, default=0)


def _numpy(file: BinaryIO, size: int) -> Wholeness:
    file.seek(6)
    long = file.read(2)[0] > 1
    (length,) = struct.unpack("<I" if long else "<H", file.read(4 if long else 2))
    header = ast.literal_eval(file.read(length).decode("latin-1"))
    width = re.fullmatch(r"[<>|=]?[a-zA-Z?](\d+)", str(header["descr"]))
    if width is None or str(header["descr"]).lstrip("<>|=")[:1] in ("O", "U", "M", "m"):
        return Wholeness.UNKNOWN
    count = 1
    for dimension in header["shape"]:
        count *= int(dimension)
    return _judge(size >= file.tell() + count * int(width[1]))


def _json(text: bytes, siblings: Collection[bytes]) -> Wholeness:
    try:
        return _judge(_has_shards(json.loads(text), siblings))
    except UnicodeDecodeError as error:  # another encoding, unless the last character is cut off
        cut_off = error.end == len(text) and error.reason == "unexpected end of data"
        return Wholeness.TORN if cut_off else Wholeness.UNKNOWN
    except json.JSONDecodeError as error:
        cut_off = error.pos >= len(error.doc.rstrip()) or error.msg.startswith("Unterminated string")
        return Wholeness.TORN if cut_off else Wholeness.UNKNOWN  # such as one document in each line


def _has_shards(document: object, siblings: Collection[bytes]) -> bool:
    """Return whether the folder has all shards that an index names. True for any other document."""
    shards = document.get("weight_map") if isinstance(document, dict) else None
    return not isinstance(shards, dict) or {os.fsencode(str(name)) for name in shards.values()} <= set(siblings)
