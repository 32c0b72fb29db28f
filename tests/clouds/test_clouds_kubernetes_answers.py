"""Answers of an API server that misbehaves, as the real client reads them from a loopback server."""

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from api_server_proxy import RESET, ApiServerProxy, Fault, proxied
from everspot_clouds.base import LaunchAnswer, MessageKind, Trouble, Verdict
from everspot_clouds.kubernetes import client as client_module
from everspot_clouds.kubernetes.capacity import ABANDONED
from everspot_clouds.kubernetes.checks import kubernetes_checks
from everspot_clouds.kubernetes.client import Document, KubernetesClient
from everspot_clouds.kubernetes.cloud import KubernetesCloud
from everspot_clouds.kubernetes.errors import is_status
from everspot_clouds.kubernetes.messages import Evictions
from everspot_clouds.null_cloud import NullCloud
from everspot_core.capacity.catalogue import builtin
from everspot_core.capacity.launching import LaunchTrouble
from everspot_core.capacity.market import Market
from everspot_store import ManualClock
from kubernetes_place import eventually
from test_clouds_kubernetes import intent, manifest

PODS = "/api/v1/namespaces/vision/pods"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServerProxy]:
    """A server without pods, and a kubeconfig that leads to it."""
    with proxied() as proxy:
        proxy.recorded[PODS] = {"items": [], "metadata": {"resourceVersion": "7"}}
        monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
        monkeypatch.setenv("KUBECONFIG", str(proxy.write_kubeconfig(tmp_path, "vision")))
        yield proxy


@pytest.fixture
def cloud(server: ApiServerProxy) -> Iterator[KubernetesCloud]:
    """A cloud of a reader, which watches nothing."""
    cloud = KubernetesCloud(KubernetesClient.open(), manifest(), NullCloud(), ManualClock(), reads=True)
    yield cloud
    cloud.close()


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, Trouble.CREDENTIALS), (403, Trouble.CREDENTIALS), (408, Trouble.TRANSIENT), (410, Trouble.TRANSIENT),
        (422, Trouble.REQUEST), (429, Trouble.THROTTLED), (500, Trouble.TRANSIENT), (503, Trouble.TRANSIENT),
        (RESET, Trouble.TRANSIENT),
    ],
)  # fmt: skip
def test_each_answer_has_its_kind_and_nobody_sleeps_for_it(
    server: ApiServerProxy, cloud: KubernetesCloud, status: int, kind: Trouble
) -> None:
    server.faults = [Fault(status, headers={"Retry-After": "3600"})]
    with pytest.raises(Exception) as raised:
        cloud.instances()
    assert cloud.trouble(raised.value) is kind
    assert server.count("GET") == 1


def test_a_server_that_does_not_answer_is_asked_once(
    server: ApiServerProxy, cloud: KubernetesCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()
    server.faults = [Fault(500, wait=lambda: over.wait(60))]
    monkeypatch.setattr(client_module, "_TIMEOUT", (5, 0.3))
    with pytest.raises(Exception) as raised:
        cloud.instances()
    over.set()
    assert cloud.trouble(raised.value) is Trouble.TRANSIENT
    assert server.count("GET") == 1


def test_an_answer_that_is_no_document_is_transient(server: ApiServerProxy, cloud: KubernetesCloud) -> None:
    """As one of a proxy on the way, or one that was cut."""
    server.faults = [Fault(200, lines=("<html>",))]
    with pytest.raises(Exception) as cut:
        cloud.instances()
    assert cloud.trouble(cut.value) is Trouble.TRANSIENT
    server.recorded[PODS] = "<html>"
    server.faults = []
    with pytest.raises(Exception) as html:
        cloud.instances()
    assert cloud.trouble(html.value) is Trouble.TRANSIENT


@pytest.mark.parametrize(("verb", "resource"), [("list", "pods"), ("get", "podtemplates"), ("create", "pods")])
def test_a_right_that_is_taken_away_is_no_wrong_request(
    server: ApiServerProxy, cloud: KubernetesCloud, verb: str, resource: str
) -> None:
    """A wrong request is never made again for this version of the template."""
    template = {"metadata": {"name": "train-1"}, "template": {"spec": {"containers": [{"name": "agent"}]}}}
    server.recorded["/api/v1/namespaces/vision/podtemplates/train-1"] = template
    message = f'{resource} is forbidden: User "u" cannot {verb} resource "{resource}" in API group ""'
    method = "POST" if verb == "create" else "GET"
    server.faults = [Fault(403, method, f"/{resource}", message=message)]
    try:
        answer = cloud.launch(intent())
    except Exception as error:
        assert cloud.trouble(error) is Trouble.CREDENTIALS and verb == "list"
    else:
        assert isinstance(answer, LaunchAnswer)
        assert [(error.kind, error.code) for error in answer.errors] == [(LaunchTrouble.CREDENTIALS, "Forbidden")]


def test_any_node_that_ends_makes_room_under_the_limit_of_the_node_pool(cloud: KubernetesCloud) -> None:
    names = [cloud.quota_name(kind, market) for kind in ("c6i.large", "g5.xlarge", "p4d.24xlarge") for market in Market]
    assert names == ["pods without GPUs"] * 2 + ["pods with GPUs"] * 4


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("Conflict", 'Operation cannot be fulfilled on resourcequotas "team": the object has been modified'),
        ("AlreadyExists", 'pods "p" already exists'),  # and another scheduler withdraws it before it is read
    ],
)
def test_a_conflict_that_passes_refuses_no_launch(
    server: ApiServerProxy, cloud: KubernetesCloud, reason: str, message: str
) -> None:
    template = {"metadata": {"name": "train-1"}, "template": {"spec": {"containers": [{"name": "agent"}]}}}
    server.recorded["/api/v1/namespaces/vision/podtemplates/train-1"] = template
    server.faults = [Fault(409, "POST", "/pods", message=message, reason=reason)]
    with pytest.raises(Exception) as raised:
        cloud.launch(intent())
    assert is_status(raised.value, 409) and cloud.trouble(raised.value) is Trouble.TRANSIENT


def a_deleted_pod() -> Document:
    launch, later = "ab" * 16, datetime.now(UTC) + timedelta(seconds=90)
    labels = {"everspot/cluster": "fleet", "everspot/role": "agent", "everspot/launch": launch}
    metadata = {
        "name": f"fleet-{launch[-20:]}-0", "uid": "u", "labels": labels, "deletionTimestamp": later.isoformat(),
        "resourceVersion": "8", "creationTimestamp": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    spec = {"nodeName": "n", "containers": [{"name": "agent", "image": "none"}]}
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Running"}}


@pytest.mark.parametrize("created", ["2020-01-01T00:00:00Z", "2099-01-01T00:00:00Z"])
def test_a_clock_that_differs_from_the_api_servers_ends_no_pod_that_waits_for_its_node(
    server: ApiServerProxy, created: str
) -> None:
    clock, pod = ManualClock(), a_deleted_pod()
    del pod["spec"]["nodeName"], pod["metadata"]["deletionTimestamp"]
    pod["metadata"]["creationTimestamp"], pod["status"]["phase"] = created, "Pending"
    server.recorded[PODS] = {"items": [pod], "metadata": {"resourceVersion": "9"}}
    cloud = KubernetesCloud(KubernetesClient.open(), manifest(), NullCloud(), clock, reads=False)
    for _ in range(2):
        assert cloud.instances() == []
        clock.advance(ABANDONED)
    assert server.count("DELETE") == 0
    clock.advance(timedelta(seconds=1))
    cloud.instances()
    cloud.close()
    assert server.count("DELETE") == 1


EXPIRED = '{"type": "ERROR", "object": {"code": 410, "reason": "Expired", "message": "too old"}}\n'


@pytest.mark.parametrize(
    "fault",
    [
        Fault(410), Fault(RESET), Fault(200, lines=(EXPIRED,)), Fault(200, lines=("\n", '{"type": "MODI')),
    ],
    ids=["gone", "reset", "expired", "cut"],
)  # fmt: skip
def test_a_watch_that_ends_early_is_followed_by_the_next_list(
    server: ApiServerProxy, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    """However often it happens: an eviction is not announced half a minute later."""
    pauses: list[timedelta] = []
    monkeypatch.setattr(Evictions, "wait", lambda listener, span: pauses.append(span) or listener._closed.wait(0.01))
    fault.path, fault.times = "watch=", 10_000
    server.faults = [fault]
    cloud = KubernetesCloud(KubernetesClient.open(), manifest(), NullCloud(), ManualClock(), reads=False)
    eventually(lambda: server.count("GET", "watch=") > 6)
    server.recorded[PODS] = {"items": [a_deleted_pod()], "metadata": {"resourceVersion": "9"}}
    (message,) = eventually(cloud.messages)
    cloud.close()
    assert (message.kind, message.instance_id) == (MessageKind.WARNING, f"fleet-{'ab' * 10}-0")
    assert set(pauses) == {timedelta(seconds=1)}


@pytest.mark.parametrize(
    ("fault", "words", "fix"),
    [
        (Fault(401, message="Unauthorized"), "refused (401): Unauthorized", "aws eks update-kubeconfig"),
        (Fault(403, message='User "system:anonymous" cannot'), "refused (403)", "aws eks update-kubeconfig"),
        (Fault(403, message='User "u" cannot'), "refused (403)", "ask for the right"),
        (Fault(429), "refused (429)", "in a minute"),
        (Fault(503), "refused (503)", "kubectl cluster-info"),
        (Fault(RESET), "does not answer", "kubectl cluster-info"),
    ],
    ids=["expired", "anonymous", "forbidden", "throttled", "unavailable", "reset"],
)
def test_doctor_names_what_is_wrong_with_the_api_server(
    server: ApiServerProxy, fault: Fault, words: str, fix: str
) -> None:
    server.faults = [fault]
    (check,) = kubernetes_checks(manifest(), builtin())
    assert (check.group, check.name, check.verdict) == ("credentials", "kubernetes", Verdict.FAIL)
    assert words in check.detail and "\n" not in check.detail
    assert fix in check.fix


def a_waiting_pod(reason: str, message: str) -> Document:
    """A pod with its node's placement whose agent the kubelet does not start."""
    pod = a_deleted_pod()
    del pod["metadata"]["deletionTimestamp"]
    pod["metadata"]["labels"] |= {
        "node.kubernetes.io/instance-type": "c6i.large", "topology.kubernetes.io/zone": "us-east-1a",
        "karpenter.sh/capacity-type": "spot",
    }  # fmt: skip
    waiting = {"name": "agent", "image": "repo/x:1", "state": {"waiting": {"reason": reason, "message": message}}}
    pod["status"] = {"phase": "Pending", "containerStatuses": [waiting]}
    return pod


@pytest.mark.parametrize(
    ("reason", "message", "kind"),
    [
        (
            "ImagePullBackOff",
            'Back-off pulling image "x": ErrImagePull: rpc error: x: not found',
            LaunchTrouble.REQUEST,
        ),
        ("ErrImagePull", "manifest unknown: Requested image not found", LaunchTrouble.REQUEST),
        (
            "ErrImagePull",
            "name unknown: The repository with name 'x' does not exist in the registry",
            LaunchTrouble.REQUEST,
        ),
        (
            "ImagePullBackOff",
            'Back-off pulling image "r/x": ErrImagePull: failed to resolve reference "r/x": pull access denied, '
            "repository does not exist or may require authorization: authorization failed: no basic auth credentials",
            LaunchTrouble.CREDENTIALS,
        ),
        ("CreateContainerConfigError", 'secret "credentials" not found', LaunchTrouble.REQUEST),
        ("CreateContainerConfigError", "failed to sync secret cache: timed out waiting for the condition", None),
        ("InvalidImageName", "", LaunchTrouble.REQUEST),
        ("ErrImagePull", "unexpected status code 503 Service Unavailable", None),
        ("ErrImagePull", "pulling from host x failed with status code: 403 Forbidden", LaunchTrouble.CREDENTIALS),
        ("ContainerCreating", "", None),
    ],
)
def test_a_pod_whose_agent_does_not_start_is_ended_with_its_reason_and_others_wait(
    server: ApiServerProxy, reason: str, message: str, kind: LaunchTrouble | None
) -> None:
    """What has to be corrected or granted ends the pod after minutes: its node is paid. What may pass does not."""
    clock, pod = ManualClock(), a_waiting_pod(reason, message)
    server.recorded[PODS] = {"items": [pod], "metadata": {"resourceVersion": "9"}}
    server.recorded[f"{PODS}/{pod['metadata']['name']}"] = pod
    cloud = KubernetesCloud(KubernetesClient.open(), manifest(), NullCloud(), clock, reads=False)
    patience = timedelta(minutes=4 if kind is LaunchTrouble.CREDENTIALS else 2)
    for _ in range(2):
        (instance,) = cloud.instances()
        assert (instance.failure, server.count("DELETE")) == (None, 0)
        clock.advance(patience / 2)
    cloud.instances()
    cloud.close()
    assert server.count("DELETE") == (1 if kind else 0)
    notes = [body["metadata"]["annotations"] for body in server.bodies("PATCH")]
    assert len(notes) == (2 if kind else 0)
    if kind:
        pod["metadata"]["annotations"] = {**notes[0], **notes[1]}
        (instance,) = cloud.instances()
        assert instance.failure is not None and instance.interrupted is None
        assert (instance.failure.kind, instance.failure.code) == (kind, reason)
        assert (message or "repo/x:1") in instance.failure.message


def test_a_pull_that_is_refused_again_and_again_ends_the_pod_between_two_pulls(server: ApiServerProxy) -> None:
    """An older kubelet does not say in between why the last pull failed."""
    clock, pod = ManualClock(), a_waiting_pod("ErrImagePull", "pull access denied")
    server.recorded[PODS] = {"items": [pod], "metadata": {"resourceVersion": "9"}}
    server.recorded[f"{PODS}/{pod['metadata']['name']}"] = pod
    cloud = KubernetesCloud(KubernetesClient.open(), manifest(), NullCloud(), clock, reads=False)
    waiting = pod["status"]["containerStatuses"][0]["state"]["waiting"]
    refused, pause = dict(waiting), {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "repo/x:1"'}
    for state in (refused, pause, refused, pause):
        waiting |= state
        cloud.instances()
        assert server.count("DELETE") == 0
        clock.advance(timedelta(minutes=1))
    cloud.instances()
    cloud.close()
    assert server.count("DELETE") == 1


def test_a_pod_that_its_kubelet_evicts_for_its_own_use_is_not_interrupted(
    server: ApiServerProxy, cloud: KubernetesCloud
) -> None:
    target = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
    message = "The node was low on resource: ephemeral-storage."
    pod = a_waiting_pod("", "")
    server.recorded[PODS] = {"items": [pod], "metadata": {"resourceVersion": "9"}}
    pod["status"] = {"phase": "Failed", "reason": "Evicted", "message": message, "conditions": [target]}
    (instance,) = cloud.instances()
    assert instance.interrupted is False and instance.failure is not None
    assert (instance.failure.code, instance.failure.message) == ("Evicted", message)
    del pod["status"]["reason"]  # as when the machine is switched off
    (instance,) = cloud.instances()
    assert (instance.interrupted, instance.failure) == (True, None)


def test_an_agent_without_enough_memory_is_named(server: ApiServerProxy, cloud: KubernetesCloud) -> None:
    pod = a_waiting_pod("", "")
    server.recorded[PODS] = {"items": [pod], "metadata": {"resourceVersion": "9"}}
    end = {"exitCode": 137, "reason": "OOMKilled", "finishedAt": "2026-01-01T00:10:00Z"}
    pod["status"] = {"phase": "Failed", "containerStatuses": [{"name": "agent", "state": {"terminated": end}}]}
    (instance,) = cloud.instances()
    assert (instance.interrupted, instance.ended_at) == (False, datetime(2026, 1, 1, 0, 10, tzinfo=UTC))
    assert instance.failure is not None
    assert (instance.failure.code, instance.failure.message) == ("OOMKilled", "its container ended with exit code 137")
