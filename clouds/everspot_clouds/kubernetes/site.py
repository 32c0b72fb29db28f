"""What is left of a cluster on Kubernetes: the agents' pods, and what AWS has of it, for `everspot cluster down`.

Karpenter ends a node once its NodeClaim is deleted (Karpenter, "Disruption", Manual Methods). The nodes are those of
EC2 with the cluster's tag, so one that Kubernetes has forgotten is named too.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from everspot_core.capacity.launching import store_mark
from everspot_core.cluster.manifest import Manifest
from everspot_core.jobs.records import Role

from everspot_clouds.aws.site import INSTANCE, AwsSite
from everspot_clouds.base import RemainingResource
from everspot_clouds.kubernetes import errors
from everspot_clouds.kubernetes.capacity import end_pod, withdraw
from everspot_clouds.kubernetes.client import Document, KubernetesClient
from everspot_clouds.kubernetes.declared_store import check_store
from everspot_clouds.kubernetes.instances import is_ended, list_agents, owned_by_namespace
from everspot_clouds.kubernetes.rules import FINALIZER, LAUNCH_LABEL

NODE = "node"
_KARPENTERS = ("launch-template", "network-interface")
"""Types of resources that Karpenter makes with the tags of the EC2NodeClass, and deletes with it."""


class KubernetesSite(AwsSite):
    """The `Site` of a cluster on Kubernetes, with the user's credentials for AWS and for the API server."""

    def __init__(self, manifest: Manifest, client: KubernetesClient | None = None) -> None:
        """Make clients. `client`: for the pods; by default that of the kubeconfig."""
        super().__init__(manifest, owned_by_namespace(manifest.control_url))
        self._manifest = manifest
        self._kubernetes = client or KubernetesClient.open(manifest)

    def remaining(self) -> list[RemainingResource]:
        """See `Site`. A deleted pod counts until its end is recorded, because its finalizer keeps the namespace. A
        namespace of another store is refused."""
        pods, resources = self._pods(), super().remaining()
        machines = [self._describe_node(r) if r.kind == INSTANCE else r for r in self._claimed(resources)]
        return [*(_describe_pod(pod) for pod in pods.values()), *machines]

    def _claimed(self, resources: list[RemainingResource]) -> list[RemainingResource]:
        """Return the resources, of which an unmarked machine with a NodeClaim in this Kubernetes cluster is its own."""
        if not any(resource.kind == INSTANCE and resource.unmarked for resource in resources):
            return resources
        claims = self._claims()
        return [replace(r, unmarked=False) if r.kind == INSTANCE and r.name in claims else r for r in resources]

    def list_unbilled(self) -> list[RemainingResource]:
        """See `Site`."""
        return [resource for resource in super().list_unbilled() if resource.kind not in _KARPENTERS]

    def end(self, instances: Iterable[str]) -> None:
        """See `Site`: pods by their names, and nodes by EC2's."""
        pods, claims = self._pods(), self._claims()
        machines = list[str]()
        try:
            for name in instances:
                if (pod := pods.get(name)) is not None:
                    self._end_pod(pod)
                elif name in claims:
                    self._kubernetes.delete_node_claim(claims[name])
                else:
                    machines.append(name)
        except errors.ERRORS as error:
            raise errors.to_cloud_error(error) from error
        if machines:  # of a pod that is gone there is nothing to end; a machine without a NodeClaim is EC2's to end
            super().end(name for name in machines if name.startswith("i-"))

    def remove(self, resources: Iterable[RemainingResource]) -> None:
        """See `Site`."""
        chosen = list(resources)
        own = [resource for resource in chosen if resource.kind in (INSTANCE, NODE)]
        self.end(resource.name for resource in own)
        super().remove(resource for resource in chosen if resource not in own)

    def removal(self, resource: RemainingResource) -> str:
        """See `Site`."""
        if resource.kind == INSTANCE:
            return f"kubectl -n {self._kubernetes.namespace} delete pod {resource.name}"
        return super().removal(replace(resource, kind=INSTANCE) if resource.kind == NODE else resource)

    def _describe_node(self, machine: RemainingResource) -> RemainingResource:
        """Return a machine as a node. An unmarked one may be another cluster's, and is not ended."""
        return replace(machine, kind=NODE, launched=not machine.unmarked)

    def _end_pod(self, pod: Document) -> None:
        """Delete a pod. The finalizer of one that is over is removed, since no scheduler does: nobody calls this while
        one releases pods."""
        if is_ended(pod) or not pod["spec"].get("nodeName"):
            withdraw(self._kubernetes, pod)
        else:
            end_pod(self._kubernetes, pod["metadata"]["name"])

    def _pods(self) -> Mapping[str, Document]:
        """Return the pods that a scheduler with this store launched, by name."""
        try:
            check_store(self._kubernetes, self._manifest)
            pods = list_agents(self._kubernetes, self._cluster)
        except errors.ERRORS as error:
            raise errors.to_cloud_error(error) from error
        mark = store_mark(self._manifest.control_url)
        return {
            pod["metadata"]["name"]: pod for pod in pods if pod["metadata"]["labels"][LAUNCH_LABEL].startswith(mark)
        }

    def _claims(self) -> dict[str, str]:
        """Return the names of the NodeClaims by EC2's names of their machines; none where Karpenter is gone."""
        try:
            claims = self._kubernetes.node_claims()
        except errors.ERRORS as error:
            if errors.is_status(error, errors.NOT_FOUND):
                return {}
            raise errors.to_cloud_error(error) from error
        machines = ((claim["metadata"]["name"], claim.get("status", {}).get("providerID") or "") for claim in claims)
        return {provider_id.rpartition("/")[2]: name for name, provider_id in machines if provider_id}


def _describe_pod(pod: Document) -> RemainingResource:
    meta = pod["metadata"]
    node = pod["spec"].get("nodeName") or "no node"
    phase = pod.get("status", {}).get("phase", "Pending")
    deleted = "deletionTimestamp" in meta
    return RemainingResource(
        kind=INSTANCE,
        name=meta["name"],
        detail=f"{Role.AGENT.value} pod, {phase} on {node}{', being deleted' if deleted else ''}",
        launched=True,
        ending=deleted and FINALIZER not in meta.get("finalizers", []),
        capacity=True,
        role=Role.AGENT.value,
    )
