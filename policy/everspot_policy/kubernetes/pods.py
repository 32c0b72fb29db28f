"""Rules about pods."""

from collections.abc import Iterator, Mapping
from typing import Any

from everspot_core.validation.problems import Problem

from everspot_policy.reading import inner, mapping, objects, text, yes
from everspot_policy.rule import Level, Rule, Severity, Subject, rule

PODS = (
    "kubernetes:core/*:Pod", "kubernetes:core/*:PodTemplate", "kubernetes:apps/*:Deployment",
    "kubernetes:apps/*:DaemonSet", "kubernetes:apps/*:StatefulSet", "kubernetes:apps/*:ReplicaSet",
    "kubernetes:core/*:ReplicationController", "kubernetes:batch/*:Job", "kubernetes:batch/*:CronJob",
    "kubernetes:core/*:PodPatch", "kubernetes:apps/*:DeploymentPatch", "kubernetes:apps/*:DaemonSetPatch",
    "kubernetes:apps/*:StatefulSetPatch", "kubernetes:apps/*:ReplicaSetPatch", "kubernetes:batch/*:JobPatch",
    "kubernetes:batch/*:CronJobPatch", "kubernetes:core/*:ReplicationControllerPatch",
)  # fmt: skip
_HOST = ("hostNetwork", "hostPID", "hostIPC")
_PROFILES = {
    "Localhost": "is a profile of the node, which may allow more calls: with jobImages those of a job's container",
    "Unconfined": "allows all system calls",
}


def _pod(subject: Subject) -> tuple[str, Mapping[str, Any]]:
    """Return a pod's specification with its path: it is that of the template of whatever makes pods."""
    kind = subject.type.rpartition(":")[2].removesuffix("Patch")
    path = {
        "Pod": ("spec",),
        "PodTemplate": ("template", "spec"),
        "CronJob": ("spec", "jobTemplate", "spec", "template", "spec"),
    }.get(kind, ("spec", "template", "spec"))
    return ".".join(path), inner(subject.inputs, *path)


def _containers(path: str, spec: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield all containers of a pod with their paths."""
    for kind in ("containers", "initContainers", "ephemeralContainers"):
        for here, container in objects(spec, kind):
            yield f"{path}.{here}", container


@rule(
    "kubernetes-pods-confined",
    Level.MANDATORY,
    Severity.CRITICAL,
    title="Pods have nothing of their node",
    remedy="Take privileged, hostNetwork, hostPID, hostIPC and hostPath away.",
    types=PODS,
)
def pods_confined(subject: Subject) -> Iterator[Problem]:
    """Find pods that are not confined."""
    path, spec = _pod(subject)
    for name in _HOST:
        if yes(spec.get(name)):
            yield Problem(f"{path}.{name}", "is true")
    for here, container in _containers(path, spec):
        if yes(mapping(container.get("securityContext")).get("privileged")):
            yield Problem(f"{here}.securityContext.privileged", "is true")
    for here, volume in objects(spec, "volumes"):
        if volume.get("hostPath") is not None:
            yield Problem(f"{path}.{here}.hostPath", "is a folder of the node")


@rule(
    "kubernetes-pods-filtered",
    Level.ADVISORY,
    Severity.MEDIUM,
    title="Pods make only the system calls of RuntimeDefault",
    remedy="Set seccompProfile.type: RuntimeDefault; for agents take jobImages away.",
    types=PODS,
)
def pods_filtered(subject: Subject) -> Iterator[Problem]:
    """Find pods with a profile of their node, which may allow more, or with none."""
    path, spec = _pod(subject)
    for place, settings in [(path, spec), *_containers(path, spec)]:
        profile = text(inner(settings, "securityContext", "seccompProfile").get("type"))
        if profile in _PROFILES:
            yield Problem(f"{place}.securityContext.seccompProfile.type", _PROFILES[profile])


RULES: tuple[Rule, ...] = (pods_confined, pods_filtered)
