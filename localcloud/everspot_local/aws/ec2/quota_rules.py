"""Holds launches and networks to the account's quotas. Spot instances count while they are pending or running."""

from collections import Counter
from collections.abc import Iterable

from everspot_core.jobs.records import Market
from moto.ec2.exceptions import EC2ClientError

from everspot_local.aws import account
from everspot_local.aws.quotas import VPCS


def check_vcpus(instance_type: str, market: Market, count: int, others: Iterable[str] = ()) -> None:
    """Refuse a launch that would exceed its family's vCPU quota. `others`: types of instances of the same market that
    are about to be launched."""
    here = account.current()
    quota = here.market.quotas.find(instance_type, market)
    if quota is None:
        return
    types = here.market.pools.catalogue.types
    counted = Counter((m.pool.instance_type, m.market) for m in here.machines.living())
    counted.update((kind, market) for kind in others)
    used = sum(
        types[kind].vcpus * number
        for (kind, side), number in counted.items()
        if here.market.quotas.find(kind, side) is quota
    )
    limit = here.market.quotas.value(quota)
    if used + types[instance_type].vcpus * count <= limit:
        return
    if market is Market.SPOT:
        raise EC2ClientError("MaxSpotInstanceCountExceeded", "Max spot instance count exceeded")
    raise EC2ClientError(
        "VcpuLimitExceeded",
        f"You have requested more vCPU capacity than your current vCPU limit of {limit:g} allows for the instance "
        "bucket that the specified instance type belongs to. Please visit http://aws.amazon.com/contact-us/ec2-request "
        "to request an adjustment to this limit.",
    )


def check_vpcs(existing: int) -> None:
    """Refuse a VPC that would exceed the region's quota."""
    here = account.current()
    if existing >= here.market.quotas.value(VPCS):
        raise EC2ClientError("VpcLimitExceeded", "The maximum number of VPCs has been reached.")
