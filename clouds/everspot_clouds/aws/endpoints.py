"""The prices of interface endpoints, billed for every hour and zone, used or not, and of the way to the internet."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from everspot_core.counting import counted
from everspot_core.estimate.requested import HOURS_A_MONTH as HOURS_PER_MONTH

from everspot_clouds.aws import fixed_prices as fixed
from everspot_clouds.aws.rules import partition
from everspot_clouds.costing import listed_price
from everspot_clouds.federation_names import region_of_url
from everspot_clouds.price_files import other_prices

LEAST = fixed.SAME[0]
"""The region whose price stands for regions that have no price table, where it is the same or higher."""

EVENT_SERVICE = "sqs"
"""The service that delivers EC2's notices to the scheduler."""

STS_SERVICE = "sts"
"""The service from which agents get the credentials of jobs."""


def base_services(*, events: bool, job_role: bool) -> tuple[str, ...]:
    """Return the services that instances call through interface endpoints: the scheduler EC2 and its queue, agents
    STS, for the credentials of jobs. All else that agents need is S3, whose gateway endpoint is free. No instance calls
    KMS: AWS itself does, for S3 and for volumes.

    Args:
        events: whether the cluster has a queue of EC2's notices.
        job_role: whether the cluster has a role for jobs.
    """
    return ("ec2", *([EVENT_SERVICE] if events else []), *([STS_SERVICE] if job_role else []))


SHELL_SERVICES = ("ssm", "ssmmessages")
"""Further services that Session Manager needs, if it is on."""

SECRET_SERVICES = ("secretsmanager", "ssm")
"""Services whose values jobs may read."""


IMAGE_SERVICES = ("ecr.api", "ecr.dkr")
"""The services from which agents fetch the images of jobs: tokens, and the registry (Amazon ECR User Guide, "Amazon ECR
interface VPC endpoints")."""


def layer_bucket_arn(region: str) -> str:
    """Return the ARN of the bucket with the layers of ECR's images in a region (Amazon ECR User Guide, "Minimum Amazon
    S3 bucket permissions for Amazon ECR")."""
    return f"arn:{partition(region)}:s3:::prod-{region}-starport-layer-bucket"


def services_for(spec: Mapping[str, Any], own: str, repositories: str, notified: Iterable[str]) -> list[str]:
    """Return the services that a cluster's settings ask for beyond `base_services`. `own`, `repositories`: the names of
    the settings of secrets' ARNs, and of repositories with images; `notified`: services that notifications need."""
    services = [name for name in SECRET_SERVICES if any(f":{name}:" in str(arn) for arn in spec.get(own, []))]
    services += notified
    services += IMAGE_SERVICES if spec.get(repositories) else ()
    return services + (["monitoring"] if "monitoring" in spec else [])  # CloudWatch's endpoint is called so


def needs_internet(region: str, peers: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the way to some peer leads out of the region, which endpoints do not serve."""
    return any(peer["cloud"] != "aws" or region_of_url(str(peer["control"])) != region for peer in peers)


USD_PER_GB = 0.01
"""Price per GB of the first petabyte a month through a region's interface endpoints."""


NAT_USD_PER_HOUR = float(fixed.NAT.usd + fixed.ADDRESS.usd)
"""List price of a NAT gateway and of its public address, in us-east-1; elsewhere the same or more (Amazon VPC pricing,
"NAT Gateway Pricing" and "Public IPv4 Address")."""

NAT_USD_PER_GB = float(fixed.NAT_GB.usd)
"""The same for a GB through it, either way. What is sent to the internet costs besides."""

_NAT_PRICES = (
    f"at least ${NAT_USD_PER_HOUR:.3f} an hour, "
    f"${NAT_USD_PER_HOUR * HOURS_PER_MONTH:.2f} a month, and ${NAT_USD_PER_GB} per GB (us-east-1's list price of "
    f"{fixed.AS_OF}), besides the price of what is sent."
)


NAT_COST = f"The federation's way out is a NAT gateway for the scheduler: {_NAT_PRICES}"
JOBS_NAT_COST = f"The jobs' way to the internet (nat) is a NAT gateway: {_NAT_PRICES}"


def endpoints_cost(region: str, services: Sequence[str], zones: int) -> str:
    """Return the cost of the interface endpoints of a network, as a sentence."""
    if not services:
        return "No interface endpoint is declared; S3's gateway endpoint is free."
    table = other_prices("aws", region)
    price = listed_price(fixed.ENDPOINT, table)
    least, hourly = "", len(services) * zones * float((price or fixed.ENDPOINT).usd)
    if price is not None and table is not None:
        source = f"list price of {table.as_of.date()}"
    elif region in fixed.SAME:
        source = f"list price of {fixed.AS_OF}"
    else:
        least, source = "at least ", f"{LEAST}'s list price of {fixed.AS_OF}; {region}'s is not known here"
    return (
        f"{len(services) * zones} interface endpoints ({', '.join(services)}; {counted(zones, 'zone')} "
        f"each) cost {least}${hourly:.3f} an hour, ${hourly * HOURS_PER_MONTH:.2f} a month, and ${USD_PER_GB} per GB "
        f"({source}). S3's gateway endpoint is free."
    )
