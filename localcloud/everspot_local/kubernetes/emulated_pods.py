"""The parts of a pod that the local kubelet knows. A pod with any other part is refused."""

from everspot_local.kubernetes.api import Document

KNOWN: dict[str, frozenset[str]] = {
    "spec": frozenset(
        {
            # Of the scheduler and the controllers, or without a meaning for a process.
            "affinity", "dnsPolicy", "enableServiceLinks", "nodeName", "nodeSelector", "preemptionPolicy", "priority",
            "schedulerName", "securityContext", "serviceAccount", "serviceAccountName", "tolerations",
            "topologySpreadConstraints",
            # Heeded.
            "automountServiceAccountToken", "containers", "restartPolicy", "terminationGracePeriodSeconds", "volumes",
        }
    ),
    "container": frozenset(
        {
            # Without a meaning for a process.
            "image", "imagePullPolicy", "ports", "resources", "securityContext", "terminationMessagePath",
            "terminationMessagePolicy",
            # Heeded.
            "args", "command", "env", "name", "volumeMounts",
        }
    ),
}  # fmt: skip
"""The fields of a pod's spec and of its only container that a pod may have."""
VOLUMES = frozenset({"emptyDir", "configMap", "persistentVolumeClaim"})
"""Kinds of volumes that a pod may have."""
_FIELDS = ("metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName")


class NotEmulated(Exception):
    """Something in a pod that this kubelet does not know."""


def check_emulated(pod: Document) -> None:
    """Check that a pod needs nothing that this kubelet does not know.

    Raises:
        NotEmulated: with the first unknown part.
    """
    spec = pod["spec"]
    if unknown := sorted(name for name, value in spec.items() if value and name not in KNOWN["spec"]):
        raise NotEmulated(f"spec.{unknown[0]}")
    if len(spec["containers"]) != 1:
        raise NotEmulated(f"{len(spec['containers'])} containers")
    container = spec["containers"][0]
    if unknown := sorted(name for name, value in container.items() if value and name not in KNOWN["container"]):
        raise NotEmulated(f"container.{unknown[0]}")
    if not container.get("command"):
        raise NotEmulated("the command of an image: a container names its own")
    if spec.get("restartPolicy") not in ("Never", "Always"):
        raise NotEmulated(f"restartPolicy {spec.get('restartPolicy')}")
    if volumes := [v["name"] for v in spec.get("volumes", []) if not (VOLUMES & v.keys() or is_token(v))]:
        raise NotEmulated(f"the volume {volumes[0]}")
    for variable in container.get("env", []):
        read_field_path(variable)


def is_token(volume: Document) -> bool:
    """Return whether the API server has added a volume, for the token of the pod's service account."""
    return str(volume["name"]).startswith("kube-api-access-")


def read_field_path(variable: Document) -> str:
    """Return the field of the downward API that a variable takes; empty if it has a value of its own.

    Raises:
        NotEmulated: if the value comes from anywhere else.
    """
    source = variable.get("valueFrom") or {}
    path = str(source.get("fieldRef", {}).get("fieldPath", ""))
    if (source and not path) or (path and path not in _FIELDS):
        raise NotEmulated(f"the source of the variable {variable['name']}")
    return path
