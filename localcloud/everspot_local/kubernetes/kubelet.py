"""Stands in for a kubelet: it runs the command of each pod that is bound to its node as a process tree.

It registers the node, renews the node's lease, reports what pods do, and ends a pod with SIGTERM, the pod's grace
period and SIGKILL. There are no containers, images and networks: a pod that needs what
`everspot_local.kubernetes.emulated_pods` does not list fails with the reason `NotEmulated`. A claim's volume is mounted
at its path; any other volume is a folder of the pod. An argument that is a path below such a mount becomes the path in
the volume's folder. Variables name the folders where other mounts would be: EVERSPOT_SERVICE_ACCOUNT that of the
service account's token, and `MOUNTS` those of volumes. A pod that names a seccomp profile of the node has its filter;
all run as this process's user, with its capabilities. While the API server does not answer, pods run on, and the ends
of pods are reported when it answers again.
"""

import argparse
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from everspot_local.kubernetes.api import STRATEGIC, Document, KubeApi, KubeApiError
from everspot_local.kubernetes.claim_mounts import build_command, find_claim_mounts, is_claim
from everspot_local.kubernetes.emulated_pods import NotEmulated, check_emulated, is_token, read_field_path
from everspot_local.kubernetes.pod_identity import AUDIENCE, has_role, pod_variables
from everspot_local.kubernetes.seccomp import MissingProfile, filter_command

BEAT = timedelta(seconds=5)
WATCH = timedelta(seconds=30)
PAUSE = timedelta(seconds=1)
"""Real time between two attempts while the API server does not answer."""
LEASE = timedelta(seconds=40)
"""The duration that a kubelet gives its node's lease (KubeletConfiguration, nodeLeaseDurationSeconds)."""
RESTART_AFTER = timedelta(seconds=10)
"""Between the end of a container and its next start, where its pod restarts it. A kubelet doubles it each time
(Kubernetes, "Pod Lifecycle", Container restarts); here it stays the same."""
TOKEN_LIFETIME = timedelta(hours=1)
VERSION = "v1.37.2"
ACCOUNT_VARIABLE = "EVERSPOT_SERVICE_ACCOUNT"

PROFILES = "seccomp"
"""The folder of the node's seccomp profiles, in the folder of its pods."""
MOUNTS = {"/var/lib/everspot": "EVERSPOT_HOME"}
"""Variables of Everspot's image, by the path that they name there. Where a volume is mounted at that path, the variable
names the volume's folder."""
_log = logging.getLogger("kubelet")


@dataclass(frozen=True)
class KubeNode:
    """A node as it registers.

    Attributes:
        name: The node's name.
        labels: Its labels, the well-known ones of its type, zone and market among them.
        capacity: Its resources, such as `cpu`.
        provider_id: The cloud's name of its machine, as in `aws:///us-east-1a/i-0123`.
        taints: With which it registers.
    """

    name: str
    labels: dict[str, str]
    capacity: dict[str, str]
    provider_id: str
    taints: tuple[Document, ...] = ()


class Kubelet:
    """Runs the pods of one node.

    Args:
        api: An administrator's way to the API server.
        node: The node.
        folder: For logs and the pods' own folders.
        pod_identity: The URL at which pods get the credentials of their roles; empty for none.
        variables: Of all pods.
    """

    def __init__(
        self,
        api: KubeApi,
        node: KubeNode,
        folder: Path,
        pod_identity: str = "",
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._api, self._node, self._folder = api, node, folder
        self._pod_identity, self._variables = pod_identity, variables
        self._processes: dict[str, subprocess.Popen[bytes] | None] = {}  # by uid; None once its end is reported
        self._stopping: set[str] = set()
        self._restarts: dict[str, int] = {}  # by uid
        self._closed = threading.Event()

    def register(self) -> None:
        """Create the node and its lease, and report the node as ready.

        The node has its status from its creation, as a kubelet's has (Kubernetes, `kubelet_node_status.go`,
        `initialNode`). Karpenter reads the memory of a node once, when it registers, and takes what it reads for that
        of all machines of the type: none, for a node whose status comes later.
        """
        name = self._node.name
        self._ignoring(
            (409,),
            lambda: self._api.create(
                "/api/v1/nodes",
                {
                    "apiVersion": "v1",
                    "kind": "Node",
                    "metadata": {"name": name, "labels": {**self._node.labels, "kubernetes.io/hostname": name}},
                    "spec": {"providerID": self._node.provider_id, "taints": list(self._node.taints)},
                    "status": self._status(),
                },
            ),
        )
        self._ignoring(
            (409,),
            lambda: self._api.create(
                "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases",
                {
                    "apiVersion": "coordination.k8s.io/v1",
                    "kind": "Lease",
                    "metadata": {"name": name},
                    "spec": {
                        "holderIdentity": name,
                        "leaseDurationSeconds": int(LEASE.total_seconds()),
                        "renewTime": _precise_now(),
                    },
                },
            ),
        )
        self._beat()

    def run(self) -> None:
        """Run pods until `close`."""
        threading.Thread(target=self._keep_beating, daemon=True).start()
        path = f"/api/v1/pods?fieldSelector=spec.nodeName%3D{self._node.name}"
        while not self._closed.is_set():
            try:
                listed = self._api.get(path)
                for pod in listed["items"]:
                    self._handle(pod)
                for change in self._api.watch(path, listed["metadata"]["resourceVersion"], WATCH):
                    if change["type"] in ("ADDED", "MODIFIED"):
                        self._handle(change["object"])
            except (OSError, ValueError, KubeApiError) as error:
                _log.warning("the API server: %s", error)
                self._closed.wait(PAUSE.total_seconds())

    def close(self) -> None:
        """Kill what runs, as a machine that is switched off does."""
        self._closed.set()
        for process in list(self._processes.values()):
            if process is not None:
                _kill(process)

    def _handle(self, pod: Document) -> None:
        meta, uid = pod["metadata"], pod["metadata"]["uid"]
        ended = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
        if "deletionTimestamp" in meta and uid not in self._stopping:
            self._stopping.add(uid)
            threading.Thread(target=self._stop, args=(pod,), daemon=True).start()
        elif "deletionTimestamp" not in meta and uid not in self._processes and not ended:
            self._start(pod)

    def _start(self, pod: Document) -> None:
        meta, began = pod["metadata"], _now()
        folder = self._folder / f"{meta['namespace']}_{meta['name']}"
        folder.mkdir(parents=True, exist_ok=True)
        try:
            check_emulated(pod)
            environment = self._environment(pod, folder)
            mounts = find_claim_mounts(self._api, pod)
            container = pod["spec"]["containers"][0]
            words = [_localize(each, pod, folder) for each in (*container["command"], *container.get("args", []))]
            command = build_command(mounts, filter_command(pod, self._folder / PROFILES, words))
        except NotEmulated as error:
            self._fail(pod, "NotEmulated", error, began)
            return
        except MissingProfile as error:  # a real kubelet tries again and again, and here no file is added later
            self._processes[meta["uid"]] = None
            waiting = {"reason": "CreateContainerError", "message": str(error)}
            self._report(pod, "Pending", {"waiting": waiting}, began)
            return
        self._run(pod, command, folder, environment, began)

    def _run(
        self, pod: Document, command: Sequence[str], folder: Path, environment: Mapping[str, str], began: str
    ) -> None:
        """Start the process of a pod's container, and report that it runs."""
        try:
            with (folder / "log").open("ab") as log:
                process = subprocess.Popen(  # noqa: S603
                    command,
                    cwd=folder,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
        except OSError as error:
            self._fail(pod, "StartError", error, began)
            return
        self._processes[pod["metadata"]["uid"]] = process
        self._report(pod, "Running", {"running": {"startedAt": began}}, began)
        restart = partial(self._run, pod, command, folder, environment)
        threading.Thread(target=self._await, args=(pod, process, began, restart), daemon=True).start()

    def _fail(self, pod: Document, reason: str, error: Exception, began: str) -> None:
        """Report a pod that is not started."""
        _log.warning("%s is not started: %s", pod["metadata"]["name"], error)
        self._processes[pod["metadata"]["uid"]] = None
        terminated = {"exitCode": 128, "reason": reason, "message": str(error), "finishedAt": _now()}
        self._report(pod, "Failed", {"terminated": terminated}, began)

    def _await(
        self, pod: Document, process: subprocess.Popen[bytes], began: str, restart: Callable[[str], None]
    ) -> None:
        """Wait for the end of a pod's container, and report it or start the container again. `restart`: takes the
        time of the next start."""
        uid, status = pod["metadata"]["uid"], process.wait()
        _kill(process)  # what the first process left behind ends with its container
        code = 128 - status if status < 0 else status
        reason = "Completed" if code == 0 else "Error"
        terminated = {"exitCode": code, "reason": reason, "startedAt": began, "finishedAt": _now()}
        again = pod["spec"]["restartPolicy"] == "Always"
        if again and uid not in self._stopping and not self._closed.is_set():
            self._report(pod, "Pending", {"waiting": {"reason": "CrashLoopBackOff"}}, began)
            self._restarts[uid] = self._restarts.get(uid, 0) + 1
            self._closed.wait(RESTART_AFTER.total_seconds())
            if uid not in self._stopping and not self._closed.is_set():
                restart(_now())
                return
        if not self._closed.is_set():
            self._report(pod, "Succeeded" if code == 0 else "Failed", {"terminated": terminated}, began)
        self._processes[uid] = None

    def _stop(self, pod: Document) -> None:
        meta = pod["metadata"]
        process = self._processes.get(meta["uid"])
        if process is not None:
            os.kill(process.pid, signal.SIGTERM)  # the first process only, as a container's runtime does
            try:
                process.wait(meta.get("deletionGracePeriodSeconds", 30))
            except subprocess.TimeoutExpired:
                _kill(process)
            while self._processes[meta["uid"]] is not None and not self._closed.is_set():
                self._closed.wait(0.05)
        if self._closed.is_set():
            return
        options: Document = {"gracePeriodSeconds": 0, "preconditions": {"uid": meta["uid"]}}
        self._insist(lambda: self._api.delete(_pod_path(pod), options))

    def _environment(self, pod: Document, folder: Path) -> dict[str, str]:
        container = pod["spec"]["containers"][0]
        fields = {
            "metadata.name": pod["metadata"]["name"],
            "metadata.namespace": pod["metadata"]["namespace"],
            "metadata.uid": pod["metadata"]["uid"],
            "spec.nodeName": self._node.name,
            "spec.serviceAccountName": pod["spec"].get("serviceAccountName", ""),
        }
        server = urlsplit(self._api.server)
        environment = {
            **self._variables,
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(folder),
            "KUBERNETES_SERVICE_HOST": str(server.hostname),
            "KUBERNETES_SERVICE_PORT": str(server.port),
        }
        volumes = pod["spec"].get("volumes", [])
        for volume in (volume for volume in volumes if not (is_token(volume) or is_claim(volume))):
            name = volume["name"]
            place = _volume_folder(folder, name)
            place.mkdir(parents=True, exist_ok=True)
            if "configMap" in volume:
                self._write_files(pod, volume["configMap"]["name"], place)
            for mount in container.get("volumeMounts", []):
                if mount["name"] == name and mount["mountPath"] in MOUNTS:
                    environment[MOUNTS[mount["mountPath"]]] = str(place)
        if any(is_token(volume) for volume in volumes):
            environment[ACCOUNT_VARIABLE] = str(self._mount_account(pod, folder / "serviceaccount"))
        meta, account = pod["metadata"], pod["spec"]["serviceAccountName"]
        if self._pod_identity and has_role(self._pod_identity, meta["namespace"], account):
            token = folder / "pod-identity-token"
            token.write_text(self._request_token(pod, AUDIENCE))
            environment |= pod_variables(self._pod_identity, token)
        for variable in container.get("env", []):
            path = read_field_path(variable)
            environment[variable["name"]] = fields[path] if path else str(variable.get("value", ""))
        return environment

    def _write_files(self, pod: Document, config_map: str, folder: Path) -> None:
        """Write the files of a ConfigMap into a volume's folder."""
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/configmaps/{config_map}"
        for name, text in self._api.get(path).get("data", {}).items():
            (folder / name).write_text(text)

    def _mount_account(self, pod: Document, folder: Path) -> Path:
        """Write a token of the pod's service account, which is bound to the pod, as a projected volume has it."""
        folder.mkdir(exist_ok=True)
        (folder / "token").write_text(self._request_token(pod))
        (folder / "ca.crt").write_bytes(self._api.certificate.read_bytes())
        (folder / "namespace").write_text(pod["metadata"]["namespace"])
        return folder

    def _request_token(self, pod: Document, audience: str = "") -> str:
        """Return a token of the pod's service account, which is bound to the pod. `audience`: empty for the API
        server."""
        meta, account = pod["metadata"], pod["spec"]["serviceAccountName"]
        spec: Document = {
            "expirationSeconds": int(TOKEN_LIFETIME.total_seconds()),
            "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": meta["name"], "uid": meta["uid"]},
            **({"audiences": [audience]} if audience else {}),
        }
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        answer = self._api.create(f"/api/v1/namespaces/{meta['namespace']}/serviceaccounts/{account}/token", request)
        return str(answer["status"]["token"])

    def _report(self, pod: Document, phase: str, state: Document, began: str) -> None:
        container, running = pod["spec"]["containers"][0], phase == "Running"
        conditions = [
            {"type": kind, "status": str(running), "lastTransitionTime": _now()}
            for kind in ("Initialized", "Ready", "ContainersReady")
        ]
        status = {
            "phase": phase,
            "startTime": began,
            "hostIP": "127.0.0.1",
            "podIP": "127.0.0.1",
            "conditions": conditions,
            "containerStatuses": [
                {
                    "name": container["name"],
                    "image": container.get("image", ""),
                    "imageID": "",
                    "ready": running,
                    "started": running,
                    "restartCount": self._restarts.get(pod["metadata"]["uid"], 0),
                    "state": state,
                }
            ],
        }
        change = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}
        self._insist(lambda: self._api.patch(f"{_pod_path(pod)}/status", change, STRATEGIC))

    def _status(self) -> Document:
        """Return the node's status: its resources, and that it is ready."""
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "message": "processes run",
            "lastHeartbeatTime": _now(),
            "lastTransitionTime": _now(),
        }
        return {
            "capacity": self._node.capacity,
            "allocatable": self._node.capacity,
            "conditions": [ready],
            "nodeInfo": {
                **dict.fromkeys(
                    ("machineID", "systemUUID", "bootID", "osImage", "kernelVersion", "kubeProxyVersion"), ""
                ),
                "kubeletVersion": VERSION,
                "containerRuntimeVersion": "process://1",
                "operatingSystem": "linux",
                "architecture": "amd64",
            },
        }

    def _beat(self) -> None:
        change = {"status": self._status()}
        self._api.patch(f"/api/v1/nodes/{self._node.name}/status", change, STRATEGIC)
        self._api.patch(
            f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{self._node.name}",
            {"spec": {"renewTime": _precise_now()}},
        )

    def _keep_beating(self) -> None:
        while not self._closed.wait(BEAT.total_seconds()):
            try:
                self._beat()
            except (OSError, KubeApiError) as error:
                _log.warning("no heartbeat: %s", error)

    def _insist(self, call: Callable[[], Any]) -> None:
        """Make a call about a pod again until the API server has answered or this kubelet is closed. Nothing is to be
        done about a pod that is gone (404) or is another one (409)."""
        while not self._closed.is_set():
            try:
                self._ignoring((404, 409), call)
                return
            except (OSError, KubeApiError) as error:
                if isinstance(error, KubeApiError) and error.status < 500 and error.status != 429:
                    raise
                _log.warning("the API server: %s", error)
                self._closed.wait(PAUSE.total_seconds())

    def _ignoring(self, statuses: tuple[int, ...], call: Callable[[], Any]) -> None:
        """Make a call whose refusal with one of these statuses means that there is nothing to do."""
        try:
            call()
        except KubeApiError as error:
            if error.status not in statuses:
                raise


def _pod_path(pod: Document) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def _volume_folder(folder: Path, volume: str) -> Path:
    return folder / "volumes" / volume


def _localize(argument: str, pod: Document, folder: Path) -> str:
    """Return an argument, with the folder of a volume in place of the path at which it would be mounted."""
    claims = {volume["name"] for volume in pod["spec"].get("volumes", []) if is_claim(volume)}
    for mount in pod["spec"]["containers"][0].get("volumeMounts", []):
        if mount["name"] in claims:
            continue
        path = mount["mountPath"]
        if argument == path or argument.startswith(f"{path}/"):
            return f"{_volume_folder(folder, mount['name'])}{argument.removeprefix(path)}"
    return argument


def _kill(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _precise_now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def run_until_terminated(kubelet: Kubelet) -> None:
    """Register a node and run its pods until SIGTERM, which ends this process."""

    def end(_number: int, _frame: object) -> None:
        kubelet.close()
        sys.exit(0)

    signal.signal(signal.SIGTERM, end)
    kubelet.register()
    kubelet.run()


def main(arguments: list[str] | None = None) -> None:
    """Run a node until SIGTERM. The token of an administrator comes by standard input."""
    parser = argparse.ArgumentParser(prog="kubelet", description="Runs pods as processes. Its token comes by stdin.")
    parser.add_argument("--server", required=True, help="URL of the API server")
    parser.add_argument("--certificate", type=Path, required=True, help="by which the API server is verified")
    parser.add_argument("--node", required=True, help="the node's name")
    parser.add_argument("--label", action="append", default=[], metavar="NAME=VALUE", help="of the node")
    parser.add_argument("--cpu", default="2")
    parser.add_argument("--memory", default="4Gi")
    parser.add_argument("--folder", type=Path, required=True, help="for the pods' logs")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s", stream=sys.stderr)
    labels = dict(label.split("=", 1) for label in options.label)
    node = KubeNode(
        name=options.node,
        labels={"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux", **labels},
        capacity={"cpu": options.cpu, "memory": options.memory, "pods": "110", "ephemeral-storage": "20Gi"},
        provider_id=f"process:///{options.node}",
    )
    api = KubeApi(options.server, sys.stdin.readline().strip(), options.certificate)
    run_until_terminated(Kubelet(api, node, options.folder))


if __name__ == "__main__":
    main()
