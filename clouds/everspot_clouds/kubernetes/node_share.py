"""The part of a node's price that a pod is billed for.

A node of the cluster's own NodePool is the cluster's whole, and nothing else runs there. On a node of others an agent
is billed for what it requests of the node's allocatable resources, weighed against each other. All pods of a node so
have shares that add up to no more than 1, and what nobody requests is left to those whose node it is.
"""

from collections.abc import Iterable, Mapping
from decimal import Decimal

from kubernetes.utils.quantity import parse_quantity

from everspot_clouds.kubernetes.client import Document
from everspot_clouds.kubernetes.rules import CLUSTER_LABEL, CPU_WEIGHT, GPU, GPU_WEIGHT, MEMORY_WEIGHT

LEAST = 1e-6
"""A pod that requests next to nothing is billed at least this part."""
_GIB = Decimal(2**30)
_WEIGHTS = {"cpu": CPU_WEIGHT, "memory": MEMORY_WEIGHT / float(_GIB), GPU: GPU_WEIGHT}


def machine_name(node: Document) -> str:
    """Return EC2's name of a node's machine: the last part of `aws:///ZONE/ID`; the node's name if it states none."""
    provider_id = str(node["spec"].get("providerID") or "")
    return provider_id.rpartition("/")[2] or str(node["metadata"]["name"])


def billed_share(pod: Document, node: Document) -> float:
    """Return the part of a node that a pod is billed for: all of a node of its own cluster, and all of any node if the
    pod requests nothing by which its part could be told."""
    labels = node["metadata"].get("labels", {})
    cluster = pod["metadata"].get("labels", {}).get(CLUSTER_LABEL)
    if cluster and labels.get(CLUSTER_LABEL) == cluster:
        return 1.0
    allocatable = node.get("status", {}).get("allocatable", {})
    whole = sum(_weight(name, allocatable.get(name)) for name in _WEIGHTS)
    requested = sum(_weight(name, _requested(pod, name)) for name in _WEIGHTS if allocatable.get(name))
    if not whole or not requested:
        return 1.0
    return min(1.0, max(LEAST, requested / whole))


def _requested(pod: Document, name: str) -> str:
    """Return what a pod requests of a resource: its containers together, or one of its init containers if that is more
    (Kubernetes, "Init Containers", Resource sharing within containers)."""
    spec = pod["spec"]
    together = sum(_requests(spec.get("containers", []), name), Decimal(0))
    return str(max([together, *_requests(spec.get("initContainers", []), name)]))


def _requests(containers: Iterable[Mapping[str, Document]], name: str) -> Iterable[Decimal]:
    """Yield the requests of containers. A limit without a request is one."""
    for container in containers:
        resources = container.get("resources", {})
        quantity = resources.get("requests", {}).get(name) or resources.get("limits", {}).get(name)
        yield parse_quantity(str(quantity or "0"))


def _weight(name: str, quantity: str | None) -> float:
    return _WEIGHTS[name] * float(parse_quantity(str(quantity or "0")))
