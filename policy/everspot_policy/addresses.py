"""Ranges of addresses that hold nearly everybody."""

from ipaddress import ip_network
from typing import Any

from everspot_policy.reading import texts

LONGEST_OPEN = {4: 7, 6: 15}
"""Bits of the longest prefix that counts as everybody. A /8 is the most that one owner was ever given; two halves of
all addresses are as open as the whole."""


def open_ranges(value: Any) -> list[str]:
    """The known ranges of a list, or of one text, that hold nearly everybody."""
    return [each for each in texts(value) if _open(each)]


def _open(text: str) -> bool:
    try:
        found = ip_network(text.strip(), strict=False)
    except ValueError:
        return False
    return found.prefixlen <= LONGEST_OPEN[found.version]
