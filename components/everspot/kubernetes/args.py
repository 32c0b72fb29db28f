"""The inputs of a cluster inside an existing Kubernetes cluster on AWS.

They have their own module because the component imports the code that checks them.
"""

from typing import NotRequired, TypedDict

import pulumi

from everspot.anomalies import AnomalyArgs
from everspot.aws.notifications import AwsNotificationsArgs
from everspot.limits import LimitsArgs


class AwsKubernetesTypeArgs(TypedDict):
    """An instance type that nodes may have. A type that the catalogue lacks is declared by vcpus and memory_gib."""

    type: str
    """The type's name, for example g5.xlarge."""
    priority: NotRequired[float]
    """A lower number is preferred. Default: the order of the list."""
    zones: NotRequired[list[str]]
    """Names of the zones in which the type is used, if EC2 does not offer it in all zones. Default: all zones."""
    vcpus: NotRequired[int]
    """vCPUs, for a type declared in place."""
    memory_gib: NotRequired[float]
    """Memory in GiB, for a type declared in place."""
    gpus: NotRequired[int]
    """Number of GPUs, for a type declared in place. Default: 0."""
    gpu: NotRequired[str]
    """GPU model, for a type declared in place."""
    gpu_memory_gib: NotRequired[float]
    """Memory of each GPU in GiB, for a type declared in place."""
    arch: NotRequired[str]
    """x86_64 or arm64, for a type declared in place. Default: x86_64."""
    local_nvme_gb: NotRequired[float]
    """Size of the machine's own NVMe disks in GB, for a type declared in place. Default: 0."""
    on_demand_usd_per_hour: NotRequired[float]
    """On-demand price in USD per hour, for a type declared in place or without a known price in the region."""
    override: NotRequired[bool]
    """Whether figures given here may contradict the catalogue, for a type that it has. Default: false."""


class AwsKubernetesElasticArgs(TypedDict):
    """What the scheduler may launch while jobs wait. All settings change in place."""

    max_instances: int
    """Largest number of nodes at a time, on-demand and Spot together: the limit of the NodePool."""
    zones: list[str]
    """Zones of the nodes' subnets in which nodes may be launched, by name."""
    max_usd_per_hour: NotRequired[float]
    """Highest cost of all nodes together, in USD per hour. A launch that would exceed it waits. Default: no limit
    besides `max_instances`."""
    markets: NotRequired[list[str]]
    """How nodes may be paid: spot, on-demand or both. Default: both."""
    idle_limit: NotRequired[str]
    """An agent without a job ends after this long, unless the scheduler expects a job for it sooner. Karpenter then
    ends its node. Default: 5m."""


class AwsKubernetesCapacityArgs(TypedDict):
    """Instance types of the nodes, and how many nodes there may be while jobs wait."""

    instance_types: list[AwsKubernetesTypeArgs]
    """Instance types that Karpenter may choose from. More types mean fewer interruptions."""
    elastic: AwsKubernetesElasticArgs
    """Limits of what is launched for jobs."""


class AwsKubernetesNodesArgs(TypedDict):
    """What Karpenter launches nodes with: the EC2NodeClass."""

    role: str
    """Name of the IAM role of the nodes, which Karpenter may pass and the Kubernetes cluster lets in."""
    ami_alias: str
    """Alias of Karpenter for the nodes' image, such as al2023@v20260115. A new version does not replace nodes that
    run jobs."""
    subnet_tags: dict[str, str]
    """Tags by which Karpenter finds the nodes' subnets. They have to be private: nodes get no public address."""
    security_group_tags: dict[str, str]
    """Tags by which Karpenter finds the nodes' security groups."""
    volume_gib: NotRequired[int]
    """Size of the nodes' encrypted gp3 root volumes in GiB. Container image, code, datasets and checkpoints have to
    fit. Default: 100."""


class AwsKubernetesPrometheusArgs(TypedDict):
    """Which pods may read the scheduler's metrics."""

    namespaces: list[str]
    """Namespaces of the Kubernetes cluster whose pods read, such as that of Prometheus."""
    port: NotRequired[int]
    """The scheduler's port, 1024 to 65535. Default: 9494."""


class AwsKubernetesPoolArgs(TypedDict):
    """Inputs of `AwsKubernetesPool`."""

    tags: dict[str, str]
    """Tags of all resources and nodes. Project, Team and Environment are mandatory."""
    eks_cluster: str
    """Name of the existing EKS cluster. It has Karpenter and the EKS Pod Identity Agent."""
    context: NotRequired[str]
    """Context of the kubeconfig by which the Kubernetes cluster is reached. Default: its own endpoint, with a token by
    `aws eks get-token`."""
    namespace: NotRequired[str]
    """Namespace to create. Nothing else may be in it. Default: the cluster's name."""
    image: str
    """Container image of agents and scheduler, by its digest: REPOSITORY@sha256:…"""
    nodes: AwsKubernetesNodesArgs
    """What Karpenter launches nodes with."""
    capacity: AwsKubernetesCapacityArgs
    """Instance types, and how many nodes there may be."""
    datasets_claim: NotRequired[str]
    """Name of a PersistentVolumeClaim of the namespace that agents mount at /mnt/datasets, read-only. Its volume has to
    be mountable on nodes of all zones at once. Default: none."""
    gpu_arches: NotRequired[list[str]]
    """Answer of `torch.cuda.get_arch_list()` in an image with its own torch. Default: the list of Everspot's own
    image."""
    read_bucket_arns: NotRequired[list[pulumi.Input[str]]]
    """ARNs of further buckets that jobs may read."""
    secret_arns: NotRequired[list[str]]
    """ARNs of the Secrets Manager secrets and SSM parameters that jobs may read; an ARN may end in `*` after a part of
    the name."""
    prometheus: NotRequired[AwsKubernetesPrometheusArgs]
    """Who may read the scheduler's metrics over the network, unencrypted. Default: nobody; the scheduler answers in its
    pod alone."""
    notifications: NotRequired[AwsNotificationsArgs]
    """Where the scheduler reports jobs that failed or are late, and anomalies. Default: nowhere."""
    anomalies: NotRequired[AnomalyArgs]
    """Thresholds of the anomalies that the scheduler reports. Default: each threshold's own."""
    shares: NotRequired[dict[str, float]]
    """Weight of each team in the queue, 0.001 to 1000. The keys are values of the jobs' tag Team. Default: 1 for every
    team."""
    shared_instances: NotRequired[bool]
    """Whether jobs that may share an instance (`resources.shared`) are put beside each other in one pod. Default:
    false."""
    job_images: NotRequired[bool]
    """Whether jobs may have an image of their own. Agents' pods then have a seccomp profile with which a job makes a
    container, and nodes get it by their user data, which Bottlerocket cannot. Default: false."""
    job_role: NotRequired[bool]
    """Whether each job gets credentials that are limited to its own keys, by a role that agents assume for it. Default:
    true."""
    retain_store: NotRequired[bool]
    """Whether the buckets outlive `pulumi destroy`. Default: true."""
    jobs_expire_days: NotRequired[int]
    """Days after which everything that a job has written to the data bucket is removed, 30 to 3650. Default: it is
    kept."""
    protect: NotRequired[bool]
    """Whether Pulumi refuses to delete or replace the buckets. Default: false."""
    guard_jobs: NotRequired[bool]
    """Whether `pulumi destroy` is refused while jobs run. `pulumi destroy` then needs --run-program. Default: true."""
    kms_key_arn: NotRequired[pulumi.Input[str]]
    """A customer-managed KMS key for both buckets, for what is stored from then on. Default: keys managed by S3."""
    former_kms_key_arns: NotRequired[list[str]]
    """Earlier keys of the buckets. What was stored under them stays under them, and the cluster keeps the permission to
    decrypt it. A change of `kmsKeyArn` is refused until the earlier key is listed. Default: none."""
    permissions_boundary_arn: NotRequired[pulumi.Input[str]]
    """ARN of the permissions boundary of all roles, if the account demands one."""
    limits: NotRequired[LimitsArgs]
    """Intervals and time limits of agents and scheduler."""
