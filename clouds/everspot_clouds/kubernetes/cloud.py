"""Kubernetes for the scheduler: pods are instances, and Karpenter launches nodes for them on EC2.

Prices, placement scores, quotas, notifications and gauges are those of AWS, by its own adapter.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any

from everspot_core.capacity.catalogue import builtin
from everspot_core.capacity.launching import LaunchIntent
from everspot_core.capacity.market import Market
from everspot_core.clock import Clock
from everspot_core.cluster.gauges import Gauge
from everspot_core.cluster.manifest import Manifest
from everspot_core.cluster.notify import Notifications
from everspot_core.costs.ledger import PricePoint

from everspot_clouds.aws.cloud import AwsCloud
from everspot_clouds.base import Cloud, CloudEnd, CloudInstance, LaunchAnswer, Message, PlacementScore, Trouble
from everspot_clouds.kubernetes import capacity, errors
from everspot_clouds.kubernetes.client import KubernetesClient
from everspot_clouds.kubernetes.instances import NodePlacements, describe_nodes, list_agents, owned_by_namespace, parse
from everspot_clouds.kubernetes.messages import Evictions
from everspot_clouds.kubernetes.stuck_pods import StuckPods


class KubernetesCloud:
    """The `Cloud` of a cluster on Kubernetes.

    Args:
        client: For the pods of the cluster's namespace.
        manifest: Of the cluster.
        machines: The cloud of the nodes.
        clock: Of the scheduler.
        reads: For a reader of the ledger, which changes nothing and takes no messages.
    """

    def __init__(
        self, client: KubernetesClient, manifest: Manifest, machines: Cloud, clock: Clock, *, reads: bool
    ) -> None:
        self._client, self._cluster, self._machines = client, manifest.cluster, machines
        self._placements = NodePlacements(client, writes=not reads)
        types = builtin().with_types(manifest.instance_types).types
        self._gpus = {name: instance_type.gpus for name, instance_type in types.items()}
        self._launcher = capacity.PodLauncher(client, manifest.cluster, self._placements, self._gpus, clock)
        self._tidying = None if reads else capacity.Tidying(client, clock)
        self._stuck_pods = None if reads else StuckPods(client, clock)
        self._evictions = None if reads else Evictions(client, manifest.cluster, clock).start()

    @classmethod
    def open(cls, manifest: Manifest, clock: Clock, *, reads: bool = False) -> "KubernetesCloud":
        """Make the clients: of the API server by the service account or the kubeconfig, and of the manifest's region.
        `reads`: for a reader of the ledger.

        Raises:
            CloudError: if there is no way to an API server.
        """
        # Without a queue: Karpenter reads EC2's events and evicts the pods.
        without_queue = manifest.model_copy(update={"queue_url": None})
        machines = AwsCloud.open(without_queue, clock, reads=True, is_own=owned_by_namespace(manifest.control_url))
        return cls(KubernetesClient.open(manifest), manifest, machines, clock, reads=reads)

    def instances(self) -> list[CloudInstance]:
        """See `Cloud`."""
        pods = list_agents(self._client, self._cluster)
        described = [parse(pod, place) for pod in pods if (place := self._placements.find(pod)) is not None]
        self._placements.forget_others(pods)
        if self._tidying is not None:
            self._tidying.tidy(pods)
        if self._stuck_pods is not None:
            self._stuck_pods.end(pods)
        return [*described, *describe_nodes(self._machines.instances())]

    def ends(self) -> list[CloudEnd]:
        """See `Cloud`. Empty, because a finalizer keeps each pod until its end was described."""
        return []

    def messages(self) -> list[Message]:
        """See `Cloud`."""
        return self._evictions.drain() if self._evictions else []

    def acknowledge(self, messages: Iterable[Message]) -> None:
        """See `Cloud`: nothing waits at the API server."""

    def spot_prices(self, pools: Iterable[tuple[str, str]], since: datetime) -> list[PricePoint]:
        """See `Cloud`."""
        return self._machines.spot_prices(pools, since)

    def placement_scores(
        self, types: Collection[str], count: int, regions: Collection[str] = ()
    ) -> list[PlacementScore]:
        """See `Cloud`."""
        return self._machines.placement_scores(types, count, regions)

    def launch(self, intent: LaunchIntent) -> LaunchAnswer:
        """See `Cloud`."""
        return self._launcher.launch(intent)

    def terminate(self, instances: Iterable[str]) -> None:
        """See `Cloud`."""
        capacity.terminate(self._client, instances)

    def quota_name(self, instance_type: str, market: Market) -> str:
        """See `Cloud`: the limits of NodePool and namespace, which hold for all types and markets. A ResourceQuota may
        limit GPUs alone. EC2's own quotas look like a lack of capacity, because Karpenter meets them."""
        return "pods with GPUs" if self._gpus.get(instance_type) else "pods without GPUs"

    def publish_gauges(self, namespace: str, gauges: Mapping[Gauge, float], at: datetime) -> None:
        """See `Cloud`."""
        self._machines.publish_gauges(namespace, gauges, at)

    def notify(self, settings: Notifications, subject: str, text: str, data: dict[str, Any]) -> None:
        """See `Cloud`."""
        self._machines.notify(settings, subject, text, data)

    def trouble(self, error: Exception) -> Trouble:
        """See `Cloud`."""
        return errors.trouble(error) or self._machines.trouble(error)

    def close(self) -> None:
        """See `Cloud`."""
        if self._evictions is not None:
            self._evictions.close()
        self._client.close()
        self._machines.close()


CLOUD = KubernetesCloud
"""The class that `PackageProvider` opens."""
