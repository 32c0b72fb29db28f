"""The local Kubernetes: a control plane and Karpenter beside a local AWS, whose machines become its nodes.

It stands for an EKS cluster that has Karpenter and one node for other things, such as Everspot's scheduler. The control
plane and Karpenter are the real programs; a node's kubelet is not (`everspot_local.kubernetes.kubelet`), and there are
no add-ons and no admission of EKS.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from everspot_local.kubernetes.api import KubeApi
from everspot_local.kubernetes.children import Child
from everspot_local.kubernetes.control_plane import LOOPBACK, ControlPlane
from everspot_local.kubernetes.karpenter import Karpenter, create_account_parts
from everspot_local.kubernetes.machine import PASSED
from everspot_local.kubernetes.pod_identity import FILE, PodIdentity, PodRoleSource
from everspot_local.kubernetes.programs import DEFINITIONS, KARPENTER, PROGRAM, STANDING, standing_command


class LocalKubernetes:
    """A Kubernetes cluster with Karpenter, which ends with its `with` block.

    Attributes:
        plane: Its control plane.
        account: What Karpenter uses of the account.
        pod_identity: The server of pods' credentials; None before its start.

    Args:
        programs: The folder of the programs that set-up builds.
        folder: For data, keys and logs.
        environment: Of the owner of the local AWS's account.
        zones: The zones of its nodes.
        roles: Of the pods' service accounts.
    """

    def __init__(
        self, programs: Path, folder: Path, environment: Mapping[str, str], zones: list[str], roles: PodRoleSource
    ) -> None:
        self._programs, self._folder, self._environment = programs, folder, environment
        self._roles = roles
        self.plane = ControlPlane(programs / PROGRAM, folder)
        self.account = create_account_parts(environment, zones)
        self._karpenter: Karpenter | None = None
        self._node: Child | None = None
        self.pod_identity: PodIdentity | None = None

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig of an administrator."""
        return self.plane.kubeconfig

    def admin(self) -> KubeApi:
        """Return an administrator's way to the API server."""
        return self.plane.admin()

    def __enter__(self) -> Self:
        """Start all of it, and wait until Karpenter works.

        Raises:
            NotReady: if a part ends, or is not ready in time.
        """
        self.plane.__enter__()
        try:
            for file in sorted((self._programs / DEFINITIONS).glob("*.yaml")):
                document: dict[str, Any] = yaml.safe_load(file.read_text())
                self.admin().create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", document)
            self.pod_identity = PodIdentity(self.admin(), self._roles)
            (self._folder / FILE).write_text(self.pod_identity.url)
            server = f"https://{LOOPBACK}:{self.plane.port}"
            log = self._folder / "karpenter.log"
            self._karpenter = Karpenter(
                self._programs / KARPENTER, self.kubeconfig, server, self.account.queue, self._environment, log
            )
            self._node = self._start_node()
            self._karpenter.await_ready()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End all of it."""
        self.close()

    def _start_node(self) -> Child:
        """Start the standing node. Its pods have no credentials of this process, as those of a machine have none."""
        passed = {name: value for name, value in self._environment.items() if name in PASSED}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        environment = {**passed, "PATH": path, "HOME": str(self._folder)}
        folder = self._folder / STANDING
        folder.mkdir(exist_ok=True)
        return Child(standing_command(self._folder), self._folder / "node.log", environment, folder)

    def close(self) -> None:
        """End the standing node and Karpenter, then the control plane."""
        if self._node is not None:
            self._node.terminate()
            self._node.wait()
        if self.pod_identity is not None:
            self.pod_identity.close()
        if self._karpenter is not None:
            self._karpenter.close()
        self.plane.__exit__(None, None, None)
