"""Whose cluster a namespace belongs to: by the store in the manifest of the scheduler that a stack declared there.

A kubeconfig's current context may lead to another Kubernetes cluster, with a cluster of the same name.
"""

import json
from typing import TYPE_CHECKING

from everspot_core.cluster.manifest import Manifest

from everspot_clouds.base import Check, CloudError, Trouble, Verdict
from everspot_clouds.kubernetes.rules import MANIFEST_FILE, SCHEDULER

if TYPE_CHECKING:
    from everspot_clouds.kubernetes.client import KubernetesClient


def check_store(client: "KubernetesClient", manifest: Manifest) -> None:
    """Check that the namespace is not of a cluster with another store. It passes where the caller may not read that.

    Raises:
        CloudError: if it is.
        ApiException, HTTPError: if the API server does not say.
    """
    from everspot_clouds.kubernetes.errors import ERRORS, FORBIDDEN, is_status

    try:
        document = client.find(f"/api/v1/namespaces/{client.namespace}/configmaps/{SCHEDULER}")
    except ERRORS as error:
        if is_status(error, FORBIDDEN):
            return
        raise
    url = _control_url((document or {}).get("data", {}).get(MANIFEST_FILE) or "")
    if not url or url.partition("?")[0] == manifest.control_url.partition("?")[0]:
        return
    message = f"the namespace {client.namespace} of {client.server} is of the cluster with the store {url}"
    fix = "choose the Kubernetes cluster of this stack: kubectl config use-context CONTEXT, or KUBECONFIG"
    raise CloudError(message, Trouble.REQUEST, fix)


def store_checks(client: "KubernetesClient", manifest: Manifest) -> list[Check]:
    """Return a check that fails if the namespace is of a cluster with another store; none otherwise."""
    try:
        check_store(client, manifest)
    except CloudError as error:
        return [Check("user", "kubernetes cluster", Verdict.FAIL, str(error), error.fix)]
    return []


def _control_url(text: str) -> str:
    try:
        return str(json.loads(text)["control_url"])
    except (ValueError, KeyError, TypeError):
        return ""
