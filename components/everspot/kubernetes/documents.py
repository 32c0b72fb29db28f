"""The Kubernetes objects of a training cluster as pure functions. The component declares them, and tests hand them to a
real API server with Karpenter's own definitions.

The comment beside a field says why it has this value, with the source where Kubernetes, Karpenter or EKS forces it.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from everspot_clouds.kubernetes import boot_rules, rules
from everspot_core.capacity.catalogue import InstanceType
from everspot_core.capacity.market import Market
from everspot_core.jobs.records import Role

from everspot.kubernetes import seccomp

Document = dict[str, Any]

SCHEDULER, AGENT = rules.SCHEDULER, "everspot-agent"
"""The service accounts, and the programs of the two roles."""
TAINT = rules.AGENT_TAINT
USER = 10001
"""The user and group of Everspot's container image."""
HOME = "/var/lib/everspot"
DATASETS = "/mnt/datasets"
"""Where agents mount the claim with datasets."""
SHARE_OF_NODE = 0.5
"""Part of the smallest type that an agent requests. It has its node to itself whatever it requests, and the node needs
room for the pods of the Kubernetes cluster's DaemonSets."""
_MANIFEST_FOLDER = "/etc/everspot"
_MANIFEST_FILE = rules.MANIFEST_FILE


@dataclass(frozen=True)
class ObjectPlace:
    """Where the objects of a cluster belong.

    Attributes:
        cluster: The name of the training cluster.
        namespace: Its namespace.
        region: The region of the nodes and buckets.
    """

    cluster: str
    namespace: str
    region: str

    def labels(self, role: Role | None = None) -> dict[str, str]:
        """Return the labels of an object."""
        return {rules.CLUSTER_LABEL: self.cluster} | ({rules.ROLE_LABEL: role.value} if role else {})

    def metadata(self, name: Any, role: Role | None = None) -> Document:
        """Return the metadata of an object of the namespace."""
        return {"name": name, "namespace": self.namespace, "labels": self.labels(role)}

    def cluster_wide(self, suffix: str = "") -> Document:
        """Return the metadata of an object without a namespace."""
        return {"name": f"{self.cluster}{suffix}", "labels": self.labels()}


def build_namespace(place: ObjectPlace) -> Document:
    """Return the namespace. No pod of it may be privileged or use the host (Kubernetes, "Pod Security Standards")."""
    labels = {**place.labels(), "pod-security.kubernetes.io/enforce": "restricted"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": place.namespace, "labels": labels}}


def build_node_class(
    place: ObjectPlace, nodes: Mapping[str, Any], tags: Mapping[str, Any], *, job_images: bool = False
) -> Document:
    """Return the EC2NodeClass. `nodes`: `AwsKubernetesNodesArgs`; `tags`: of instances and volumes; `job_images`:
    whether jobs may have images of their own."""
    return {
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": place.cluster_wide(),
        "spec": {
            "role": nodes["role"],
            "amiSelectorTerms": [{"alias": nodes["ami_alias"]}],
            "subnetSelectorTerms": [{"tags": dict(nodes["subnet_tags"])}],
            "securityGroupSelectorTerms": [{"tags": dict(nodes["security_group_tags"])}],
            "associatePublicIPAddress": False,
            # IMDSv2 alone, and its answers stay on the node: a pod has no credentials but those of its service account.
            "metadataOptions": {"httpEndpoint": "enabled", "httpTokens": "required", "httpPutResponseHopLimit": 1},
            "blockDeviceMappings": build_volumes(nodes["ami_alias"], int(nodes["volume_gib"])),
            "tags": dict(tags),
            **({"userData": seccomp.build_user_data()} if job_images else {}),
        },
    }


def build_volumes(alias: str, gib: int) -> list[Document]:
    """Return the encrypted volumes of a node. Bottlerocket keeps containers on a second one, beside 4 GiB of its own
    (Karpenter, "NodeClasses", spec.blockDeviceMappings)."""
    sizes = {"/dev/xvda": 4, "/dev/xvdb": gib} if alias.startswith("bottlerocket@") else {"/dev/xvda": gib}
    common = {"volumeType": "gp3", "encrypted": True, "deleteOnTermination": True}
    return [
        {"deviceName": name, "rootVolume": size == gib, "ebs": {**common, "volumeSize": f"{size}Gi"}}
        for name, size in sizes.items()
    ]


def build_node_pool(
    place: ObjectPlace,
    types: Sequence[str],
    zones: Sequence[str],
    markets: Sequence[Market],
    arch: str,
    max_nodes: int,
    *,
    job_images: bool = False,
) -> Document:
    """Return the NodePool. Only an empty node is ended: neither consolidation, nor age, nor a change of the node class
    ends one on which a job runs."""
    labels = place.labels() | (_seccomp_label() if job_images else {})
    requirements = {
        boot_rules.TYPE_LABEL: sorted(types),
        boot_rules.ZONE_LABEL: sorted(zones),
        boot_rules.MARKET_LABEL: [boot_rules.SPOT if m is Market.SPOT else boot_rules.ON_DEMAND for m in markets],
        "kubernetes.io/arch": ["arm64" if arch == "arm64" else "amd64"],
        "kubernetes.io/os": ["linux"],
    }
    node_class = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": place.cluster}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": place.cluster_wide(),
        "spec": {
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "nodeClassRef": node_class,
                    "expireAfter": "Never",
                    "taints": [{"key": TAINT, "value": place.cluster, "effect": "NoSchedule"}],
                    "requirements": [
                        {"key": key, "operator": "In", "values": values} for key, values in requirements.items()
                    ],
                },
            },
            "disruption": {
                "consolidationPolicy": "WhenEmpty",
                "consolidateAfter": "30s",
                # Drift is no consolidation (Karpenter, "Disruption", NodePool Disruption Budgets).
                "budgets": [{"nodes": "100%", "reasons": ["Empty"]}, {"nodes": "0", "reasons": ["Drifted"]}],
            },
            "limits": {"nodes": max_nodes},
        },
    }


def build_accounts(place: ObjectPlace) -> list[Document]:
    """Return the service accounts of scheduler and agents."""
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": place.metadata(name, role)}
        for name, role in ((SCHEDULER, Role.SCHEDULER), (AGENT, Role.AGENT))
    ]


def build_rights(place: ObjectPlace) -> list[Document]:
    """Return what the two service accounts may do: the scheduler what `everspot doctor` checks, an agent (and with it
    each job) to read its node."""
    nodes = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}
    claims = {"apiGroups": ["karpenter.sh"], "resources": ["nodeclaims"], "verbs": ["get"]}
    own = [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch", "get", "create", "patch", "delete"]},
        {"apiGroups": [""], "resources": ["podtemplates"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["events"], "verbs": ["list"]},
    ]
    api = "rbac.authorization.k8s.io"
    scheduler, agent = (
        [{"kind": "ServiceAccount", "name": name, "namespace": place.namespace}] for name in (SCHEDULER, AGENT)
    )
    documents: list[Document] = [
        {"kind": "Role", "metadata": place.metadata(SCHEDULER), "rules": own},
        {
            "kind": "RoleBinding",
            "metadata": place.metadata(SCHEDULER),
            "roleRef": {"apiGroup": api, "kind": "Role", "name": SCHEDULER},
            "subjects": scheduler,
        },
    ]
    for suffix, subjects, granted in (("-scheduler", scheduler, [nodes, claims]), ("-agent", agent, [nodes])):
        metadata = place.cluster_wide(suffix)
        reference = {"apiGroup": api, "kind": "ClusterRole", "name": metadata["name"]}
        documents.append({"kind": "ClusterRole", "metadata": metadata, "rules": granted})
        documents.append(
            {"kind": "ClusterRoleBinding", "metadata": metadata, "roleRef": reference, "subjects": subjects}
        )
    return [{"apiVersion": f"{api}/v1", **document} for document in documents]


def build_network_policy(place: ObjectPlace) -> Document:
    """Return the network of the namespace's pods: nothing comes in, and what goes out is DNS, HTTPS, and the Pod
    Identity Agent's addresses on the node (Amazon EKS User Guide, "Set up the Amazon EKS Pod Identity Agent")."""
    dns = [{"protocol": protocol, "port": 53} for protocol in ("UDP", "TCP")]
    tls = [{"protocol": "TCP", "port": port} for port in (443, 6443)]
    identity = [{"ipBlock": {"cidr": cidr}} for cidr in ("169.254.170.23/32", "fd00:ec2::23/128")]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": place.metadata("everspot"),
        "spec": {
            "podSelector": {},
            "policyTypes": ["Ingress", "Egress"],
            "egress": [{"ports": dns}, {"ports": tls}, {"to": identity, "ports": [{"protocol": "TCP", "port": 80}]}],
        },
    }


def build_metrics_policy(place: ObjectPlace, namespaces: Sequence[str], port: int) -> Document:
    """Return who reads the scheduler's metrics: the pods of some namespaces. Policies add up, and agents stay closed
    (Kubernetes, "Network Policies"). The label is the namespace's own name, which nobody else can set."""
    names = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": sorted(namespaces)}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": place.metadata("everspot-metrics"),
        "spec": {
            "podSelector": {"matchLabels": place.labels(Role.SCHEDULER)},
            "policyTypes": ["Ingress"],
            "ingress": [
                {
                    "from": [{"namespaceSelector": {"matchExpressions": [names]}}],
                    "ports": [{"protocol": "TCP", "port": port}],
                }
            ],
        },
    }


def build_pod(
    place: ObjectPlace,
    image: str,
    manifest: Any,
    smallest: InstanceType,
    datasets_claim: str | None = None,
    *,
    job_images: bool = False,
) -> Document:
    """Return the pod of an agent as the PodTemplate has it. `manifest`: JSON, or a promise of it; `smallest`: of the
    types; `datasets_claim`: a PersistentVolumeClaim with the users' own datasets; `job_images`: whether jobs may have
    images of their own."""
    memory_mib = int(smallest.memory_gib * 1024 * SHARE_OF_NODE)
    spec = {
        "serviceAccountName": AGENT,
        # Pods without `do-not-disrupt`: Karpenter would not evict such a pod at a spot notice.
        "terminationGracePeriodSeconds": int(rules.GRACE.total_seconds()),
        # Karpenter tries every NodePool that fits, the heaviest first (Karpenter, "NodePools", spec.weight). Nodes of
        # other NodePools end under their jobs, count towards no limit of this cluster, and are paid by their owners.
        "nodeSelector": {rules.NODE_POOL_LABEL: place.cluster},
        "tolerations": [
            {"key": TAINT, "operator": "Equal", "value": place.cluster, "effect": "NoSchedule"},
            {"key": rules.GPU, "operator": "Exists", "effect": "NoSchedule"},
        ],
        "securityContext": _pod_security(),
        "containers": [
            {
                "name": rules.AGENT_CONTAINER,
                "image": image,
                "command": [AGENT],
                "env": [
                    {"name": boot_rules.MANIFEST_VARIABLE, "value": manifest},
                    {"name": "AWS_REGION", "value": place.region},
                ],
                "resources": {
                    "requests": {"cpu": f"{int(smallest.vcpus * 1000 * SHARE_OF_NODE)}m", "memory": f"{memory_mib}Mi"}
                },
                "securityContext": _container_security(),
                "volumeMounts": [
                    {"name": "home", "mountPath": HOME},
                    {"name": "shared-memory", "mountPath": "/dev/shm"},  # noqa: S108 - the container's own
                ],
            }
        ],
        "volumes": [
            {"name": "home", "emptyDir": {}},
            # A container has 64 MiB otherwise, and data loaders pass tensors through it.
            {"name": "shared-memory", "emptyDir": {"medium": "Memory"}},
        ],
    }
    if datasets_claim is not None:
        _mount_claim(spec, datasets_claim)
    if job_images:
        _allow_containers(spec)
    return {"metadata": {"labels": place.labels(Role.AGENT)}, "spec": spec}


def _mount_claim(spec: Document, claim: str) -> None:
    """Add a volume with datasets to an agent's pod.

    Both sides are read-only. A read-only volume keeps its owners and modes: otherwise each pod would give all of its
    files to the group of `fsGroup` first (Kubernetes, "Configure a Security Context for a Pod").
    """
    source = {"claimName": claim, "readOnly": True}
    spec["volumes"].append({"name": "datasets", "persistentVolumeClaim": source})
    mount = {"name": "datasets", "mountPath": DATASETS, "readOnly": True}
    spec["containers"][0]["volumeMounts"].append(mount)


def _allow_containers(spec: Document) -> None:
    """Let jobs make containers. The pod is pending until there is a node that has the profile: a kubelet starts no
    container whose profile it lacks."""
    profile = {"type": "Localhost", "localhostProfile": seccomp.profile_name()}
    spec["securityContext"]["seccompProfile"] = profile
    spec["nodeSelector"] |= _seccomp_label()


def _seccomp_label() -> dict[str, str]:
    return {rules.SECCOMP_LABEL: seccomp.profile_version()}


def build_pod_template(place: ObjectPlace, name: Any, pod: Document) -> Document:
    """Return the PodTemplate from which the scheduler makes agents. `name`: its name and version, or a promise of
    them."""
    return {"apiVersion": "v1", "kind": "PodTemplate", "metadata": place.metadata(name), "template": pod}


def template_name(cluster: str) -> str:
    """Return the name of the PodTemplate without its version."""
    return f"{cluster}-agent"


def digest(content: object) -> str:
    """Return the version of a content: another content has another one, so that a launch that was begun with one
    version is not continued with the next."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:10]


def build_config_map(place: ObjectPlace, manifest: Any) -> Document:
    """Return the scheduler's manifest as a file. It has no secrets. `manifest`: JSON, or a promise of it."""
    metadata = place.metadata(SCHEDULER, Role.SCHEDULER)
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {_MANIFEST_FILE: manifest}}


def build_deployment(place: ObjectPlace, image: str, version: Any, metrics_port: int | None = None) -> Document:
    """Return the scheduler: one pod on the nodes that the Kubernetes cluster has. Another version of its manifest makes
    another pod, and for a moment there are two, which does no harm: every decision is a conditional write."""
    labels = place.labels(Role.SCHEDULER)
    ports: Document = {} if metrics_port is None else {"ports": [{"name": "metrics", "containerPort": metrics_port}]}
    pod = {
        "serviceAccountName": SCHEDULER,
        "securityContext": _pod_security(),
        "containers": [
            {
                "name": "scheduler",
                **ports,
                "image": image,
                "command": [SCHEDULER, "--manifest", f"{_MANIFEST_FOLDER}/{_MANIFEST_FILE}"],
                "env": [{"name": "AWS_REGION", "value": place.region}],
                "resources": {
                    "requests": {
                        "cpu": f"{rules.SCHEDULER_VCPUS * 1000:.0f}m",
                        "memory": f"{rules.SCHEDULER_MIB}Mi",
                    },
                    "limits": {"memory": "1Gi"},
                },
                "securityContext": {**_container_security(), "readOnlyRootFilesystem": True},
                "volumeMounts": [
                    {"name": "manifest", "mountPath": _MANIFEST_FOLDER, "readOnly": True},
                    {"name": "scratch", "mountPath": "/tmp"},  # noqa: S108 - the container's own
                ],
            }
        ],
        "volumes": [
            {"name": "manifest", "configMap": {"name": SCHEDULER}},
            {"name": "scratch", "emptyDir": {"sizeLimit": "1Gi"}},
        ],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": place.metadata(SCHEDULER, Role.SCHEDULER),
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels, "annotations": {"everspot/manifest": version}}, "spec": pod},
        },
    }


def _pod_security() -> Document:
    """Return what all containers of a pod may do: what the standard `restricted` allows."""
    return {"runAsNonRoot": True, "fsGroup": USER, "seccompProfile": {"type": "RuntimeDefault"}}


def _container_security() -> Document:
    return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
