"""Writes TensorBoard's event files: scalars by step, and marks from which steps are done again.

The command does not need TensorBoard itself for that. A record is the length of its content, the checksum of the
length, the content, and the checksum of the content (tensorflow/core/lib/io/record_writer.h). A content is an `Event`
(tensorboard/compat/proto/event.proto).
"""

import struct
from collections.abc import Mapping
from typing import BinaryIO

_VERSION = b"\x1a\x0dbrain.Event:2"  # of an event's field `file_version`; readers heed marks from this version on
_START = b"\x3a\x02\x08\x01"  # an event's field `session_log`, with the status START
_MASK = 0xA282EAD8  # tensorflow/core/lib/hash/crc32c.h
_POLYNOMIAL = 0x82F63B78  # of CRC-32C, with its bits in reverse order
_BYTE, _WORD = 0xFF, 0xFFFFFFFF


def _checksum_row(byte: int) -> int:
    for _ in range(8):
        byte = (byte >> 1) ^ (_POLYNOMIAL if byte & 1 else 0)
    return byte


_CHECKSUMS = tuple(_checksum_row(byte) for byte in range(256))


class EventFile:
    """An event file that is being written.

    Args:
        file: opened for writing, and empty.
        began_at: seconds since 1970.
    """

    def __init__(self, file: BinaryIO, began_at: float) -> None:
        self._file = file
        self._write(_event(began_at, 0) + _VERSION)

    def add_scalars(self, at: float, step: int, scalars: Mapping[str, float]) -> None:
        """Add the values of one step. `at`: seconds since 1970."""
        values = b"".join(_field(0x0A, _value(name, value)) for name, value in scalars.items())
        self._write(_event(at, step) + _field(0x2A, values))

    def restart(self, at: float, step: int) -> None:
        """Mark that the steps from `step` on come once more: readers drop what they have of these steps."""
        self._write(_event(at, step) + _START)

    def flush(self) -> None:
        """Let readers see what was added."""
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, content: bytes) -> None:
        length = struct.pack("<Q", len(content))
        parts = (length, struct.pack("<I", _masked(length)), content, struct.pack("<I", _masked(content)))
        self._file.write(b"".join(parts))


def _event(at: float, step: int) -> bytes:
    return b"\x09" + struct.pack("<d", at) + b"\x10" + _varint(step)


def _value(name: str, value: float) -> bytes:
    return _field(0x0A, name.encode(errors="replace")) + b"\x15" + struct.pack("<f", _single(value))


def _single(value: float) -> float:
    """Return a number that fits into single precision: a larger one becomes infinite, as in the program's own file."""
    try:
        struct.pack("<f", value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
    return value


def _field(tag: int, content: bytes) -> bytes:
    return bytes([tag]) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _masked(data: bytes) -> int:
    checksum = _WORD
    for byte in data:
        checksum = _CHECKSUMS[(checksum ^ byte) & _BYTE] ^ (checksum >> 8)
    checksum ^= _WORD
    return (((checksum >> 15) | (checksum << 17)) + _MASK) & _WORD
