"""A real API server whose answers are lost, refused and cut on the way to the scheduler."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from api_server_proxy import RESET, ApiServerProxy, Fault, proxied
from everspot_clouds.base import StillPending, Trouble
from everspot_clouds.kubernetes.capacity import PATIENCE
from everspot_clouds.kubernetes.client import KubernetesClient
from everspot_clouds.kubernetes.cloud import KubernetesCloud
from everspot_clouds.kubernetes.instances import disruption, moment
from everspot_clouds.kubernetes.service_account import FOLDER_VARIABLE
from everspot_clouds.null_cloud import NullCloud
from everspot_core.capacity.market import Market
from everspot_scheduler.loop import Scheduler
from everspot_store import ManualClock
from kubernetes_place import MISSING, OWNER, PROGRAM, TYPE, ZONE, Place, eventually
from test_clouds_kubernetes import described, intent, is_running, launched, manifest, settle
from test_clouds_kubernetes_jobs import KubernetesCluster

T = TypeVar("T")
pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason=MISSING)


@pytest.fixture
def proxy(place: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServerProxy]:
    """A proxy between the API server and the scheduler's service account."""
    with proxied(place.plane) as proxy:
        token = (place.folder / "everspot-scheduler/token").read_text()
        monkeypatch.delenv("KUBERNETES_SERVICE_HOST")
        monkeypatch.setenv("KUBECONFIG", str(proxy.write_kubeconfig(place.folder, place.name, token)))
        yield proxy


def open_cloud(clock: ManualClock, *, reads: bool = False) -> KubernetesCloud:
    return KubernetesCloud(KubernetesClient.open(), manifest(), NullCloud(), clock, reads=reads)


def test_a_launch_whose_answers_are_lost_happens_once(place: Place, proxy: ApiServerProxy) -> None:
    place.node()
    launch, cloud = intent(), open_cloud(ManualClock(), reads=True)
    for method, path in (("POST", "/pods"), ("GET", "/podtemplates"), ("GET", "/events"), ("GET", "/nodes")):
        proxy.faults.append(Fault(RESET, method, path, times=1, forwards=True))
    failures = 0
    while any(fault.times for fault in proxy.faults):
        try:
            cloud.launch(launch)
        except StillPending:
            continue
        except Exception as error:
            assert cloud.trouble(error) is Trouble.TRANSIENT
            failures += 1
        else:
            break
    name = launched(cloud, launch)
    cloud.close()
    assert failures >= 3
    assert list(place.pods()) == [name]


def test_a_pod_whose_withdrawal_got_no_answer_is_withdrawn_by_the_next_request(
    place: Place, proxy: ApiServerProxy
) -> None:
    launch, clock = intent(), ManualClock()
    cloud = open_cloud(clock, reads=True)
    with pytest.raises(StillPending):
        cloud.launch(launch)
    clock.advance(PATIENCE)
    proxy.faults = [Fault(RESET, method, "/pods", times=1, forwards=True) for method in ("DELETE", "PATCH")]
    for _ in proxy.faults:
        with pytest.raises(Exception) as raised:
            cloud.launch(launch)
        assert cloud.trouble(raised.value) is Trouble.TRANSIENT
    answer = settle(cloud, launch)
    cloud.close()
    assert answer.instances == () and answer.errors
    assert place.pods() == {}


def test_an_eviction_is_announced_once_through_watches_that_are_cut(place: Place, proxy: ApiServerProxy) -> None:
    place.node()
    place.template("sh", "-c", "trap '' TERM; echo up; while true; do sleep 0.1; done")
    proxy.faults = [Fault(RESET, "GET", "watch=", times=2), Fault(410, "GET", "watch=")]
    cloud = open_cloud(ManualClock())
    name = launched(cloud)
    eventually(lambda: is_running(place, name) and "up" in place.log(name))
    place.evict(name)
    (message,) = eventually(cloud.messages)
    watches = proxy.count("GET", "watch=")
    eventually(lambda: proxy.count("GET", "watch=") > watches + 2)
    assert message.instance_id == name and cloud.messages() == []
    cloud.close()


def test_a_token_that_is_refused_is_replaced_without_a_restart(
    place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "account"
    (place.folder / "everspot-scheduler").rename(folder)
    monkeypatch.setenv(FOLDER_VARIABLE, str(folder))
    valid = (folder / "token").read_text()
    cloud = open_cloud(ManualClock(), reads=True)
    assert cloud.instances() == []
    (folder / "token").write_text("expired")
    with pytest.raises(Exception) as raised:
        cloud.instances()
    assert cloud.trouble(raised.value) is Trouble.CREDENTIALS
    (folder / "token").write_text("")  # a replacement under way: the last token is sent
    (folder / "token").write_text(valid)
    assert cloud.instances() == []
    (folder / "token").unlink()
    assert cloud.instances() == []
    cloud.close()


def test_rights_that_are_taken_away_for_a_while_lose_neither_pods_nor_evictions(place: Place) -> None:
    place.node()
    cloud = open_cloud(ManualClock())
    name = launched(cloud)
    eventually(lambda: is_running(place, name))
    role = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{place.name}/roles/everspot-scheduler"
    rules = place.api.get(role)["rules"]
    place.api.patch(role, {"rules": []})
    eventually(lambda: not KubernetesClient.open().may("list", "pods"))
    with pytest.raises(Exception) as raised:
        cloud.instances()
    assert cloud.trouble(raised.value) is Trouble.CREDENTIALS
    with pytest.raises(Exception) as raised:
        cloud.launch(intent())
    assert cloud.trouble(raised.value) is Trouble.CREDENTIALS
    place.api.patch(role, {"rules": rules})
    eventually(lambda: KubernetesClient.open().may("list", "pods"))
    assert described(cloud, name) is not None
    place.evict(name)
    (message,) = eventually(cloud.messages)
    assert message.instance_id == name
    cloud.close()


@pytest.mark.parametrize("status", [401, 429, RESET])
def test_a_scheduler_ticks_on_through_wrong_answers_and_launches_one_pod(
    place: Place, proxy: ApiServerProxy, status: int
) -> None:
    place.node()
    cluster = KubernetesCluster(place)
    cloud = KubernetesCloud(KubernetesClient.open(), cluster.manifest, NullCloud(), cluster.store.clock, reads=False)
    scheduler = Scheduler(cluster.store, cluster.manifest, cloud, "scheduler")
    cluster.submit("job-1", 5)
    proxy.faults = [Fault(status, headers={"Retry-After": "60"}, forwards=status == RESET)]
    refusals = 0
    while refusals < 3:
        scheduler.tick()
        refusals = proxy.count("GET", "/pods?") + proxy.count("POST", "/pods")
    proxy.faults = []

    def is_over() -> bool:
        scheduler.tick()
        return cluster.has_ended("job-1") and bool(cluster.store.launches.scan())

    eventually(is_over)
    cloud.close()
    record = cluster.store.records.get("job-1")
    assert record is not None and (record.value.preemptions, record.value.errors) == (0, 0)
    assert len(cluster.store.launches.scan()) == 1
    assert proxy.count("POST", "/pods") == 1


def tick_until(scheduler: Scheduler, look: Callable[[], T]) -> T:
    """Tick until a look returns something true."""

    def tick() -> T:
        scheduler.tick()
        return look()

    return eventually(tick)


def test_a_missing_secret_ends_the_pod_and_the_launches_with_its_reason(place: Place, proxy: ApiServerProxy) -> None:
    """The node has no kubelet; the test says what a kubelet says."""
    labels = {"node.kubernetes.io/instance-type": TYPE, "topology.kubernetes.io/zone": ZONE, OWNER: place.name,
              "karpenter.sh/capacity-type": "spot", "kubernetes.io/hostname": place.name}  # fmt: skip
    resources = {"cpu": "2", "memory": "4Gi", "pods": "10"}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    status = {"capacity": resources, "allocatable": resources, "conditions": [ready]}
    place.api.create("/api/v1/nodes", {"metadata": {"name": place.name, "labels": labels}, "status": status})
    eventually(lambda: place.is_ready(place.name))
    cluster, clock = KubernetesCluster(place, [Market.SPOT]), ManualClock()
    cloud = KubernetesCloud(KubernetesClient.open(), cluster.manifest, NullCloud(), clock, reads=False)
    scheduler = Scheduler(cluster.store, cluster.manifest, cloud, "scheduler")
    cluster.submit("job-1", 5)
    path = f"/api/v1/namespaces/{place.name}/pods"
    name = tick_until(scheduler, lambda: next((n for n, p in place.pods().items() if p["spec"].get("nodeName")), ""))
    waiting = {"reason": "CreateContainerConfigError", "message": 'secret "token" not found'}
    agent = {"name": "agent", "image": "none", "imageID": "", "ready": False, "restartCount": 0}
    container = {**agent, "state": {"waiting": waiting}}
    place.api.patch(f"{path}/{name}/status", {"status": {"phase": "Pending", "containerStatuses": [container]}})
    tick_until(scheduler, lambda: name in cluster.store.launches.scan())

    def is_deleted() -> bool:
        clock.advance(PATIENCE)
        return "deletionTimestamp" in place.pods()[name]["metadata"]

    tick_until(scheduler, is_deleted)
    place.api.patch(f"{path}/{name}/status", {"status": {"phase": "Failed"}})
    reason = 'every launch is refused until the stack is corrected: CreateContainerConfigError secret "token" not found'
    tick_until(scheduler, lambda: name in cluster.store.ends.scan())
    tick_until(scheduler, lambda: reason in cluster.store.notes.waiting.read().jobs["job-1"].words)
    cloud.close()
    place.api.delete(f"/api/v1/nodes/{place.name}")
    assert not cluster.store.ends.scan()[name].value.interrupted
    assert proxy.count("POST", "/pods") == 1


def test_a_job_on_a_node_that_falls_silent_goes_on_before_kubernetes_gives_its_pod_up(place: Place) -> None:
    """Kubernetes waits five minutes; the lease of a job does not."""
    cluster = KubernetesCluster(place)
    node = place.node()
    cluster.submit("job-1", 600)
    with cluster.scheduler():
        first = eventually(lambda: cluster.runner("job-1"))
        eventually(lambda: cluster.has_printed("job-1", "at 20"))
        place.silence(node)
        place.node()
        second = eventually(lambda: (pod := cluster.runner("job-1")) != first and pod)
        pod = place.pods()[first]
        eventually(lambda: cluster.has_ended("job-1"))
    assert second != first
    assert pod["status"]["phase"] == "Running" and disruption(pod) is None


def test_a_job_goes_on_while_its_pod_is_stuck_in_its_deletion_until_its_node_is_gone(place: Place) -> None:
    """Given an evicted pod whose node falls silent, so that nobody confirms its end, when the Node is deleted, then the
    pod ends, and not at its eviction: its node was paid until then."""
    cluster = KubernetesCluster(place)
    node = place.node()
    cluster.submit("job-1", 600)
    with cluster.scheduler():
        first = eventually(lambda: cluster.runner("job-1"))
        eventually(lambda: cluster.has_printed("job-1", "at 20"))
        place.silence(node)
        place.evict(first)
        place.node()
        second = eventually(lambda: (pod := cluster.runner("job-1")) != first and pod)
        eventually(lambda: cluster.has_ended("job-1"))
        stuck = place.pods()[first]
        assert "deletionTimestamp" in stuck["metadata"] and first not in cluster.store.ends.scan()
        place.api.delete(f"/api/v1/nodes/{node}")
        end = eventually(lambda: (ends := cluster.store.ends.scan()) and ends.get(first))
    evicted = disruption(stuck)
    assert second != first and evicted is not None
    assert end.value.interrupted
    assert end.value.ended_at > moment(evicted["lastTransitionTime"])
