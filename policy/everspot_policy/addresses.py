"""Finds address ranges that are open to nearly the whole internet."""

from ipaddress import IPv4Network, IPv6Network, collapse_addresses, ip_network
from typing import Any

from everspot_policy.reading import texts

LONGEST_OPEN = {4: 7, 6: 15}
"""Bits of the longest prefix that counts as everybody. A /8 is the most that one owner was ever given; two halves of
all addresses are as open as the whole."""


def open_ranges(value: Any) -> list[str]:
    """Return the known ranges of a list, or of one text, that contain nearly all addresses: each range alone, or
    otherwise the unions of neighbouring ranges."""
    networks = [(each, network) for each in texts(value) if (network := _network(each)) is not None]
    return [each for each, network in networks if _open(network)] or _together([network for _, network in networks])


def closed_ranges(value: Any) -> bool:
    """Return whether all known texts of a list are ranges that do not contain nearly all addresses."""
    return not open_ranges(value) and all(_network(each) is not None for each in texts(value))


def _together(ranges: list[IPv4Network | IPv6Network]) -> list[str]:
    """Return the widest union of the ranges that are not open alone."""
    joined: list[IPv4Network | IPv6Network] = []
    joined += collapse_addresses([each for each in ranges if isinstance(each, IPv4Network)])
    joined += collapse_addresses([each for each in ranges if isinstance(each, IPv6Network)])
    widest_first = sorted((each for each in joined if _open(each)), key=lambda each: each.prefixlen)
    return [f"{each} in {len(ranges)} ranges" for each in widest_first[:1]]


def _open(network: IPv4Network | IPv6Network) -> bool:
    return network.prefixlen <= LONGEST_OPEN[network.version]


def _network(text: str) -> IPv4Network | IPv6Network | None:
    try:
        return ip_network(text.strip(), strict=False)
    except ValueError:
        return None
