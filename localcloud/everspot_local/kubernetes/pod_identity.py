"""Stands in for EKS Pod Identity: pods get credentials of the role of their service account.

The associations of EKS are an annotation of the service account here, `ROLE_NOTE`. The agent on each node is one server
of the loopback address. Sources: Amazon EKS User Guide, "Learn how EKS Pod Identity grants pods access to AWS
services"; the variables and the token's audience are those of its webhook.
"""

import json
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from everspot_local.kubernetes.api import Document, KubeApi, KubeApiError

ROLE_NOTE = "everspot-local/role-arn"
"""Annotation of a service account with the ARN of its role."""
AUDIENCE = "pods.eks.amazonaws.com"
PATH = "/v1/credentials"
FILE = "pod-identity"
"""The file of the local Kubernetes with the URL of the server."""
_USER = "system:serviceaccount:"


Assume = Callable[[str, str, str], Mapping[str, str] | None]
"""Returns credentials of a role, by its ARN, for the pods of a service account, by its namespace and name; None if the
role's trust policy does not allow it."""


def read_role(api: KubeApi, namespace: str, account: str) -> str | None:
    """Return the ARN of a service account's role; None if it has none."""
    document = api.get(f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}")
    role = document["metadata"].get("annotations", {}).get(ROLE_NOTE)
    return str(role) if role else None


def pod_variables(url: str, token: Path) -> dict[str, str]:
    """Return the variables by which a pod's AWS SDK finds its credentials. `token`: the file of the pod's token."""
    return {"AWS_CONTAINER_CREDENTIALS_FULL_URI": url, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(token)}


class PodIdentity:
    """The server of the credentials. It ends with `close`.

    Args:
        api: An administrator's way to the API server.
        assume: For credentials of roles.
    """

    def __init__(self, api: KubeApi, assume: Assume) -> None:
        def answer(token: str) -> tuple[int, Mapping[str, Any]]:
            account = read_account(api, token)
            role = read_role(api, *account) if account else None
            if account is None or role is None:
                return 403, {"message": "the token is not of a service account with a role"}
            credentials = assume(role, *account)
            if credentials is None:
                return 403, {"message": f"{role} does not trust the pods of {'/'.join(account)}"}
            return 200, credentials

        class CredentialsHandler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                try:
                    status, document = answer(self.headers.get("Authorization", ""))
                except (OSError, KubeApiError) as error:
                    status, document = 500, {"message": str(error)}
                body = json.dumps(document).encode()
                self.send_response(status if self.path == PATH else 404)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                return

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
