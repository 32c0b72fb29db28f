"""Error codes and history events of EC2 Fleet for launches that fail."""

from everspot_core.capacity.allocation import Cause, Launchable, Refusal
from moto.ec2.exceptions import EC2ClientError

from everspot_local.aws.ec2.exceptions import InsufficientInstanceCapacity
from everspot_local.market.pools import MarketPool

QUOTA_CODES = {"MaxSpotInstanceCountExceeded", "VcpuLimitExceeded"}
PASSING_CODES = {"InsufficientInstanceCapacity", *QUOTA_CODES}


class Unfulfillable(EC2ClientError):
    """An override has some capacity, but less than what was requested together.

    As met: CreateFleet returns this for large requests in one zone
    (https://github.com/mludvig/aws-ethereum-miner/issues/23, https://github.com/runs-on/runs-on/issues/251). AWS does
    not document the code of a missed minimum.
    """

    def __init__(self) -> None:
        super().__init__(
            "UnfulfillableCapacity",
            "Unable to fulfill capacity due to your request configuration. Please adjust your request and try again.",
        )


def of_refusal(refusal: Refusal, candidate: Launchable, pool: MarketPool | None) -> EC2ClientError:
    """Return the error for an override that launched nothing."""
    if refusal.cause is Cause.NO_CAPACITY and pool is not None:
        return InsufficientInstanceCapacity(pool.instance_type, pool.zone)
    if refusal.cause is Cause.PRICE_TOO_HIGH and pool is not None:
        return EC2ClientError(
            "SpotMaxPriceTooLow",
            f"Your Spot request price of {candidate.max_price} is lower than the minimum required Spot request "
            f"fulfillment price of {(pool.spot_usd or 0) / candidate.weight:g}.",
        )
    # RunInstances calls the same `Unsupported`; CreateFleet's answers have this code for it.
    return EC2ClientError(
        "InvalidFleetConfiguration",
        f"Your requested instance type ({candidate.instance_type}) is not supported in your requested "
        f"Availability Zone ({candidate.zone}).",
    )


def of_shortfall(codes: set[str]) -> tuple[str, str, str]:
    """Return detail type, event type and sub-type of a shortfall (User Guide, "EC2 Fleet event types")."""
    if codes and codes <= {"SpotMaxPriceTooLow"}:
        return "EC2 Fleet Information", "service-error", "fleetProgressHalted"
    if codes and codes <= QUOTA_CODES:
        sub_type = "spotInstanceCountLimitExceeded"
    elif codes & PASSING_CODES or not codes:
        sub_type = "allLaunchSpecsTemporarilyBlacklisted"
    else:
        sub_type = "spotFleetRequestConfigurationInvalid"
    return "EC2 Fleet Error", "service-error", sub_type
