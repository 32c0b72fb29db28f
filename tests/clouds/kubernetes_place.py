"""A namespace on a real control plane, with the objects that the guide names and nodes whose pods are processes."""

import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import psutil
import yaml
from everspot_clouds.kubernetes.client import KubernetesClient
from everspot_local.kubernetes.api import KubeApiError
from everspot_local.kubernetes.control_plane import ControlPlane
from kubernetes.client import ApiClient, Configuration

ROOT = Path(__file__).resolve().parents[2]
RIGHTS = ROOT / "docs/kubernetes/rights.yaml"
PROGRAM = ROOT / ".everspot/toolchain/kubernetes/control-plane"
DEFINITIONS = sorted((PROGRAM.parent / "definitions").glob("*.yaml"))
"""Karpenter's own, which set-up takes from its Go modules."""
MISSING = "there is no control plane of Kubernetes: make setup WITH=kubernetes builds it"
TYPE, ZONE = "c6i.large", "us-east-1a"
OWNER = "test/place"
"""Label of a node, and what an agent asks for: kube-scheduler may bind a pod to a node that was deleted a moment ago,
such as one of the test before."""
T = TypeVar("T")
WITHIN = timedelta(seconds=120)
CLAIMS = {
    "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
    "metadata": {"name": "nodeclaims.karpenter.sh"},
    "spec": {
        "group": "karpenter.sh", "scope": "Cluster",
        "names": {"kind": "NodeClaim", "listKind": "NodeClaimList", "plural": "nodeclaims", "singular": "nodeclaim"},
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": {
            "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}],
    },
}  # fmt: skip


def collection(document: dict[str, Any], namespace: str) -> str:
    """The path of the collection that an object belongs to."""
    group = document["apiVersion"]
    base = f"/apis/{group}" if "/" in group else f"/api/{group}"
    plural = document["kind"].lower() + "s"
    whole = document["kind"] in ("ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition", "NodeClaim")
    return f"{base}/{plural}" if whole else f"{base}/namespaces/{namespace}/{plural}"


def eventually(look: Callable[[], T], within: timedelta = WITHIN) -> T:
    """What a look returns as soon as it is true."""
    until = time.monotonic() + within.total_seconds()
    while True:
        if result := look():
            return result
        assert time.monotonic() < until, f"not within {within}: {result!r}"
        time.sleep(0.1)


class Place:
    """A namespace with the guide's objects, and nodes. `api`: an administrator's."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.plane, self.folder, self.api = plane, folder, plane.admin()
        self.name = f"t-{uuid4().hex[:8]}"
        self.nodes: dict[str, subprocess.Popen[str]] = {}
        self.volumes: list[str] = []
        self.api.create("/api/v1/namespaces", {"metadata": {"name": self.name}})
        eventually(lambda: self.exists(f"/api/v1/namespaces/{self.name}/serviceaccounts/default"))
        for document in yaml.safe_load_all(RIGHTS.read_text().replace("NAMESPACE", self.name)):
            self.apply(document)

    def exists(self, path: str) -> bool:
        try:
            self.api.get(path)
        except KubeApiError as error:
            assert error.status == 404
            return False
        return True

    def apply(self, document: dict[str, Any]) -> None:
        """Create an object; one of the whole cluster that an earlier test left is replaced."""
        path = collection(document, self.name)
        if self.exists(f"{path}/{document['metadata']['name']}"):
            self.api.delete(f"{path}/{document['metadata']['name']}")
        self.api.create(path, document)

    def template(
        self, *command: str, grace: int = 20, container: str = "agent", env: dict[str, str] | None = None
    ) -> None:
        """Replace the PodTemplate by one whose command is a process of this machine."""
        spec = {
            "serviceAccountName": "everspot-agent", "terminationGracePeriodSeconds": grace,
            "nodeSelector": {OWNER: self.name},
            "containers": [{
                "name": container, "image": "none", "command": list(command),
                "env": [{"name": name, "value": value} for name, value in (env or {}).items()],
            }],
        }  # fmt: skip
        template = {"metadata": {"name": "train-1"}, "template": {"spec": spec}}
        self.apply({"apiVersion": "v1", "kind": "PodTemplate", **template})

    def node(
        self, market: str = "spot", instance_type: str = TYPE, zone: str = ZONE, machine: str = "", **own_labels: str
    ) -> str:
        """Start a node as Karpenter would have it, and wait until it is ready. `machine`: EC2's name of it."""
        name = f"n-{uuid4().hex[:8]}"
        labels = {"node.kubernetes.io/instance-type": instance_type, "topology.kubernetes.io/zone": zone,
                  "karpenter.sh/capacity-type": market, OWNER: self.name, **own_labels}  # fmt: skip
        if machine:  # the kubelet takes a node that exists as it is
            metadata = {"name": name, "labels": {**labels, "kubernetes.io/hostname": name}}
            spec = {"providerID": f"aws:///{zone}/{machine}"}
            self.api.create("/api/v1/nodes", {"metadata": metadata, "spec": spec})
        command = [
            sys.executable, "-m", "everspot_local.kubernetes.kubelet", "--server", self.api.server, "--certificate",
            str(self.plane.certificate), "--node", name, "--folder", str(self.folder),
            *(f"--label={key}={value}" for key, value in labels.items()),
        ]  # fmt: skip
        with (self.folder / f"{name}.log").open("w") as log:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=log, text=True)
        assert process.stdin is not None
        process.stdin.write(f"{self.api.token}\n")
        process.stdin.close()
        self.nodes[name] = process
        eventually(lambda: self.is_ready(name))
        return name

    def is_ready(self, node: str) -> bool:
        """Whether pods may be bound to a node: it is ready, and the controllers have taken its first taint."""
        if not self.exists(f"/api/v1/nodes/{node}"):
            return False
        document = self.api.get(f"/api/v1/nodes/{node}")
        conditions = {c["type"]: c["status"] for c in document["status"].get("conditions", [])}
        return conditions.get("Ready") == "True" and not document["spec"].get("taints")

    def lose(self, node: str) -> None:
        """End a node immediately with its processes, as the cloud does, and its Node, as the cloud's controller
        does."""
        process = self.nodes.pop(node)
        process.terminate()
        process.wait(60)
        self.api.delete(f"/api/v1/nodes/{node}")

    def silence(self, node: str) -> None:
        """Kill a node with its processes. Nobody tells the API server, so its Node and its pods stay as they are."""
        process = self.nodes.pop(node)
        kubelet = psutil.Process(process.pid)
        kubelet.suspend()  # it would start its container again
        for child in kubelet.children(recursive=True):
            child.kill()
        process.kill()
        process.wait(60)

    def pods(self) -> dict[str, dict[str, Any]]:
        return {p["metadata"]["name"]: p for p in self.api.get(f"/api/v1/namespaces/{self.name}/pods")["items"]}

    def log(self, pod: str) -> str:
        return (self.folder / f"{self.name}_{pod}" / "log").read_text()

    def create_claim(self, name: str, mode: str = "ReadOnlyMany", *, phase: str = "Bound", **volume: Any) -> None:
        """Create a claim, and wait for its phase. It gets a volume of its own, and loses it again where it is to be
        lost. `volume`: what the volume is, by default an export of NFS."""
        volume_name = f"{name}-{self.name}"
        size: dict[str, Any] = {"storage": "1Gi"}
        if phase != "Pending":
            source = volume or {"nfs": {"server": "192.0.2.1", "path": "/"}}
            reference = {"namespace": self.name, "name": name}
            spec = {"accessModes": [mode], "capacity": size, "claimRef": reference, **source}
            self.api.create("/api/v1/persistentvolumes", {"metadata": {"name": volume_name}, "spec": spec})
            self.volumes.append(volume_name)
        claims = f"/api/v1/namespaces/{self.name}/persistentvolumeclaims"
        request = {
            "accessModes": [mode],
            "storageClassName": "",
            "volumeName": volume_name,
            "resources": {"requests": size},
        }
        self.api.create(claims, {"metadata": {"name": name}, "spec": request})
        first = "Bound" if phase == "Lost" else phase
        eventually(lambda: self.api.get(f"{claims}/{name}")["status"].get("phase") == first)
        if phase == "Lost":
            self.api.delete(f"/api/v1/persistentvolumes/{volume_name}")
            self.api.patch(f"/api/v1/persistentvolumes/{volume_name}", {"metadata": {"finalizers": None}})
            eventually(lambda: self.api.get(f"{claims}/{name}")["status"]["phase"] == phase)

    def write_event(self, pod: str, reason: str, message: str, *, seconds: int = 0, uid: str = "") -> None:
        """Write an event about a pod as Karpenter does. `seconds`: from now on; `uid`: of an earlier pod."""
        now = (datetime.now(UTC) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
        uid = uid or self.pods()[pod]["metadata"]["uid"]
        self.api.create(
            f"/api/v1/namespaces/{self.name}/events",
            {
                "metadata": {"generateName": f"{pod}."}, "reason": reason, "message": message, "type": "Normal",
                "involvedObject": {"apiVersion": "v1", "kind": "Pod", "name": pod, "namespace": self.name, "uid": uid},
                "source": {"component": "karpenter"}, "reportingComponent": "karpenter",
                "firstTimestamp": now, "lastTimestamp": now,
            },
        )  # fmt: skip

    def evict(self, pod: str) -> None:
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": self.name}}
        self.api.create(f"/api/v1/namespaces/{self.name}/pods/{pod}/eviction", body)

    def client(self) -> KubernetesClient:
        """An administrator's client for the namespace."""
        settings = Configuration(host=self.api.server, api_key={"authorization": f"Bearer {self.api.token}"})
        settings.ssl_ca_cert = str(self.plane.certificate)
        return KubernetesClient(ApiClient(settings), self.name)

    def account(self, name: str) -> Path:
        """The files of a service account, as a pod has them."""
        answer = self.api.create(
            f"/api/v1/namespaces/{self.name}/serviceaccounts/{name}/token", {"spec": {"expirationSeconds": 3600}}
        )
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        (folder / "token").write_text(answer["status"]["token"])
        (folder / "ca.crt").write_bytes(self.plane.certificate.read_bytes())
        (folder / "namespace").write_text(self.name)
        return folder

    def close(self) -> None:
        for node in list(self.nodes):
            self.lose(node)
        for name, pod in self.pods().items():
            path = f"/api/v1/namespaces/{self.name}/pods/{name}"
            if pod["metadata"].get("finalizers"):
                self.api.patch(path, {"metadata": {"finalizers": None}})
            try:
                self.api.delete(path, {"gracePeriodSeconds": 0})
            except KubeApiError as error:
                assert error.status == 404
        self.api.delete(f"/api/v1/namespaces/{self.name}")
        for volume in self.volumes:  # with its claim, which goes with the namespace
            if self.exists(f"/api/v1/persistentvolumes/{volume}"):
                self.api.delete(f"/api/v1/persistentvolumes/{volume}")
