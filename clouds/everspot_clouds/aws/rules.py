"""Facts about AWS, and the names of our tags and events there, as values.

Each figure has its source. Nothing here needs boto3, so that a Pulumi program may take it.
"""

import re
from dataclasses import dataclass
from datetime import timedelta

from everspot_core.costs.billing import BillingRules
from everspot_core.jobs.job_rules import CloudRules


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition of AWS: how its regions begin, and the domains of its services."""

    regions: str
    dns_suffix: str
    dual_stack_suffix: str


PARTITIONS = {
    "aws-cn": Partition("cn-", "amazonaws.com.cn", "api.amazonwebservices.com.cn"),
    "aws-us-gov": Partition("us-gov-", "amazonaws.com", "api.aws"),
    "aws-eusc": Partition("eusc-", "amazonaws.eu", "api.amazonwebservices.eu"),
    "aws": Partition("", "amazonaws.com", "api.aws"),
}
"""The partitions, as ARNs name them (botocore, `data/partitions.json`). `aws` has the regions of no other one."""
DNS_SUFFIXES = sorted({part.dns_suffix for part in PARTITIONS.values()})
SERVICE_DOMAINS = (*DNS_SUFFIXES, *sorted({part.dual_stack_suffix for part in PARTITIONS.values()}))
"""The domains of AWS's services."""
REGISTRY_HOST = (
    r"(?P<account>\d{12})\.dkr\.ecr\.(?P<region>[a-z]{2,}(?:-[a-z]+)+-\d+)"
    rf"\.(?:{'|'.join(re.escape(suffix) for suffix in DNS_SUFFIXES)})"
)
"""Pattern of the host of an account's registry in a region (Amazon ECR User Guide, "Private registry")."""
_ANY_REGISTRY = re.sub(r"\?P<\w+>", "?:", REGISTRY_HOST)

FLEET_TAG, GROUP_TAG = "aws:ec2:fleet-id", "aws:autoscaling:groupName"
"""Tags that EC2 and EC2 Auto Scaling give their instances (EC2 User Guide, "Tag your Amazon EC2 resources", tags that
begin with `aws:`; Auto Scaling User Guide, "Tag Auto Scaling groups and instances")."""

CLUSTER_TAG = "everspot:cluster"
"""Tag of a cluster's resources. The scheduler and the CLI find them by it."""

STORE_TAG = "everspot:store"
"""Tag of a cluster's resources with the mark of its store, which tells them from those of another cluster of the same
name in the account. The buckets of the store have none: the manifest names them."""

ROLE_TAG = "everspot:role"
"""Tag of instances: agent or scheduler."""

JOBS = CloudRules(
    # AWS SDKs and Tools Reference Guide, "Environment variables list".
    variables=("AWS_",),
    # Names: Secrets Manager API, CreateSecret; Systems Manager API, PutParameter. A key takes one value of JSON.
    secrets={
        "secretsmanager:NAME": r"secretsmanager:[A-Za-z0-9/_+=.@:-]{1,2048}",
        "secretsmanager:NAME#KEY": r"secretsmanager:[A-Za-z0-9/_+=.@:-]{1,2048}#[A-Za-z0-9_.-]{1,256}",
        "ssm:/PARAMETER": r"ssm:/?[A-Za-z0-9/_.-]{1,1011}",
    },
    images={
        "ACCOUNT.dkr.ecr.REGION.amazonaws.com/REPOSITORY@sha256:DIGEST": (
            _ANY_REGISTRY + r"/[a-z0-9._/-]{2,256}@sha256:[0-9a-f]{64}"
        )
    },
)
"""The environment variables that job files may not set on AWS, the forms in which they name secrets (by the name in
Secrets Manager or in Parameter Store), and that of images in ECR."""

LAUNCH_TAG = "everspot:launch"
"""Tag of launched instances: the token of the launch intent."""

BOOTSTRAP = "everspot-bootstrap"
"""How the names of the roles and policies begin that an account's bootstrap stack makes."""

STATE_ALIAS = "alias/everspot-state"
"""The name of the key of stacks' states, as their settings know it."""

FLEET_ROLE = ("ec2fleet.amazonaws.com", "AWSServiceRoleForEC2Fleet")
SPOT_ROLE = ("spot.amazonaws.com", "AWSServiceRoleForEC2Spot")
SCALING_ROLE = ("autoscaling.amazonaws.com", "AWSServiceRoleForAutoScaling")
"""Service-linked roles, which exist once in an account: the service that uses each, and its name."""

NOTICE = timedelta(seconds=120)
"""Time between EC2's warning and the interruption, market time (EC2 User Guide, "Spot Instance interruption
notices")."""

STOP = timedelta(seconds=80)
"""Real time that an agent takes at most to stop its job once its machine is being switched off. EC2 waits for minutes;
it is ten seconds less than TimeoutStopSec of the image's unit."""

BILLING = BillingRules(
    # EC2 User Guide, "EC2 On-Demand Instance pricing": by the second, with a minimum of 60 seconds.
    minimum=timedelta(seconds=60),
    # EC2 User Guide, "Billing for interrupted Spot Instances": interrupted by EC2 in the first hour, Linux: no charge.
    free_within=timedelta(hours=1),
    left_out=(
        "data transfer between zones and out of the region",
        "EBS volumes of the instances",
        "S3 storage and requests",
        "VPC interface endpoints",
        "SQS, EventBridge, CloudWatch and KMS requests",
        "taxes, discounts, credits, savings plans and reservations",
    ),
)
"""EC2's rules for billing an instance, and the other charges of AWS."""


def partition(region: str) -> str:
    """Return the partition of AWS that a region belongs to, as ARNs name it."""
    return next(name for name, part in PARTITIONS.items() if region.startswith(part.regions))


def dns_suffix(partition: str) -> str:
    """Return the domain of the services of a partition."""
    return PARTITIONS[partition].dns_suffix


@dataclass(frozen=True)
class EventPattern:
    """The pattern of an EventBridge rule, which selects an event."""

    source: str
    detail_type: str

    def as_dict(self) -> dict[str, object]:
        """Return the pattern in EventBridge's form."""
        return {"source": [self.source], "detail-type": [self.detail_type]}


# Source and detail-type of each event are those of the Amazon EC2 User Guide, "EventBridge events for EC2" and
# "Monitor fleet events using EventBridge".
INTERRUPTION = EventPattern("aws.ec2", "EC2 Spot Instance Interruption Warning")
REBALANCE = EventPattern("aws.ec2", "EC2 Instance Rebalance Recommendation")
STATE = EventPattern("aws.ec2", "EC2 Instance State-change Notification")
FLEET_ERROR = EventPattern("aws.ec2fleet", "EC2 Fleet Error")

EVENTS = {"interruption": INTERRUPTION, "rebalance": REBALANCE, "state": STATE, "fleet-error": FLEET_ERROR}
"""The events that the scheduler receives, by the name of their rule. Rules match events of the whole account and
region; the scheduler ignores instances that it does not know."""
