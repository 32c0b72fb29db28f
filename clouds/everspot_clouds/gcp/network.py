"""Addresses of a cluster's network, and checks of the settings about networks."""

import re
from collections.abc import Sequence

from everspot_core.capacity.catalogue import zone_region
from everspot_core.validation.cidr import parse_block
from everspot_core.validation.problems import Problems, near, shown

from everspot_clouds.gcp.names import ZONE

PROBERS = ("35.191.0.0/16", "130.211.0.0/22")
"""Where Google's health checks come from (Cloud Load Balancing documentation, "Health checks overview", probe IP
ranges)."""

IAP = ("35.235.240.0/20",)
"""Where Identity-Aware Proxy's tunnels come from (IAP documentation, "Using IAP for TCP forwarding")."""

SUBNETWORK = (8, 29)
"""Largest and smallest prefix of a subnetwork (VPC documentation, "IPv4 subnet ranges")."""

_WORD = re.compile(r"^[A-Za-z0-9_][A-Za-z0-9._:%~+-]*\Z")


def network_problems(
    problems: Problems, *, zones: Sequence[str], cidr: str, scheduler_cidr: str, peer_cidrs: Sequence[str] = ()
) -> None:
    """Add a problem for each mistake in zones and addresses of a new network. `cidr`: of the agents' subnetwork.
    `peer_cidrs`: networks that it must not overlap."""
    listed_zones(problems, zones)
    low, high = SUBNETWORK
    own = {}
    for key, text in (("vpcCidr", cidr), ("schedulerCidr", scheduler_cidr)):
        block = parse_block(text, key, problems)
        if block is not None:
            problems.need(low <= block.prefixlen <= high, key, f"{text} has to lie between /{low} and /{high}")
            own[key] = block
    if len(own) == len({"vpcCidr", "schedulerCidr"}) and own["vpcCidr"].overlaps(own["schedulerCidr"]):
        problems.add("schedulerCidr", f"{scheduler_cidr} overlaps vpcCidr ({cidr})")
    for index, text in enumerate(peer_cidrs):
        peer = parse_block(text, f"peerCidrs[{index}]", problems)
        for key, block in own.items():
            if peer is not None and peer.overlaps(block):
                problems.add(key, f"{block} overlaps peerCidrs[{index}] ({text})")


def listed_zones(problems: Problems, zones: Sequence[str]) -> None:
    """Add a problem for each mistake in a list of zones, whichever zones the region has."""
    problems.need(bool(zones), "zones", "at least one zone is needed")
    for zone in sorted({z for z in zones if zones.count(z) > 1}):
        problems.add("zones", f"{zone} is given twice")
    valid_zones = [
        zone
        for index, zone in enumerate(zones)
        if problems.need(
            bool(ZONE.match(zone)), f"zones[{index}]", f"{shown(zone)} is not the name of a zone, such as us-central1-a"
        )
    ]
    regions = {zone_region(zone) for zone in valid_zones}
    problems.need(len(regions) <= 1, "zones", f"zones of several regions: {', '.join(sorted(regions))}")


def zone_problems(problems: Problems, *, zones: Sequence[str], region: str, region_zones: Sequence[str]) -> None:
    """Add every zone that the cluster's region does not have. `region_zones`: the zones that it has."""
    for index, zone in enumerate(zones):
        elsewhere = "" if zone.startswith(f"{region}-") else f", whose names begin with {region}"
        problems.need(
            zone in region_zones,
            f"zones[{index}]",
            f"{zone} is not a zone of {region}{elsewhere}{near(zone, region_zones)}",
        )


def resource_problem(value: str, form: str) -> str | None:
    """Return the mistake in the name of a resource, or None. `form`: such as `projects/PROJECT/secrets/NAME`, where
    words in capitals match any word."""
    segments, pattern = value.split("/"), form.split("/")
    fits = len(segments) == len(pattern) and all(
        bool(_WORD.match(segment)) if place.isupper() else segment == place
        for segment, place in zip(segments, pattern, strict=True)
    )
    return None if fits else f"{shown(value)} is not of the form {form}"
