"""Facts about Kubernetes and Karpenter, and the names of our labels there, as values.

Each figure has its source. Nothing here needs a client, so that a Pulumi program may take it.
"""

import re
from dataclasses import replace
from datetime import timedelta

from everspot_core.cluster.manifest import Manifest

from everspot_clouds.aws import rules as ec2

CLUSTER_LABEL, ROLE_LABEL, LAUNCH_LABEL = "everspot/cluster", "everspot/role", "everspot/launch"
"""Labels of pods: their cluster, their role, and the token of the intent that launched them."""

RELEASED_NOTE = "everspot/released"
"""Annotation of a pod that its scheduler deletes. A pod that is deleted without it is interrupted."""

FAILURE_NOTE = "everspot/failure"
"""Annotation of a pod that its scheduler deletes because its agent can never start: the reason and the kubelet's
message, as a list of JSON."""

MACHINE_LABEL, SHARE_LABEL = "everspot/machine", "everspot/share"
"""Labels of pods: EC2's name of the machine, and the part of it that the pod is billed for."""

FINALIZER = "everspot/end"
"""Keeps a deleted pod in the API server until a scheduler has described its end."""

NOMINATED = ("karpenter", "Nominated")
"""Component and reason of the event that names the NodeClaim that was created for a pod."""

REFUSED = ("karpenter", "FailedScheduling")
"""The event of a pod for which Karpenter adds no node now."""

LIMITS_EXCEEDED = "exceed limits"
"""In the message of `REFUSED`: the NodePool's `limits` are reached (Karpenter's provisioner: "all available instance
types exceed limits for nodepool")."""

SCHEDULER, MANIFEST_FILE = "everspot-scheduler", "cluster.json"
"""Name of the scheduler's objects, and the file with its manifest in the ConfigMap of this name."""

AGENT_CONTAINER = "agent"
"""The container of the PodTemplate that runs `everspot-agent`."""

AGENT_TAINT = "everspot/agents"
"""Taint of the nodes, which keeps other pods away: a node is paid for the jobs on it."""

NODE_POOL_LABEL = "karpenter.sh/nodepool"
"""Label of a node: its NodePool (Karpenter, "Scheduling", well-known labels)."""

SECCOMP_FOLDER = "/var/lib/kubelet/seccomp"
"""Where a kubelet looks for the profiles of pods (Kubernetes, "Restrict a Container's Syscalls with seccomp")."""

SECCOMP_LABEL = "everspot/seccomp"
"""Label of nodes that have the profile of jobs with an image: its version."""

SCHEDULER_VCPUS, SCHEDULER_MIB = 0.25, 512
"""What the scheduler's pod requests of the nodes that the Kubernetes cluster has."""

GPU = "nvidia.com/gpu"
"""The resource of NVIDIA's device plugin. It is requested by a limit (Kubernetes, "Schedule GPUs")."""

_RBAC = "rbac.authorization.k8s.io"
DECLARED = (
    ("namespaces", ""),
    ("serviceaccounts", ""),
    ("configmaps", ""),
    ("podtemplates", ""),
    ("deployments", "apps"),
    ("networkpolicies", "networking.k8s.io"),
    ("roles", _RBAC),
    ("rolebindings", _RBAC),
    ("clusterroles", _RBAC),
    ("clusterrolebindings", _RBAC),
    ("nodepools", "karpenter.sh"),
    ("ec2nodeclasses", "karpenter.k8s.aws"),
)
"""What a stack declares: resources of the API server and their groups. Secrets are not among them."""

READERS = "everspot-readers"
"""Group of the Kubernetes cluster, and its ClusterRole: of jobs that preview or look for drift."""

READING_ROLES = ("preview", "drift")
"""Roles of the bootstrap, after its name, that a repository's jobs take to read: anybody starts these who opens a pull
request."""

EKS_NAME = re.compile(r"[0-9A-Za-z][A-Za-z0-9_-]{0,99}")
"""Names of EKS clusters (Amazon EKS API Reference, CreateCluster)."""

GKE_CONTEXT = "gke_"
"""How gcloud begins the names of GKE's contexts: `gke_PROJECT_LOCATION_NAME` (GKE, "Install kubectl and configure
cluster access")."""

GKE_VERSION = "-gke."
"""In the version of GKE's API servers, such as v1.35.0-gke.1171000 (GKE, "GKE versioning and support")."""

GKE = "is a GKE cluster, and nodes come from Karpenter on EKS alone: for Google Cloud use `cloud: gcp`"
"""Why a GKE cluster is refused; what is missing is in docs/guide/kubernetes.md."""

DEFAULT_GRACE = timedelta(seconds=30)
"""Between SIGTERM and SIGKILL of a pod without `terminationGracePeriodSeconds` (Kubernetes, "Pod Lifecycle")."""

GRACE = timedelta(seconds=100)
"""Grace period of agents' pods: of EC2's two minutes, what is left once Karpenter has heard of the notice and evicts,
with a reserve."""

STOP_MARGIN = timedelta(seconds=10)
"""An agent has stopped its job so long before the pod's grace period ends."""

BILLING = replace(
    ec2.BILLING,
    # EC2 waives the first hour of an instance that EC2 itself ends. An instance that Karpenter ends after the notice is
    # not free, and EC2 tells the two apart (`StateReason`).
    pods=True,
    left_out=(
        "the EKS cluster, and the nodes of others but for the share of agents on them",
        "CPU credits of burstable nodes",
        *ec2.BILLING.left_out,
    ),
)
"""The nodes are billed, from their launch until they are gone; an agent on a node of others by its share of it."""

CPU_WEIGHT, MEMORY_WEIGHT, GPU_WEIGHT = 0.9, 0.1, 9.0
"""What a vCPU, a GiB of memory and a GPU count for when the price of a node of others is shared: as AWS does it (AWS
Data Exports User Guide, "Example of split cost allocation data for accelerated instances")."""

JOBS = ec2.JOBS
"""Jobs name secrets and may not set variables as on EC2."""


def declared_namespace(manifest: Manifest) -> str | None:
    """Return the namespace of a cluster that a stack declares, where its zones are places; None of another cluster."""
    places = manifest.elastic.places if manifest.elastic is not None else {}
    namespaces = set(places.values()) - set(places)
    return namespaces.pop() if len(namespaces) == 1 else None
