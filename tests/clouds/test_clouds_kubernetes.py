"""The Kubernetes adapter against a real API server, with the rights that the guide gives to a scheduler and an agent.

Nodes are processes that run pods as processes; Karpenter's events and claims are written by the tests, as it writes
them."""

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from everspot.kubernetes import seccomp
from everspot_clouds.base import CloudInstance, LaunchAnswer, MessageKind, Phase, StillPending, Trouble, Verdict
from everspot_clouds.kubernetes.capacity import PATIENCE, REPEATS
from everspot_clouds.kubernetes.checks import kubernetes_checks
from everspot_clouds.kubernetes.client import KubernetesClient
from everspot_clouds.kubernetes.cloud import KubernetesCloud
from everspot_clouds.kubernetes.rules import RELEASED_NOTE, SHARE_LABEL
from everspot_clouds.null_cloud import NullCloud
from everspot_core.capacity.catalogue import builtin
from everspot_core.capacity.launching import LaunchIntent, LaunchPool, LaunchTrouble, store_mark
from everspot_core.capacity.market import Market
from everspot_core.cluster.manifest import Elastic, Manifest
from everspot_local.kubernetes.api import KubeApiError
from everspot_local.kubernetes.kubelet import PROFILES
from everspot_local.kubernetes.seccomp import write_profiles
from everspot_store import ManualClock
from kubernetes_place import MISSING, PROGRAM, TYPE, WITHIN, ZONE, Place, eventually

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason=MISSING)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(datetime.now(UTC))


@pytest.fixture
def cloud(place: Place, clock: ManualClock) -> Iterator[KubernetesCloud]:
    cloud = KubernetesCloud(KubernetesClient.open(), manifest(), NullCloud(), clock, reads=False)
    yield cloud
    cloud.close()


def manifest(**update: object) -> Manifest:
    elastic = Elastic(
        types=[TYPE], markets=[Market.SPOT, Market.ON_DEMAND], max_instances=8, template="train", template_version="1",
        places={ZONE: ZONE},
    )  # fmt: skip
    fields = {"cluster": "fleet", "cloud": "kubernetes", "control_url": "memory://", "data_url": "memory://"}
    return Manifest.model_validate({**fields, "elastic": elastic, **update})


def intent(count: int = 1, *, market: Market = Market.SPOT, whole: bool = False, **pool: Any) -> LaunchIntent:
    pools = (LaunchPool(**{"instance_type": TYPE, "zone": ZONE, "market": market, "place": ZONE, **pool}),)
    token = store_mark(manifest().control_url) + uuid4().hex[:24]
    return LaunchIntent(
        seq=1, token=token, jobs=tuple(f"job-{n}" for n in range(count)), pools=pools, ordered=False, whole=whole,
        template="train", template_version="1", usd_per_hour=1, made_at=datetime.now(UTC), scheduler_id="s",
    )  # fmt: skip


def settle(cloud: KubernetesCloud, launch: LaunchIntent) -> LaunchAnswer:
    """The answer to a launch, which is asked for until there is one, as a scheduler does."""

    def request() -> LaunchAnswer | None:
        try:
            return cloud.launch(launch)
        except StillPending as error:
            assert cloud.trouble(error) is Trouble.TRANSIENT
            return None

    answer = eventually(request)
    assert answer is not None
    return answer


def launched(cloud: KubernetesCloud, launch: LaunchIntent | None = None) -> str:
    """The only instance of a launch."""
    (instance,) = settle(cloud, launch or intent()).instances
    return instance.instance_id


def described(cloud: KubernetesCloud, name: str) -> CloudInstance | None:
    return next((i for i in cloud.instances() if i.instance_id == name), None)


def is_running(place: Place, name: str) -> bool:
    return place.pods()[name]["status"]["phase"] == "Running"


def ended(cloud: KubernetesCloud, name: str) -> CloudInstance:
    def describe() -> CloudInstance | None:
        instance = described(cloud, name)
        return instance if instance is not None and instance.phase is Phase.ENDED else None

    instance = eventually(describe)
    assert instance is not None
    return instance


def test_a_launch_is_a_pod_on_a_node_of_its_pool_and_happens_once(place: Place, cloud: KubernetesCloud) -> None:
    for market, zone in (("spot", "us-east-1b"), ("on-demand", ZONE), ("spot", ZONE)):
        node = place.node(market, zone=zone)
    launch = intent()
    name = launched(cloud, launch)
    assert launched(cloud, launch) == name
    assert {n: pod["spec"]["nodeName"] for n, pod in place.pods().items()} == {name: node}
    instance = described(cloud, name)
    assert instance is not None
    assert (instance.instance_type, instance.zone, instance.market) == (TYPE, ZONE, Market.SPOT)
    assert (instance.launch, instance.phase, instance.interrupted) == (launch.token, Phase.ALIVE, None)
    assert abs(instance.launched_at - datetime.now(UTC)) < timedelta(minutes=5)


def test_two_agents_never_share_a_node(place: Place, cloud: KubernetesCloud) -> None:
    nodes = {place.node(), place.node()}
    answer = settle(cloud, intent(2))
    assert len(answer.instances) == 2
    assert {pod["spec"]["nodeName"] for pod in place.pods().values()} == nodes


def test_what_gets_no_node_is_refused_once_patience_ends_and_withdrawn(
    place: Place, cloud: KubernetesCloud, clock: ManualClock
) -> None:
    place.node("on-demand")
    launch = intent()
    with pytest.raises(StillPending):
        cloud.launch(launch)
    clock.advance(PATIENCE)
    answer = settle(cloud, launch)
    assert answer.instances == ()
    (error,) = answer.errors
    assert (error.kind, error.instance_type, error.zone) == (LaunchTrouble.CAPACITY, TYPE, ZONE)
    assert place.pods() == {}


def test_a_missing_claim_with_datasets_is_the_reason_and_a_bound_one_is_mounted(
    place: Place, cloud: KubernetesCloud, clock: ManualClock
) -> None:
    place.node()
    volume = {"name": "datasets", "persistentVolumeClaim": {"claimName": "flowers", "readOnly": True}}
    namespace = f"/api/v1/namespaces/{place.name}"
    place.api.patch(f"{namespace}/podtemplates/train-1", {"template": {"spec": {"volumes": [volume]}}})
    launch = intent()
    with pytest.raises(StillPending):
        cloud.launch(launch)
    eventually(lambda: [pod for pod in place.pods().values() if pod["status"].get("conditions")])
    clock.advance(PATIENCE)
    (error,) = settle(cloud, launch).errors
    assert (error.kind, error.code) == (LaunchTrouble.CAPACITY, "Unschedulable")
    assert 'persistentvolumeclaim "flowers" not found' in error.message
    place.create_claim("flowers")
    agent = launched(cloud)
    assert volume in place.pods()[agent]["spec"]["volumes"]


READER = """
print(open("/mnt/datasets/word").read())
try:
    open("/mnt/datasets/other", "w")
except OSError as error:
    print(error.strerror)
"""


def test_the_local_kubelet_mounts_a_claim_read_only_at_its_path(
    place: Place, cloud: KubernetesCloud, tmp_path: Path
) -> None:
    place.node()
    (tmp_path / "flowers").mkdir()
    (tmp_path / "flowers/word").write_text("tulip")
    place.create_claim("flowers", hostPath={"path": str(tmp_path / "flowers")})
    place.template(sys.executable, "-c", READER)
    mount = {"name": "datasets", "mountPath": "/mnt/datasets", "readOnly": True}
    template = place.api.get(f"/api/v1/namespaces/{place.name}/podtemplates/train-1")["template"]
    template["spec"]["containers"][0]["volumeMounts"] = [mount]
    template["spec"]["volumes"] = [{"name": "datasets", "persistentVolumeClaim": {"claimName": "flowers"}}]
    place.api.patch(f"/api/v1/namespaces/{place.name}/podtemplates/train-1", {"template": template})
    agent = launched(cloud)
    assert ended(cloud, agent).interrupted is False
    assert place.log(agent).splitlines() == ["tulip", "Read-only file system"]
    assert not (tmp_path / "flowers/other").exists()


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("Failed to schedule pod, no instance type has enough resources", LaunchTrouble.CAPACITY),
        ('all available instance types exceed limits for nodepool: "everspot"', LaunchTrouble.TRANSIENT),
    ],
)
def test_karpenters_refusal_is_the_answer(
    place: Place, cloud: KubernetesCloud, message: str, kind: LaunchTrouble
) -> None:
    launch = intent()
    with pytest.raises(StillPending):
        cloud.launch(launch)
    (name,) = place.pods()
    place.write_event(name, "FailedScheduling", message)
    (error,) = settle(cloud, launch).errors
    assert (error.kind, error.code, error.message) == (kind, "FailedScheduling", message)
    assert place.pods() == {}


def test_a_refusal_is_over_once_karpenter_has_nominated_a_claim_that_is_there(
    place: Place, cloud: KubernetesCloud
) -> None:
    launch = intent()
    with pytest.raises(StillPending):
        cloud.launch(launch)
    (name,) = place.pods()
    place.write_event(name, "FailedScheduling", "of an earlier pod", uid=str(uuid4()), seconds=20)
    place.write_event(name, "FailedScheduling", "nodepool is not ready", seconds=-10)
    place.apply({"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": place.name}})
    place.write_event(name, "Nominated", f"Pod should schedule on: nodeclaim/{place.name}")
    with pytest.raises(StillPending):
        cloud.launch(launch)
    assert list(place.pods()) == [name]
    place.api.delete(f"/apis/karpenter.sh/v1/nodeclaims/{place.name}")  # EC2 had no capacity for it
    (error,) = settle(cloud, launch).errors
    assert error.message == "nodepool is not ready"
    assert place.pods() == {}


def test_a_pod_that_ends_while_others_of_its_launch_wait_is_not_created_again(
    place: Place, cloud: KubernetesCloud, tmp_path: Path
) -> None:
    node, launch = place.node(), intent(2)
    place.template("sh", "-c", f"while [ ! -e {tmp_path}/go ]; do sleep 0.1; done; exit 3")
    with pytest.raises(StillPending):
        cloud.launch(launch)
    (first,) = eventually(lambda: [name for name, pod in place.pods().items() if pod["spec"].get("nodeName")])
    other: dict[str, Any] = {
        "metadata": {"name": "other", "labels": {"everspot/cluster": "other"}},
        "spec": {"nodeName": node, "containers": [{"name": "agent", "image": "none", "command": ["sleep", "1000"]}]},
    }
    place.apply({"apiVersion": "v1", "kind": "Pod", **other})  # so that the second pod waits for another node
    (tmp_path / "go").touch()
    eventually(lambda: place.pods()[first]["status"]["phase"] == "Failed")
    uids = {name: pod["metadata"]["uid"] for name, pod in place.pods().items()}
    for _ in range(REPEATS + 2):
        described(cloud, first)
        with pytest.raises(StillPending):
            cloud.launch(launch)
    assert {name: pod["metadata"]["uid"] for name, pod in place.pods().items()} == uids
    place.node()
    assert {instance.instance_id for instance in settle(cloud, launch).instances} == uids.keys() - {"other"}


def test_a_machine_that_was_launched_for_a_pod_is_the_answer_before_it_boots(
    place: Place, cloud: KubernetesCloud
) -> None:
    launch = intent()
    with pytest.raises(StillPending):
        cloud.launch(launch)
    (name,) = place.pods()
    claim: dict[str, Any] = {
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": place.name, "labels": {
            "node.kubernetes.io/instance-type": TYPE, "topology.kubernetes.io/zone": ZONE,
            "karpenter.sh/capacity-type": "spot"}},
    }  # fmt: skip
    place.apply(claim)
    place.write_event(name, "Nominated", f"Pod should schedule on: nodeclaim/{place.name}")
    path = f"/apis/karpenter.sh/v1/nodeclaims/{place.name}"
    # The share of a machine of another NodePool follows from its node alone.
    for change in ({}, {"status": {"providerID": "aws:///a/i-1"}}):
        place.api.patch(path, change)
        with pytest.raises(StillPending):
            cloud.launch(launch)
    place.api.patch(path, {"metadata": {"labels": {"everspot/cluster": "fleet"}}})
    (instance,) = settle(cloud, launch).instances
    assert (instance.instance_id, instance.instance_type, instance.zone) == (name, TYPE, ZONE)
    assert (instance.node, instance.node_share) == ("i-1", 1.0)
    assert described(cloud, name) is None


@pytest.mark.parametrize("whole", [False, True])
def test_a_launch_that_is_served_in_part_keeps_that_part_unless_all_are_needed(
    place: Place, cloud: KubernetesCloud, clock: ManualClock, whole: bool
) -> None:
    place.node()
    launch = intent(2, whole=whole)
    with pytest.raises(StillPending):
        cloud.launch(launch)
    eventually(lambda: any(pod["spec"].get("nodeName") for pod in place.pods().values()))
    clock.advance(PATIENCE)
    answer = settle(cloud, launch)
    assert (len(answer.instances), len(answer.errors)) == (0 if whole else 1, 1)
    if whole:
        eventually(lambda: cloud.instances() == [])
    else:
        assert len(place.pods()) == 1


def test_a_launch_of_all_or_none_ends_no_pod_before_those_that_wait_are_withdrawn(
    place: Place, cloud: KubernetesCloud, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a pod that waits gets the node of the one that was ended."""
    place.node()
    launch = intent(2, whole=True)
    with pytest.raises(StillPending):
        cloud.launch(launch)
    eventually(lambda: any(pod["spec"].get("nodeName") for pod in place.pods().values()))
    clock.advance(PATIENCE)
    delete = cloud._client.delete_pod

    def changed(name: str, **options: Any) -> None:
        place.api.patch(f"/api/v1/namespaces/{place.name}/pods/{name}", {"metadata": {"labels": {"changed": "now"}}})
        delete(name, **options)

    with monkeypatch.context() as patched:
        patched.setattr(cloud._client, "delete_pod", changed)
        with pytest.raises(StillPending, match="changed"):
            cloud.launch(launch)
    assert not [pod for pod in place.pods().values() if RELEASED_NOTE in pod["metadata"].get("annotations", {})]
    answer = settle(cloud, launch)
    assert (len(answer.instances), len(answer.errors)) == (0, 1)
    eventually(lambda: cloud.instances() == [])


def test_a_released_pod_gets_its_grace_and_is_not_interrupted(place: Place, cloud: KubernetesCloud) -> None:
    place.node()
    place.template("sh", "-c", "trap 'echo saved; exit 0' TERM; echo up; while true; do sleep 0.1; done")
    name = launched(cloud)
    eventually(lambda: is_running(place, name) and "up" in place.log(name))
    cloud.terminate([name, "unknown"])
    instance = ended(cloud, name)
    assert instance.interrupted is False
    assert instance.ended_at is not None and abs(instance.ended_at - datetime.now(UTC)) < timedelta(minutes=5)
    assert "saved" in place.log(name)
    assert cloud.messages() == []
    for _ in range(REPEATS):
        cloud.instances()
    assert eventually(lambda: not place.pods()) and cloud.instances() == []


def test_an_agent_that_ends_by_itself_is_a_failed_launch_and_one_that_others_end_is_none(
    place: Place, cloud: KubernetesCloud
) -> None:
    place.node()
    place.template("sh", "-c", "exit 3")
    failure = ended(cloud, launched(cloud)).failure
    assert failure is not None
    assert (failure.kind, failure.code, failure.instance_type) == (LaunchTrouble.TRANSIENT, "Error", "")
    assert "exit code 3" in failure.message
    place.template("sh", "-c", "trap 'exit 4' TERM; echo up; while true; do sleep 0.1; done")
    for end in (lambda name: cloud.terminate([name]), place.evict):
        name = launched(cloud)
        eventually(lambda name=name: is_running(place, name) and "up" in place.log(name))
        end(name)
        assert ended(cloud, name).failure is None


@pytest.mark.parametrize("by", ["eviction", "person"])
def test_what_others_end_is_interrupted_and_announced_with_its_deadline(
    place: Place, cloud: KubernetesCloud, by: str
) -> None:
    place.node()
    name = launched(cloud)
    eventually(lambda: is_running(place, name))
    if by == "eviction":
        place.evict(name)
    else:
        place.api.delete(f"/api/v1/namespaces/{place.name}/pods/{name}")
    (message,) = eventually(cloud.messages)
    assert (message.kind, message.instance_id) == (MessageKind.WARNING, name)
    assert message.deadline is not None
    assert timedelta(0) < message.deadline - datetime.now(UTC) + WITHIN
    assert ended(cloud, name).interrupted is True


def test_the_end_of_a_pod_is_described_by_a_scheduler_that_starts_after_it(
    place: Place, cloud: KubernetesCloud, clock: ManualClock
) -> None:
    place.node()
    name = launched(cloud)
    eventually(lambda: is_running(place, name))
    cloud.instances()
    place.evict(name)
    eventually(lambda: place.pods()[name]["status"]["phase"] in ("Succeeded", "Failed"))
    successor = KubernetesCloud(KubernetesClient.open(), manifest(), NullCloud(), clock, reads=False)
    assert ended(successor, name).interrupted is True
    successor.close()


def test_a_pod_whose_node_is_gone_keeps_its_type_zone_and_market(
    place: Place, cloud: KubernetesCloud, clock: ManualClock
) -> None:
    node = place.node()
    name = launched(cloud)
    place.lose(node)
    reader = KubernetesCloud(KubernetesClient.open(), manifest(), NullCloud(), clock, reads=True)
    instance = described(reader, name)
    assert instance is not None and (instance.instance_type, instance.zone) == (TYPE, ZONE)
    assert reader.messages() == []
    reader.close()
    # Kubernetes gives the pod up within a minute or so; the finalizer keeps it until its end is described.
    assert ended(cloud, name).interrupted is True


def test_pods_that_no_scheduler_launched_are_neither_described_nor_touched(
    place: Place, cloud: KubernetesCloud
) -> None:
    node = place.node()
    name = launched(cloud)
    assert described(cloud, name) is not None
    copied = place.pods()[name]["metadata"]["labels"]  # as `kubectl debug --copy-to --keep-labels` does
    own = {key: value for key, value in copied.items() if key != "everspot/launch"} | {"everspot/share": "cheap"}
    for other, labels in (("copy", copied), ("own", own)):
        containers = [{"name": "agent", "image": "none", "command": ["sleep", "1000"]}]
        pod = {"metadata": {"name": other, "labels": labels}, "spec": {"nodeName": node, "containers": containers}}
        place.apply({"apiVersion": "v1", "kind": "Pod", **pod})
    assert [instance.instance_id for instance in cloud.instances()] == [name]
    for other in ("copy", "own"):
        place.api.delete(f"/api/v1/namespaces/{place.name}/pods/{other}")
    place.evict(name)
    received: list[str] = []
    eventually(lambda: received.extend(message.instance_id for message in cloud.messages()) or name in received)
    assert received == [name]


def test_a_share_that_somebody_else_wrote_counts_as_the_whole(place: Place, cloud: KubernetesCloud) -> None:
    place.node()
    name = launched(cloud)
    for share in ("cheap", "nan", "0", "7"):
        place.api.patch(f"/api/v1/namespaces/{place.name}/pods/{name}", {"metadata": {"labels": {SHARE_LABEL: share}}})
        instance = described(cloud, name)
        assert instance is not None and instance.node_share == 1.0


def test_an_admission_policy_that_refuses_our_labels_stops_no_tick(place: Place, cloud: KubernetesCloud) -> None:
    place.node()
    forbid_machine_labels(place)
    name = launched(cloud)
    for _ in range(2):
        instance = described(cloud, name)
        assert instance is not None and (instance.instance_type, instance.zone) == (TYPE, ZONE)
    assert "everspot/machine" not in place.pods()[name]["metadata"]["labels"]


def forbid_machine_labels(place: Place) -> None:
    """Let the API server refuse the labels with which a scheduler notes a pod's placement."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods"]}
    expression = "!has(object.metadata.labels) || !('everspot/machine' in object.metadata.labels)"
    spec: dict[str, Any] = {
        "matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": expression}],
        "failurePolicy": "Fail",
    }  # fmt: skip
    bound = {"policyName": place.name, "validationActions": ["Deny"], "matchResources": {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": place.name}}}}  # fmt: skip
    base = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic"
    place.api.create(f"{base}ies", {"metadata": {"name": place.name}, "spec": spec})
    place.api.create(f"{base}ybindings", {"metadata": {"name": place.name}, "spec": bound})
    pod = f"/api/v1/namespaces/{place.name}/pods"
    containers = [{"name": "agent", "image": "none"}]
    place.api.create(pod, {"metadata": {"name": "probe"}, "spec": {"nodeName": "none", "containers": containers}})

    def refused() -> bool:  # a policy takes effect a moment after it was created
        try:
            place.api.patch(f"{pod}/probe", {"metadata": {"labels": {"everspot/machine": "i-1"}}})
        except KubeApiError as error:
            return error.status == 422
        place.api.patch(f"{pod}/probe", {"metadata": {"labels": {"everspot/machine": None}}})
        return False

    eventually(refused)
    place.api.delete(f"{pod}/probe?gracePeriodSeconds=0")


def test_a_reader_changes_nothing(place: Place, cloud: KubernetesCloud, clock: ManualClock) -> None:
    place.node()
    place.template("true")
    name = launched(cloud)
    reader = KubernetesCloud(KubernetesClient.open(), manifest(), NullCloud(), clock, reads=True)
    assert ended(reader, name).interrupted is False
    for _ in range(REPEATS + 1):
        reader.instances()
    assert name in place.pods()
    reader.close()


@pytest.mark.parametrize(
    ("spoil", "kind", "code"),
    [
        ("template", LaunchTrouble.REQUEST, "NotFound"),
        ("container", LaunchTrouble.REQUEST, "BadTemplate"),
        ("quota", LaunchTrouble.QUOTA, "Forbidden"),
        ("rights", LaunchTrouble.CREDENTIALS, "Forbidden"),
        ("price", LaunchTrouble.REQUEST, "MaxPrice"),
    ],
)
def test_a_request_that_is_not_accepted_is_a_refusal(
    place: Place, cloud: KubernetesCloud, spoil: str, kind: LaunchTrouble, code: str
) -> None:
    launch = intent()
    if spoil == "template":
        place.api.delete(f"/api/v1/namespaces/{place.name}/podtemplates/train-1")
    elif spoil == "container":
        place.template("true", container="other")
    elif spoil == "quota":
        quota = {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
        path = f"/api/v1/namespaces/{place.name}/resourcequotas"
        place.api.create(path, quota)
        place.api.patch(f"{path}/none/status", {"status": {"hard": {"pods": "0"}, "used": {"pods": "0"}}})
    elif spoil == "rights":
        rules = [{"apiGroups": [""], "resources": ["pods", "podtemplates"], "verbs": ["get", "list", "watch"]}]
        path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{place.name}/roles/everspot-scheduler"
        place.api.patch(path, {"rules": rules})
        eventually(lambda: not KubernetesClient.open().may("create", "pods"))
    else:
        launch = intent(max_price=0.1)
    answer = settle(cloud, launch)
    assert answer.instances == ()
    assert [(e.kind, e.code) for e in answer.errors] == [(kind, code)]
    assert place.pods() == {}


def test_an_agent_in_a_pod_knows_itself_and_may_read_nothing_but_nodes(place: Place, cloud: KubernetesCloud) -> None:
    program = """
import json, os
from everspot_clouds.registry import provider
from everspot_clouds.kubernetes.client import KubernetesClient
from everspot_store import SystemClock
metadata = provider(os.environ["EVERSPOT_CLOUD"]).metadata(SystemClock(), os.environ.get)
identity = metadata.identity()
client = KubernetesClient.open()
may = [f"{verb} {what}" for what in ("pods", "secrets", "nodes", "events", "configmaps", "podtemplates")
       for verb in ("get", "list", "create", "patch", "delete") if client.may(verb, what)]
print(json.dumps([identity.instance_id, identity.instance_type, identity.zone, identity.market,
                  os.environ["EVERSPOT_STOP_SECONDS"], may]))
"""
    place.node("on-demand")
    place.template(sys.executable, "-c", program, grace=100)
    name = launched(cloud, intent(market=Market.ON_DEMAND))
    assert ended(cloud, name).interrupted is False, place.log(name)
    assert json.loads(place.log(name)) == [name, TYPE, ZONE, "on-demand", "90", ["get nodes"]]


def test_what_the_local_kubelet_does_not_know_is_refused(place: Place, cloud: KubernetesCloud) -> None:
    place.node()
    template = f"/api/v1/namespaces/{place.name}/podtemplates/train-1"
    containers = [{"name": "agent", "image": "none", "command": ["true"], "workingDir": "/tmp"}]
    place.api.patch(template, {"template": {"spec": {"containers": containers}}})
    name = launched(cloud)
    assert ended(cloud, name).interrupted is False
    (status,) = place.pods()[name]["status"]["containerStatuses"]
    assert status["state"]["terminated"]["reason"] == "NotEmulated"
    assert status["state"]["terminated"]["message"] == "container.workingDir"


def test_the_local_kubelet_filters_system_calls_by_a_profile_that_its_node_has(place: Place) -> None:
    """Given a pod that names a profile of its node, when the node lacks it, then the container is not created, as
    containerd says it; when user data has written it, then the profile allows a user namespace and no other."""
    node = place.node()
    profile = {"type": "Localhost", "localhostProfile": seccomp.profile_name()}
    tries = "unshare --user --mount true && echo user; unshare --user --net true || echo no other"
    path = f"/api/v1/namespaces/{place.name}/pods"

    def start(name: str) -> None:
        container = {"name": "a", "image": "none", "command": ["sh", "-c", tries]}
        spec = {"nodeName": node, "restartPolicy": "Never", "securityContext": {"seccompProfile": profile}}
        place.api.create(path, {"metadata": {"name": name}, "spec": {**spec, "containers": [container]}})

    def state(name: str) -> dict[str, Any]:
        statuses = place.pods()[name]["status"].get("containerStatuses", [])
        return dict(statuses[0]["state"]) if statuses else {}

    start("without")
    waiting = eventually(lambda: state("without").get("waiting"))
    assert waiting["reason"] == "CreateContainerError"
    missing = f"/var/lib/kubelet/seccomp/{seccomp.profile_name()}"
    assert f'cannot load seccomp profile "{missing}"' in waiting["message"]
    write_profiles(seccomp.build_user_data(), place.folder / PROFILES)
    start("with")
    assert eventually(lambda: state("with").get("terminated"))["exitCode"] == 0
    lines = place.log("with").splitlines()
    assert (lines[0], lines[-1]) == ("user", "no other"), lines


def test_a_node_of_the_local_kubelet_has_its_resources_from_its_creation(place: Place) -> None:
    version = place.api.get("/api/v1/nodes")["metadata"]["resourceVersion"]
    name = place.node()
    changes = place.api.watch("/api/v1/nodes", version, timedelta(seconds=60))
    created = next(change["object"] for change in changes if change["object"]["metadata"]["name"] == name)
    assert created["status"]["capacity"]["memory"] == "4Gi"
    assert created["status"]["allocatable"] == created["status"]["capacity"]


def test_doctor_names_missing_rights_and_a_missing_template(place: Place, clock: ManualClock) -> None:
    checks = kubernetes_checks(manifest(), builtin())
    assert [check.verdict for check in checks[:2]] == [Verdict.OK, Verdict.OK]
    place.api.delete(f"/api/v1/namespaces/{place.name}/podtemplates/train-1")
    place.api.patch(
        f"/apis/rbac.authorization.k8s.io/v1/namespaces/{place.name}/roles/everspot-scheduler",
        {"rules": [{"apiGroups": [""], "resources": ["podtemplates"], "verbs": ["get"]}]},
    )
    eventually(lambda: not KubernetesClient.open().may("create", "pods"))
    rights, template, *_ = kubernetes_checks(manifest(), builtin())
    assert rights.verdict is Verdict.WARN
    assert "list pods" in rights.detail and "list events" in rights.detail and "nodes" not in rights.detail
    assert (template.verdict, template.name) == (Verdict.FAIL, "pod template")


def test_an_api_server_that_is_away_is_transient(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "1")
    cloud = KubernetesCloud(KubernetesClient.open(), manifest(), NullCloud(), ManualClock(), reads=True)
    with pytest.raises(Exception) as raised:
        cloud.instances()
    assert cloud.trouble(raised.value) is Trouble.TRANSIENT
    cloud.close()
