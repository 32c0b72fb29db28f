"""CRC32C (RFC 3720, B.4), fast in Python: many parts of the data in parallel, whose remainders are then joined.

Cloud Storage states it of every object, and its clients compare it after each upload.
"""

import base64

import numpy as np
from numpy.typing import NDArray

_LANES = 4096
"""Parts of the data; a power of two."""
_AT_LEAST = 16
"""Bytes of a part from which on parts are worth their while."""
Remainders = NDArray[np.uint32]


def crc32c(data: bytes) -> str:
    """Return the CRC32C, big-endian in base64, as Cloud Storage states it."""
    length = len(data) // _LANES
    remainder, tail = 0xFFFFFFFF, data
    if length >= _AT_LEAST:
        remainder, tail = _of_lanes(data[: length * _LANES], length), data[length * _LANES :]
    for byte in tail:
        remainder = int(_TABLE[(remainder ^ byte) & 0xFF]) ^ (remainder >> 8)
    return base64.b64encode((remainder ^ 0xFFFFFFFF).to_bytes(4, "big")).decode()


def _of_lanes(data: bytes, length: int) -> int:
    """Return the remainder of data that divides into lanes of a length."""
    columns = np.ascontiguousarray(np.frombuffer(data, np.uint8).reshape(_LANES, length).T)
    remainders = np.zeros(_LANES, np.uint32)
    remainders[0] = 0xFFFFFFFF
    for column in columns:
        remainders = _TABLE[(remainders ^ column) & 0xFF] ^ (remainders >> 8)
    zeros = _zero_bytes(length)
    while len(remainders) > 1:
        remainders = _apply(zeros, remainders[0::2]) ^ remainders[1::2]
        zeros = _apply(zeros, zeros)
    return int(remainders[0])


def _zero_bytes(count: int) -> Remainders:
    """Return what so many bytes of zero make of a remainder: a linear map, by its value of each bit."""
    result = power = np.left_shift(np.uint32(1), np.arange(32, dtype=np.uint32))
    power = _TABLE[power & 0xFF] ^ (power >> 8)
    while count:
        if count & 1:
            result = _apply(power, result)
        power, count = _apply(power, power), count >> 1
    return result


def _apply(linear_map: Remainders, remainders: Remainders) -> Remainders:
    result = np.zeros_like(remainders)
    for bit in range(32):
        result ^= ((remainders >> np.uint32(bit)) & np.uint32(1)) * linear_map[bit]
    return result


def _make_table() -> Remainders:
    table: Remainders = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = (table >> np.uint32(1)) ^ (table & np.uint32(1)) * np.uint32(0x82F63B78)
    return table


_TABLE = _make_table()
