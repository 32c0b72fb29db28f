"""Ends pods whose agent does not start, and notes the reason on them.

The kubelet tries to start a container for as long as its pod exists, and the node is paid meanwhile. Failures that may
pass are left to the kubelet, and the boot deadline ends the wait.
"""

import logging
from collections.abc import Sequence
from datetime import timedelta

from everspot_core.clock import Clock

from everspot_clouds.kubernetes import errors
from everspot_clouds.kubernetes.capacity import end_pod
from everspot_clouds.kubernetes.client import Document, KubernetesClient
from everspot_clouds.kubernetes.rules import FAILURE_NOTE
from everspot_clouds.kubernetes.start_failures import StartFailure, find_failure

_log = logging.getLogger(__name__)


class StuckPods:
    """Watches the pods that have a node for an agent that does not start."""

    def __init__(self, client: KubernetesClient, clock: Clock) -> None:
        self._client, self._clock = client, clock
        self._failures: dict[str, StartFailure] = {}
        self._since: dict[tuple[str, str], timedelta] = {}

    def end(self, pods: Sequence[Document]) -> None:
        """End those of the described pods whose agent waits for too long. A failure is logged, since the pod is
        described again."""
        earlier = self._failures
        answers = [(pod["metadata"], find_failure(pod, earlier.get(pod["metadata"]["uid"]))) for pod in pods]
        failures = [(meta, failure) for meta, failure in answers if failure is not None]
        self._failures = {meta["uid"]: failure for meta, failure in failures}
        now, since = self._clock.monotonic(), self._since
        self._since = {key: since.get(key, now) for key in ((meta["uid"], failure.kind) for meta, failure in failures)}
        for meta, failure in failures:
            if now - self._since[meta["uid"], failure.kind] < failure.patience:
                continue
            try:
                self._client.patch_pod(meta["name"], {"metadata": {"annotations": {FAILURE_NOTE: failure.note()}}})
                end_pod(self._client, meta["name"])
            except errors.ERRORS as error:
                _log.warning("%s, whose agent cannot start, cannot be ended: %s", meta["name"], error)
