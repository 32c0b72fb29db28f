"""The declared objects of a cluster before a real API server with Karpenter's own definitions, and what the pod of a
job may do there."""

import copy
import json
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from everspot.kubernetes import documents
from everspot_clouds.kubernetes.pods import build_pod
from everspot_core.capacity.catalogue import builtin
from everspot_core.capacity.market import Market
from everspot_local.kubernetes.api import KubeApi, KubeApiError
from everspot_local.kubernetes.control_plane import ControlPlane
from kubernetes_place import DEFINITIONS, MISSING, PROGRAM, TYPE, ZONE, Place, eventually
from test_clouds_kubernetes_pods import intent

pytestmark = pytest.mark.skipif(not PROGRAM.exists() or not DEFINITIONS, reason=MISSING)
IMAGE = "registry.example/everspot@sha256:" + "0" * 64
NODES = {
    "role": "KarpenterNodeRole", "ami_alias": "al2023@v20260115", "subnet_tags": {"karpenter.sh/discovery": "c"},
    "security_group_tags": {"karpenter.sh/discovery": "c"}, "volume_gib": 100,
}  # fmt: skip
PLURALS = {"NetworkPolicy": "networkpolicies", "EC2NodeClass": "ec2nodeclasses"}
WITHOUT_NAMESPACE = ("Namespace", "ClusterRole", "ClusterRoleBinding", "NodePool", "EC2NodeClass")


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane with Karpenter's definitions, and no Karpenter."""
    with ControlPlane(PROGRAM, tmp_path_factory.mktemp("plane")) as plane:
        api, path = plane.admin(), "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        for file in DEFINITIONS:
            definition = yaml.safe_load(file.read_text())
            api.create(path, definition)
            name = definition["metadata"]["name"]
            eventually(lambda name=name: established(api.get(f"{path}/{name}")))
        yield plane


def established(definition: dict[str, Any]) -> bool:
    conditions = definition.get("status", {}).get("conditions") or []
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)


def declared(namespace: str, *, job_images: bool = False) -> list[dict[str, Any]]:
    """All objects of a cluster, the namespace first."""
    place = documents.ObjectPlace("everspot-test", namespace, "us-east-1")
    smallest = builtin().types[TYPE]
    pod = documents.build_pod(place, IMAGE, "{}", smallest, job_images=job_images)
    markets = [Market.SPOT, Market.ON_DEMAND]
    return [
        documents.build_namespace(place),
        documents.build_node_class(place, NODES, {"Team": "ml"}, job_images=job_images),
        documents.build_node_pool(place, [TYPE], [ZONE], markets, smallest.arch, 4, job_images=job_images),
        *documents.build_accounts(place),
        *documents.build_rights(place),
        documents.build_network_policy(place),
        documents.build_metrics_policy(place, ["monitoring"], 9494),
        documents.build_pod_template(place, "everspot-test-agent-1", pod),
        documents.build_config_map(place, "{}"),
        documents.build_deployment(place, IMAGE, "1", 9494),
    ]


def create(api: KubeApi, document: dict[str, Any], *, dry: bool = False) -> dict[str, Any]:
    """Create an object; unknown fields are refused."""
    group, kind = document["apiVersion"], document["kind"]
    plural = PLURALS.get(kind, f"{kind.lower()}s")
    namespace = "" if kind in WITHOUT_NAMESPACE else f"/namespaces/{document['metadata']['namespace']}"
    base = f"/apis/{group}" if "/" in group else f"/api/{group}"
    dry_run = "&dryRun=All" if dry else ""
    return api.create(f"{base}{namespace}/{plural}?fieldValidation=Strict{dry_run}", document)


def launched_pods(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The pods that scheduler and Deployment make of the objects."""
    by_kind = {each["kind"]: each for each in objects}
    agent = build_pod(by_kind["PodTemplate"], "agent", "everspot-test", intent((TYPE, ZONE)), {})
    scheduler = {"apiVersion": "v1", "kind": "Pod", **by_kind["Deployment"]["spec"]["template"]}
    scheduler["metadata"] = {**scheduler["metadata"], "name": "scheduler"}
    namespace = by_kind["Namespace"]["metadata"]["name"]
    for pod in (agent, scheduler):
        pod["metadata"]["namespace"] = namespace
    return [agent, scheduler]


@pytest.mark.parametrize("job_images", [False, True])
def test_an_api_server_takes_every_object_and_its_pods_are_confined(plane: ControlPlane, job_images: bool) -> None:
    name = f"everspot-objects-{job_images}".lower()
    api, objects = plane.admin(), declared(name, job_images=job_images)
    for document in objects:
        if document["kind"] in WITHOUT_NAMESPACE[1:]:
            document["metadata"]["name"] += f"-{job_images}".lower()
        create(api, document)
    path = f"/api/v1/namespaces/{name}/serviceaccounts"
    eventually(lambda: len(api.get(path)["items"]) == 3)  # with the usual one
    # The namespace demands the standard `restricted` of every pod.
    for pod in launched_pods(objects):
        assert create(api, pod, dry=True)["metadata"]["name"] == pod["metadata"]["name"]
        pod["spec"]["hostNetwork"] = True
        with pytest.raises(KubeApiError, match="violates PodSecurity") as refused:
            create(api, pod, dry=True)
        assert refused.value.status == 403


@pytest.mark.parametrize("level", ["restricted", "baseline"])
def test_other_ways_to_a_container_in_a_pod_would_need_a_privileged_namespace(plane: ControlPlane, level: str) -> None:
    """Given a pod of a user namespace, when it gets what a container of a job needs by a capability, or without a
    filter of system calls, then both standards refuse it: a profile of the node is the only way within them."""
    api, objects = plane.admin(), declared(f"everspot-{level}", job_images=True)
    namespace = objects[0]
    namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] = level
    create(api, namespace)
    path = f"/api/v1/namespaces/everspot-{level}/serviceaccounts"
    for account in objects:
        if account["kind"] == "ServiceAccount":
            create(api, account)
    eventually(lambda: len(api.get(path)["items"]) == 3)
    pod, _ = launched_pods(objects)
    pod["spec"]["hostUsers"] = False
    assert create(api, pod, dry=True)["spec"]["hostUsers"] is False
    capable, unfiltered = copy.deepcopy(pod), copy.deepcopy(pod)
    capable["spec"]["containers"][0]["securityContext"]["capabilities"]["add"] = ["SYS_ADMIN", "SYS_CHROOT"]
    unfiltered["spec"]["securityContext"]["seccompProfile"] = {"type": "Unconfined"}
    for other in (capable, unfiltered):
        with pytest.raises(KubeApiError, match=f'violates PodSecurity \\\\?"{level}'):
            create(api, other, dry=True)


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("EC2NodeClass", "spec.metadataOptions.httpTokens", "sometimes"),
        ("EC2NodeClass", "spec.associatePublicIpAddress", False),
        ("EC2NodeClass", "spec.amiSelectorTerms", [{"alias": "al2023"}]),
        ("NodePool", "spec.disruption.consolidationPolicy", "Never"),
        ("NodePool", "spec.template.spec.expireAfter", "sometimes"),
        ("NodePool", "spec.limits.nodes", "many"),
    ],
)
def test_karpenters_definitions_refuse_what_is_wrong(plane: ControlPlane, kind: str, path: str, value: Any) -> None:
    (document,) = [each for each in declared("everspot-wrong") if each["kind"] == kind]
    document["metadata"]["name"] = "everspot-wrong"
    assert create(plane.admin(), document, dry=True)
    inner: Any = document
    *names, last = path.split(".")
    for name in names:
        inner = inner[name]
    inner[last] = value
    with pytest.raises(KubeApiError) as refused:
        create(plane.admin(), document, dry=True)
    assert refused.value.status in (400, 422)


TRIES = """
    import json, os, ssl, sys, urllib.error, urllib.request
    from pathlib import Path
    from everspot_clouds.kubernetes.service_account import find_account

    account = find_account(os.environ.get)
    context = ssl.create_default_context(cafile=str(account.certificate))
    statuses = {}
    for line in json.loads(sys.argv[1]):
        method, path = line.split()
        body = b"{}" if method in ("POST", "PATCH") else None
        headers = {"Authorization": "Bearer " + account.token.read_text(), "Content-Type": "application/json"}
        if method == "PATCH":
            headers["Content-Type"] = "application/merge-patch+json"
        request = urllib.request.Request(account.server + path, body, headers, method=method)
        try:
            statuses[line] = urllib.request.urlopen(request, context=context).status
        except urllib.error.HTTPError as error:
            statuses[line] = error.code
    print(json.dumps(statuses))
"""


def test_the_pod_of_a_job_reads_its_node_and_may_do_nothing_else(plane: ControlPlane, tmp_path: Path) -> None:
    place = Place(plane, tmp_path)
    try:
        node, own = place.node(), f"/api/v1/namespaces/{place.name}"
        allowed = [f"GET /api/v1/nodes/{node}"]
        forbidden = [
            "GET /api/v1/nodes", f"PATCH /api/v1/nodes/{node}", f"DELETE /api/v1/nodes/{node}",
            "GET /api/v1/pods", f"GET {own}/pods", f"GET {own}/pods/job", f"POST {own}/pods", f"DELETE {own}/pods/job",
            f"PATCH {own}/pods/job", f"POST {own}/pods/job/exec", f"POST {own}/pods/job/eviction",
            f"GET {own}/secrets", f"GET {own}/configmaps", f"GET {own}/podtemplates", f"POST {own}/podtemplates",
            f"GET {own}/serviceaccounts", f"POST {own}/serviceaccounts/everspot-scheduler/token",
            f"GET {own}/events", "GET /api/v1/namespaces", "GET /api/v1/namespaces/kube-system/secrets",
            "GET /apis/karpenter.sh/v1/nodeclaims", "DELETE /apis/karpenter.sh/v1/nodepools/everspot-test",
            "POST /apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            f"POST /apis/rbac.authorization.k8s.io/v1/namespaces/{place.name}/rolebindings",
            f"DELETE /apis/networking.k8s.io/v1/namespaces/{place.name}/networkpolicies/everspot",
        ]  # fmt: skip
        script = tmp_path / "tries.py"
        script.write_text(textwrap.dedent(TRIES))
        container = {"name": "agent", "image": "none"}
        container["command"] = [sys.executable, str(script), json.dumps(allowed + forbidden)]  # type: ignore[assignment]
        spec = {"serviceAccountName": "everspot-agent", "restartPolicy": "Never", "containers": [container]}
        create(
            place.api,
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "job", "namespace": place.name}, "spec": spec},
        )
        eventually(lambda: place.pods()["job"]["status"].get("phase") in ("Succeeded", "Failed"))
        statuses = json.loads(place.log("job").splitlines()[-1])
        assert {line: statuses[line] for line in allowed} == dict.fromkeys(allowed, 200)
        assert {line: statuses[line] for line in forbidden} == dict.fromkeys(forbidden, 403)
    finally:
        place.close()


def test_the_rights_of_the_guide_are_the_declared_ones() -> None:
    from kubernetes_place import RIGHTS

    place = documents.ObjectPlace("everspot", "NAMESPACE", "")
    written = {(d["kind"], d["metadata"]["name"]): d.get("rules") for d in yaml.safe_load_all(RIGHTS.read_text())}
    for document in documents.build_rights(place):
        if "rules" in document:
            name = document["metadata"]["name"]
            assert written[document["kind"], name] == document["rules"], name
