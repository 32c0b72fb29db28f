"""The service account of a pod: the way to the API server that the kubelet gives to a container.

It uses only the standard library, because an agent boots with it. Source: Kubernetes, "Accessing the Kubernetes API
from a Pod".
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

FOLDER_VARIABLE = "EVERSPOT_SERVICE_ACCOUNT"
"""Names the folder of the token, where a pod has no mount of its own, as under the local cloud."""
FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"


@dataclass(frozen=True)
class ServiceAccount:
    """The files of a pod's service account, and the address of its API server.

    Attributes:
        server: The URL of the API server.
        folder: The folder of the files.
    """

    server: str
    folder: Path

    @property
    def token(self) -> Path:
        """The bearer token. The kubelet replaces it before it ends, so it is read anew for each use."""
        return self.folder / "token"

    @property
    def certificate(self) -> Path:
        """The certificate by which the API server is verified."""
        return self.folder / "ca.crt"

    def namespace(self) -> str:
        """Return the namespace of the pod."""
        return (self.folder / "namespace").read_text().strip()


def find_account(getenv: Callable[[str], str | None]) -> ServiceAccount | None:
    """Return the service account of the pod in which this process runs; None outside of a pod, or without a mount."""
    host, port = getenv("KUBERNETES_SERVICE_HOST"), getenv("KUBERNETES_SERVICE_PORT")
    folder = Path(getenv(FOLDER_VARIABLE) or FOLDER)
    if not host or not port or not (folder / "token").exists():
        return None
    return ServiceAccount(f"https://{f'[{host}]' if ':' in host else host}:{port}", folder)
