"""Checks of `everspot doctor`: AWS's, the way to the API server, the rights, the PodTemplate, Karpenter and images."""

from importlib.util import find_spec
from typing import TYPE_CHECKING

from everspot_core.capacity.catalogue import Catalogue
from everspot_core.clock import Clock
from everspot_core.cluster.manifest import Elastic, Manifest

from everspot_clouds.base import Check, CloudError, Verdict
from everspot_clouds.kubernetes.declared_store import store_checks
from everspot_clouds.kubernetes.requirements import (
    claim_checks,
    guarded,
    limit_checks,
    missing_rights,
    profile_checks,
    pull_checks,
    requirement_checks,
)
from everspot_clouds.kubernetes.rules import CLUSTER_LABEL

if TYPE_CHECKING:
    from everspot_clouds.kubernetes.client import Document, KubernetesClient

RIGHTS = (
    ("pods", "", ("list", "watch", "get", "create", "patch", "delete")),
    ("podtemplates", "", ("get",)),
    ("events", "", ("list",)),
    ("nodes", "", ("get",)),
    ("nodeclaims", "karpenter.sh", ("get",)),
)
"""What a scheduler does: resources, their API groups, and verbs. The first three are of its namespace, the last two of
the whole Kubernetes cluster."""
_EXTRA = "pip install 'everspot[kubernetes]'"


def cloud_checks(region: str | None, manifest: Manifest | None, catalogue: Catalogue, clock: Clock) -> list[Check]:
    """Check the credentials for AWS and what the nodes need there, and then the Kubernetes cluster. `manifest` None: it
    cannot be read."""
    from everspot_clouds.aws import checks as aws

    if (checks := aws.client_missing()) is None:
        checks = aws.account_checks(region, manifest, catalogue, clock)
    return checks + kubernetes_checks(manifest, catalogue)


def kubernetes_checks(manifest: Manifest | None, catalogue: Catalogue) -> list[Check]:
    """Check the way to the API server first, and the rest only if there is one."""
    client = open_client(manifest)
    if isinstance(client, Check):
        return [client]
    try:
        checks = guarded("credentials", "kubernetes", lambda: _rights(client))
        if checks[0].verdict is Verdict.FAIL or manifest is None:
            return checks
        types = manifest.elastic.types if manifest.elastic is not None else []
        gpus = any(catalogue.types[name].gpus for name in types if name in catalogue.types)
        checks += guarded("user", "kubernetes cluster", lambda: store_checks(client, manifest))
        checks += guarded("user", "pod template", lambda: _template(client, manifest))
        checks += guarded("user", "datasets claim", lambda: _claims(client, manifest))
        pods_selector = f"{CLUSTER_LABEL}={manifest.cluster}"
        checks += guarded("user", "image", lambda: pull_checks(client.pods(pods_selector)["items"]))
        checks += guarded("cluster", "seccomp profile", lambda: profile_checks(client.pods(pods_selector)["items"]))
        limits = guarded("user", "namespace limits", lambda: limit_checks(client))
        checks += [check for check in limits if check.verdict is not Verdict.SKIP]  # most people may not see them
        checks += requirement_checks(client, gpus=gpus)
        return checks + guarded("capacity", "node pool", lambda: _node_pool(client, manifest.cluster))
    finally:
        client.close()


def open_client(manifest: Manifest | None, namespace: str = "", context: str = "") -> "KubernetesClient | Check":
    """Return a client, or the check that says why there is none."""
    if find_spec("kubernetes") is None:
        return Check("credentials", "kubernetes", Verdict.SKIP, "the package kubernetes is not installed", _EXTRA)
    from everspot_clouds.kubernetes.client import KubernetesClient

    try:
        return KubernetesClient.open(manifest, namespace=namespace, context=context)
    except CloudError as error:
        return Check("credentials", "kubernetes", Verdict.FAIL, str(error), error.fix)


def _node_pool(client: "KubernetesClient", cluster: str) -> list[Check]:
    """Check that Karpenter accepts the NodePool of a cluster that a stack has declared."""
    pool = client.find(f"/apis/karpenter.sh/v1/nodepools/{cluster}")
    if pool is None:
        detail = f"there is no NodePool {cluster}: nodes come from those that the pods' requests fit"
        return [Check("capacity", "node pool", Verdict.WARN, detail, "pulumi up declares one")]
    ready = next((c for c in pool.get("status", {}).get("conditions", []) if c["type"] == "Ready"), None)
    if ready is None or ready["status"] == "True":
        return [Check("capacity", "node pool", Verdict.OK, f"the NodePool {cluster} is there")]
    detail = f"Karpenter launches nothing of the NodePool {cluster}: {ready.get('message') or ready.get('reason')}"
    fix = f"kubectl describe ec2nodeclass {cluster} says what of its subnets, security groups, AMI or role is missing"
    return [Check("capacity", "node pool", Verdict.FAIL, detail, fix)]


def _rights(client: "KubernetesClient") -> list[Check]:
    """Check what the caller may do of what a scheduler does. Of a person less may be right, so it is a warning."""
    missing = missing_rights(client, RIGHTS)
    if not missing:
        detail = f"the API server answers, and you may do in {client.namespace} what a scheduler does"
        return [Check("credentials", "kubernetes", Verdict.OK, detail)]
    detail = f"in the namespace {client.namespace} you may not {', '.join(missing)}"
    return [
        Check("credentials", "kubernetes", Verdict.WARN, detail, "a scheduler needs these in its Role and ClusterRole")
    ]


def _claims(client: "KubernetesClient", manifest: Manifest) -> list[Check]:
    """Check the claims that the agents' pods mount. Another check names a missing PodTemplate."""
    template = _find_template(client, manifest) or {}
    volumes = template.get("template", {}).get("spec", {}).get("volumes", [])
    claims = [volume["persistentVolumeClaim"]["claimName"] for volume in volumes if "persistentVolumeClaim" in volume]
    zones = list(manifest.elastic.places) if manifest.elastic is not None else []
    return [check for name in claims for check in claim_checks(client, name, zones)]


def _find_template(client: "KubernetesClient", manifest: Manifest) -> "Document | None":
    """Return the PodTemplate of the agents; None if there is none."""
    if manifest.elastic is None:
        return None
    return client.find(f"/api/v1/namespaces/{client.namespace}/podtemplates/{_template_name(manifest.elastic)}")


def _template_name(elastic: Elastic) -> str:
    return f"{elastic.template}-{elastic.template_version}"


def _template(client: "KubernetesClient", manifest: Manifest) -> list[Check]:
    from everspot_clouds.kubernetes.rules import AGENT_CONTAINER

    if manifest.elastic is None:
        return []
    name, template = _template_name(manifest.elastic), _find_template(client, manifest)
    if template is None:
        detail = f"there is no PodTemplate {name} in the namespace {client.namespace}"
        return [Check("user", "pod template", Verdict.FAIL, detail, "create it, or run pulumi up")]
    containers = template.get("template", {}).get("spec", {}).get("containers", [])
    if all(container.get("name") != AGENT_CONTAINER for container in containers):
        detail = f"the PodTemplate {name} has no container named {AGENT_CONTAINER}"
        return [Check("user", "pod template", Verdict.FAIL, detail, "name the agent's container so")]
    return [Check("user", "pod template", Verdict.OK, f"the PodTemplate {name} has the agent's container")]
