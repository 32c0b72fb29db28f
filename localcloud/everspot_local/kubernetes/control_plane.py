"""A Kubernetes control plane on the loopback address: etcd, API server, controllers and scheduler, each a process.

All four are the real ones, in one program that `make setup WITH=kubernetes` builds. Nodes come from elsewhere: from
Karpenter (`everspot_local.kubernetes.cluster`), or from a test's kubelet (`everspot_local.kubernetes.kubelet`).
"""

import json
import secrets
import socket
import time
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from everspot_local.kubernetes.api import KubeApi, KubeApiError
from everspot_local.kubernetes.children import Child

LOOPBACK = "127.0.0.1"
SERVICE_CIDR = "10.96.0.0/24"
READY_WITHIN = timedelta(minutes=3)
"""Real time. It takes 5 s on an idle machine of two cores, and 11 s on a busy one."""
CONTROLLERS = (
    "namespace-controller",
    "serviceaccount-controller",
    "root-ca-certificate-publisher-controller",
    "node-lifecycle-controller",
    "taint-eviction-controller",
    "pod-garbage-collector-controller",
    "disruption-controller",
    "deployment-controller",
    "replicaset-controller",
    "garbage-collector-controller",
    "persistentvolume-binder-controller",
    "persistentvolume-protection-controller",
    "persistentvolumeclaim-protection-controller",
)
"""What the pods of a cluster depend on. The others would only take time."""


class NotReady(Exception):
    """A part ended by itself, or the API server did not become ready."""


@dataclass(frozen=True)
class Ports:
    """Free ports of the loopback address."""

    api: int
    etcd: int
    etcd_peer: int
    manager: int
    scheduler: int

    @classmethod
    def free(cls) -> "Ports":
        """Return ports that were free a moment ago."""
        with ExitStack() as stack:
            sockets = [stack.enter_context(socket.socket()) for _ in range(5)]
            for each in sockets:
                each.bind((LOOPBACK, 0))
            return cls(*(each.getsockname()[1] for each in sockets))


class ControlPlane:
    """A running control plane, which ends with its `with` block.

    Args:
        program: The program with all four parts.
        folder: For data, keys and logs.
    """

    def __init__(self, program: Path, folder: Path) -> None:
        self._program, self._folder = program, folder
        self._processes: dict[str, Child] = {}
        self._ports = Ports.free()
        self._admin_token = secrets.token_hex(16)

    @property
    def port(self) -> int:
        """The port of the API server."""
        return self._ports.api

    @property
    def certificate(self) -> Path:
        """The file by which the API server is verified."""
        return self._folder / "pki" / "apiserver.crt"

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig of an administrator."""
        return self._folder / "kubeconfig"

    def admin(self) -> KubeApi:
        """Return an administrator's way to the API server."""
        return KubeApi(f"https://{LOOPBACK}:{self.port}", self._admin_token, self.certificate)

    def __enter__(self) -> Self:
        """Start all parts, and wait until the API server is ready.

        Raises:
            NotReady: if a part ends, or the API server is not ready in time.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        self._write_files()
        try:
            self._start("etcd", *self._etcd_flags())
            self.start_api()
            self._start("manager", *self._manager_flags())
            self._start("scheduler", *self._component_flags(self._ports.scheduler))
            self._await_account()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End all parts."""
        self._end()

    def _end(self) -> None:
        for process in reversed(self._processes.values()):
            process.terminate()
        for process in reversed(self._processes.values()):
            process.wait()

    def stop_api(self) -> None:
        """End the API server. Its state is in etcd, which runs on; the controllers wait for it."""
        process = self._processes.pop("apiserver")
        process.terminate()
        process.wait()

    def start_api(self) -> None:
        """Start the API server, and wait until it is ready.

        Raises:
            NotReady: if a part ends, or the API server is not ready in time.
        """
        self._start("apiserver", *self._api_flags())
        self._await_ready()

    def _start(self, part: str, *flags: str) -> None:
        self._processes[part] = Child([str(self._program), part, *flags], self._folder / f"{part}.log")

    def _write_files(self) -> None:
        (self._folder / "tokens.csv").write_text(f'{self._admin_token},admin,1,"system:masters"\n')
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self._account_key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.TraditionalOpenSSL,
                serialization.NoEncryption(),
            )
        )
        cluster = {"server": f"https://{LOOPBACK}:{self.port}", "certificate-authority": str(self.certificate)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "local",
            "clusters": [{"name": "local", "cluster": cluster}],
            "users": [{"name": "admin", "user": {"token": self._admin_token}}],
            "contexts": [{"name": "local", "context": {"cluster": "local", "user": "admin"}}],
        }
        self.kubeconfig.write_text(json.dumps(config))  # JSON is YAML, too

    @property
    def _account_key(self) -> Path:
        return self._folder / "service-accounts.key"

    def _etcd_flags(self) -> list[str]:
        client, peer = (f"http://{LOOPBACK}:{port}" for port in (self._ports.etcd, self._ports.etcd_peer))
        return [
            f"--data-dir={self._folder}/etcd",
            "--unsafe-no-fsync",  # the data is of no use after the end
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--log-level=warn",
        ]

    def _api_flags(self) -> list[str]:
        return [
            f"--etcd-servers=http://{LOOPBACK}:{self._ports.etcd}",
            f"--bind-address={LOOPBACK}",
            f"--advertise-address={LOOPBACK}",
            f"--secure-port={self.port}",
            f"--cert-dir={self._folder}/pki",
            f"--token-auth-file={self._folder}/tokens.csv",
            "--authorization-mode=RBAC",
            "--endpoint-reconciler-type=none",  # a loopback address is no endpoint
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self._account_key}",
            f"--service-account-signing-key-file={self._account_key}",
            f"--service-cluster-ip-range={SERVICE_CIDR}",
            "--profiling=false",
        ]

    def _component_flags(self, port: int) -> list[str]:
        return [
            f"--kubeconfig={self.kubeconfig}",
            f"--bind-address={LOOPBACK}",
            f"--secure-port={port}",
            f"--cert-dir={self._folder}/pki-{port}",
            "--leader-elect=false",
        ]

    def _manager_flags(self) -> list[str]:
        return [
            *self._component_flags(self._ports.manager),
            f"--controllers={','.join(CONTROLLERS)}",
            f"--service-account-private-key-file={self._account_key}",
            f"--root-ca-file={self.certificate}",
            "--allocate-node-cidrs=false",
        ]

    def _await_ready(self) -> None:
        self._await("/readyz")

    def _await_account(self) -> None:
        """Wait for the first service account, without which no pod is accepted: the controllers make it."""
        self._await("/api/v1/namespaces/default/serviceaccounts/default")

    def _await(self, path: str) -> None:
        until = time.monotonic() + READY_WITHIN.total_seconds()
        while True:
            ended = [part for part, process in self._processes.items() if process.has_ended]
            if ended:
                raise NotReady(f"{', '.join(ended)} ended by itself: see the logs in {self._folder}")
            try:
                self._reach(path)
                return
            except (OSError, KubeApiError) as error:  # the certificate may not have been written either
                if time.monotonic() > until:
                    raise NotReady(f"no answer of {path} within {READY_WITHIN}: {error}") from error
            time.sleep(0.1)

    def _reach(self, path: str) -> None:
        try:
            self.admin().get(path)
        except json.JSONDecodeError:  # `/readyz` answers with a word
            return
