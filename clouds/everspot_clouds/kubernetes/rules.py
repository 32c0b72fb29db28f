"""Facts about Kubernetes and Karpenter, and the names of our labels there, as values.

Each figure has its source. Nothing here needs a client, so that a Pulumi program may take it.
"""

from dataclasses import replace
from datetime import timedelta

from everspot_clouds.aws import rules as ec2

CLUSTER_LABEL, ROLE_LABEL, LAUNCH_LABEL = "everspot/cluster", "everspot/role", "everspot/launch"
"""Labels of pods: their cluster, their role, and the token of the intent that launched them."""

RELEASED_NOTE = "everspot/released"
"""Annotation of a pod that its scheduler deletes. A pod that is deleted without it is interrupted."""

FINALIZER = "everspot/end"
"""Keeps a deleted pod in the API server until a scheduler has described its end."""

NOMINATED = ("karpenter", "Nominated")
"""Component and reason of the event that names the NodeClaim that was created for a pod."""

REFUSED = ("karpenter", "FailedScheduling")
"""The event of a pod for which Karpenter adds no node now."""

LIMITS_EXCEEDED = "exceed limits"
"""In the message of `REFUSED`: the NodePool's `limits` are reached (Karpenter's provisioner: "all available instance
types exceed limits for nodepool")."""

AGENT_CONTAINER = "agent"
"""The container of the PodTemplate that runs `everspot-agent`."""

GPU = "nvidia.com/gpu"
"""The resource of NVIDIA's device plugin. It is requested by a limit (Kubernetes, "Schedule GPUs")."""

DEFAULT_GRACE = timedelta(seconds=30)
"""Between SIGTERM and SIGKILL of a pod without `terminationGracePeriodSeconds` (Kubernetes, "Pod Lifecycle")."""

GRACE = timedelta(seconds=100)
"""Grace period of agents' pods: of EC2's two minutes, what is left once Karpenter has heard of the notice and evicts,
with a reserve."""

STOP_MARGIN = timedelta(seconds=10)
"""An agent has stopped its job so long before the pod's grace period ends."""

BILLING = replace(
    ec2.BILLING,
    # EC2 waives the first hour of an instance that EC2 interrupts. Karpenter drains a node after the notice and ends
    # the instance itself, before EC2 does.
    free_within=None,
    left_out=("nodes before, between and after their pods (boot, drain, idle)", *ec2.BILLING.left_out),
)
"""A pod is billed as its node is, from its creation to its end."""

JOBS = ec2.JOBS
"""Jobs name secrets and may not set variables as on EC2."""
