"""What does not start in a pod: how the kubelet says so, and how a scheduler notes it on the pod.

An image that does not exist and a missing Secret or ConfigMap are mistakes of the settings, for which the next node
would wait too. An image that may not be pulled waits for somebody who grants it. Any other failure may pass.
"""

import json
import re
from dataclasses import dataclass
from datetime import timedelta

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
_DENIED = ("denied", "unauthorized", "authorization", "credentials", "forbidden")
"""In the messages of a pull without permission, which is granted outside of the settings: containerd's is "pull access
denied, repository does not exist or may require authorization" (`core/remotes/docker/resolver.go`)."""
_BARE_BACKOFF = re.compile(r'Back-off pulling image "[^"]*"')
"""The message between two pulls, of older kubelets, which do not add the reason to it (Kubernetes,
`pkg/kubelet/images/image_manager.go`)."""
_NOT_READ_YET = "timed out waiting for the condition"
"""In the message of a kubelet that could not read a Secret or ConfigMap (Kubernetes,
`pkg/kubelet/util/manager/watch_based_manager.go`)."""
_PATIENCE = {LaunchTrouble.REQUEST: timedelta(minutes=2), LaunchTrouble.CREDENTIALS: timedelta(minutes=4)}
"""Real time for which a container has to wait for the same kind of reason: a Secret may be created a moment after its
pod, a registry may know an image a moment after its push, and a token of a registry may be refused for a while."""


@dataclass(frozen=True, slots=True)
class StartFailure:
    """Why a container does not start, in the kubelet's words."""

    kind: LaunchTrouble
    reason: str
    message: str

    @property
    def patience(self) -> timedelta:
        """How long it may last before the pod is ended."""
        return _PATIENCE[self.kind]

    def note(self) -> str:
        """Return the text of the annotation `FAILURE_NOTE`."""
        return json.dumps([self.reason, self.message, self.kind])


def find_failure(pod: Document, earlier: StartFailure | None = None) -> StartFailure | None:
    """Return why a container does not start; None if all may start by themselves. `earlier`: the last answer about this
    pod, which stands while a kubelet waits before the next pull and does not repeat why the last one failed."""
    if "deletionTimestamp" in pod["metadata"] or not pod["spec"].get("nodeName"):
        return None
    status = pod.get("status", {})
    for container in (*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])):
        waiting = container.get("state", {}).get("waiting", {})
        reason, message = str(waiting.get("reason") or ""), str(waiting.get("message") or "")
        if earlier is not None and earlier.reason in _PULLS and _BARE_BACKOFF.fullmatch(message):
            return earlier
        if (kind := _classify(reason, message)) is not None:
            return StartFailure(kind, reason, message or f"the image {container.get('image')}")
    return None


def _classify(reason: str, message: str) -> LaunchTrouble | None:
    if reason in _PULLS:
        plain = message.lower()
        if any(words in plain for words in _DENIED):
            return LaunchTrouble.CREDENTIALS
        return LaunchTrouble.REQUEST if any(words in plain for words in _MISSING) else None
    return LaunchTrouble.REQUEST if reason in _ALWAYS_WRONG and _NOT_READ_YET not in message else None


def read_failure(pod: Document, market: Market, most_characters: int) -> LaunchError | None:
    """Return the failure for which a scheduler ended a pod; None if it ended none for one. A note of an earlier
    release has no kind: it is a mistake."""
    note = pod["metadata"].get("annotations", {}).get(FAILURE_NOTE)
    if note is None:
        return None
    try:
        code, message, *kinds = (str(text) for text in json.loads(note))
        kind = LaunchTrouble(kinds[0]) if kinds else LaunchTrouble.REQUEST
    except (ValueError, TypeError):
        kind, code, message = LaunchTrouble.REQUEST, "NotStarted", f"its agent could not start: {shown(note)}"
    return LaunchError(market=market, kind=kind, code=code, message=message[:most_characters])
