"""Asks EC2 which types it offers in the zones of the nodes. At preview prints the cost of a cluster on Kubernetes, and
warns of vCPU quotas that do not hold it.

The nodes are EC2's: their settings are some of those of an EC2 cluster, under the same names.
"""

from typing import cast

import pulumi
from everspot_clouds.kubernetes.hourly import hourly_cost

from everspot.aws.capacity import AwsCapacityArgs
from everspot.aws.offers import sold_in
from everspot.aws.quotas import warn_of_quotas
from everspot.capacity import build_cap, build_catalogue
from everspot.kubernetes.args import AwsKubernetesCapacityArgs
from everspot.kubernetes.checking import parse_capacity
from everspot.pricing import tell_of_asking


def check_offers(parent: pulumi.Resource, name: str, capacity: AwsKubernetesCapacityArgs) -> None:
    """Refuse every type that EC2 does not offer in a zone where it is used, once EC2 has answered."""
    zones = capacity["elastic"]["zones"]
    sold_in(parent, f"AwsKubernetesPool {name}", cast(AwsCapacityArgs, capacity), (), zones)


def print_hourly_cost(parent: pulumi.Resource, capacity: AwsKubernetesCapacityArgs, region: pulumi.Output[str]) -> None:
    """Print in previews what an hour of the cluster costs, and compare its nodes with the account's quotas."""
    if pulumi.runtime.is_dry_run():
        region.apply(lambda name: _print(parent, capacity, name))
        warn_of_quotas(parent, cast(AwsCapacityArgs, capacity), region)


def _print(parent: pulumi.Resource, capacity: AwsKubernetesCapacityArgs, region: str) -> None:
    catalogue = build_catalogue(capacity, region)
    pulumi.log.info(hourly_cost(region, catalogue, parse_capacity(capacity), build_cap(capacity)), parent)
    tell_of_asking(parent, region, [entry["type"] for entry in capacity["instance_types"]])
