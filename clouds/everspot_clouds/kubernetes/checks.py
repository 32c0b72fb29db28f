"""Checks of `everspot doctor` that ask the API server: the way to it, the rights, and the PodTemplate."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING

from everspot_core.capacity.catalogue import Catalogue
from everspot_core.clock import Clock
from everspot_core.cluster.manifest import Manifest

from everspot_clouds.base import Check, CloudError, Trouble, Verdict

if TYPE_CHECKING:
    from everspot_clouds.kubernetes.client import KubernetesClient

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
    """Check the way to the API server first, and the rest only if there is one. `manifest` None: it cannot be read."""
    if find_spec("kubernetes") is None:
        return [Check("credentials", "kubernetes", Verdict.SKIP, "the package kubernetes is not installed", _EXTRA)]
    from everspot_clouds.kubernetes.client import KubernetesClient

    try:
        client = KubernetesClient.open(manifest)
    except CloudError as error:
        return [Check("credentials", "kubernetes", Verdict.FAIL, str(error), error.fix)]
    try:
        checks = _guarded("credentials", "kubernetes", lambda: _rights(client))
        if checks[0].verdict is not Verdict.FAIL and manifest is not None:
            checks += _guarded("user", "pod template", lambda: _template(client, manifest))
        return checks
    finally:
        client.close()


def _guarded(group: str, name: str, make_checks: Callable[[], list[Check]]) -> list[Check]:
    """Return checks; a check of the API server's refusal if they cannot be made."""
    from everspot_clouds.kubernetes import errors

    try:
        return make_checks()
    except errors.ERRORS as error:
        kind = errors.trouble(error) or Trouble.TRANSIENT
        fix = "is the kubeconfig's user known to this cluster?" if kind is Trouble.CREDENTIALS else "try again"
        return [Check(group, name, Verdict.FAIL, f"the API server: {error}", fix)]


def _rights(client: "KubernetesClient") -> list[Check]:
    """Check what the caller may do of what a scheduler does. Of a person less may be right, so it is a warning."""
    missing = [
        f"{verb} {resource}"
        for resource, group, verbs in RIGHTS
        for verb in verbs
        if not client.may(verb, resource, group)
    ]
    if not missing:
        detail = f"the API server answers, and you may do in {client.namespace} what a scheduler does"
        return [Check("credentials", "kubernetes", Verdict.OK, detail)]
    detail = f"in the namespace {client.namespace} you may not {', '.join(missing)}"
    return [
        Check("credentials", "kubernetes", Verdict.WARN, detail, "a scheduler needs these in its Role and ClusterRole")
    ]


def _template(client: "KubernetesClient", manifest: Manifest) -> list[Check]:
    from everspot_clouds.kubernetes.errors import NOT_FOUND, is_status
    from everspot_clouds.kubernetes.rules import AGENT_CONTAINER

    if manifest.elastic is None:
        return []
    name = f"{manifest.elastic.template}-{manifest.elastic.template_version}"
    try:
        template = client.pod_template(name)
    except Exception as error:
        if not is_status(error, NOT_FOUND):
            raise
        detail = f"there is no PodTemplate {name} in the namespace {client.namespace}"
        return [Check("user", "pod template", Verdict.FAIL, detail, "create it, or run pulumi up")]
    containers = template.get("template", {}).get("spec", {}).get("containers", [])
    if all(container.get("name") != AGENT_CONTAINER for container in containers):
        detail = f"the PodTemplate {name} has no container named {AGENT_CONTAINER}"
        return [Check("user", "pod template", Verdict.FAIL, detail, "name the agent's container so")]
    return [Check("user", "pod template", Verdict.OK, f"the PodTemplate {name} has the agent's container")]
