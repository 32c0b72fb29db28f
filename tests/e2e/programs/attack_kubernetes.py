"""A job's program that tries everything at the API server of Kubernetes, with the token of its pod.

It finds the token where the agent's process does, so it is not stopped by what is in its own environment. It reads and
lists each resource, and creates and deletes each, in its own namespace and in another one. It writes the answers to
ATTACK_OUT: which calls were not forbidden, and how many were tried.
"""

import json
import os
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

READS, WRITES = ("get", "list", "watch"), ("create", "update", "patch", "delete", "deletecollection")


def pod_environment() -> dict[str, str]:
    """Return the environment of the pod's agent, which is an ancestor of this process and has the same user."""
    process = os.getppid()
    while process > 1:
        content = Path(f"/proc/{process}/environ").read_bytes().decode()
        variables = dict(part.split("=", 1) for part in content.split("\0") if "=" in part)
        if "EVERSPOT_SERVICE_ACCOUNT" in variables:
            return variables
        process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    raise LookupError("no ancestor of this process has a service account")


class Api:
    """The API server, for the holder of the pod's token."""

    def __init__(self, environment: dict[str, str]) -> None:
        folder = Path(environment["EVERSPOT_SERVICE_ACCOUNT"])
        self.namespace = (folder / "namespace").read_text()
        self.server = f"https://{environment['KUBERNETES_SERVICE_HOST']}:{environment['KUBERNETES_SERVICE_PORT']}"
        self.token = (folder / "token").read_text()
        context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
        self.opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Return the status and the document of an answer."""
        data = json.dumps(body).encode() if body is not None else None
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": kind}
        request = urllib.request.Request(self.server + path, data, headers, method=method)
        try:
            with self.opener.open(request, timeout=20) as answer:
                text = answer.read()
                return answer.status, json.loads(text) if text.startswith(b"{") else None
        except urllib.error.HTTPError as error:
            with error:
                return error.code, None

    def resources(self) -> list[tuple[str, dict[str, Any]]]:
        """Return all resources with the paths of their groups."""
        _, groups = self.call("GET", "/apis")
        paths = ["/api/v1", *(f"/apis/{g['preferredVersion']['groupVersion']}" for g in groups["groups"])]
        return [(path, each) for path in paths for each in self.call("GET", path)[1]["resources"]]


def calls(path: str, resource: dict[str, Any], namespace: str, own: str) -> list[tuple[str, str, str]]:
    """Return what to try of a resource: verb, method and path. Something that is read or deleted is `own`."""
    base = f"{path}/namespaces/{namespace}" if resource["namespaced"] else path
    name, _, part = resource["name"].partition("/")
    collection, document = f"{base}/{name}", f"{base}/{name}/{own}{f'/{part}' if part else ''}"
    targets = {
        "get": ("GET", document),
        "list": ("GET", collection),
        "watch": ("GET", f"{collection}?watch=1&timeoutSeconds=1"),
        "create": ("POST", document if part else collection),
        "update": ("PUT", document),
        "patch": ("PATCH", document),
        "delete": ("DELETE", document),
        "deletecollection": ("DELETE", collection),
    }
    return [(verb, *targets[verb]) for verb in (*READS, *WRITES) if verb in resource["verbs"]]


def main() -> None:
    """Try everything, and write the answers down."""
    environment = pod_environment()
    api = Api(environment)
    own = {"pods": environment["EVERSPOT_POD"], "nodes": environment["EVERSPOT_NODE"]}
    own["serviceaccounts"] = "everspot-scheduler"
    allowed, forbidden = [], 0
    for path, resource in api.resources():
        for namespace in (api.namespace, "kube-system"):
            target = own.get(resource["name"].partition("/")[0], "x")
            for verb, method, where in calls(path, resource, namespace, target):
                status, _ = api.call(method, where, {} if method in ("POST", "PUT", "PATCH") else None)
                if status == 403:
                    forbidden += 1
                else:
                    allowed.append(f"{verb} {resource['name']}: {status}")
    Path(os.environ["ATTACK_OUT"]).write_text(json.dumps({"allowed": sorted(set(allowed)), "forbidden": forbidden}))


if __name__ == "__main__":
    main()
