"""Ends pods whose agent can never start, and notes the reason on them.

The kubelet tries to start a container for as long as its pod exists, and the node is paid meanwhile. Failures that may
pass are left to the kubelet, and the boot deadline ends the wait.
"""

import json
import logging
from collections.abc import Sequence
from datetime import timedelta

from everspot_core.clock import Clock

from everspot_clouds.kubernetes import errors
from everspot_clouds.kubernetes.capacity import end_pod
from everspot_clouds.kubernetes.client import Document, KubernetesClient
from everspot_clouds.kubernetes.rules import FAILURE_NOTE
from everspot_clouds.kubernetes.start_failures import find_mistake

PATIENCE = timedelta(minutes=2)
"""Real time for which an agent has to wait for the same reason: a Secret may be created a moment after its pod, and a
registry may know an image a moment after its push."""
_log = logging.getLogger(__name__)


class StuckPods:
    """Watches the pods that have a node for an agent that can never start."""

    def __init__(self, client: KubernetesClient, clock: Clock) -> None:
        self._client, self._clock = client, clock
        self._since: dict[str, timedelta] = {}

    def end(self, pods: Sequence[Document]) -> None:
        """End those of the described pods whose agent waits for too long. A failure is logged, since the pod is
        described again."""
        reasons = {pod["metadata"]["uid"]: reason for pod in pods if (reason := find_mistake(pod)) is not None}
        now, since = self._clock.monotonic(), self._since
        self._since = {uid: since.get(uid, now) for uid in reasons}
        for pod in pods:
            meta = pod["metadata"]
            if meta["uid"] not in reasons or now - self._since[meta["uid"]] < PATIENCE:
                continue
            note = json.dumps(reasons[meta["uid"]])
            try:
                self._client.patch_pod(meta["name"], {"metadata": {"annotations": {FAILURE_NOTE: note}}})
                end_pod(self._client, meta["name"])
            except errors.ERRORS as error:
                _log.warning("%s, whose agent cannot start, cannot be ended: %s", meta["name"], error)
