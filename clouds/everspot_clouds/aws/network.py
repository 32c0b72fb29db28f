"""Addresses of a cluster's network: how a VPC is split over zones, and checks of the given addresses."""

from collections.abc import Sequence
from ipaddress import IPv4Network

from everspot_core.capacity.catalogue import zone_region
from everspot_core.validation.cidr import parse_block
from everspot_core.validation.problems import Problems, near, shown

from everspot_clouds.aws.tags import ZONE

ZONES_AT_MOST = 8
"""Number of blocks that a VPC is divided into. It is fixed, so that a new zone never moves another zone's addresses."""

SMALLEST_SUBNET = 28
"""The prefix of the smallest subnet (Amazon VPC User Guide, "Subnet CIDR blocks")."""

_BLOCK_BITS = 3  # 2 ** 3 blocks
_SMALLEST_VPC, _LARGEST_VPC = 24, 16  # an interface endpoint, and up to a few hundred instances, in every block


def split(vpc: IPv4Network, zones: int) -> list[IPv4Network]:
    """Return the address blocks of `zones` zones. Each is an eighth of the VPC.

    The n-th zone has the same block however many zones there are.

    Raises:
        ValueError: if there are more zones than blocks.
    """
    if not 0 <= zones <= ZONES_AT_MOST:
        raise ValueError(f"a network spans at most {ZONES_AT_MOST} zones, not {zones}")
    return list(vpc.subnets(prefixlen_diff=_BLOCK_BITS))[:zones]


def outside_block(vpc: IPv4Network) -> IPv4Network:
    """Return the block of the public subnet of a NAT gateway: the last 16 addresses of the last eighth, which is then
    no zone's."""
    return list(split(vpc, ZONES_AT_MOST)[-1].subnets(new_prefix=SMALLEST_SUBNET))[-1]


def network_problems(
    problems: Problems, *, zones: Sequence[str], vpc_cidr: str, peer_cidrs: Sequence[str] = ()
) -> list[IPv4Network]:
    """Return the subnets' blocks of a new network; every problem of the zones and of the addresses is added to
    `problems`.

    `peer_cidrs` are networks that this one must not overlap (offices, peered VPCs, other environments).
    """
    problems.need(bool(zones), "zones", "at least one availability zone is needed")
    problems.need(len(zones) <= ZONES_AT_MOST, "zones", f"at most {ZONES_AT_MOST} zones, {len(zones)} are given")
    for zone in sorted({z for z in zones if zones.count(z) > 1}):
        problems.add("zones", f"{zone} is given twice; EC2 accepts one subnet of a zone in a fleet")
    valid_zones = [
        zone
        for index, zone in enumerate(zones)
        if problems.need(
            bool(ZONE.match(zone)),
            f"zones[{index}]",
            f"{shown(zone)} is not the name of an availability zone, such as us-east-1a",
        )
    ]
    regions = {zone_region(zone) for zone in valid_zones}
    problems.need(len(regions) <= 1, "zones", f"zones of several regions: {', '.join(sorted(regions))}")
    vpc = parse_block(vpc_cidr, "vpcCidr", problems)
    if vpc is None:
        return []
    fits = problems.need(
        _LARGEST_VPC <= vpc.prefixlen <= _SMALLEST_VPC,
        "vpcCidr",
        f"{vpc_cidr} has to lie between /{_LARGEST_VPC} (the largest VPC) and /{_SMALLEST_VPC}",
    )
    for index, text in enumerate(peer_cidrs):
        peer = parse_block(text, f"peerCidrs[{index}]", problems)
        if peer is not None and peer.overlaps(vpc):
            problems.add("vpcCidr", f"{vpc_cidr} overlaps peerCidrs[{index}] ({text})")
    return split(vpc, min(len(zones), ZONES_AT_MOST)) if fits else []


def zone_problems(problems: Problems, *, zones: Sequence[str], region: str, region_zones: Sequence[str]) -> None:
    """Add every zone that the account does not have in the cluster's region. `region_zones`: the zones that it has."""
    for index, zone in enumerate(zones):
        if zone in region_zones:
            continue
        elsewhere = "" if zone.startswith(region) else f", whose names begin with {region}"
        problems.add(
            f"zones[{index}]", f"{zone} is not a zone of this account in {region}{elsewhere}{near(zone, region_zones)}"
        )
