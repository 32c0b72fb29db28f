"""What AWS has laid down, and what we call things there, as values.

Each figure has its source. Nothing here needs boto3, so that a Pulumi program may take it.
"""

from dataclasses import dataclass
from datetime import timedelta

from everspot_core.billing import BillingRules

CLUSTER_TAG = "everspot:cluster"
"""Tag by which the scheduler and the CLI find what belongs to a cluster."""

ROLE_TAG = "everspot:role"
"""Tag of instances: agent or scheduler."""

VARIABLES = ("AWS_",)
"""Prefixes of the environment variables that AWS's clients read (AWS SDKs and Tools Reference Guide, "Environment
variables list"). Core reserves them, so that no job sets them."""

LAUNCH_TAG = "everspot:launch"
"""Tag of what a scheduler has launched: the token of the launch intent."""

FLEET_ROLE = ("ec2fleet.amazonaws.com", "AWSServiceRoleForEC2Fleet")
SPOT_ROLE = ("spot.amazonaws.com", "AWSServiceRoleForEC2Spot")
SCALING_ROLE = ("autoscaling.amazonaws.com", "AWSServiceRoleForAutoScaling")
"""Service-linked roles, each once in an account: who uses it, and its name."""

NOTICE = timedelta(seconds=120)
"""Between EC2's warning and the interruption, market time (EC2 User Guide, "Spot Instance interruption notices")."""

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
"""What EC2 bills of an instance, and what else AWS bills."""


@dataclass(frozen=True)
class EventPattern:
    """An event of EventBridge, as a rule selects it."""

    source: str
    detail_type: str

    def as_dict(self) -> dict[str, object]:
        """As EventBridge has it."""
        return {"source": [self.source], "detail-type": [self.detail_type]}


# Source and detail-type of each event are those of the Amazon EC2 User Guide, "EventBridge events for EC2" and
# "Monitor fleet events using EventBridge".
INTERRUPTION = EventPattern("aws.ec2", "EC2 Spot Instance Interruption Warning")
REBALANCE = EventPattern("aws.ec2", "EC2 Instance Rebalance Recommendation")
STATE = EventPattern("aws.ec2", "EC2 Instance State-change Notification")
FLEET_ERROR = EventPattern("aws.ec2fleet", "EC2 Fleet Error")

EVENTS = {"interruption": INTERRUPTION, "rebalance": REBALANCE, "state": STATE, "fleet-error": FLEET_ERROR}
"""What the scheduler hears, by the name of the rule that brings it. Rules hear of the whole account and region; the
scheduler ignores unknown instances."""
