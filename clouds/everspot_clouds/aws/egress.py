"""Checks of an existing VPC: the allowed connections of instances, and subnets without a route for them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Any

from everspot_core.validation.cidr import parse_block
from everspot_core.validation.problems import Problems, shown

from everspot_clouds.aws.rules import dns_suffix, partition

ALWAYS_DIRECT = ("169.254.169.254", "fd00:ec2::254", "127.0.0.0/8", "::1")
"""Hosts that are never reached through a proxy: the metadata service, and the machine itself."""

DEFAULT_ROUTE = "0.0.0.0/0"
"""The destination of a route to a NAT gateway, a transit gateway or a firewall."""

PUBLIC = (
    "It is a public subnet: its internet gateway carries only instances with a public address, and instances of a "
    "cluster have none. Name private subnets (with a NAT gateway or endpoints)"
)

_PROXY = re.compile(r"^(?P<scheme>https?)://(?P<host>[A-Za-z0-9.-]+)(?::(?P<port>\d{1,5}))?/?\Z")
_PREFIX_LIST = re.compile(r"^pl-[0-9a-f]+\Z")
_GROUP = re.compile(r"^sg-[0-9a-f]+\Z")


@dataclass(frozen=True)
class Subnet:
    """A subnet and its routes.

    Attributes:
        table: id of its route table.
        destinations: blocks and ids of prefix lists to which its routes lead instances out of the VPC.
        public: whether a route leads to an internet gateway.
    """

    id: str
    table: str
    destinations: tuple[str, ...]
    public: bool = False


@dataclass(frozen=True)
class Ways:
    """The ways out of a VPC, and the settings about them.

    Attributes:
        gateway_tables: route tables with S3's gateway endpoint, None if there is no such endpoint.
        interfaces: services with an interface endpoint.
        allowed: blocks and prefix lists that instances may connect to.
        proxied: whether everything else goes through a proxy.
    """

    gateway_tables: tuple[str, ...] | None
    interfaces: tuple[str, ...]
    allowed: tuple[str, ...]
    proxied: bool


def proxy_port(url: str) -> int | None:
    """Return the port of a proxy's URL, or None if it is not such a URL. Credentials in it are refused, because the
    manifest holds no secrets."""
    match = _PROXY.match(url)
    if match is None:
        return None
    port = int(match["port"] or (443 if match["scheme"] == "https" else 80))
    return port if 0 < port < 65536 else None


def egress_problems(problems: Problems, egress: Mapping[str, Any]) -> None:
    """Add a problem for each mistake in the settings under `egress`."""
    for key, name in (("cidrs", "cidrs"), ("proxy_cidrs", "proxyCidrs")):
        for index, text in enumerate(egress.get(key, [])):
            parse_block(text, f"{name}[{index}]", problems)
    _id_problems(problems, "prefixListIds", egress.get("prefix_list_ids", []), _PREFIX_LIST, "pl-0123abcd")
    group_problems(problems, egress)
    proxy = egress.get("proxy")
    if proxy is not None:
        problems.need(
            proxy_port(proxy) is not None,
            "proxy",
            f"{shown(proxy)} is not a proxy such as http://proxy.corp.example:3128 (without user and password: "
            "the manifest holds no secrets)",
        )
    for key, name in (("proxy_cidrs", "proxyCidrs"), ("no_proxy", "noProxy")):
        problems.need(proxy is not None or key not in egress, name, "goes with proxy only")
    for index, host in enumerate(egress.get("no_proxy", [])):
        fits = bool(re.match(r"^[A-Za-z0-9.:/*-]+\Z", host))
        problems.need(fits, f"noProxy[{index}]", f"{shown(host)} is not a host, a domain or a block")


def group_problems(problems: Problems, args: Mapping[str, Any]) -> None:
    """Add a problem for each mistake in the settings' `security_group_ids`."""
    _id_problems(problems, "securityGroupIds", args.get("security_group_ids", []), _GROUP, "sg-0123abcd")


def _id_problems(problems: Problems, name: str, ids: Sequence[Any], pattern: re.Pattern[str], like: str) -> None:
    for index, resource_id in enumerate(ids):
        if isinstance(resource_id, str):  # else it is an output that nobody knows yet
            fits = bool(pattern.match(resource_id))
            problems.need(fits, f"{name}[{index}]", f"{shown(resource_id)} is not an id such as {like}")


def no_proxy(region: str, hosts: Sequence[str] | None) -> tuple[str, ...]:
    """Return the hosts that are reached without the proxy: the given ones, otherwise S3 of the region, which is
    expected to have a gateway endpoint. The metadata service is always among them."""
    s3 = f"s3.{region}.{dns_suffix(partition(region))}"
    return (*ALWAYS_DIRECT, *((s3, f".{s3}") if hosts is None else hosts))


def way_problems(problems: Problems, subnets: Sequence[Subnet], ways: Ways, services: Sequence[str]) -> None:
    """Add each subnet from which S3, or a service that some role needs, cannot be reached.

    A route counts if the settings let instances connect to its destination. Name resolution and network ACLs are not
    checked.
    """
    if ways.proxied:
        return
    for index, subnet in enumerate(subnets):
        here = f"subnetIds[{index}]"
        out = _leads_out(subnet, ways.allowed)
        public = f". {PUBLIC}" if subnet.public else ""
        # S3's own prefix list is always allowed, so that a default route is enough for it.
        if subnet.table not in (ways.gateway_tables or ()) and not out and DEFAULT_ROUTE not in subnet.destinations:
            reason = (
                "the VPC has no gateway endpoint of S3"
                if ways.gateway_tables is None
                else (f"its route table {subnet.table} is not in S3's gateway endpoint")
            )
            problems.add(
                here, f"{subnet.id} cannot reach S3: {reason}, and no route leads to what egress allows{public}"
            )
        missing = [service for service in services if service not in ways.interfaces]
        if missing and not out:
            problems.add(
                here,
                f"{subnet.id} cannot reach {', '.join(missing)}: the VPC has no interface endpoint with private DNS "
                f"for it, and no route leads to what egress allows (egress.cidrs, prefixListIds, proxy){public}",
            )


def _leads_out(subnet: Subnet, allowed: Sequence[str]) -> bool:
    return any(_covers(route, target) for route in subnet.destinations for target in allowed)


def _covers(route: str, target: str) -> bool:
    if route.startswith("pl-") or target.startswith("pl-"):
        return route in (target, DEFAULT_ROUTE)
    return IPv4Network(target, strict=False).overlaps(IPv4Network(route, strict=False))
