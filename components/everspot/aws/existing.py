"""An existing VPC. It is read at preview, and refused if no instance could work in it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
from everspot_clouds.aws.egress import Subnet, Ways, way_problems
from everspot_core.validation.problems import Problems

from everspot import common
from everspot.aws import preview_queries
from everspot.aws.preview_queries import Answer

_ANYWHERE = "0.0.0.0/0"
_ABSENT = ("no matching", "couldn't find", "empty result")
"""Phrases of the provider's error for a resource that does not exist."""


@dataclass(frozen=True)
class Existing:
    """An existing VPC. `subnets` are known only after the checks have passed, so that nothing is created in a VPC that
    fails them."""

    vpc_id: pulumi.Output[str]
    blocks: pulumi.Output[list[str]]
    subnets: list[pulumi.Output[str]]


def look(
    name: str,
    vpc_id: pulumi.Input[str],
    subnet_ids: Sequence[pulumi.Input[str]],
    *,
    region: pulumi.Output[str],
    services: Sequence[str],
    egress: Mapping[str, Any],
    outward: bool,
    parent: pulumi.Resource,
) -> Existing:
    """Read a VPC and its subnets from the API. `services`: the services besides S3 that agents or scheduler call.
    `outward`: whether the scheduler has to reach the internet, too."""
    vpc = preview_queries.invoke(
        parent,
        "ec2/getVpc:getVpc",
        {"id": vpc_id},
        failed=f"AwsNetwork {name}: vpcId names no VPC that can be seen in this account and region.",
    )
    facts = [
        preview_queries.invoke(
            parent,
            "ec2/getSubnet:getSubnet",
            {"id": subnet},
            failed=f"AwsNetwork {name}: subnetIds[{index}] names no subnet of this account and region.",
        )
        for index, subnet in enumerate(subnet_ids)
    ]
    checked = pulumi.Output.all(
        vpc=vpc,
        subnets=facts,
        routes=[_routes(parent, fact) for fact in facts],
        s3=_endpoint(parent, vpc, region, "s3"),
        endpoints=[_endpoint(parent, vpc, region, service) for service in services],
    ).apply(lambda seen: _check(name, seen, services, egress, outward=outward))
    return Existing(
        vpc_id=vpc.apply(lambda found: str(found["id"])),
        blocks=vpc.apply(_blocks),
        subnets=[pulumi.Output.all(fact, checked).apply(lambda pair: str(pair[0]["id"])) for fact in facts],
    )


def _blocks(vpc: Answer) -> list[str]:
    return sorted({vpc["cidrBlock"], *(more["cidrBlock"] for more in vpc.get("cidrBlockAssociations") or [])})


def _routes(parent: pulumi.Resource, subnet: pulumi.Output[Answer]) -> pulumi.Output[Answer | None]:
    """Return the subnet's route table, or the VPC's main one if it has none of its own. None: it could not be read."""
    token = "ec2/getRouteTable:getRouteTable"  # noqa: S105 - of a function

    def main(answers: list[Any]) -> pulumi.Output[Answer | None]:
        fact, own = answers
        if own is not None:
            return pulumi.Output.from_input(own)
        of_vpc = {"vpcId": fact["vpcId"], "filters": [{"name": "association.main", "values": ["true"]}]}
        return preview_queries.invoke(parent, token, of_vpc, failed=lambda _: None)

    own = preview_queries.invoke(parent, token, {"subnetId": subnet.apply(lambda s: s["id"])}, failed=lambda _: None)
    return pulumi.Output.all(subnet, own).apply(main)


def _endpoint(
    parent: pulumi.Resource, vpc: pulumi.Output[Answer], region: pulumi.Output[str], service: str
) -> pulumi.Output[Answer | None]:
    """Return a service's endpoint in the VPC; the key `none` if no endpoint exists. None: it could not be read."""

    def absent(error: Exception) -> Answer | None:
        text = str(error)
        if "multiple" in text:
            return {"routeTableIds": None, "privateDnsEnabled": True}
        return {"none": True} if any(phrase in text for phrase in _ABSENT) else None

    query = {
        "vpcId": vpc.apply(lambda found: found["id"]),
        "serviceName": preview_queries.service_name(region, service),
        "state": "available",
    }
    return preview_queries.invoke(parent, "ec2/getVpcEndpoint:getVpcEndpoint", query, failed=absent)


def _check(
    name: str, network: dict[str, Any], services: Sequence[str], egress: Mapping[str, Any], *, outward: bool
) -> bool:
    problems = Problems()
    subnets: list[Answer] = network["subnets"]
    zones = [subnet["availabilityZone"] for subnet in subnets]
    for index, subnet in enumerate(subnets):
        here, zone = f"subnetIds[{index}]", zones[index]
        problems.need(zone not in zones[:index], here, f"is in {zone} too; EC2 accepts one subnet of a zone in a fleet")
        vpc = network["vpc"]["id"]
        problems.need(subnet["vpcId"] == vpc, here, f"belongs to {subnet['vpcId']}, not to {vpc}")
    unknown = None in (*network["routes"], network["s3"], *network["endpoints"])
    if unknown:
        pulumi.log.warn(
            f"AwsNetwork {name}: routes and endpoints of the VPC could not be looked at (ec2:DescribeRouteTables, "
            "ec2:DescribeVpcEndpoints); whether instances reach S3, " + ", ".join(services) + " is not known"
        )
    elif not problems.collected and not egress.get("unchecked", False):
        _check_ways(problems, network, services, egress)
        if outward and egress.get("proxy") is None:
            _warn_of_no_way_out(name, network, egress)
    common.raise_bad(problems, f"AwsNetwork {name}")
    return True


def _warn_of_no_way_out(name: str, network: dict[str, Any], egress: Mapping[str, Any]) -> None:
    """Warn where the scheduler would not reach a peer on another cloud. No refusal: a route may lead to its addresses
    alone."""
    prefix = f"AwsNetwork {name}: federation leads to another cloud, and"
    if not (egress.get("cidrs") or egress.get("prefix_list_ids")):
        pulumi.log.warn(
            f"{prefix} egress lets nothing out of the VPC but to S3: the scheduler reaches no peer there "
            "(egress.cidrs: 0.0.0.0/0 where a NAT gateway or a firewall is the way out)"
        )
    pairs = zip(network["subnets"], network["routes"], strict=True)
    shut = [subnet["id"] for subnet, routes in pairs if _ANYWHERE not in _destinations(routes)]
    if shut:
        pulumi.log.warn(f"{prefix} {', '.join(shut)} have no route to {_ANYWHERE}: from there it may reach no peer")


def _check_ways(
    problems: Problems, network: dict[str, Any], services: Sequence[str], egress: Mapping[str, Any]
) -> None:
    endpoints = zip(services, network["endpoints"], strict=True)
    ways = Ways(
        gateway_tables=None if "none" in network["s3"] else tuple(network["s3"]["routeTableIds"] or ()),
        interfaces=tuple(service for service, endpoint in endpoints if endpoint.get("privateDnsEnabled")),
        allowed=(*egress.get("cidrs", []), *egress.get("prefix_list_ids", [])),
        proxied=egress.get("proxy") is not None,
    )
    subnets = [
        Subnet(
            id=subnet["id"],
            table=routes["routeTableId"],
            destinations=_destinations(routes),
            public=any(map(_public, routes["routes"])),
        )
        for subnet, routes in zip(network["subnets"], network["routes"], strict=True)
    ]
    way_problems(problems, subnets, ways, services)


def _destinations(table: Answer) -> tuple[str, ...]:
    """Destinations of the routes by which instances leave the VPC. Routes to gateway endpoints are left out, because
    the endpoints themselves are read, and routes to an internet or carrier gateway, which carry only instances with a
    public address (Amazon VPC User Guide, "Internet gateway configuration"; AWS Wavelength Developer Guide, "Carrier
    gateways"): Everspot's have none."""
    ways = [r for r in table["routes"] if r.get("gatewayId") != "local" and not _gateway_endpoint(r) and not _public(r)]
    return tuple(destination for r in ways if (destination := r.get("cidrBlock") or r.get("destinationPrefixListId")))


def _public(route: Answer) -> bool:
    return str(route.get("gatewayId") or "").startswith("igw-") or bool(route.get("carrierGatewayId"))


def _gateway_endpoint(route: Answer) -> bool:
    return str(route.get("gatewayId") or "").startswith("vpce-")
