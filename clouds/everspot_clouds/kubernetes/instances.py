"""The cluster's instances as the API server describes them: the pods that have a node."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from everspot_core.capacity.launching import LaunchError, LaunchTrouble, has_mark
from everspot_core.capacity.market import Market
from everspot_core.jobs.records import Role

from everspot_clouds.aws.instances import Ownership
from everspot_clouds.aws.rules import LAUNCH_TAG, STORE_TAG
from everspot_clouds.base import CloudInstance, Phase, Trouble
from everspot_clouds.kubernetes.boot_rules import MARKET_LABEL, PLACEMENT_LABELS, SPOT, TYPE_LABEL, ZONE_LABEL
from everspot_clouds.kubernetes.client import Document, KubernetesClient
from everspot_clouds.kubernetes.errors import NOT_FOUND, is_status, trouble
from everspot_clouds.kubernetes.node_share import billed_share, machine_name
from everspot_clouds.kubernetes.pods import is_launched
from everspot_clouds.kubernetes.rules import (
    CLUSTER_LABEL,
    LAUNCH_LABEL,
    MACHINE_LABEL,
    RELEASED_NOTE,
    ROLE_LABEL,
    SHARE_LABEL,
)
from everspot_clouds.kubernetes.start_failures import read_failure

_ENDED = ("Succeeded", "Failed")
_NODE_PRESSURE = "Evicted"
"""Reason of a pod that the kubelet ended (Kubernetes, "Node-pressure Eviction"). The eviction API gives none."""
_NODE_LOST = "DeletionByPodGC"
"""Reason of a pod that Kubernetes gave up because its node is gone (Kubernetes, "Disruptions")."""
MOST_CHARACTERS = 500
"""Of what a container or Karpenter says, in a refusal."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class NodePlacement:
    """What a node says of a pod's place."""

    instance_type: str
    zone: str
    market: Market
    machine: str = ""
    share: float = 1.0

    @classmethod
    def read(cls, labels: Mapping[str, str]) -> "NodePlacement | None":
        """Return the placement in the labels of a node, or of a pod to which they were copied; None if one of them is
        missing."""
        if not all(labels.get(name) for name in PLACEMENT_LABELS):
            return None
        market = Market.SPOT if labels[MARKET_LABEL] == SPOT else Market.ON_DEMAND
        share = _read_share(labels.get(SHARE_LABEL))
        return cls(labels[TYPE_LABEL], labels[ZONE_LABEL], market, labels.get(MACHINE_LABEL, ""), share)


@dataclass
class NodePlacements:
    """The placements of pods. Each is read from the node once, and then from the pod.

    Attributes:
        client: For the nodes.
        writes: Whether a placement is copied to the pod's labels, from which it is read once the node is gone.
    """

    client: KubernetesClient
    writes: bool
    _by_uid: dict[str, NodePlacement] = field(default_factory=dict)

    def find(self, pod: Document) -> NodePlacement | None:
        """Return the placement of a pod; None while it has no node, and if its node is gone and was never read."""
        meta, node_name = pod["metadata"], pod["spec"].get("nodeName")
        if not node_name:
            return None
        if (placement := NodePlacement.read(meta.get("labels", {})) or self._by_uid.get(meta["uid"])) is not None:
            return placement
        try:
            node = self.client.node(node_name)
        except Exception as error:
            if not is_status(error, NOT_FOUND):
                raise
            _log.warning("the node %s of %s is gone, and nobody has read its type", node_name, meta["name"])
            return None
        labels = node["metadata"].get("labels", {})
        own = {MACHINE_LABEL: machine_name(node), SHARE_LABEL: f"{billed_share(pod, node):.6g}"}
        placement = NodePlacement.read({**labels, **own})
        if placement is None:
            _log.warning("the node %s of %s lacks a label of type, zone or market", node_name, meta["name"])
            return None
        if self.writes:
            self._copy_to_pod(meta["name"], {name: labels[name] for name in PLACEMENT_LABELS} | own)
        self._by_uid[meta["uid"]] = placement
        return placement

    def _copy_to_pod(self, name: str, labels: Mapping[str, str]) -> None:
        """Write a placement to the labels of its pod. A pod that is gone is skipped. If the API server does not accept
        the labels, as an admission webhook may decide, the placement is known to this scheduler alone."""
        try:
            self.client.patch_pod(name, {"metadata": {"labels": labels}})
        except Exception as error:
            if trouble(error) not in (Trouble.REQUEST, Trouble.CREDENTIALS):
                raise
            if not is_status(error, NOT_FOUND):
                _log.error("the placement of %s cannot be written to its labels: %s", name, error)

    def forget_others(self, pods: Iterable[Document]) -> None:
        """Forget the placements of pods that are gone."""
        here = {pod["metadata"]["uid"] for pod in pods}
        self._by_uid = {uid: placement for uid, placement in self._by_uid.items() if uid in here}


def _read_share(text: str | None) -> float:
    """Return the part of its machine that a pod is billed for. What somebody else wrote there counts as the whole."""
    try:
        share = float(text or 1)
    except ValueError:
        return 1.0
    return share if 0 < share <= 1 else 1.0


def list_agents(client: KubernetesClient, cluster: str, *, launch: str | None = None) -> list[Document]:
    """Return the cluster's pods. `launch`: of one launch only, by its token."""
    pods = client.pods(selector(cluster, launch=launch))["items"]
    return [pod for pod in pods if is_launched(pod, cluster)]


def selector(cluster: str, *, launch: str | None = None) -> str:
    """Return the selector of a cluster's agents. `launch`: of one launch only, by its token."""
    labels = {CLUSTER_LABEL: cluster, ROLE_LABEL: Role.AGENT.value} | ({LAUNCH_LABEL: launch} if launch else {})
    return ",".join(f"{name}={value}" for name, value in labels.items())


def parse(pod: Document, placement: NodePlacement) -> CloudInstance:
    """Return the instance that a pod is."""
    meta, ended = pod["metadata"], is_ended(pod)
    leaving = Phase.ENDING if "deletionTimestamp" in meta else Phase.ALIVE
    bound: Document = next((c for c in pod.get("status", {}).get("conditions", []) if c["type"] == "PodScheduled"), {})
    return CloudInstance(
        instance_id=meta["name"],
        instance_type=placement.instance_type,
        zone=placement.zone,
        market=placement.market,
        role=Role.AGENT,
        launched_at=moment(bound.get("lastTransitionTime") or meta["creationTimestamp"]),
        image=pod["spec"]["containers"][0].get("image", ""),
        phase=Phase.ENDED if ended else leaving,
        ended_at=_ended_at(pod) if ended else None,
        interrupted=is_interrupted(pod) if ended else None,
        launch=meta.get("labels", {}).get(LAUNCH_LABEL, ""),
        failure=_failure(pod, placement.market),
        node=placement.machine,
        node_share=placement.share,
    )


def describe_nodes(machines: Iterable[CloudInstance]) -> list[CloudInstance]:
    """Return the machines beneath the agents. `machines`: those with the tag of the cluster, which its EC2NodeClass
    gives to them, as EC2 describes them."""
    return [replace(machine, role=Role.NODE, launch="", failure=None) for machine in machines]


def owned_by_namespace(control_url: str) -> Ownership:
    """Return the ownership of what a cluster has in EC2: by its store's mark, which its EC2NodeClass gives to all that
    Karpenter makes. What Karpenter made for an EC2NodeClass of an earlier release bears none."""
    return lambda tags: has_mark(control_url, store=tags.get(STORE_TAG, ""), launch=tags.get(LAUNCH_TAG, ""))


def is_ended(pod: Document) -> bool:
    """Return whether nothing of a pod runs any more."""
    return pod.get("status", {}).get("phase") in _ENDED


def is_interrupted(pod: Document) -> bool:
    """Return whether somebody else than the pod's scheduler ends or ended it: an eviction, a drained node, a lost node,
    a node that was switched off, or a person who deletes the pod. A kubelet that lacks memory or disk evicts for what
    the pod itself uses, since the node is its own."""
    if RELEASED_NOTE in pod["metadata"].get("annotations", {}):
        return False
    if pod.get("status", {}).get("reason") == _NODE_PRESSURE:
        return False
    return "deletionTimestamp" in pod["metadata"] or disruption(pod) is not None


def disruption(pod: Document) -> Document | None:
    """Return the condition by which Kubernetes says that it ends a pod (Kubernetes, "Disruptions", Pod disruption
    conditions); None while it has none."""
    conditions = pod.get("status", {}).get("conditions", [])
    return next((c for c in conditions if c["type"] == "DisruptionTarget" and c["status"] == "True"), None)


def moment(text: str) -> datetime:
    """Return a time of the API."""
    return datetime.fromisoformat(text)


def _failure(pod: Document, market: Market) -> LaunchError | None:
    """Return why the agent of an ended pod ended, or why the kubelet cannot start it; None if it runs, and if anybody
    ended the pod for another cause.

    The error names no pool, because an image or a command that fails does so on each node.
    """
    if (mistake := read_failure(pod, market, MOST_CHARACTERS)) is not None:
        return mistake
    meta, status = pod["metadata"], pod.get("status", {})
    if not is_ended(pod) or RELEASED_NOTE in meta.get("annotations", {}) or is_interrupted(pod):
        return None
    states = (container.get("state", {}) for container in status.get("containerStatuses", []))
    end: Document | None = next((state["terminated"] for state in states if "terminated" in state), None)
    if end is None:
        code, message = status.get("reason") or status["phase"], status.get("message") or "its container never started"
    else:
        code = end.get("reason") or status["phase"]
        message = f"its container ended with exit code {end['exitCode']} {end.get('message') or ''}".strip()
    return LaunchError(market=market, kind=LaunchTrouble.TRANSIENT, code=code, message=message[:MOST_CHARACTERS])


def _ended_at(pod: Document) -> datetime | None:
    """Return when the last container of an ended pod ended; if its node was lost, when the pod was given up."""
    status: dict[str, Any] = pod["status"]
    states = (container.get("state", {}) for container in status.get("containerStatuses", []))
    ends = [state["terminated"].get("finishedAt") for state in states if "terminated" in state]
    if moments := [moment(end) for end in ends if end]:
        return max(moments)
    if (condition := disruption(pod)) is not None and condition.get("lastTransitionTime"):
        # The condition of a pod that was evicted first keeps the time of the eviction, and the node lived on.
        given_up_at = _status_written_at(pod) if condition.get("reason") == _NODE_LOST else None
        return given_up_at or moment(condition["lastTransitionTime"])
    deleted_at = pod["metadata"].get("deletionTimestamp")
    return moment(deleted_at) if deleted_at else None


def _status_written_at(pod: Document) -> datetime | None:
    """Return when the status of a pod was last written (Kubernetes, "Server-Side Apply", Field management)."""
    managed_fields = pod["metadata"].get("managedFields", [])
    times = [moment(entry["time"]) for entry in managed_fields if entry.get("subresource") == "status"]
    return max(times, default=None)
