"""What an existing Kubernetes cluster needs before a training cluster is declared in it, as checks for people.

Each check asks the API server and changes nothing. What cannot be told from there is skipped with its reason.
"""

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from everspot_core.counting import first_few

from everspot_clouds.base import Check, Trouble, Verdict
from everspot_clouds.kubernetes.boot_rules import ZONE_LABEL
from everspot_clouds.kubernetes.rules import AGENT_TAINT, GPU

if TYPE_CHECKING:
    from everspot_clouds.kubernetes.client import Document, KubernetesClient

DEFINITIONS = {
    "nodepools.karpenter.sh": "v1",
    "nodeclaims.karpenter.sh": "v1",
    "ec2nodeclasses.karpenter.k8s.aws": "v1",
}
"""Karpenter's definitions, and the version of each that is declared."""
LEAST_KARPENTER = (1, 14)
POD_IDENTITY = "eks-pod-identity-agent"
"""DaemonSet of the add-on (Amazon EKS User Guide, "Set up the Amazon EKS Pod Identity Agent")."""
_QUEUE_VARIABLE = "INTERRUPTION_QUEUE"
"""Karpenter's setting by which it reads EC2's events (Karpenter, "Settings")."""
_PULL_FAILURES = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull")
"""Reasons of a waiting container (Kubernetes, "Images")."""
_MANY_NODES = frozenset({"ReadOnlyMany", "ReadWriteMany"})
"""Access modes with which pods of several nodes may mount a volume (Kubernetes, "Persistent Volumes")."""
_EBS_ZONE = "topology.ebs.csi.aws.com/zone"
"""Label by which the driver of EBS names a volume's zone (aws-ebs-csi-driver, parameters.md)."""
_CLAIM_FIX = "create one in this namespace with ReadOnlyMany or ReadWriteMany, or name another (datasetsClaim)"
_NODES_OWN = ("cpu", "memory")
_SHOWN = 6
_INSTALL = "https://karpenter.sh/docs/getting-started"


def guarded(group: str, name: str, make_checks: Callable[[], list[Check]]) -> list[Check]:
    """Return checks; a check of the API server's refusal if they cannot be made."""
    from everspot_clouds.kubernetes import errors

    try:
        return make_checks()
    except errors.ERRORS as error:
        refusal = errors.to_cloud_error(error)
        if refusal.trouble is Trouble.CREDENTIALS and group != "credentials":
            return [Check(group, name, Verdict.SKIP, f"you may not see it: {refusal}", refusal.fix)]
        return [Check(group, name, Verdict.FAIL, str(refusal), refusal.fix)]


def requirement_checks(client: "KubernetesClient", *, gpus: bool) -> list[Check]:
    """Check what the cluster needs of the Kubernetes cluster. `gpus`: whether some of its types have GPUs."""
    checks = guarded("cluster", "karpenter", lambda: _definitions(client))
    if all(check.verdict is Verdict.OK for check in checks):
        checks += guarded("cluster", "karpenter version", lambda: _karpenter(client))
    checks += guarded("cluster", "pod identity", lambda: _pod_identity(client))
    if gpus:
        checks += guarded("cluster", "gpu plugin", lambda: _gpu_plugin(client))
    return checks


def missing_rights(client: "KubernetesClient", rights: Iterable[tuple[str, str, Sequence[str]]]) -> list[str]:
    """Return what the caller may not do of some rights: resources, their API groups, and verbs."""
    return [
        f"{verb} {resource}"
        for resource, group, verbs in rights
        for verb in verbs
        if not client.may(verb, resource, group)
    ]


def rights_check(client: "KubernetesClient", rights: Iterable[tuple[str, str, Sequence[str]]], lack: str) -> Check:
    """Return the check of rights: resources, their API groups, and verbs. `lack`: what to do about missing ones."""
    missing = missing_rights(client, rights)
    if missing:
        detail = f"in the namespace {client.namespace} you may not {first_few(missing, _SHOWN)}"
        return Check("credentials", "rights", Verdict.FAIL, detail, lack)
    return Check("credentials", "rights", Verdict.OK, f"you may declare the cluster in {client.namespace}")


def pull_checks(pods: Iterable["Document"]) -> list[Check]:
    """Return a check of the images that the nodes of some pods cannot pull; none if no pod tells."""
    waiting_containers = [
        (container, waiting)
        for pod in pods
        for container in pod.get("status", {}).get("containerStatuses", [])
        if (waiting := container.get("state", {}).get("waiting"))
    ]
    for container, waiting in waiting_containers:
        if waiting.get("reason") in _PULL_FAILURES:
            detail = f"a node cannot pull {container.get('image')}: {waiting.get('message') or waiting['reason']}"
            fix = "push the image, let the nodes' role pull it, or name another (image) and run pulumi up"
            return [Check("user", "image", Verdict.FAIL, detail, fix)]
    return []


def profile_checks(pods: Iterable["Document"]) -> list[Check]:
    """Return a check of nodes without the seccomp profile of jobs with images (containerd, contrib/seccomp/seccomp.go,
    LoadProfile); none if no pod tells."""
    for pod in pods:
        for container in pod.get("status", {}).get("containerStatuses", []):
            message = container.get("state", {}).get("waiting", {}).get("message") or ""
            if "seccomp profile" in message:
                node = pod.get("spec", {}).get("nodeName", "a node")
                detail = f"{node} has no seccomp profile for jobs with images, and starts no agent: {message}"
                fix = f"kubectl delete node {node}; /var/log/cloud-init.log there says why its user data wrote none"
                return [Check("cluster", "seccomp profile", Verdict.FAIL, detail, fix)]
    return []


def claim_checks(client: "KubernetesClient", name: str, zones: Collection[str]) -> list[Check]:
    """Return the check of a PersistentVolumeClaim with datasets: it exists, many nodes may mount it, and it has a
    volume that the nodes of all zones reach. `zones`: of the cluster."""
    claim = client.find(f"/api/v1/namespaces/{client.namespace}/persistentvolumeclaims/{name}")
    if claim is None:
        detail = f"the namespace {client.namespace} has no PersistentVolumeClaim {name}: nothing is launched without it"
        return [Check("user", "datasets claim", Verdict.FAIL, detail, _CLAIM_FIX)]
    modes = claim["spec"].get("accessModes", [])
    if not set(modes) & _MANY_NODES:
        detail = f"the claim {name} is {', '.join(modes)}: a second agent's pod waits until the first has ended"
        return [Check("user", "datasets claim", Verdict.FAIL, detail, _CLAIM_FIX)]
    phase = claim.get("status", {}).get("phase", "Pending")
    if phase == "Bound":
        unreached = _unreached_zones(client, str(claim["spec"].get("volumeName") or ""), zones)
        if unreached:
            detail = f"the volume of the claim {name} is not reached from {', '.join(unreached)}: no agent starts there"
            verdict = Verdict.FAIL if len(unreached) == len(zones) else Verdict.WARN
            fix = "leave these zones out (capacity.elastic.zones), or use a volume of all zones, such as EFS"
            return [Check("user", "datasets claim", verdict, detail, fix)]
        return [Check("user", "datasets claim", Verdict.OK, f"the claim {name} is bound, {', '.join(modes)}")]
    detail = f"the claim {name} is {phase}, so it has no volume: nothing is launched until it is bound"
    fix = f"kubectl -n {client.namespace} describe pvc {name} says why"
    if phase == "Pending":
        fix += ". With volumeBindingMode WaitForFirstConsumer the first agent's pod binds it"
    return [Check("user", "datasets claim", Verdict.WARN if phase == "Pending" else Verdict.FAIL, detail, fix)]


def _unreached_zones(client: "KubernetesClient", volume_name: str, zones: Collection[str]) -> list[str]:
    """Return the zones whose nodes cannot mount a volume (Kubernetes, "Persistent Volumes", Node Affinity); none if the
    volume names no zone, or may not be read, as by a scheduler."""
    from kubernetes.client import ApiException

    from everspot_clouds.kubernetes.errors import FORBIDDEN, is_status

    try:
        volume = client.find(f"/api/v1/persistentvolumes/{volume_name}") or {"spec": {}}
    except ApiException as error:
        if not is_status(error, FORBIDDEN):
            raise
        return []
    terms = volume["spec"].get("nodeAffinity", {}).get("required", {}).get("nodeSelectorTerms", [])
    reached: set[str] = set()
    for term in terms:  # a node has to meet one of them
        zone_values = [e["values"] for e in term.get("matchExpressions", []) if _names_zone(e)]
        if not zone_values:
            return []
        reached |= set(zones).intersection(*zone_values)
    return [zone for zone in zones if zone not in reached] if terms else []


def _names_zone(expression: "Document") -> bool:
    """Return whether an expression is about the zone, in Kubernetes' label or in that of EBS's driver."""
    return expression["operator"] == "In" and expression["key"] in (ZONE_LABEL, _EBS_ZONE)


def limit_checks(client: "KubernetesClient") -> list[Check]:
    """Return a check of each LimitRange and ResourceQuota of the namespace that agents do not go with; none if there is
    none. Agents request half of their node and have no limits, because a job may use all of the node."""
    base, fix = f"/api/v1/namespaces/{client.namespace}", f"exempt the namespace {client.namespace} from it"
    checks = []
    for limit_range in client.read(f"{base}/limitranges")["items"]:
        limits = [limit.get("default", {}) for limit in limit_range["spec"]["limits"] if limit["type"] == "Container"]
        capped = ", ".join(f"{name} {limit[name]}" for limit in limits for name in _NODES_OWN if name in limit)
        if capped:
            name = limit_range["metadata"]["name"]
            detail = f"the LimitRange {name} limits each agent to {capped}, whatever its node: jobs cannot use the rest"
            checks.append(Check("user", "namespace limits", Verdict.WARN, detail, fix))
    for quota in client.read(f"{base}/resourcequotas")["items"]:
        demands = ", ".join(name for name in quota["spec"].get("hard", {}) if name.startswith("limits."))
        if demands:
            detail = (
                f"the ResourceQuota {quota['metadata']['name']} demands {demands}, which agents lack: none is created"
            )
            checks.append(Check("user", "namespace limits", Verdict.FAIL, detail, fix))
    return checks


def _definitions(client: "KubernetesClient") -> list[Check]:
    lacks = []
    for name, version in DEFINITIONS.items():
        definition = client.find(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}")
        if definition is None:
            lacks.append(name)
        elif version not in {served["name"] for served in definition["spec"]["versions"] if served.get("served")}:
            lacks.append(f"{name} in {version}")
    if lacks:
        detail = f"Karpenter's definitions are missing: {', '.join(lacks)}"
        return [Check("cluster", "karpenter", Verdict.FAIL, detail, f"install Karpenter 1.14 or newer: {_INSTALL}")]
    return [Check("cluster", "karpenter", Verdict.OK, "its NodePools, NodeClaims and EC2NodeClasses are served in v1")]


def find_karpenter(client: "KubernetesClient") -> "Document | None":
    """Return the Deployment of Karpenter, as its chart labels it; None if there is none."""
    selector = {"labelSelector": "app.kubernetes.io/name=karpenter"}
    deployments = client.read("/apis/apps/v1/deployments", selector)["items"]
    return dict(deployments[0]) if deployments else None


def _karpenter(client: "KubernetesClient") -> list[Check]:
    deployment = find_karpenter(client)
    if deployment is None:
        detail = "no Deployment is labelled app.kubernetes.io/name=karpenter, so its version and queue are not known"
        return [Check("cluster", "karpenter version", Verdict.SKIP, detail, "EKS Auto Mode has none; else see to both")]
    return [_version(deployment), _queue(deployment)]


def _version(deployment: "Document") -> Check:
    text = str(deployment["metadata"].get("labels", {}).get("app.kubernetes.io/version", ""))
    match = re.match(r"v?(\d+)\.(\d+)", text)
    if match is None:
        return Check("cluster", "karpenter version", Verdict.SKIP, "its Deployment states no version", "1.14 or newer")
    if (int(match[1]), int(match[2])) < LEAST_KARPENTER:
        fix = "upgrade it to 1.14 or newer: https://karpenter.sh/docs/upgrading"
        return Check("cluster", "karpenter version", Verdict.FAIL, f"Karpenter {text} is too old", fix)
    return Check("cluster", "karpenter version", Verdict.OK, f"Karpenter {text}")


def _queue(deployment: "Document") -> Check:
    containers = deployment["spec"]["template"]["spec"]["containers"]
    variables = {v["name"]: v.get("value", "") for container in containers for v in container.get("env", [])}
    if variables.get(_QUEUE_VARIABLE):
        return Check("cluster", "karpenter queue", Verdict.OK, f"it reads EC2's events of {variables[_QUEUE_VARIABLE]}")
    detail = "Karpenter has no queue of EC2's events: it hears of no spot notice, and work since a checkpoint is lost"
    fix = "set settings.interruptionQueue of Karpenter's chart"
    return Check("cluster", "karpenter queue", Verdict.FAIL, detail, fix)


def _pod_identity(client: "KubernetesClient") -> list[Check]:
    daemons = client.find(f"/apis/apps/v1/namespaces/kube-system/daemonsets/{POD_IDENTITY}")
    if daemons is None:
        detail = f"kube-system has no DaemonSet {POD_IDENTITY}: pods get no credentials for the store"
        fix = f"aws eks create-addon --addon-name {POD_IDENTITY} --cluster-name NAME; EKS Auto Mode needs none"
        return [Check("cluster", "pod identity", Verdict.FAIL, detail, fix)]
    if _tolerates(daemons, AGENT_TAINT):
        return [Check("cluster", "pod identity", Verdict.OK, f"{POD_IDENTITY} runs on the agents' nodes")]
    detail = f"{POD_IDENTITY} does not tolerate the taint {AGENT_TAINT}: agents get no credentials for the store"
    return [Check("cluster", "pod identity", Verdict.FAIL, detail, "give the add-on a toleration of all taints")]


def _gpu_plugin(client: "KubernetesClient") -> list[Check]:
    daemons = client.read("/apis/apps/v1/daemonsets")["items"]
    plugins = [daemon for daemon in daemons if "nvidia" in daemon["metadata"]["name"]]
    if any(_tolerates(daemon, AGENT_TAINT) for daemon in plugins):
        return [Check("cluster", "gpu plugin", Verdict.OK, f"NVIDIA's device plugin tolerates {AGENT_TAINT}")]
    problem = f"tolerates {AGENT_TAINT}" if plugins else "is NVIDIA's device plugin"
    detail = f"no DaemonSet {problem}: nodes have no {GPU}, and no agent with GPUs gets one"
    fix = f"install https://github.com/NVIDIA/k8s-device-plugin with a toleration of {AGENT_TAINT}"
    return [Check("cluster", "gpu plugin", Verdict.WARN, detail, fix)]


def _tolerates(daemons: "Document", taint: str) -> bool:
    """Return whether the pods of a DaemonSet may run on nodes with a taint."""
    tolerations: list[dict[str, Any]] = daemons["spec"]["template"]["spec"].get("tolerations", [])
    return any(
        toleration.get("effect", "NoSchedule") == "NoSchedule"
        and (toleration.get("key") == taint or ("key" not in toleration and toleration.get("operator") == "Exists"))
        for toleration in tolerations
    )
