"""The inputs of a whole cluster on Google Cloud.

They have their own module because the cluster imports the code that checks them and hands them to its parts.
"""

from typing import NotRequired, TypedDict

import pulumi

from everspot.anomalies import AnomalyArgs
from everspot.federation import PeerArgs
from everspot.gcp.capacity import GcpCapacityArgs
from everspot.gcp.monitoring import GcpAlarmsArgs
from everspot.gcp.notifications import GcpNotificationsArgs
from everspot.gcp.scraping import GcpPrometheusArgs
from everspot.limits import LimitsArgs


class GcpTrainingClusterArgs(TypedDict):
    """Inputs of `GcpTrainingCluster`."""

    tags: dict[str, str]
    """Tags of all resources, as labels. Project, Team and Environment are mandatory."""
    capacity: GcpCapacityArgs
    """Instance types, and how many instances there are: always, and while jobs wait."""
    zones: list[str]
    """Zones of the instances, by name, all of the provider's region. A change replaces the groups."""
    image_id: NotRequired[pulumi.Input[str]]
    """The baked machine image, projects/PROJECT/global/images/NAME. Either this or `image_family`."""
    image_family: NotRequired[str]
    """Family whose newest image is used, looked up at every preview: its name, or
    projects/PROJECT/global/images/family/NAME."""
    volume_gib: NotRequired[int]
    """Size of every instance's boot disk in GiB. Default: the image's own; a smaller one is refused."""
    volume_type: NotRequired[str]
    """Type of the boot disks: pd-balanced, pd-ssd or hyperdisk-balanced. Every type of the capacity has to take it; the
    scheduler's machine gets it if it does. Default: pd-balanced."""
    volume_kms_key: NotRequired[str]
    """A customer-managed key for the boot disks, projects/…/cryptoKeys/NAME. Default: keys managed by Google."""
    secure_boot: NotRequired[bool]
    """Whether instances boot only signed software. Default: true."""
    gpu_arches: NotRequired[list[str]]
    """Answer of `torch.cuda.get_arch_list()` on an image with its own torch. Default: the list of Everspot's own
    image."""
    vpc_cidr: NotRequired[str]
    """IPv4 block of the agents' subnetwork in a new network, /8 to /29. Default: 10.64.0.0/16."""
    scheduler_cidr: NotRequired[str]
    """IPv4 block of the scheduler's subnetwork in a new network, /8 to /29. Default: 10.63.255.240/28."""
    peer_cidrs: NotRequired[list[str]]
    """Blocks that a new network must not overlap."""
    network: NotRequired[pulumi.Input[str]]
    """An existing network, projects/PROJECT/global/networks/NAME."""
    subnetwork: NotRequired[pulumi.Input[str]]
    """A subnetwork of the existing network, projects/PROJECT/regions/REGION/subnetworks/NAME."""
    firewall: NotRequired[bool]
    """Whether the firewall rules of an existing network are made here. Default: true."""
    nat: NotRequired[bool]
    """Whether instances of a new network may open connections to the internet. It costs money. Default: false."""
    flow_logs: NotRequired[bool]
    """Whether the flows of a new network are logged. It costs money. Default: false."""
    iap_ssh: NotRequired[bool]
    """Whether people may open a shell on instances through Identity-Aware Proxy. Default: false."""
    read_buckets: NotRequired[list[str]]
    """Names of further buckets that jobs may read, with uniform bucket-level access; with `job_role` at most 5."""
    job_role: NotRequired[bool]
    """Whether each job has a token that is limited to its own keys, in place of the agents' one. Without it a job can
    change what belongs to others. Default: true."""
    secrets: NotRequired[list[str]]
    """Secrets that jobs may read, projects/PROJECT/secrets/NAME."""
    image_repositories: NotRequired[list[str]]
    """Repositories of Artifact Registry, LOCATION-docker.pkg.dev/PROJECT/REPOSITORY, from which jobs may have images.
    Default: none."""
    notifications: NotRequired[GcpNotificationsArgs]
    """Where the scheduler reports jobs that failed or are late, and anomalies. Default: nowhere."""
    anomalies: NotRequired[AnomalyArgs]
    """Thresholds of the anomalies that the scheduler reports. Default: each threshold's own."""
    monitoring: NotRequired[GcpAlarmsArgs]
    """A dashboard and alerts in Cloud Monitoring, and their recipients; `{}` for none. They cost money, which a preview
    prints. Default: none."""
    prometheus: NotRequired[GcpPrometheusArgs]
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
    """Machine type of the scheduler. Default: e2-small."""
    retain_store: NotRequired[bool]
    """Whether the buckets outlive `pulumi destroy`. Default: true."""
    jobs_expire_days: NotRequired[int]
    """Days after which everything that a job has written to the data bucket is removed, 30 to 3650. Default: it is
    kept."""
    protect: NotRequired[bool]
    """Whether Pulumi refuses to delete or replace the buckets and the groups. Default: false."""
    guard_jobs: NotRequired[bool]
    """Whether `pulumi destroy`, and the replacement and a smaller size of a group, are refused while jobs run. `pulumi
    destroy` then needs --run-program. Default: true."""
    kms_key: NotRequired[pulumi.Input[str]]
    """A customer-managed key for both buckets, projects/…/cryptoKeys/NAME. Default: keys managed by Google."""
    limits: NotRequired[LimitsArgs]
    """Intervals and time limits of agents and scheduler."""
