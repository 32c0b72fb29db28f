"""What a node's machine of the local AWS boots: a kubelet that registers as the bootstrap of EKS's images does.

Which machine it is, it asks of the instance metadata service. The way to the API server is in a kubeconfig, which takes
the place of the user data that such an image reads: of its own, only seccomp profiles are written. The image and the
join by certificates are not emulated.
"""

import argparse
import json
import logging
import os
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from everspot_clouds.aws.metadata import ENDPOINT_VARIABLE
from everspot_clouds.kubernetes.boot_rules import TYPE_LABEL, ZONE_LABEL
from everspot_clouds.price_files import project_catalogue

from everspot_local.kubernetes import pod_identity as pod_identities
from everspot_local.kubernetes.api import KubeApi
from everspot_local.kubernetes.kubelet import PROFILES, Kubelet, KubeNode, run_until_terminated
from everspot_local.kubernetes.seccomp import write_profiles

UNREGISTERED = {"key": "karpenter.sh/unregistered", "effect": "NoExecute"}
"""The taint with which a node of Karpenter registers. Karpenter takes it off when the node has its labels."""
PASSED = ("AWS_ENDPOINT_URL", "AWS_REGION", "AWS_DEFAULT_REGION", "EVERSPOT_DATA")
"""Variables by which pods find the services of the local AWS, and the datasets of this machine."""
NO_METADATA = "http://127.0.0.1:1"
"""Nobody answers there: with a hop limit of 1 pods do not reach the metadata service of their node."""
SHARE_OF_MEMORY = 0.925
"""Of a type's memory, what its machine has. Karpenter expects so much (VM_MEMORY_OVERHEAD_PERCENT: 0.075)."""


@dataclass(frozen=True)
class MachineIdentity:
    """A machine as its metadata service describes it.

    Attributes:
        instance_id: Its id in EC2.
        instance_type: Its type.
        zone: Its availability zone.
        user_data: Its user data; empty without any.
    """

    instance_id: str
    instance_type: str
    zone: str
    user_data: str

    @classmethod
    def read(cls, endpoint: str) -> "MachineIdentity":
        """Ask a metadata service (IMDSv2)."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

        def call(method: str, path: str, headers: dict[str, str]) -> str:
            request = urllib.request.Request(f"{endpoint}/latest/{path}", method=method, headers=headers)  # noqa: S310
            with opener.open(request, timeout=10) as answer:
                return str(answer.read().decode())

        headers = {"X-aws-ec2-metadata-token": call("PUT", "api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"})}
        paths = ("instance-id", "instance-type", "placement/availability-zone")
        name, instance_type, zone = (call("GET", f"meta-data/{path}", headers) for path in paths)
        try:
            user_data = call("GET", "user-data", headers)
        except urllib.error.HTTPError as error:
            if error.code != HTTPStatus.NOT_FOUND:
                raise
            user_data = ""
        return cls(name, instance_type, zone, user_data)


def main(arguments: list[str] | None = None) -> None:
    """Run a node until SIGTERM."""
    parser = argparse.ArgumentParser(prog="machine", description="Boots a node whose pods are processes.")
    parser.add_argument("--kubeconfig", type=Path, required=True, help="of an administrator")
    parser.add_argument("--standing", metavar="NAME", help="the node is no machine of the market, and has this name")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    if options.standing:
        node = describe_standing(options.standing)
    else:
        identity = MachineIdentity.read(os.environ[ENDPOINT_VARIABLE].rstrip("/"))
        write_profiles(identity.user_data, Path.cwd() / PROFILES)
        node = describe_node(identity)
    pod_identity = options.kubeconfig.with_name(pod_identities.FILE).read_text()
    variables = {ENDPOINT_VARIABLE: NO_METADATA, **{name: os.environ[name] for name in PASSED if name in os.environ}}
    run_until_terminated(Kubelet(read_api(options.kubeconfig), node, Path.cwd(), pod_identity, variables))


def read_api(kubeconfig: Path) -> KubeApi:
    """Return the way to the API server that a kubeconfig of the local control plane has."""
    config = json.loads(kubeconfig.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    return KubeApi(cluster["server"], user["token"], Path(cluster["certificate-authority"]))


def describe_standing(name: str) -> KubeNode:
    """Return a node for what a Kubernetes cluster runs beside Karpenter's nodes. It has no type and no zone, so that no
    agent fits it, and costs nothing here."""
    labels = {"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"}
    capacity = {"cpu": "2", "memory": "4Gi", "pods": "29", "ephemeral-storage": "20Gi"}
    return KubeNode(name=name, labels=labels, capacity=capacity, provider_id=f"local:///{name}")


def describe_node(identity: MachineIdentity) -> KubeNode:
    """Return the node of a machine. Karpenter adds the labels of the market and of its NodePool."""
    instance_type = project_catalogue().types[identity.instance_type]
    gpus = {"nvidia.com/gpu": str(instance_type.gpus)} if instance_type.gpus else {}
    return KubeNode(
        name=identity.instance_id,
        labels={
            "kubernetes.io/arch": "arm64" if instance_type.arch == "arm64" else "amd64",
            "kubernetes.io/os": "linux",
            TYPE_LABEL: identity.instance_type,
            ZONE_LABEL: identity.zone,
        },
        capacity={
            "cpu": str(instance_type.vcpus),
            "memory": f"{int(instance_type.memory_gib * 1024 * SHARE_OF_MEMORY)}Mi",
            "pods": "29",
            "ephemeral-storage": "20Gi",
            **gpus,
        },
        provider_id=f"aws:///{identity.zone}/{identity.instance_id}",
        taints=(UNREGISTERED,),
    )


if __name__ == "__main__":
    main()
