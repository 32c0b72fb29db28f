"""A cluster inside an existing Kubernetes cluster: what is declared, and what is refused."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pulumi
import pytest
from everspot import AwsKubernetesPool
from everspot.kubernetes.checking import check_pool
from everspot.kubernetes.pool import PLUGIN, list_moved
from everspot_clouds.kubernetes.pods import build_pod
from everspot_core.capacity.launching import LaunchIntent, LaunchPool, store_mark
from everspot_core.capacity.market import Market
from everspot_core.cluster.manifest import Manifest
from settings_helpers import Config, loaded, refusal, written

NAME = "everspot-test"
NOW = datetime(2026, 3, 1, tzinfo=UTC)
IMAGE = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/everspot@sha256:" + "0" * 64


def pool_args(**changed: Any) -> dict[str, Any]:
    return {
        "tags": {"Project": "vision", "Team": "ml", "Environment": "test"},
        "eks_cluster": "research",
        "image": IMAGE,
        "nodes": {
            "role": "KarpenterNodeRole-research", "ami_alias": "al2023@v20260115",
            "subnet_tags": {"karpenter.sh/discovery": "research"},
            "security_group_tags": {"karpenter.sh/discovery": "research"},
        },
        "capacity": {
            "instance_types": [{"type": "m6i.large"}, {"type": "c6i.large", "zones": ["eu-west-1a"]}],
            "elastic": {"max_instances": 4, "zones": ["eu-west-1a", "eu-west-1b"]},
        },
        **changed,
    }  # fmt: skip


@pytest.fixture(scope="module")
def settings() -> Iterator[Any]:
    with loaded() as module:
        yield module


@pytest.fixture
def pool(declare: Callable[..., Any]) -> Callable[..., Any]:
    """Declare a pool under mocks, and return what was recorded of it."""

    def run(preview: bool = False, **changed: Any) -> Any:
        def program() -> dict[str, Any]:
            AwsKubernetesPool(NAME, pool_args(**changed))  # type: ignore[arg-type]
            return {}

        recorder, _ = declare(program, preview=preview)
        return recorder

    return run


def objects(recorder: Any) -> dict[str, dict[str, Any]]:
    """The declared objects of Kubernetes by kind and name of the resource."""
    own = [args for args in recorder.resources if args.typ.startswith("kubernetes:")]
    return {args.name.removeprefix(f"{NAME}-"): args.inputs for args in own}


def test_the_objects_are_those_of_one_namespace_with_its_nodes_and_rights(pool: Callable[..., Any]) -> None:
    own = objects(pool())
    kinds = {name: inputs["kind"] for name, inputs in own.items()}
    assert kinds == {
        "namespace": "Namespace", "scheduler-account": "ServiceAccount", "agent-account": "ServiceAccount",
        "network": "NetworkPolicy", "scheduler-role": "Role", "scheduler-binding": "RoleBinding",
        "scheduler-cluster-role": "ClusterRole", "scheduler-cluster-binding": "ClusterRoleBinding",
        "agent-cluster-role": "ClusterRole", "agent-cluster-binding": "ClusterRoleBinding",
        "node-class": "EC2NodeClass", "node-pool": "NodePool", "agents": "PodTemplate", "settings": "ConfigMap",
        "scheduler": "Deployment",
    }  # fmt: skip
    whole = {"Namespace", "ClusterRole", "ClusterRoleBinding", "EC2NodeClass", "NodePool"}
    assert {i["metadata"].get("namespace") for i in own.values() if i["kind"] not in whole} == {NAME}
    assert {name for name, inputs in objects(pool(preview=True)).items()} == own.keys()


def test_nodes_end_only_when_they_are_empty_and_are_closed(pool: Callable[..., Any]) -> None:
    own = objects(pool())
    spec = own["node-pool"]["spec"]
    assert spec["limits"] == {"nodes": 4}
    assert spec["template"]["spec"]["expireAfter"] == "Never"
    assert spec["disruption"]["consolidationPolicy"] == "WhenEmpty"
    assert {"nodes": "0", "reasons": ["Drifted"]} in spec["disruption"]["budgets"]
    requirements = {each["key"]: each["values"] for each in spec["template"]["spec"]["requirements"]}
    assert requirements["node.kubernetes.io/instance-type"] == ["c6i.large", "m6i.large"]
    assert requirements["topology.kubernetes.io/zone"] == ["eu-west-1a", "eu-west-1b"]
    assert requirements["karpenter.sh/capacity-type"] == ["spot", "on-demand"]
    node = own["node-class"]["spec"]
    assert node["metadataOptions"]["httpTokens"] == "required"
    assert node["metadataOptions"]["httpPutResponseHopLimit"] == 1
    assert node["associatePublicIPAddress"] is False
    assert [volume["ebs"]["encrypted"] for volume in node["blockDeviceMappings"]] == [True]
    assert (node["tags"]["Team"], node["tags"]["everspot:store"]) == ("ml", store_mark(f"s3://{NAME}-store-control-id"))
    assert own["network"]["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert "ingress" not in own["network"]["spec"]


def test_both_volumes_of_bottlerocket_are_encrypted(pool: Callable[..., Any]) -> None:
    nodes = {**pool_args()["nodes"], "ami_alias": "bottlerocket@v1.30.0", "volume_gib": 200}
    volumes = objects(pool(nodes=nodes))["node-class"]["spec"]["blockDeviceMappings"]
    sizes = {v["deviceName"]: (v["ebs"]["volumeSize"], v["ebs"]["encrypted"], v["rootVolume"]) for v in volumes}
    assert sizes == {"/dev/xvda": ("4Gi", True, False), "/dev/xvdb": ("200Gi", True, True)}


def test_the_scheduler_makes_agents_of_the_declared_template(pool: Callable[..., Any]) -> None:
    recorder = pool()
    own = objects(recorder)
    published = Manifest.read(recorder.inputs(f"{NAME}-manifest")["content"])
    elastic = published.elastic
    assert elastic is not None
    assert (published.cloud, published.job_images) == ("kubernetes", False)
    assert f"{elastic.template}-{elastic.template_version}" == own["agents"]["metadata"]["name"]
    assert elastic.places == {"eu-west-1a": NAME, "eu-west-1b": NAME}
    assert elastic.zones == {"c6i.large": ["eu-west-1a"]}
    assert published.notice is not None
    assert published.notice.total_seconds() == own["agents"]["template"]["spec"]["terminationGracePeriodSeconds"]
    launch = LaunchIntent(
        seq=1, token="0123456789abcdef" * 2, jobs=("j",), template=elastic.template, ordered=False, whole=False,
        template_version=elastic.template_version, usd_per_hour=1.0, made_at=NOW, scheduler_id="s",
        pools=(LaunchPool(instance_type="m6i.large", zone="eu-west-1a", market=Market.SPOT, place=NAME),),
    )  # fmt: skip
    pod = build_pod(own["agents"], "p", NAME, launch, {})
    (agent,) = pod["spec"]["containers"]
    variables = {each["name"]: each.get("value") for each in agent["env"]}
    assert float(variables["EVERSPOT_STOP_SECONDS"]) < pod["spec"]["terminationGracePeriodSeconds"]
    manifest = Manifest.read(variables["EVERSPOT_MANIFEST"])
    assert (manifest.generation, manifest.elastic) == (published.generation, None)
    assert manifest.limits.idle_limit is not None
    (taint,) = own["node-pool"]["spec"]["template"]["spec"]["taints"]
    tolerated = [(t["key"], t.get("value")) for t in pod["spec"]["tolerations"]]
    assert (taint["key"], taint["value"]) in tolerated
    # Any other NodePool with these types would serve, too.
    assert pod["spec"]["nodeSelector"] == {"karpenter.sh/nodepool": own["node-pool"]["metadata"]["name"]}
    assert "karpenter.sh/disrupted" not in {key for key, _ in tolerated}  # such pods are not waited for
    assert "karpenter.sh/do-not-disrupt" not in json.dumps(own["agents"])


def test_another_image_makes_another_template_and_generation(pool: Callable[..., Any]) -> None:
    first, other = pool(), pool(image=IMAGE[:-1] + "1")
    names = {objects(each)["agents"]["metadata"]["name"] for each in (first, other)}
    contents = [Manifest.read(each.inputs(f"{NAME}-manifest")["content"]) for each in (first, other)]
    assert len(names) == 2
    assert contents[0].generation != contents[1].generation


def test_agents_read_the_datasets_of_a_claim_and_cannot_change_them(pool: Callable[..., Any]) -> None:
    plain, claimed = pool(), pool(datasets_claim="flowers")
    pods = [objects(each)["agents"]["template"]["spec"] for each in (plain, claimed)]
    added = [v for v in pods[1]["volumes"] if v not in pods[0]["volumes"]]
    assert added == [{"name": "datasets", "persistentVolumeClaim": {"claimName": "flowers", "readOnly": True}}]
    mounts = [pod["containers"][0].pop("volumeMounts") for pod in pods]
    assert [mount for mount in mounts[1] if mount not in mounts[0]] == [
        {"name": "datasets", "mountPath": "/mnt/datasets", "readOnly": True}
    ]
    for pod in pods:
        del pod["volumes"]
        pod["containers"][0]["env"] = [v for v in pod["containers"][0]["env"] if v["name"] != "EVERSPOT_MANIFEST"]
    assert pods[0] == pods[1], "nothing else of the pod changes"
    manifests = [Manifest.read(each.inputs(f"{NAME}-manifest")["content"]) for each in (plain, claimed)]
    assert manifests[0].generation != manifests[1].generation
    others = [{k: v for k, v in objects(each).items() if k not in ("agents", "settings", "scheduler")} for each in
              (plain, claimed)]  # fmt: skip
    assert others[0] == others[1], "neither rights nor network change"


def test_jobs_with_images_add_one_profile_to_pods_and_to_their_nodes_and_nothing_else(pool: Callable[..., Any]) -> None:
    """Given the setting, when the objects are compared, then agents have another profile, which only new nodes have;
    without it nothing is different."""
    plain, allowing = (objects(pool(**changed)) for changed in ({}, {"job_images": True}))
    assert plain == objects(pool(job_images=False))
    pods = [own["agents"]["template"]["spec"] for own in (plain, allowing)]
    assert pods[0]["securityContext"].pop("seccompProfile") == {"type": "RuntimeDefault"}
    profile = pods[1]["securityContext"].pop("seccompProfile")
    assert profile.pop("type") == "Localhost"
    label = pods[1]["nodeSelector"].pop("everspot/seccomp")
    assert profile == {"localhostProfile": f"everspot/{label}.json"}
    assert allowing["node-pool"]["spec"]["template"]["metadata"]["labels"].pop("everspot/seccomp") == label
    user_data = allowing["node-class"]["spec"].pop("userData")
    assert f"/var/lib/kubelet/seccomp/everspot/{label}.json" in user_data
    assert len(user_data) < 12_000, "EC2 takes 16 KiB, with Karpenter's own part"
    for pod in pods:
        pod["containers"][0]["env"] = [v for v in pod["containers"][0]["env"] if v["name"] != "EVERSPOT_MANIFEST"]
    assert pods[0] == pods[1], "no capability, no other user, no volume"
    assert "capabilities" in json.dumps(pods[1]) and "SYS_ADMIN" not in json.dumps(allowing)
    versioned = ("agents", "settings", "scheduler")
    others = [{k: v for k, v in own.items() if k not in versioned} for own in (plain, allowing)]
    assert others[0] == others[1], "neither rights nor network nor namespace change"
    deployment = allowing["scheduler"]["spec"]["template"]["spec"]
    assert deployment["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}


def test_jobs_may_have_images_where_the_setting_says_so(pool: Callable[..., Any]) -> None:
    published = Manifest.read(pool(job_images=True).inputs(f"{NAME}-manifest")["content"])
    assert published.job_images is True
    assert published.generation != Manifest.read(pool().inputs(f"{NAME}-manifest")["content"]).generation


def test_jobs_with_images_are_refused_on_bottlerocket() -> None:
    nodes = {**pool_args()["nodes"], "ami_alias": "bottlerocket@v1.30.0"}
    with pytest.raises(pulumi.InputPropertiesError, match=r"jobImages: .*on which a job makes no container"):
        check_pool(NAME, pool_args(nodes=nodes, job_images=True))  # type: ignore[arg-type]
    check_pool(NAME, pool_args(nodes=nodes, job_images=False))  # type: ignore[arg-type]


def test_a_preview_says_what_an_hour_costs_and_which_quotas_are_too_small(
    declare: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    messages: dict[str, list[str]] = {"info": [], "warn": []}
    for level, texts in messages.items():
        monkeypatch.setattr(pulumi.log, level, lambda text, resource=None, texts=texts: texts.append(text))

    def program() -> dict[str, Any]:
        AwsKubernetesPool(NAME, pool_args())  # type: ignore[arg-type]
        return {}

    vcpus = {"L-34B43A08": 2.0, "L-1216C47A": 4.0}  # standard instances, on Spot and on-demand
    declare(program, preview=True, vcpus=vcpus)
    (hour,) = [text for text in messages["info"] if text.startswith("An hour of the cluster, at list prices of eu-we")]
    assert "elastic: up to $0.43 more (4 instances of m6i.large at $0.107)" in hour
    (warning,) = messages["warn"]
    assert warning.startswith("The account's quotas do not hold 4 launched instances on spot and on-demand: ")
    messages["info"].clear()
    declare(program, vcpus=vcpus)
    assert (messages["info"], len(messages["warn"])) == ([], 1), "an update says neither"


def test_a_type_that_ec2_does_not_offer_in_a_zone_is_refused(
    pool: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, recorder_kind: Any
) -> None:
    monkeypatch.setattr(recorder_kind, "not_offered", {("m6i.large", "eu-west-1b"), ("c6i.large", "eu-west-1b")})
    with pytest.raises(pulumi.InputPropertiesError) as refused:
        pool(preview=True)
    message = str(refused.value)
    assert "capacity.instanceTypes[0].zones: EC2 does not offer m6i.large in eu-west-1b" in message
    assert "c6i.large" not in message, "it is used in eu-west-1a alone"


def test_a_role_is_for_the_pods_of_one_service_account(pool: Callable[..., Any]) -> None:
    recorder = pool()
    trust = {
        role: json.loads(recorder.inputs(f"{NAME}-identity-{role}")["assumeRolePolicy"])["Statement"][0]
        for role in ("agent", "scheduler", "job")
    }
    for role in ("agent", "scheduler"):
        assert trust[role]["Principal"] == {"Service": "pods.eks.amazonaws.com"}
        disabled = role == "agent"
        assert trust[role]["Condition"]["StringEqualsIfExists" if disabled else "StringEquals"] == {
            "aws:RequestTag/eks-cluster-name": "research",
            "aws:RequestTag/kubernetes-namespace": NAME,
            "aws:RequestTag/kubernetes-service-account": f"everspot-{role}",
        }
        (pods,) = [r.inputs for r in recorder.resources if r.name == f"{NAME}-{role}-pods"]
        assert (pods["clusterName"], pods["namespace"], pods["serviceAccount"]) == (
            "research", NAME, f"everspot-{role}",
        )  # fmt: skip
        assert pods["disableSessionTags"] is disabled, "tags leave no room for the session policy of a job"
    # Tags of an older pod's session go over to the role of its job.
    assert trust["job"]["Action"] == ["sts:AssumeRole", "sts:TagSession"]
    assert not recorder.of_type("aws:iam/instanceProfile:InstanceProfile")


def test_pods_reach_the_pod_identity_agent_by_either_family_of_addresses(pool: Callable[..., Any]) -> None:
    """Amazon EKS User Guide, "Set up the Amazon EKS Pod Identity Agent": in an IPv6 cluster it has the second one."""
    rules = pool().inputs(f"{NAME}-network")["spec"]["egress"]
    (identity,) = [rule for rule in rules if rule["ports"] == [{"protocol": "TCP", "port": 80}]]
    assert [block["ipBlock"]["cidr"] for block in identity["to"]] == ["169.254.170.23/32", "fd00:ec2::23/128"]


def test_the_kubernetes_cluster_is_reached_by_its_endpoint_or_by_a_context(pool: Callable[..., Any]) -> None:
    (provider,) = pool().of_type("pulumi:providers:kubernetes")
    config = json.loads(provider.inputs["kubeconfig"])
    assert config["clusters"][0]["cluster"]["server"] == "https://eks.example"
    assert config["users"][0]["user"]["exec"]["command"] == "aws"
    recorder = pool(context="research-admin")
    (provider,) = recorder.of_type("pulumi:providers:kubernetes")
    assert provider.inputs["context"] == "research-admin"
    # Another identifier replaces the provider and all of its objects; another context alone moves nothing.
    assert provider.inputs["clusterIdentifier"] == "eu-west-1/research"
    assert "kubeconfig" not in provider.inputs
    assert "aws:eks/getCluster:getCluster" not in recorder.calls
    assert PLUGIN.count(".") == 2


KUBECONFIG = """
contexts: [{name: prod, context: {cluster: research, user: someone}}]
clusters: [{name: research, cluster: {server: "https://one.eks.example/"}}]
users: [{name: someone, user: {}}]
"""


def test_an_empty_variable_of_the_kubeconfig_counts_as_unset(tmp_path: Path) -> None:
    """In a process of its own, because the library reads the variable when it is imported."""
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube/config").write_text(KUBECONFIG)
    program = "from everspot.kubernetes.pool import find_server; print(find_server('prod'))"
    environment = os.environ | {"HOME": str(tmp_path), "KUBECONFIG": ""}
    answer = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "https://one.eks.example"


@pytest.mark.parametrize(
    ("before", "now", "moved"),
    [
        ("https://one.eks.example", "https://two.eks.example", ["context"]),
        ("https://one.eks.example", "prod", []),  # a machine that cannot read the kubeconfig
        ("prod", "https://one.eks.example", []),
        ("prod", "production", []),
    ],
)
def test_a_context_whose_server_is_not_known_moves_nothing(before: str, now: str, moved: list[str]) -> None:
    place = {"eksCluster": "research", "namespace": "jobs"}
    assert list_moved({**place, "context": before}, {**place, "context": now}) == moved
    assert list_moved(place, {**place, "namespace": "other", "context": now}) == ["namespace"]


ARM = {"type": "x9g.large", "vcpus": 2, "memory_gib": 4.0, "arch": "arm64", "on_demand_usd_per_hour": 0.1}
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "eksCluster": ({"eks_cluster": "my cluster"}, "is no name of an EKS cluster"),
    "context": ({"context": ""}, "is empty"),
    "namespace": ({"namespace": "kube-system"}, "needs a namespace of its own"),
    "datasetsClaim": ({"datasets_claim": "My_Flowers"}, "has to be lower-case letters"),
    "image": ({"image": "everspot:latest"}, "has to end in the image's digest"),
}


def test_a_gke_cluster_is_refused_with_what_to_use() -> None:
    with pytest.raises(pulumi.InputPropertiesError) as refused:
        check_pool(NAME, pool_args(context="gke_my-project_us-central1_research"))  # type: ignore[arg-type]
    (line,) = [line for line in str(refused.value).splitlines() if "context" in line]
    assert "is a GKE cluster" in line and "cloud: gcp" in line
    check_pool(NAME, pool_args(context="research"))  # type: ignore[arg-type]


def test_one_error_names_each_contradiction() -> None:
    args = pool_args(**{key: value for changed, _ in WRONG.values() for key, value in changed.items()})
    args["nodes"] = {"role": "arn:aws:iam::1:role/x", "ami_alias": "al2023", "subnet_tags": {}, "volume_gib": 1,
                     "security_group_tags": {"a": ""}}  # fmt: skip
    args["capacity"] = {
        "instance_types": [{"type": "m6i.large"}, {**ARM, "zones": ["eu-west-1c"]},
                           {"type": "m6i.large"}],
        "elastic": {"max_instances": 2, "zones": ["eu-west-1a", "us-east-1a"], "markets": ["cheap"]},
    }  # fmt: skip
    with pytest.raises(pulumi.InputPropertiesError) as refused:
        check_pool(NAME, args)  # type: ignore[arg-type]
    message = str(refused.value)
    expected = {path: reason for path, (_, reason) in WRONG.items()} | {
        "nodes.role": "an ARN is none", "nodes.amiAlias": "neither al2023@", "nodes.subnetTags": "is empty",
        "nodes.securityGroupTags.a": "is empty", "nodes.volumeGib": "20",
        "capacity.instanceTypes": "are of arm64 and x86_64", "capacity.instanceTypes[1].zones": "eu-west-1c",
        "capacity.elastic.zones": "are of several regions", "capacity.elastic.markets[0]": "cheap",
    }  # fmt: skip
    for path, reason in expected.items():
        assert any(path in line and reason in line for line in message.splitlines()), (path, message)
    assert "names a type twice" in message


def test_settings_of_another_cloud_and_unknown_ones_are_named_in_one_error(settings: Any) -> None:
    config = written("kubernetes-dev")
    section = json.loads(config.values["cluster"])
    section |= {"zones": ["us-east-2a"], "eksClustr": "x"}
    del section["image"]
    section["capacity"]["standing"] = {"target": 2}
    message = refusal(settings, Config(cluster=section, account={"cloud": "kubernetes", "tags": {}}))
    assert "everspot:cluster.zones: is another cloud's setting: zones are those of capacity.elastic.zones" in message
    assert "everspot:cluster.eksClustr: is not a setting" in message
    assert "everspot:cluster.image: is missing" in message
    assert "everspot:cluster.capacity.standing: is another cloud's setting" in message
    assert "everspot:account.cloud: kubernetes has no account of its own" in message


def test_metrics_are_read_by_the_pods_of_named_namespaces_alone(pool: Callable[..., Any]) -> None:
    closed = objects(pool())
    assert "metrics" not in closed and "ports" not in closed["scheduler"]["spec"]["template"]["spec"]["containers"][0]
    own = objects(pool(prometheus={"namespaces": ["monitoring", "grafana"], "port": 9500.0}))
    spec = own["metrics"]["spec"]
    assert spec["podSelector"]["matchLabels"] == {"everspot/cluster": NAME, "everspot/role": "scheduler"}
    assert spec["podSelector"]["matchLabels"] == own["scheduler"]["spec"]["template"]["metadata"]["labels"]
    (rule,) = spec["ingress"]
    assert rule["ports"] == [{"protocol": "TCP", "port": 9500}]
    (source,) = rule["from"]
    (names,) = source["namespaceSelector"]["matchExpressions"]
    assert names == {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["grafana", "monitoring"]}
    assert own["network"] == closed["network"], "agents stay closed"
    manifest = json.loads(own["settings"]["data"]["cluster.json"])
    assert manifest["metrics"] == {"port": 9500}
    (container,) = own["scheduler"]["spec"]["template"]["spec"]["containers"]
    assert container["ports"] == [{"name": "metrics", "containerPort": 9500}]
    (agent,) = own["agents"]["template"]["spec"]["containers"]
    assert "9500" not in json.dumps(agent)


@pytest.mark.parametrize(
    ("prometheus", "path"),
    [
        ({"namespaces": []}, "prometheus.namespaces"),
        ({"namespaces": ["Monitoring"]}, "prometheus.namespaces[0]"),
        ({"namespaces": ["monitoring"], "port": 80}, "prometheus.port"),
    ],
)
def test_readers_of_metrics_that_cannot_be_are_refused(prometheus: dict[str, Any], path: str) -> None:
    with pytest.raises(pulumi.InputPropertiesError) as refused:
        check_pool(NAME, pool_args(prometheus=prometheus), zones_of=lambda: None)  # type: ignore[arg-type]
    assert path in str(refused.value)
