"""Stands in for EKS Pod Identity: pods get credentials of the role of their service account.

The agent on each node is one server of the loopback address. It also says which service accounts have a role, as the
webhook of EKS knows. Sources: Amazon EKS User Guide, "Learn how EKS Pod Identity grants pods access to AWS services";
the variables and the token's audience are those of the webhook.
"""

import json
import threading
import urllib.request
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Protocol

from everspot_local.kubernetes.api import Document, KubeApi, KubeApiError

ADD_ON = "eks-pod-identity-agent"
"""Name of the add-on and its DaemonSet."""
AUDIENCE = "pods.eks.amazonaws.com"
PATH = "/v1/credentials"
ASSOCIATED = "/v1/associated/"
"""Begins the path, with namespace and name, that answers whether a service account has a role."""
FILE = "pod-identity"
"""The file of the local Kubernetes with the URL of the server."""
_USER = "system:serviceaccount:"


class PodRoleSource(Protocol):
    """The roles of the pods of service accounts, by namespace and name."""

    def find(self, namespace: str, account: str) -> str | None:
        """Return the ARN of the role; None if there is none."""

    def assume(self, namespace: str, account: str) -> Mapping[str, str] | None:
        """Return credentials of the role; None if there is none, or its trust policy does not allow it."""


def has_role(url: str, namespace: str, account: str) -> bool:
    """Return whether a service account has a role. `url`: of the credentials."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    question = f"{url.removesuffix(PATH)}{ASSOCIATED}{namespace}/{account}"
    with opener.open(question, timeout=10) as answer:
        return bool(json.load(answer)["associated"])


def pod_variables(url: str, token: Path) -> dict[str, str]:
    """Return the variables by which a pod's AWS SDK finds its credentials. `token`: the file of the pod's token."""
    return {"AWS_CONTAINER_CREDENTIALS_FULL_URI": url, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(token)}


class PodIdentity:
    """The server of the credentials. It ends with `close`.

    Args:
        api: An administrator's way to the API server.
        roles: The roles of service accounts.
    """

    def __init__(self, api: KubeApi, roles: PodRoleSource) -> None:
        def answer(path: str, token: str) -> tuple[int, Mapping[str, Any]]:
            if path.startswith(ASSOCIATED):
                namespace, _, name = path.removeprefix(ASSOCIATED).partition("/")
                return 200, {"associated": roles.find(namespace, name) is not None}
            if path != PATH:
                return 404, {"message": path}
            account = read_account(api, token)
            if account is None or roles.find(*account) is None:
                return 403, {"message": "the token is not of a service account with a role"}
            credentials = roles.assume(*account)
            if credentials is None:
                return 403, {"message": f"{roles.find(*account)} does not trust the pods of {'/'.join(account)}"}
            return 200, credentials

        class CredentialsHandler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                try:
                    status, document = answer(self.path, self.headers.get("Authorization", ""))
                except (OSError, KubeApiError) as error:
                    status, document = 500, {"message": str(error)}
                body = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                return

        api.create("/apis/apps/v1/namespaces/kube-system/daemonsets", build_add_on())
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), CredentialsHandler)
        self._thread = threading.Thread(target=self._server.serve_forever, name="pod-identity", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """The URL of the credentials."""
        return f"http://127.0.0.1:{self._server.server_port}{PATH}"

    def close(self) -> None:
        """End the server."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def build_add_on() -> Document:
    """Return the DaemonSet by which people and `everspot doctor` see that the add-on is there. The local Kubernetes has
    no controller of DaemonSets, so it has no pods."""
    labels = {"app.kubernetes.io/name": ADD_ON}
    spec = {"tolerations": [{"operator": "Exists"}], "containers": [{"name": ADD_ON, "image": "none"}]}
    template = {"metadata": {"labels": labels}, "spec": spec}
    return {
        "metadata": {"name": ADD_ON, "namespace": "kube-system"},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }


def read_account(api: KubeApi, token: str) -> tuple[str, str] | None:
    """Return namespace and name of the service account of a pod's token; None if the API server does not know it."""
    review: Document = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": {"token": token, "audiences": [AUDIENCE]},
    }
    status = api.create("/apis/authentication.k8s.io/v1/tokenreviews", review)["status"]
    user = str(status.get("user", {}).get("username", ""))
    if not status.get("authenticated") or not user.startswith(_USER):
        return None
    namespace, _, name = user.removeprefix(_USER).partition(":")
    return namespace, name
