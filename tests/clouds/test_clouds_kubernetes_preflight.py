"""Preflight and doctor ask a real API server, with Karpenter's own definitions, what a cluster would lack there."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
from everspot_clouds.base import Check, CloudError, Trouble, Verdict
from everspot_clouds.kubernetes import preflight
from everspot_clouds.kubernetes.checks import kubernetes_checks
from everspot_clouds.kubernetes.client import KubernetesClient
from everspot_clouds.kubernetes.requirements import (
    POD_IDENTITY,
    claim_checks,
    limit_checks,
    profile_checks,
    pull_checks,
    requirement_checks,
)
from everspot_clouds.preflight_plan import read_plan
from everspot_core.capacity.catalogue import builtin
from everspot_core.cluster.preflight import PreflightPlan
from everspot_local.cloud import LocalCloud
from everspot_local.kubernetes.control_plane import ControlPlane
from everspot_local.market.delays import Delays
from everspot_local.options import Options
from everspot_store import SystemClock
from kubernetes_place import DEFINITIONS, MISSING, PROGRAM, ZONE, Place, eventually
from test_clouds_kubernetes import manifest

needs_plane = pytest.mark.skipif(not PROGRAM.exists(), reason=MISSING)
SETTINGS = Path(__file__).resolve().parents[2] / "stacks/Pulumi.kubernetes-dev.yaml"
KUBE_SYSTEM = "/apis/apps/v1/namespaces/kube-system"


@pytest.fixture(scope="module")
def karpenter(plane: ControlPlane) -> ControlPlane:
    """The control plane with Karpenter's definitions of node pools and node classes."""
    api = plane.admin()
    for file in DEFINITIONS:
        if "nodeclaims" not in file.name:
            api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", yaml.safe_load(file.read_text()))
    return plane


def labelled(name: str, version: str, queue: str) -> dict[str, Any]:
    """A Deployment as Karpenter's chart makes it."""
    container = {"name": "controller", "image": "none", "env": [{"name": "INTERRUPTION_QUEUE", "value": queue}]}
    labels = {"app.kubernetes.io/name": "karpenter"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    return {
        "metadata": {"name": name, "labels": {**labels, "app.kubernetes.io/version": version}},
        "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": template},
    }


def daemons(name: str, *tolerations: dict[str, str]) -> dict[str, Any]:
    spec = {"tolerations": list(tolerations), "containers": [{"name": "c", "image": "none"}]}
    template = {"metadata": {"labels": {"app": name}}, "spec": spec}
    return {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": {"app": name}}, "template": template}}


@pytest.fixture
def equipped(karpenter: ControlPlane, place: Place) -> Iterator[Place]:
    """A cluster with everything that is needed, in which a test spoils something."""
    place.api.create(f"{KUBE_SYSTEM}/deployments", labelled("karpenter", "1.14.0", "research"))
    for name in (POD_IDENTITY, "nvidia-device-plugin"):
        place.api.create(f"{KUBE_SYSTEM}/daemonsets", daemons(name, {"operator": "Exists"}))
    yield place
    for kind, name in (("deployments", "karpenter"), ("daemonsets", POD_IDENTITY),
                       ("daemonsets", "nvidia-device-plugin")):  # fmt: skip
        if place.exists(f"{KUBE_SYSTEM}/{kind}/{name}"):
            place.api.delete(f"{KUBE_SYSTEM}/{kind}/{name}")


def verdicts(checks: list[Check]) -> dict[str, Verdict]:
    return {check.name: check.verdict for check in checks}


def problem(checks: list[Check]) -> Check:
    """The only check that is not fine. It is one sentence with its fix."""
    (check,) = (check for check in checks if check.verdict is not Verdict.OK)
    assert check.fix and "\n" not in check.detail
    return check


@needs_plane
def test_a_cluster_with_all_that_is_needed_passes(equipped: Place) -> None:
    checks = requirement_checks(equipped.client(), gpus=True)
    assert verdicts(checks) == dict.fromkeys(
        ("karpenter", "karpenter version", "karpenter queue", "pod identity", "gpu plugin"), Verdict.OK
    )


@needs_plane
@pytest.mark.parametrize(
    ("spoil", "name", "verdict", "words"),
    [
        ("old", "karpenter version", Verdict.FAIL, "Karpenter 1.6.2 is too old"),
        ("queue", "karpenter queue", Verdict.FAIL, "hears of no spot notice"),
        ("auto mode", "karpenter version", Verdict.SKIP, "version and queue are not known"),
        ("identity", "pod identity", Verdict.FAIL, "pods get no credentials"),
        ("taint", "pod identity", Verdict.FAIL, "does not tolerate the taint everspot/agents"),
        ("plugin", "gpu plugin", Verdict.WARN, "no DaemonSet is NVIDIA's device plugin"),
        ("untolerated", "gpu plugin", Verdict.WARN, "no DaemonSet tolerates everspot/agents"),
    ],
)
def test_what_is_missing_is_one_sentence_with_its_fix(
    equipped: Place, spoil: str, name: str, verdict: Verdict, words: str
) -> None:
    api, deployment = equipped.api, f"{KUBE_SYSTEM}/deployments/karpenter"
    if spoil in ("old", "queue", "auto mode"):
        api.delete(deployment)
        if spoil != "auto mode":
            version, queue = ("1.6.2", "research") if spoil == "old" else ("1.14.1", "")
            api.create(f"{KUBE_SYSTEM}/deployments", labelled("karpenter", version, queue))
    else:
        spoiled = POD_IDENTITY if spoil in ("identity", "taint") else "nvidia-device-plugin"
        api.delete(f"{KUBE_SYSTEM}/daemonsets/{spoiled}")
        eventually(lambda: not equipped.exists(f"{KUBE_SYSTEM}/daemonsets/{spoiled}"))
        if spoil in ("taint", "untolerated"):
            other = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
            api.create(f"{KUBE_SYSTEM}/daemonsets", daemons(spoiled, other))
    check = problem(requirement_checks(equipped.client(), gpus=True))
    assert (check.name, check.verdict) == (name, verdict)
    assert words in check.detail


@needs_plane
def test_a_cluster_without_karpenter_says_which_definitions_are_missing(equipped: Place) -> None:
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    name = "ec2nodeclasses.karpenter.k8s.aws"
    equipped.api.delete(f"{path}/{name}")
    eventually(lambda: not equipped.exists(f"{path}/{name}"))
    check = problem(requirement_checks(equipped.client(), gpus=False))
    file = next(file for file in DEFINITIONS if "ec2nodeclasses" in file.name)
    equipped.api.create(path, yaml.safe_load(file.read_text()))
    assert (check.name, check.verdict) == ("karpenter", Verdict.FAIL)
    assert name in check.detail and "install Karpenter" in check.fix


@needs_plane
def test_limits_of_a_namespace_that_agents_do_not_go_with_are_named(equipped: Place) -> None:
    assert limit_checks(equipped.client()) == []
    base = f"/api/v1/namespaces/{equipped.name}"
    default = {"type": "Container", "default": {"memory": "4Gi", "ephemeral-storage": "1Gi"}}
    least = {"type": "Pod", "min": {"cpu": "1m"}}
    equipped.api.create(f"{base}/limitranges", {"metadata": {"name": "usual"}, "spec": {"limits": [default, least]}})
    for name, hard in (("all", {"limits.memory": "10Gi", "pods": "9"}), ("pods", {"pods": "9"})):
        equipped.api.create(f"{base}/resourcequotas", {"metadata": {"name": name}, "spec": {"hard": hard}})
    capped, refused = limit_checks(equipped.client())
    assert capped.verdict is Verdict.WARN
    assert "the LimitRange usual limits each agent to memory 4Gi, whatever its node" in capped.detail
    assert refused.verdict is Verdict.FAIL and "the ResourceQuota all demands limits.memory, which" in refused.detail


@needs_plane
def test_doctor_asks_for_the_nodes_and_says_what_a_scheduler_may_not_see(equipped: Place) -> None:
    """The environment is that of the scheduler's service account, which may see none of the Kubernetes cluster's."""
    checks = kubernetes_checks(manifest(), builtin())
    assert verdicts(checks) == {
        "kubernetes": Verdict.OK, "pod template": Verdict.OK, "karpenter": Verdict.SKIP,
        "pod identity": Verdict.SKIP, "node pool": Verdict.SKIP,
    }  # fmt: skip
    assert all("you may not see it" in check.detail for check in checks if check.verdict is Verdict.SKIP)


@needs_plane
@pytest.mark.parametrize(
    ("mode", "phase", "verdict", "words"),
    [
        (None, "", Verdict.FAIL, "has no PersistentVolumeClaim flowers"),
        ("ReadOnlyMany", "Bound", Verdict.OK, "the claim flowers is bound, ReadOnlyMany"),
        ("ReadWriteMany", "Bound", Verdict.OK, "the claim flowers is bound, ReadWriteMany"),
        ("ReadWriteOnce", "Bound", Verdict.FAIL, "the claim flowers is ReadWriteOnce: a second agent's pod waits"),
        ("ReadWriteMany", "Pending", Verdict.WARN, "the claim flowers is Pending"),
        ("ReadWriteMany", "Lost", Verdict.FAIL, "the claim flowers is Lost"),
    ],
)
def test_a_claim_with_datasets_has_to_be_bound_and_for_many_nodes(
    place: Place, mode: str | None, phase: str, verdict: Verdict, words: str
) -> None:
    if mode is not None:
        place.create_claim("flowers", mode, phase=phase)
    (check,) = claim_checks(place.client(), "flowers", [ZONE])
    assert (check.name, check.group, check.verdict) == ("datasets claim", "user", verdict)
    assert words in check.detail
    assert bool(check.fix) is (verdict is not Verdict.OK)


@needs_plane
@pytest.mark.parametrize("key", ["topology.kubernetes.io/zone", "topology.ebs.csi.aws.com/zone"])
def test_a_claim_whose_volume_is_in_one_zone_is_named_with_the_zones_that_do_not_reach_it(
    place: Place, key: str
) -> None:
    term = {"matchExpressions": [{"key": key, "operator": "In", "values": [ZONE]}]}
    place.create_claim(
        "flowers", nodeAffinity={"required": {"nodeSelectorTerms": [term]}}, nfs={"server": "192.0.2.1", "path": "/"}
    )
    (check,) = claim_checks(place.client(), "flowers", [ZONE])
    assert check.verdict is Verdict.OK
    (check,) = claim_checks(place.client(), "flowers", [ZONE, "us-east-1b"])
    assert (check.verdict, check.name) == (Verdict.WARN, "datasets claim")
    assert check.detail == "the volume of the claim flowers is not reached from us-east-1b: no agent starts there"
    assert "capacity.elastic.zones" in check.fix
    (check,) = claim_checks(place.client(), "flowers", ["us-east-1b"])
    assert check.verdict is Verdict.FAIL


@needs_plane
def test_doctor_checks_the_claim_that_the_agents_template_mounts(deployer: Place) -> None:
    declared = manifest(elastic=manifest().elastic.model_copy(update={"places": {ZONE: deployer.name}}))
    template = f"/api/v1/namespaces/{deployer.name}/podtemplates/train-1"
    volume = {"name": "datasets", "persistentVolumeClaim": {"claimName": "flowers", "readOnly": True}}
    assert "datasets claim" not in verdicts(kubernetes_checks(declared, builtin()))
    deployer.api.patch(template, {"template": {"spec": {"volumes": [volume]}}})
    assert verdicts(kubernetes_checks(declared, builtin()))["datasets claim"] is Verdict.FAIL
    deployer.create_claim("flowers", "ReadOnlyMany")
    assert verdicts(kubernetes_checks(declared, builtin()))["datasets claim"] is Verdict.OK


@needs_plane
def test_doctor_says_what_a_scheduler_may_not_see_of_claims(equipped: Place) -> None:
    template = f"/api/v1/namespaces/{equipped.name}/podtemplates/train-1"
    volume = {"name": "datasets", "persistentVolumeClaim": {"claimName": "flowers", "readOnly": True}}
    equipped.api.patch(template, {"template": {"spec": {"volumes": [volume]}}})
    (check,) = (c for c in kubernetes_checks(manifest(), builtin()) if c.name == "datasets claim")
    assert check.verdict is Verdict.SKIP and "you may not see it" in check.detail


@needs_plane
def test_preflight_asks_for_the_claim_once_its_namespace_exists(deployer: Place) -> None:
    settings = SETTINGS.read_text() + "    datasetsClaim: flowers\n"

    def claim() -> Check | None:
        checks = preflight.deployer_checks(plan, SystemClock())
        return next((check for check in checks if check.name == "datasets claim"), None)

    plan = create_plan(SETTINGS.read_text())
    assert claim() is None
    plan = replace(create_plan(settings), namespace="flowers-of-tests")
    before = claim()
    assert before is not None and before.verdict is Verdict.SKIP and "pulumi up creates" in before.detail
    plan = replace(plan, namespace=deployer.name)
    missing = claim()
    assert missing is not None and missing.verdict is Verdict.FAIL
    deployer.create_claim("flowers", "ReadWriteMany")
    bound = claim()
    assert bound is not None and bound.verdict is Verdict.OK


def test_an_image_that_no_node_can_pull_is_named() -> None:
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}
    statuses = [{"image": "repo/everspot:1", "state": waiting}]
    (check,) = pull_checks([{"status": {}}, {"status": {"containerStatuses": statuses}}])
    assert (check.verdict, check.detail) == (Verdict.FAIL, "a node cannot pull repo/everspot:1: not found")
    creating = [{"image": "i", "state": {"waiting": {"reason": "ContainerCreating"}}}, {"state": {"running": {}}}]
    assert pull_checks([{"status": {"containerStatuses": creating}}]) == []


def test_a_node_without_the_profile_of_jobs_with_images_is_named() -> None:
    message = (
        'cannot load seccomp profile "/var/lib/kubelet/seccomp/everspot/1.json": open …: no such file or directory'
    )
    waiting = {"reason": "CreateContainerError", "message": message}
    status = {"containerStatuses": [{"state": {"waiting": waiting}}]}
    (check,) = profile_checks([{"status": {}}, {"spec": {"nodeName": "ip-10-0-0-1"}, "status": status}])
    assert check.verdict is Verdict.FAIL
    assert check.detail.startswith("ip-10-0-0-1 has no seccomp profile") and message in check.detail
    assert "kubectl delete node ip-10-0-0-1" in check.fix
    status["containerStatuses"] = [{"state": {"waiting": {"reason": "ContainerCreating"}}}]
    assert profile_checks([{"status": status}]) == []


def create_plan(text: str) -> PreflightPlan:
    plan = read_plan("dev", yaml.safe_load(text)["config"], "everspot")
    assert plan is not None
    return plan


def test_the_plan_has_what_the_settings_name() -> None:
    plan = create_plan(SETTINGS.read_text())
    assert (plan.host_cluster, plan.namespace, plan.context) == ("research", "everspot-dev", "")
    assert (plan.manifest.cloud, plan.manifest.region) == ("kubernetes", "us-east-2")
    assert [kind.name for kind in plan.types] == ["g4dn.xlarge", "g5.xlarge", "g6.xlarge"]
    assert plan.image.startswith("123456789012.dkr.ecr.us-east-2.amazonaws.com/everspot@sha256:")


@pytest.fixture(scope="module")
def aws_cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCloud]:
    folder, delays = tmp_path_factory.mktemp("aws"), Delays(propagation=timedelta())
    with LocalCloud(Options(folder, boot_command=None, region="us-east-2", delays=delays)) as cloud:
        yield cloud


@pytest.fixture
def deployer(aws_cloud: LocalCloud, equipped: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    """The environment of an administrator of both: keys of AWS, and a kubeconfig."""
    aws_cloud.reset()
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "us-east-2"}
    for name, value in {"AWS_ENDPOINT_URL": aws_cloud.endpoint, **keys}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST")
    for service in ("ec2fleet.amazonaws.com", "spot.amazonaws.com"):
        boto3.client("iam").create_service_linked_role(AWSServiceName=service)
    entry = {"server": equipped.api.server, "certificate-authority": str(equipped.plane.certificate)}
    config = {
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": entry}], "users": [{"name": "c", "user": {"token": equipped.api.token}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
    }  # fmt: skip
    file = equipped.folder / "kubeconfig"
    file.write_text(json.dumps(config))
    monkeypatch.setenv("KUBECONFIG", str(file))
    return equipped


@needs_plane
def test_preflight_asks_both_clouds_and_names_what_has_the_clusters_names(deployer: Place) -> None:
    plan = create_plan(SETTINGS.read_text())
    checks = preflight.deployer_checks(plan, SystemClock())
    rows = verdicts(checks)
    for name in ("credentials", "service-linked roles", "quota", "kubernetes", "rights", "karpenter", "namespace"):
        assert rows[name] is Verdict.OK, name
    for name in ("node role", "node subnets"):
        assert rows[name] is Verdict.FAIL, name
    assert rows["pass role"] is Verdict.SKIP  # there is no such EKS cluster
    deployer.api.create("/api/v1/namespaces", {"metadata": {"name": "everspot-dev"}})
    (check,) = (c for c in preflight.deployer_checks(plan, SystemClock()) if c.name == "namespace")
    assert (check.verdict, check.group) == (Verdict.FAIL, "user")
    assert check.detail == "namespace everspot-dev exists and is not of everspot-dev"
    deployer.api.patch(
        "/api/v1/namespaces/everspot-dev", {"metadata": {"labels": {"everspot/cluster": "everspot-dev"}}}
    )
    (check,) = (c for c in preflight.deployer_checks(plan, SystemClock()) if c.name == "namespace")
    assert check.verdict is Verdict.OK
    deployer.api.delete("/api/v1/namespaces/everspot-dev")


@needs_plane
def test_preflight_tells_a_wrong_cluster_from_a_kubeconfig_of_another(deployer: Place) -> None:
    plan, eks = create_plan(SETTINGS.read_text()), boto3.client("eks")
    rows = {check.name: check for check in preflight.deployer_checks(plan, SystemClock())}
    assert (rows["eks cluster"].verdict, rows["image"].verdict) == (Verdict.FAIL, Verdict.FAIL)
    assert rows["eks cluster"].detail == "there is no EKS cluster research in us-east-2"
    assert rows["image"].detail.endswith("does not exist")
    network = {"subnetIds": ["subnet-1", "subnet-2"]}
    role = "arn:aws:iam::123456789012:role/eks"
    addresses = {"ipFamily": "ipv6"}
    eks.create_cluster(name="research", roleArn=role, resourcesVpcConfig=network, kubernetesNetworkConfig=addresses)
    elsewhere = replace(plan, image="ghcr.io/team/everspot:1")
    rows = {check.name: check for check in preflight.deployer_checks(elsewhere, SystemClock())}
    assert rows["eks cluster"].verdict is Verdict.FAIL
    assert rows["eks cluster"].detail.startswith(f"your kubeconfig leads to {deployer.api.server}")
    assert rows["eks cluster"].fix == "aws eks update-kubeconfig --name research --region us-east-2"
    assert (rows["pod addresses"].verdict, "IPv6" in rows["pod addresses"].detail) == (Verdict.WARN, True)
    assert rows["image"].verdict is Verdict.SKIP


@needs_plane
def test_preflight_without_a_way_to_the_api_server_says_so_once(
    deployer: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    checks = preflight.deployer_checks(create_plan(SETTINGS.read_text()), SystemClock())
    assert (checks[-1].group, checks[-1].name, checks[-1].verdict) == ("credentials", "kubernetes", Verdict.FAIL)
    assert "KUBECONFIG" in checks[-1].fix


@needs_plane
@pytest.mark.parametrize("by", ["context", "version"])
def test_a_gke_cluster_is_refused_once_with_what_to_use(
    deployer: Place, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    plan, context = create_plan(SETTINGS.read_text()), "gke_my-project_us-central1_research"
    if by == "context":
        plan = replace(plan, context=context)
    else:  # there is no GKE here, whose API server says so
        read = KubernetesClient.read
        gke = {"/version": {"gitVersion": "v1.35.0-gke.1171000"}}
        monkeypatch.setattr(
            KubernetesClient, "read", lambda self, path, *more: gke.get(path) or read(self, path, *more)
        )
    failed = [check for check in preflight.deployer_checks(plan, SystemClock()) if "GKE" in check.detail]
    assert [(check.name, check.verdict) for check in failed] == [("kubernetes", Verdict.FAIL)]
    assert failed[0].detail.startswith(context if by == "context" else deployer.api.server)
    assert "cloud: gcp" in failed[0].fix


@needs_plane
def test_the_rights_that_a_deployer_lacks_are_named(deployer: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")  # as the scheduler's service account
    checks = preflight.deployer_checks(create_plan(SETTINGS.read_text()), SystemClock())
    (check,) = (check for check in checks if check.name == "rights")
    assert (check.group, check.verdict) == ("credentials", Verdict.FAIL)
    assert "you may not get namespaces, create namespaces" in check.detail
    assert KubernetesClient.open().may("create", "pods")


@pytest.mark.parametrize("current", [{}, {"current-context": "gone"}, {"current-context": "other"}])
def test_a_context_that_is_named_needs_no_current_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, current: dict[str, str]
) -> None:
    contexts = [
        {"name": name, "context": {"cluster": name, "user": name, "namespace": f"ns-{name}"}} for name in ("c", "other")
    ]
    clusters = [{"name": name, "cluster": {"server": f"https://{name}.example"}} for name in ("c", "other")]
    users = [{"name": name, "user": {"token": "t"}} for name in ("c", "other")]
    document = {"contexts": contexts, "clusters": clusters, "users": users, **current}
    file = tmp_path / "config"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", **document}))
    monkeypatch.setenv("KUBECONFIG", str(file))
    client = KubernetesClient.open(context="c")
    assert (client.server, client.namespace) == ("https://c.example", "ns-c")


@pytest.mark.parametrize("content", ["a: [b", "", "just words", "apiVersion: v1\nkind: Config\n"])
def test_a_kubeconfig_that_cannot_be_used_is_a_matter_of_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    file = tmp_path / "config"
    file.write_text(content)
    monkeypatch.setenv("KUBECONFIG", str(file))
    with pytest.raises(CloudError, match="no way to a Kubernetes cluster") as refused:
        KubernetesClient.open()
    assert refused.value.trouble is Trouble.CREDENTIALS and "KUBECONFIG" in refused.value.fix
