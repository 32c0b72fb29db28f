"""Blocks of addresses as settings write them."""

from ipaddress import IPv4Network

from everspot_core.validation.problems import Problems


def parse_block(text: str, name: str, problems: Problems) -> IPv4Network | None:
    """Return an IPv4 block such as `10.0.0.0/16`, or None and a problem."""
    try:
        return IPv4Network(text)
    except ValueError as error:
        problems.add(name, f"{text!r} is not an IPv4 block: {error}")
        return None
