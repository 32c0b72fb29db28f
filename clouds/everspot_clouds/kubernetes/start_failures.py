"""What can never start in a pod: how the kubelet says so, and how a scheduler notes it on the pod.

An image that does not exist and a missing Secret or ConfigMap are mistakes of the settings, for which the next node
would wait too. Any other failure may pass.
"""

import json

from everspot_core.capacity.launching import LaunchError, LaunchTrouble
from everspot_core.capacity.market import Market
from everspot_core.validation.problems import shown

from everspot_clouds.kubernetes.client import Document
from everspot_clouds.kubernetes.rules import FAILURE_NOTE

_ALWAYS_WRONG = ("InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError")
_PULLS = ("ErrImagePull", "ImagePullBackOff")
"""Reasons of a waiting container (Kubernetes, `pkg/kubelet/images/types.go` and `kuberuntime_container.go`)."""
_MISSING = ("not found", "manifest unknown", "does not exist")
"""In the messages of a pull whose image is not there, of containerd and of ECR."""
_DENIED = ("denied", "unauthorized", "authorization", "credentials")
"""In the messages of a pull without permission, which is granted outside of the settings: containerd's is "pull access
denied, repository does not exist or may require authorization" (`core/remotes/docker/resolver.go`)."""
_NOT_READ_YET = "timed out waiting for the condition"
"""In the message of a kubelet that could not read a Secret or ConfigMap (Kubernetes,
`pkg/kubelet/util/manager/watch_based_manager.go`)."""


def find_mistake(pod: Document) -> tuple[str, str] | None:
    """Return the reason and the message of a container that can never start; None if all may."""
    if "deletionTimestamp" in pod["metadata"] or not pod["spec"].get("nodeName"):
        return None
    status = pod.get("status", {})
    for container in (*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])):
        waiting = container.get("state", {}).get("waiting", {})
        reason, message = str(waiting.get("reason") or ""), str(waiting.get("message") or "")
        if _never_starts(reason, message):
            return reason, message or f"the image {container.get('image')}"
    return None


def _never_starts(reason: str, message: str) -> bool:
    if reason in _PULLS:
        plain = message.lower()
        return any(words in plain for words in _MISSING) and not any(words in plain for words in _DENIED)
    return reason in _ALWAYS_WRONG and _NOT_READ_YET not in message


def read_failure(pod: Document, market: Market, most_characters: int) -> LaunchError | None:
    """Return the mistake for which a scheduler ended a pod; None if it ended none for one."""
    note = pod["metadata"].get("annotations", {}).get(FAILURE_NOTE)
    if note is None:
        return None
    try:
        code, message = (str(text) for text in json.loads(note))
    except (ValueError, TypeError):
        code, message = "NotStarted", f"its agent could not start: {shown(note)}"
    return LaunchError(market=market, kind=LaunchTrouble.REQUEST, code=code, message=message[:most_characters])
