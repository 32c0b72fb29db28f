"""The demonstration on Kubernetes: its stack and pools, and requests to the API server and to AWS for what really
exists. The EKS cluster with Karpenter exists already, so what belongs to it is not counted."""

from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

from everspot_clouds.kubernetes.rules import LAUNCH_LABEL

from everspot_local.demo import aws
from everspot_local.demo.site import Environment, Site
from everspot_local.kubernetes.api import KubeApi
from everspot_local.kubernetes.karpenter import CLUSTER, NODE_ROLE
from everspot_local.kubernetes.machine import read_api
from everspot_local.kubernetes.programs import STANDING

KARPENTERS = {
    "node pool": "/apis/karpenter.sh/v1/nodepools",
    "node class": "/apis/karpenter.k8s.aws/v1/ec2nodeclasses",
    "node claim": "/apis/karpenter.sh/v1/nodeclaims",
}
"""Objects of Karpenter, by kind."""
RIGHTS = {
    "role": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "binding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
}
"""Objects without a namespace that Kubernetes itself has too, by kind."""


def leftovers(env: Environment, cluster: str) -> list[str]:
    """Return every object and resource that the cluster could have left behind, by kind and name; empty when all is
    deleted."""
    api = _api(env)
    names = [f"{kind} {name}" for kind, path in KARPENTERS.items() for name in _names(api, path)]
    names += [f"node {name}" for name in _names(api, "/api/v1/nodes") if name != STANDING]
    names += [f"namespace {name}" for name in _names(api, "/api/v1/namespaces") if cluster in name]
    names += [f"{kind} {name}" for kind, path in RIGHTS.items() for name in _names(api, path) if cluster in name]
    eks = aws.client(env, "eks").list_pod_identity_associations(clusterName=CLUSTER)
    names += [f"association of {each['serviceAccount']}" for each in eks["associations"]]
    queue = aws.client(env, "sqs").get_queue_url(QueueName=CLUSTER)["QueueUrl"]
    existing = {f"profile {NODE_ROLE}", f"queue {queue}", *(f"vpc {vpc}" for vpc in _cluster_vpcs(env))}
    return names + [each for each in aws.leftovers(env, cluster) if each not in existing]


def launched(env: Environment) -> list[str]:
    """Return the pods that the scheduler launched for jobs, and the nodes that Karpenter launched for pods, that have
    not ended."""
    api = _api(env)
    return [*(pod["metadata"]["name"] for pod in _pods(api)), *_names(api, KARPENTERS["node claim"])]


def find_machine(env: Environment, instance_id: str) -> str:
    """Return the machine on which a pod runs."""
    (pod,) = (pod for pod in _pods(_api(env)) if pod["metadata"]["name"] == instance_id)
    return str(pod["spec"]["nodeName"])


def _pods(api: KubeApi) -> list[dict[str, Any]]:
    pods: list[dict[str, Any]] = api.get(f"/api/v1/pods?labelSelector={quote(LAUNCH_LABEL, safe='')}")["items"]
    return pods


def _names(api: KubeApi, path: str) -> list[str]:
    return [each["metadata"]["name"] for each in api.get(path)["items"]]


def _api(env: Environment) -> KubeApi:
    return read_api(Path(env["KUBECONFIG"]))


def _cluster_vpcs(env: Environment) -> list[str]:
    """Return the networks of the EKS cluster."""
    tag = {"Name": "tag:karpenter.sh/discovery", "Values": [CLUSTER]}
    return [subnet["VpcId"] for subnet in aws.client(env, "ec2").describe_subnets(Filters=[tag])["Subnets"]]


SITE = Site(
    cloud="kubernetes",
    account=None,
    cluster="local-kubernetes",
    dry=("c6i.xlarge/*", "m6i.xlarge/*"),
    # This machine's own time: with 5 min of work and 21 min at most to change over, 4 min are left for waiting.
    patient=("--set", "deadline=30m", "--set", "expected_duration=5m"),
    folder="demo-kubernetes",
    asked_through="the API server and boto3",
    launched=launched,
    leftovers=leftovers,
    find_machine=find_machine,
    machine_cloud="aws",
    time_scale=1.0,
    moment=timedelta(seconds=30),
    waited=timedelta(minutes=1),
)
