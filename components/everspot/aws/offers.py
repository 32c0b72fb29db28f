"""Asks EC2 at preview which types it offers in which zones. A type that a zone lacks, or that has no price, is refused
by name."""

from collections.abc import Sequence
from typing import Any

import pulumi
from everspot_clouds.aws.hourly import Always, hourly_cost
from everspot_clouds.aws.offers import Offered
from everspot_core.validation.problems import Problems

from everspot import common
from everspot.aws import preview_queries
from everspot.aws.capacity import AwsCapacityArgs, check_offers, parse_capacity
from everspot.capacity import build_cap, build_catalogue
from everspot.pricing import tell_of_asking, with_missing

ASKED_AT_MOST = 200
"""EC2's quota of values in one filter."""


def sold_in(
    parent: pulumi.Resource,
    component: str,
    capacity: AwsCapacityArgs,
    subnet_ids: Sequence[pulumi.Input[str]],
    zones: Sequence[pulumi.Input[str]] | None,
) -> pulumi.Output[list[str]]:
    """Return the zone of each subnet, known once EC2 has confirmed that it offers every type there.

    Raises, when the answer is there:
        pulumi.InputPropertiesError: with every type that is not sold in a zone, or without a price.
    """
    if zones is None:
        zones = [_zone(parent, subnet) for subnet in subnet_ids]
    names = [entry["type"] for entry in capacity["instance_types"]]
    region = preview_queries.read_region(parent)

    def check(answers: dict[str, Any]) -> list[str]:
        problems = Problems()
        check_offers(
            problems.at("capacity"),
            capacity,
            region=answers["region"],
            zones=answers["zones"],
            offered=answers["offered"],
        )
        common.raise_bad(problems, component)
        return list(answers["zones"])

    return pulumi.Output.all(region=region, zones=list(zones), offered=_offered(parent, names)).apply(check)


def print_hourly_cost(parent: pulumi.Resource, capacity: AwsCapacityArgs, always: Always) -> None:
    """Print in previews what an hour of the cluster costs."""
    if pulumi.runtime.is_dry_run():
        preview_queries.read_region(parent).apply(lambda region: _print(parent, capacity, always, region))


def _print(parent: pulumi.Resource, capacity: AwsCapacityArgs, always: Always, region: str) -> None:
    catalogue = with_missing(build_catalogue(capacity, region), region, [always.scheduler_type])
    pulumi.log.info(hourly_cost(region, catalogue, parse_capacity(capacity), always, build_cap(capacity)), parent)
    tell_of_asking(parent, region, [entry["type"] for entry in capacity["instance_types"]])


def _zone(parent: pulumi.Resource, subnet: pulumi.Input[str]) -> pulumi.Output[str]:
    message = "subnetIds: a subnet cannot be described (ec2:DescribeSubnets): is it one of this region and account?"
    subnet_answer = preview_queries.invoke(parent, "ec2/getSubnet:getSubnet", {"id": subnet}, failed=message)
    return subnet_answer.apply(lambda answer: str(answer["availabilityZone"]))


def _offered(parent: pulumi.Resource, names: Sequence[str]) -> pulumi.Output[Offered | None]:
    """Pairs of type and zone in the region. None: EC2 did not answer."""

    def unknown(error: Exception) -> None:
        message = f"Which zones have which types is not checked, since EC2 did not say: {preview_queries.reason(error)}"
        pulumi.log.warn(message, parent)

    query = {
        "filters": [{"name": "instance-type", "values": list(names)[:ASKED_AT_MOST]}],
        "locationType": "availability-zone",
    }
    answer = preview_queries.invoke(
        parent, "ec2/getInstanceTypeOfferings:getInstanceTypeOfferings", query, failed=unknown
    )
    return answer.apply(lambda found: found and list(zip(found["instanceTypes"], found["locations"], strict=True)))
