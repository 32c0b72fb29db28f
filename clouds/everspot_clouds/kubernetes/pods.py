"""The pod of a launch: a PodTemplate, and what the launch adds to it. The result depends on the launch alone."""

import copy
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from everspot_core.capacity.launching import LaunchIntent, LaunchPool
from everspot_core.capacity.market import Market
from everspot_core.jobs.records import Role

from everspot_clouds.kubernetes.boot_rules import (
    MARKET_LABEL,
    NODE_VARIABLE,
    ON_DEMAND,
    POD_VARIABLE,
    SPOT,
    TYPE_LABEL,
    ZONE_LABEL,
)
from everspot_clouds.kubernetes.client import Document
from everspot_clouds.kubernetes.rules import (
    AGENT_CONTAINER,
    CLUSTER_LABEL,
    DEFAULT_GRACE,
    FINALIZER,
    GPU,
    LAUNCH_LABEL,
    ROLE_LABEL,
    STOP_MARGIN,
)

_HOSTNAME = "kubernetes.io/hostname"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


class BadTemplate(ValueError):
    """A PodTemplate from which no agent can be made."""


def names(cluster: str, intent: LaunchIntent) -> tuple[str, ...]:
    """Return the names of the pods of a launch. A launch that is asked for again has the same."""
    return tuple(f"{_stem(cluster, intent.token)}{number}" for number in range(intent.count))


def is_launched(pod: Document, cluster: str) -> bool:
    """Return whether a scheduler of the cluster launched a pod. A pod that somebody else creates with the labels, or
    copies with them (`kubectl debug --copy-to --keep-labels`), has another name."""
    meta = pod["metadata"]
    token = str(meta.get("labels", {}).get(LAUNCH_LABEL) or "")
    older = f"{cluster}-{token[:12]}-"  # of a pod that runs since before names had the end of the token
    return bool(token) and str(meta["name"]).startswith((_stem(cluster, token), older))


def _stem(cluster: str, token: str) -> str:
    """Return how the names of a launch's pods begin. A pod's name is its instance's id, which the ledger keeps for
    ever, so it has the end of the token, which is random. At most 63 characters are a pod's host name."""
    return f"{cluster}-{token[-20:]}-"


def served_pools(intent: LaunchIntent, gpus: Mapping[str, int]) -> tuple[LaunchPool, ...]:
    """Return the pools that one request can ask for, best first. `gpus`: by instance type.

    A pod requests a fixed number of GPUs, so all types have that of the best. Nothing in Kubernetes asks for several
    nodes of the same type and zone, whichever these are, so a launch as a whole asks for its best pool.
    """
    best = intent.pools[0]
    if intent.whole:
        return (best,)
    return tuple(p for p in intent.pools if gpus.get(p.instance_type, 0) == gpus.get(best.instance_type, 0))


def build_pod(template: Document, name: str, cluster: str, intent: LaunchIntent, gpus: Mapping[str, int]) -> Document:
    """Return a pod of a launch: on a node of its own, of one of the pools. `gpus`: by instance type.

    Raises:
        BadTemplate: if the template has no container of the agent.
    """
    pod: Document = copy.deepcopy(template.get("template", {}))
    meta, spec = pod.setdefault("metadata", {}), pod.setdefault("spec", {})
    labels = {CLUSTER_LABEL: cluster, ROLE_LABEL: Role.AGENT.value, LAUNCH_LABEL: intent.token}
    meta.update(name=name, labels={**meta.get("labels", {}), **labels}, finalizers=[FINALIZER])
    agent = next((c for c in spec.get("containers", []) if c.get("name") == AGENT_CONTAINER), None)
    if agent is None:
        raise BadTemplate(f"the PodTemplate {template['metadata']['name']} has no container named {AGENT_CONTAINER}")
    pools = served_pools(intent, gpus)
    spec["restartPolicy"] = "Never"  # an agent that has left stays away
    spec["affinity"] = {
        "nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": _node_terms(pools, ordered=intent.ordered)}},
        "podAntiAffinity": {_REQUIRED: [_OTHER_AGENTS]},
    }
    _set_environment(agent, spec)
    if count := gpus.get(pools[0].instance_type, 0):
        agent.setdefault("resources", {}).setdefault("limits", {})[GPU] = str(count)
    return {"apiVersion": "v1", "kind": "Pod", **pod}


_OTHER_AGENTS: dict[str, Any] = {
    "labelSelector": {"matchExpressions": [{"key": CLUSTER_LABEL, "operator": "Exists"}]},
    "namespaceSelector": {},
    "topologyKey": _HOSTNAME,
}
"""The agents of all clusters in all namespaces, since a node is one instance. Jobs share it within its pod."""


def _set_environment(agent: Document, spec: Document) -> None:
    """Add what the agent needs to know of its pod, in place of variables of the same names."""
    grace = timedelta(seconds=spec.get("terminationGracePeriodSeconds", DEFAULT_GRACE.total_seconds()))
    stop = max(grace - STOP_MARGIN, grace / 2)
    variables: list[Document] = [
        {"name": "EVERSPOT_CLOUD", "value": "kubernetes"},
        {"name": "EVERSPOT_STOP_SECONDS", "value": f"{stop.total_seconds():g}"},
        {"name": POD_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": NODE_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
    ]
    own_names = {variable["name"] for variable in variables}
    agent["env"] = [v for v in agent.get("env", []) if v["name"] not in own_names] + variables


def _node_terms(pools: Sequence[LaunchPool], *, ordered: bool) -> list[Document]:
    """Return the node selector's terms, of which a node has to meet one.

    Karpenter asks for the first term, and for the next when no node can be had (Karpenter, "Scheduling", Node
    affinity). So pools in order have a term each. Otherwise one term has all types that share their zones, and
    Karpenter chooses among them by price and capacity.
    """
    if ordered:
        return [_term(p.market, [p.instance_type], [p.zone]) for p in pools]
    zones: dict[str, list[str]] = {}
    for pool in pools:
        zones.setdefault(pool.instance_type, []).append(pool.zone)
    types: dict[tuple[str, ...], list[str]] = {}
    for instance_type, type_zones in zones.items():
        types.setdefault(tuple(sorted(type_zones)), []).append(instance_type)
    return [_term(pools[0].market, sorted(kinds), list(places)) for places, kinds in types.items()]


def _term(market: Market, types: list[str], zones: list[str]) -> Document:
    values = {MARKET_LABEL: [SPOT if market is Market.SPOT else ON_DEMAND], TYPE_LABEL: types, ZONE_LABEL: zones}
    return {"matchExpressions": [{"key": key, "operator": "In", "values": some} for key, some in values.items()]}
