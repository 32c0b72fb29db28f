"""Stands in for EC2's request throttling: a token bucket for each action, and one for the instances that it touches.

Sizes and refill rates: EC2 Developer Guide, "Request throttling for the Amazon EC2 API"
(https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-throttling.html). Of its table, the actions are here that
moto knows and Everspot, its provider or its tools could call. Buckets fill in market time, as everything that asks
of EC2 in turns does: a local cloud twelve times as fast is asked twelve times as often.
"""

from dataclasses import dataclass, field
from typing import Any

from everspot_local.market.clock import MarketClock

CODE, STATUS = "RequestLimitExceeded", 503  # botocore's retries know it by both (botocore/data/_retry.json)


@dataclass(frozen=True)
class Size:
    """A bucket's size in tokens, and the tokens that it gets back each second."""

    most: float
    refill: float


READING, UNFILTERED_READING, CHANGING, HEAVY = Size(100, 20), Size(50, 10), Size(50, 5), Size(50, 5)
READS = ("Describe", "List", "Search", "Get")
UNFILTERED = {
    "DescribeInstances", "DescribeInstanceStatus", "DescribeNetworkInterfaces", "DescribeSecurityGroups",
    "DescribeSnapshots", "DescribeSpotInstanceRequests", "DescribeVolumes",
}  # fmt: skip
OWN = {
    "AssociateIamInstanceProfile": Size(100, 5),
    "CopyImage": Size(100, 1),
    "CreateDefaultVpc": Size(1, 1),
    "CreateLaunchTemplateVersion": Size(100, 5),
    "CreateNatGateway": Size(10, 1),
    "CreateNetworkInterface": Size(100, 5),
    "CreateSnapshot": Size(100, 5),
    "CreateTags": Size(100, 10),
    "CreateVolume": Size(100, 5),
    "CreateVpcEndpoint": Size(4, 0.3),
    "DeleteNatGateway": Size(10, 1),
    "DeleteNetworkInterface": Size(100, 5),
    "DeleteSnapshot": Size(100, 5),
    "DeleteTags": Size(100, 10),
    "DeleteVolume": Size(100, 5),
    "DeleteVpcEndpoints": Size(4, 0.3),
    "DeregisterImage": Size(100, 5),
    "DescribeInstanceTopology": Size(1, 1),
    "DescribeSecurityGroupReferences": Size(20, 5),
    "DescribeSpotFleetInstances": Size(100, 5),
    "DescribeSpotFleetRequestHistory": Size(100, 5),
    "DescribeSpotFleetRequests": Size(50, 3),
    "DescribeStaleSecurityGroups": Size(20, 5),
    "DisassociateIamInstanceProfile": Size(100, 5),
    "ModifyImageAttribute": Size(100, 5),
    "ModifyInstanceMetadataOptions": Size(100, 5),
    "ModifyLaunchTemplate": Size(100, 5),
    "ModifyNetworkInterfaceAttribute": Size(100, 5),
    "ModifySnapshotAttribute": Size(100, 5),
    "ModifyVpcEndpoint": Size(4, 0.3),
    "RunInstances": Size(5, 2),
    "StartInstances": Size(5, 2),
    "TerminateInstances": Size(100, 5),
}
RESOURCES = {"RunInstances": Size(1000, 2), "TerminateInstances": Size(1000, 20)}


def bucket_size(action: str, *, filtered: bool) -> Size:
    """Return the size of an action's bucket. `filtered`: whether the request has filters or asks for pages."""
    if action in OWN:
        return OWN[action]
    if not action.startswith(READS):
        return CHANGING
    return UNFILTERED_READING if action in UNFILTERED and not filtered else READING


@dataclass
class _Bucket:
    size: Size
    tokens: float
    filled: float

    def take(self, cost: float, now: float) -> bool:
        self.tokens = min(self.size.most, self.tokens + max(0.0, now - self.filled) * self.size.refill)
        self.filled = now
        if self.tokens + 1e-6 < cost:  # refills are fractions of a second
            return False
        self.tokens -= cost
        return True


@dataclass
class Buckets:
    """All token buckets of the account in one region."""

    clock: MarketClock
    _buckets: dict[tuple[str, str], _Bucket] = field(default_factory=dict)

    def admit(self, action: str, params: dict[str, Any]) -> bool:
        """Take a request's tokens; return False if there are too few."""
        filtered = bool(params.get("Filters") or params.get("MaxResults"))
        size = bucket_size(action, filtered=filtered)
        kind = "unfiltered" if size is UNFILTERED_READING else "requests"
        touched = _touched(action, params)
        if not self._take((action, kind), size, 1):
            return False
        return not touched or self._take((action, "resources"), RESOURCES[action], touched)

    def launch(self, instances: int) -> bool:
        """Take the tokens of a fleet's launches from RunInstances' resource bucket; return False if there are too
        few."""
        return self._take(("RunInstances", "resources"), RESOURCES["RunInstances"], instances)

    def _take(self, key: tuple[str, str], size: Size, cost: float) -> bool:
        now = self.clock.exact()
        bucket = self._buckets.setdefault(key, _Bucket(size, size.most, now))
        return bucket.take(cost, now)


def _touched(action: str, params: dict[str, Any]) -> int:
    if action == "RunInstances":
        return int(params.get("MinCount") or 1)
    return len(params.get("InstanceIds") or []) if action in RESOURCES else 0
