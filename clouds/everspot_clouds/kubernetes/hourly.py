"""The cost of an hour of a cluster on Kubernetes at list prices: without agents, and at elastic capacity's cap.

The nodes are EC2's, and so are their prices and quotas.
"""

from everspot_core.capacity.catalogue import Catalogue
from everspot_core.capacity.hourly import (
    ElasticCap,
    describe_cap,
    describe_hour,
    describe_spot,
    describe_standing,
    describe_upkeep,
    list_rates,
)
from everspot_core.estimate.requested import HOURS_A_MONTH

from everspot_clouds.aws.fleet import Ec2Capacity
from everspot_clouds.aws.hourly import list_quotas, store_requests_usd
from everspot_clouds.kubernetes.rules import SCHEDULER_MIB, SCHEDULER_VCPUS


def hourly_cost(region: str, catalogue: Catalogue, capacity: Ec2Capacity, cap: ElasticCap | None) -> str:
    """Return the cost of an hour in a few lines, for a preview.

    `catalogue`: includes the types that are declared in place.
    """
    rates = list_rates(region, catalogue, capacity)
    requests = store_requests_usd(region)
    spot = describe_spot(region, catalogue, rates, cap)
    lines = [
        describe_upkeep(requests, requests * HOURS_A_MONTH, [f"store requests ${requests:.3f}"], known_all=True),
        describe_standing(capacity, rates, unit="node", chooser="Karpenter chooses"),
        describe_cap(rates, cap),
        *([] if spot is None else [spot]),
        *list_quotas(region, catalogue, capacity, cap, scheduler_type=None),
        f"The scheduler's pod requests {SCHEDULER_VCPUS:g} vCPU and {SCHEDULER_MIB} MiB of nodes that the EKS cluster "
        "has; these and the EKS cluster itself are not counted.",
    ]
    return describe_hour(region, catalogue, capacity, lines)
