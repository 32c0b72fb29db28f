"""The facts that an agent needs to boot, apart from `rules`, which imports more than the standard library."""

TYPE_LABEL, ZONE_LABEL = "node.kubernetes.io/instance-type", "topology.kubernetes.io/zone"
"""Of a node (Kubernetes reference, "Well-Known Labels, Annotations and Taints"). A scheduler copies them to the pod,
because the node may be gone before the pod's end is described."""

MARKET_LABEL, SPOT, ON_DEMAND = "karpenter.sh/capacity-type", "spot", "on-demand"
"""How a node is paid, and the two values that are served (Karpenter, "NodePools", Capacity Type)."""

PLACEMENT_LABELS = (TYPE_LABEL, ZONE_LABEL, MARKET_LABEL)

POD_VARIABLE, NODE_VARIABLE = "EVERSPOT_POD", "EVERSPOT_NODE"
"""The names of the pod and of its node, from the downward API."""

MANIFEST_VARIABLE = "EVERSPOT_MANIFEST"
"""The manifest as JSON, which the PodTemplate sets."""
