"""The inputs of a whole cluster on AWS.

They have their own module because the cluster imports the code that checks them and hands them to its parts.
"""

from typing import NotRequired, TypedDict

import pulumi

from everspot.anomalies import AnomalyArgs
from everspot.aws.capacity import AwsCapacityArgs
from everspot.aws.monitoring import AwsAlarmsArgs
from everspot.aws.notifications import AwsNotificationsArgs
from everspot.aws.rules import AwsEgressArgs
from everspot.aws.scraping import AwsPrometheusArgs
from everspot.federation import PeerArgs
from everspot.limits import LimitsArgs


class AwsTrainingClusterArgs(TypedDict):
    """Inputs of `AwsTrainingCluster`."""

    tags: dict[str, str]
    """Tags of all resources. Project, Team and Environment are mandatory."""
    capacity: AwsCapacityArgs
    """Instance types, and how many instances there are: always, and while jobs wait."""
    image_id: NotRequired[pulumi.Input[str]]
    """Id of the baked machine image, ami-…. Either this or `image_parameter`."""
    image_parameter: NotRequired[str]
    """Name of the Systems Manager parameter that holds the image's id, read at every preview."""
    volume_gib: NotRequired[int]
    """Size of the agents' encrypted root volumes in GiB. Default: the image's own; a smaller one is refused."""
    volume_iops: NotRequired[int]
    """IOPS of the root volumes, 3000 to 80000, at most 500 per GiB. Default: 3000."""
    volume_throughput: NotRequired[int]
    """MiB/s of the root volumes, 125 to 2000, at most a quarter of the IOPS. Default: 125."""
    volume_initialization_rate: NotRequired[int]
    """MiB/s at which the agents' root volumes are read from the image, 100 to 300. It costs money by the launch, and a
    preview prints how much. Default: blocks are read when they are first used, and the first import takes minutes."""
    gpu_arches: NotRequired[list[str]]
    """Answer of `torch.cuda.get_arch_list()` on an image with its own torch. Default: the list of Everspot's own
    image."""
    zones: NotRequired[list[str]]
    """Availability zones of a new network, by name. Add new ones at the end."""
    vpc_cidr: NotRequired[str]
    """IPv4 block of a new network, /16 to /24. Default: 10.64.0.0/16."""
    peer_cidrs: NotRequired[list[str]]
    """Blocks that a new network must not overlap."""
    vpc_id: NotRequired[pulumi.Input[str]]
    """An existing VPC, instead of `zones`."""
    subnet_ids: NotRequired[list[pulumi.Input[str]]]
    """Subnets of the existing VPC, each in a zone of its own."""
    egress: NotRequired[AwsEgressArgs]
    """What instances in an existing VPC may connect to. Default: HTTPS to the VPC's own addresses and to S3."""
    services: NotRequired[list[str]]
    """Further AWS services that jobs call, by the names of their endpoints, such as secretsmanager."""
    nat: NotRequired[bool]
    """Whether jobs of a new network reach the internet, on port 443, by a NAT gateway. It costs money by the hour and
    by the GB, which a preview prints. Default: false; they reach AWS alone."""
    flow_log_bucket_arn: NotRequired[pulumi.Input[str]]
    """A bucket for the flow logs of a new network. Default: none are kept."""
    read_bucket_arns: NotRequired[list[pulumi.Input[str]]]
    """ARNs of further buckets that jobs may read. The agents' role and the network's S3 endpoint allow them."""
    secret_arns: NotRequired[list[str]]
    """ARNs of the Secrets Manager secrets and SSM parameters that jobs may read; an ARN may end in `*` after a
    part of the name. A new network gets the endpoints of these services."""
    image_repositories: NotRequired[list[str]]
    """Repositories of ECR in the cluster's region, ACCOUNT.dkr.ecr.REGION.amazonaws.com/NAME, from which jobs may have
    images. A new network gets two interface endpoints of ECR, which cost money by the hour and zone. Default: none."""
    notifications: NotRequired[AwsNotificationsArgs]
    """Where the scheduler reports jobs that failed or are late, and anomalies. Default: nowhere."""
    anomalies: NotRequired[AnomalyArgs]
    """Thresholds of the anomalies that the scheduler reports. Default: each threshold's own."""
    monitoring: NotRequired[AwsAlarmsArgs]
    """A CloudWatch dashboard and alarms, and their recipients; `{}` for none. They cost money, which a preview prints.
    Default: none."""
    prometheus: NotRequired[AwsPrometheusArgs]
    """Who may read the scheduler's metrics over the network, unencrypted. Default: nobody; the scheduler answers on its
    own loopback address alone."""
    shares: NotRequired[dict[str, float]]
    """Weight of each team in the queue, 0.001 to 1000. A team of weight 2 gets twice the share of a team of weight 1.
    The keys are values of the jobs' tag Team. Default: 1 for every team."""
    shared_instances: NotRequired[bool]
    """Whether jobs that may share an instance (`resources.shared`) are put beside each other on one. Default: false."""
    federation: NotRequired[list[PeerArgs]]
    """Other clusters with which jobs are exchanged. Each entry is the output `peer` of that cluster's stack. Default:
    none."""
    scheduler_type: NotRequired[str]
    """Instance type of the scheduler. Default: t3.small."""
    interruption_events: NotRequired[bool]
    """Whether EC2's notices reach the scheduler through a queue. A new network gets an interface endpoint for it, which
    costs money by the hour and zone. Without it agents alone hear notices, from their own metadata, and the scheduler
    learns of ended instances at its next tick. Default: true."""
    job_role: NotRequired[bool]
    """Whether each job gets credentials that are limited to its own keys, by a role that agents assume for it. A new
    network gets an interface endpoint of STS for it, which costs money by the hour and zone. Without it a job has all
    permissions of the agents, and can change other jobs. Default: true."""
    retain_store: NotRequired[bool]
    """Whether the buckets outlive `pulumi destroy`. Default: true."""
    jobs_expire_days: NotRequired[int]
    """Days after which everything that a job has written to the data bucket is removed, 30 to 3650. Default: it is
    kept."""
    protect: NotRequired[bool]
    """Whether Pulumi refuses to delete or replace the buckets and the fleet. Default: false."""
    guard_jobs: NotRequired[bool]
    """Whether `pulumi destroy` and the replacement of a fleet are refused while jobs run. `pulumi destroy` then needs
    --run-program. Default: true."""
    kms_key_arn: NotRequired[pulumi.Input[str]]
    """A customer-managed KMS key for both buckets, for what is stored from then on. Default: keys managed by S3."""
    former_kms_key_arns: NotRequired[list[str]]
    """Earlier keys of the buckets. What was stored under them stays under them, and the cluster keeps the permission to
    decrypt it. A change of `kmsKeyArn` is refused until the earlier key is listed. Default: none."""
    volume_key_arns: NotRequired[list[str]]
    """Customer-managed KMS keys that encrypt the volumes: the account's default for EBS, or the image's. The scheduler
    needs them for launching elastic capacity. Default: none."""
    permissions_boundary_arn: NotRequired[pulumi.Input[str]]
    """ARN of the permissions boundary of all roles, if the account demands one."""
    session_manager: NotRequired[bool]
    """Whether people may open a shell on instances through Systems Manager. Default: false."""
    limits: NotRequired[LimitsArgs]
    """Intervals and time limits of agents and scheduler."""
