"""Evictions of the cluster's pods, which a thread watches.

A pod that somebody else than its scheduler ends is interrupted when its grace period is over, which is the time of its
deletion as the API states it (Kubernetes API reference, ObjectMeta.deletionTimestamp). Nothing waits at the API server:
each watch begins with a list, so an eviction during a gap between two watches is found by the next list.
"""

from collections.abc import Iterable
from datetime import timedelta

from everspot_core.clock import Clock

from everspot_clouds.base import Message, MessageKind, Trouble
from everspot_clouds.kubernetes import errors
from everspot_clouds.kubernetes.client import Document, KubernetesClient
from everspot_clouds.kubernetes.instances import is_ended, is_interrupted, moment, selector
from everspot_clouds.kubernetes.pods import is_launched
from everspot_clouds.listening import QueueListener

SPAN = timedelta(seconds=30)
"""Real time of one watch."""
PAUSE = timedelta(seconds=1)
"""Real time after a watch that was cut at once, before the next list."""


class Evictions(QueueListener):
    """See `QueueListener`. It watches the pods of a cluster."""

    noun = "watch"

    def __init__(self, client: KubernetesClient, cluster: str, clock: Clock) -> None:
        super().__init__()
        self._client, self._cluster, self._clock = client, cluster, clock
        self._reported: set[str] = set()

    def delete(self, messages: Iterable[Message]) -> None:
        """See `QueueListener`: nothing waits at the API server."""

    def trouble(self, error: Exception) -> Trouble:
        """See `QueueListener`."""
        return errors.trouble(error) or Trouble.TRANSIENT

    def receive(self) -> None:
        """See `QueueListener`. Raises the client's errors."""
        pods_selector = selector(self._cluster)
        listed = self._client.pods(pods_selector)
        self._reported &= {pod["metadata"]["uid"] for pod in listed["items"]}
        for pod in listed["items"]:
            self._report(pod)
        began = self._clock.monotonic()
        for pod in self._client.watch_pods(pods_selector, listed["metadata"]["resourceVersion"], SPAN):
            self._report(pod)
        if self._clock.monotonic() - began < PAUSE:
            self.wait(PAUSE)

    def _report(self, pod: Document) -> None:
        """Keep a message about a pod that runs and is being ended by others, once."""
        meta = pod["metadata"]
        deadline = meta.get("deletionTimestamp")
        running = pod["spec"].get("nodeName") and not is_ended(pod) and is_launched(pod, self._cluster)
        if not deadline or not running or not is_interrupted(pod) or meta["uid"] in self._reported:
            return
        self._reported.add(meta["uid"])
        message = Message(
            kind=MessageKind.WARNING,
            handle=meta["uid"],
            at=self._clock.now(),
            instance_id=meta["name"],
            deadline=moment(deadline),
        )
        self.keep([message])
