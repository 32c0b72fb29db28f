"""What a launch asks Kubernetes for, and how its answers are read, without an API server."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from everspot.common import MAX_CLUSTER_NAME
from everspot_clouds.base import MetadataError, Trouble
from everspot_clouds.kubernetes import errors
from everspot_clouds.kubernetes.client import Document
from everspot_clouds.kubernetes.node_share import LEAST, billed_share, machine_name
from everspot_clouds.kubernetes.pods import BadTemplate, build_pod, is_launched, names, served_pools
from everspot_clouds.registry import provider
from everspot_core.capacity.launching import LaunchIntent, LaunchPool, LaunchTrouble
from everspot_core.capacity.market import Market
from everspot_core.cluster.manifest import Elastic, Manifest
from everspot_core.costs.ledger import LaunchRecord
from everspot_core.jobs.records import Role
from everspot_scheduler.elastic.intents import Intents
from everspot_store import ManualClock, Store
from kubernetes.client import ApiException
from urllib3.exceptions import MaxRetryError

CPU, LARGER, GPU, GPUS = "c6i.large", "m6i.large", "g5.xlarge", "g5.12xlarge"
COUNTS = {GPU: 1, GPUS: 4}
TEMPLATE: dict[str, Any] = {
    "metadata": {"name": "train-1"},
    "template": {"metadata": {"labels": {"app": "train"}}, "spec": {"containers": [{"name": "agent"}]}},
}


def intent(*pools: tuple[str, str], ordered: bool = False, whole: bool = False, count: int = 1) -> LaunchIntent:
    served = tuple(
        LaunchPool(instance_type=kind, zone=zone, market=Market.SPOT, place="namespace") for kind, zone in pools
    )
    return LaunchIntent(
        seq=1, token="ab" * 16, jobs=("job",) * count, pools=served, ordered=ordered, whole=whole, template="train",
        template_version="1", usd_per_hour=1, made_at=datetime(2026, 1, 1, tzinfo=UTC), scheduler_id="s",
    )  # fmt: skip


def terms(launch: LaunchIntent) -> list[tuple[list[str], list[str]]]:
    """The types and zones of each term that a node may meet."""
    pod = build_pod(TEMPLATE, "p", "fleet", launch, COUNTS)
    affinity = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    values = [{e["key"]: e["values"] for e in term["matchExpressions"]} for term in affinity["nodeSelectorTerms"]]
    assert all(value["karpenter.sh/capacity-type"] == ["spot"] for value in values)
    return [(v["node.kubernetes.io/instance-type"], v["topology.kubernetes.io/zone"]) for v in values]


def test_types_of_the_same_zones_are_one_choice_of_karpenter() -> None:
    pools = [(LARGER, "b"), (CPU, "a"), (LARGER, "a"), (CPU, "b")]
    assert terms(intent(*pools)) == [([CPU, LARGER], ["a", "b"])]


def test_only_pools_that_were_named_are_asked_for() -> None:
    assert terms(intent((CPU, "a"), (CPU, "b"), (LARGER, "a"))) == [([CPU], ["a", "b"]), ([LARGER], ["a"])]


def test_pools_in_order_are_asked_for_one_after_the_other() -> None:
    pools = [(LARGER, "b"), (CPU, "a"), (LARGER, "a")]
    assert terms(intent(*pools, ordered=True)) == [([kind], [zone]) for kind, zone in pools]


def test_what_has_to_come_as_a_whole_is_of_one_type_in_one_zone() -> None:
    assert terms(intent((LARGER, "b"), (CPU, "a"), whole=True, count=2)) == [([LARGER], ["b"])]


def test_a_pod_gets_all_gpus_of_its_node() -> None:
    launch = intent((GPUS, "a"), (GPU, "a"), (GPUS, "b"))
    assert [pool.instance_type for pool in served_pools(launch, COUNTS)] == [GPUS, GPUS]
    (container,) = build_pod(TEMPLATE, "p", "fleet", launch, COUNTS)["spec"]["containers"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "4"}
    (container,) = build_pod(TEMPLATE, "p", "fleet", intent((CPU, "a")), COUNTS)["spec"]["containers"]
    assert "resources" not in container


@pytest.mark.parametrize(("grace", "stop"), [(None, "20"), (100, "90"), (15, "7.5")])
def test_a_job_is_stopped_before_the_grace_of_its_pod_ends(grace: int | None, stop: str) -> None:
    spec: dict[str, Any] = {
        "containers": [{"name": "agent", "env": [{"name": "EVERSPOT_STOP_SECONDS", "value": "1000"}]}]
    }
    spec |= {"terminationGracePeriodSeconds": grace} if grace else {}
    template = {"metadata": {"name": "train-1"}, "template": {"spec": spec}}
    (container,) = build_pod(template, "p", "fleet", intent((CPU, "a")), {})["spec"]["containers"]
    assert [v["value"] for v in container["env"] if v["name"] == "EVERSPOT_STOP_SECONDS"] == [stop]


def test_a_template_stays_as_it_is_and_its_labels_with_it() -> None:
    before = json.dumps(TEMPLATE)
    pod = build_pod(TEMPLATE, "p", "fleet", intent((CPU, "a")), {})
    assert json.dumps(TEMPLATE) == before
    assert pod["metadata"]["labels"] == {
        "app": "train", "everspot/cluster": "fleet", "everspot/role": "agent", "everspot/launch": "ab" * 16,
    }  # fmt: skip
    assert pod["spec"]["restartPolicy"] == "Never"


def test_a_template_without_the_agents_container_is_refused() -> None:
    template = {"metadata": {"name": "train-1"}, "template": {"spec": {"containers": [{"name": "main"}]}}}
    with pytest.raises(BadTemplate, match="the PodTemplate train-1 has no container named agent"):
        build_pod(template, "p", "fleet", intent((CPU, "a")), {})


def test_names_follow_from_the_launch() -> None:
    launch = intent((CPU, "a"), count=2)
    stem = f"fleet-{'ab' * 10}"
    assert names("fleet", launch) == names("fleet", launch) == (f"{stem}-0", f"{stem}-1")


def test_no_two_launches_of_a_cluster_have_a_name_in_common(tmp_path: Path) -> None:
    """The ledger keeps each end for ever: a pod with the name of an ended one would cost nothing."""
    (tmp_path / "store").mkdir()
    intents = Intents(Store.open(*[(tmp_path / "store").as_uri()] * 2))
    tokens = [intents.token() for _ in range(2000)]
    cluster = "c" * MAX_CLUSTER_NAME
    launches = [intent((CPU, "a"), count=2).model_copy(update={"token": token}) for token in tokens]
    pod_names = [name for launch in launches for name in names(cluster, launch)]
    assert len(set(pod_names)) == len(pod_names)
    assert max(map(len, pod_names)) <= 63


@pytest.mark.parametrize(
    ("name", "launched"),
    [(f"fleet-{'ab' * 10}-0", True), (f"fleet-{'ab' * 6}-0", True), ("fleet-debug", False), ("copy", False)],
)
def test_a_pod_is_known_by_its_launch_and_name(name: str, launched: bool) -> None:
    pod = {"metadata": {"name": name, "labels": {"everspot/launch": "ab" * 16}}}
    assert is_launched(pod, "fleet") is launched
    assert not is_launched({"metadata": {"name": name}}, "fleet")


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, Trouble.CREDENTIALS), (403, Trouble.CREDENTIALS), (404, Trouble.REQUEST), (409, Trouble.TRANSIENT),
        (422, Trouble.REQUEST), (429, Trouble.THROTTLED), (500, Trouble.TRANSIENT), (504, Trouble.TRANSIENT),
    ],
)  # fmt: skip
def test_each_status_has_its_kind_of_failure(status: int, kind: Trouble) -> None:
    assert errors.trouble(ApiException(status=status, reason="x")) is kind


def test_an_api_server_that_does_not_answer_is_transient() -> None:
    assert errors.trouble(MaxRetryError(None, "/api")) is Trouble.TRANSIENT  # type: ignore[arg-type]
    assert errors.trouble(ValueError("not of the API server")) is None


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ('pods "p" is forbidden: exceeded quota: small, requested: pods=1, used: pods=4, limited: pods=4', "quota"),
        ('pods is forbidden: User "u" cannot create resource "pods" in API group ""', "credentials"),
        ('pods "p" is forbidden: violates PodSecurity "restricted:latest": privileged', "request"),
    ],
)
def test_a_forbidden_pod_has_one_of_three_causes(message: str, kind: str) -> None:
    error = ApiException(status=403, reason="Forbidden")
    error.body = json.dumps({"reason": "Forbidden", "message": message})
    assert errors.launch_trouble(error) is LaunchTrouble(kind)
    assert (errors.error_code(error), errors.error_message(error)) == ("Forbidden", message)


def test_an_agent_without_its_variables_says_which_is_missing() -> None:
    metadata = provider("kubernetes").metadata(ManualClock(), {}.get)
    with pytest.raises(MetadataError, match="EVERSPOT_MANIFEST is not set"):
        metadata.manifest()
    with pytest.raises(MetadataError, match="EVERSPOT_NODE is not set"):
        metadata.identity()
    assert metadata.end()


def test_a_pod_that_does_not_reach_the_machines_metadata_is_not_warned_by_it() -> None:
    metadata = provider("kubernetes").metadata(
        ManualClock(), {"AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.1:1"}.get
    )
    assert metadata.interruption() is None and metadata.rebalance() is None


def test_the_notice_is_the_pods_grace_and_no_pod_is_free() -> None:
    kubernetes = provider("kubernetes")
    manifest = Manifest(cluster="fleet", cloud="kubernetes", control_url="memory://", data_url="memory://")
    assert kubernetes.notice(manifest).total_seconds() == 30
    longer = Manifest.model_validate({**manifest.model_dump(), "notice": "100s"})
    assert kubernetes.notice(longer).total_seconds() == 100
    pod = LaunchRecord(
        instance_id="p", instance_type="c6i.large", zone="us-east-1a", market=Market.SPOT, launched_at=datetime.now(UTC)
    )
    soon = timedelta(minutes=5)
    assert not kubernetes.billing.is_free(pod, soon)
    assert kubernetes.billing.is_free(pod.model_copy(update={"role": Role.NODE}), soon)
    assert any("nodes of others" in cost for cost in kubernetes.billing.left_out)


GIB = 2**30
P3 = {"cpu": "64", "memory": f"{488 * GIB}", "nvidia.com/gpu": "8"}


def a_node(cluster: str = "", **allocatable: str) -> Document:
    labels = {"everspot/cluster": cluster} if cluster else {}
    return {
        "metadata": {"name": "n-1", "labels": labels},
        "spec": {"providerID": "aws:///us-east-1a/i-0123"},
        "status": {"allocatable": allocatable},
    }


def a_pod(*requests: dict[str, str], init: tuple[dict[str, str], ...] = (), limits: bool = False) -> Document:
    kind = "limits" if limits else "requests"
    containers, first = ([{"resources": {kind: some}} for some in group] for group in (requests, init))
    labels = {"everspot/cluster": "fleet"}
    return {"metadata": {"labels": labels}, "spec": {"containers": containers, "initContainers": first}}


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        # AWS's example: of $10 an hour a GPU costs $0.504, a vCPU $0.05 and a GB $0.0056.
        (a_pod({"nvidia.com/gpu": "1"}, limits=True), 0.0504),
        (a_pod({"cpu": "10"}), 0.0504),
        (a_pod({"memory": "90Gi"}), 0.0504),
        (a_pod({"memory": "94371840Ki"}), 0.0504),
        (a_pod({"memory": "96636764160"}), 0.0504),
        (a_pod({"memory": "96636764k"}), 0.0504),
        (a_pod({"memory": "0.1P"}), 1.0),
        (a_pod({"cpu": "5"}, {"cpu": "5000m"}), 0.0504),
        (a_pod({"cpu": "1"}, init=({"cpu": "10"}, {"cpu": "2"})), 0.0504),
        (a_pod(P3), 1.0),
        (a_pod({}), 1.0),
        (a_pod({"ephemeral-storage": "1Gi"}), 1.0),
        (a_pod({"cpu": "1n"}), LEAST),
    ],
)
def test_a_node_of_others_is_shared_by_requests_as_aws_does(pod: Document, expected: float) -> None:
    assert billed_share(pod, a_node(**P3)) == pytest.approx(expected, rel=2e-3)
    assert billed_share(pod, a_node("other", **P3)) == pytest.approx(expected, rel=2e-3)
    assert billed_share(pod, a_node("fleet", **P3)) == 1.0


def test_shares_of_all_pods_of_a_node_add_up_to_no_more_than_the_node() -> None:
    pods = [
        a_pod({"cpu": "16", "memory": "100Gi"}),
        a_pod({"cpu": "48", "nvidia.com/gpu": "8"}),
        a_pod({"memory": "388Gi"}),
    ]
    assert sum(billed_share(pod, a_node(**P3)) for pod in pods) == pytest.approx(1)


def test_a_node_is_named_as_its_machine() -> None:
    assert machine_name(a_node()) == "i-0123"
    assert machine_name({"metadata": {"name": "n-1"}, "spec": {}}) == "n-1"


def test_a_shell_is_in_the_declared_namespace() -> None:
    places = {"us-east-1a": "vision", "us-east-1b": "vision"}
    elastic = Elastic(types=["m6i.large"], markets=[Market.SPOT], max_instances=1, template="t", template_version="1",
                      places=places)  # fmt: skip
    manifest = Manifest(cluster="fleet", cloud="kubernetes", control_url="memory://", data_url="memory://",
                        elastic=elastic)  # fmt: skip
    remote_access = provider("kubernetes").remote_access(manifest)
    assert remote_access.enter("p", "ls").command[:5] == ("kubectl", "exec", "-n", "vision", "-it")
    assert remote_access.forward("p", 1, 2).command == ("kubectl", "port-forward", "-n", "vision", "pod/p", "2:1")


def test_a_shell_is_kubectls() -> None:
    manifest = Manifest(cluster="fleet", cloud="kubernetes", control_url="memory://", data_url="memory://")
    remote_access = provider("kubernetes").remote_access(manifest)
    assert remote_access.enter("p", "ls -l").command == (
        "kubectl",
        "exec",
        "-it",
        "p",
        "-c",
        "agent",
        "--",
        "sh",
        "-c",
        "ls -l",
    )
    forward = remote_access.forward("p", 6006, 16006)
    assert forward.command == ("kubectl", "port-forward", "pod/p", "16006:6006")
    assert "create pods/portforward" in forward.denied
