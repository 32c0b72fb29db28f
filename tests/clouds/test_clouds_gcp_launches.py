"""Launches, ends and interruptions of a cluster on the local Google Cloud, through the whole adapter."""

import time
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any, cast

import pytest
import requests
from everspot_clouds.base import CloudError, Phase
from everspot_clouds.gcp import instances
from everspot_clouds.gcp.cloud import GcpCloud
from everspot_clouds.gcp.errors import ApiError, StillUnderWay
from everspot_clouds.gcp.http_api import Api
from everspot_clouds.gcp.instances import of_cluster
from everspot_clouds.gcp.site import GcpSite
from everspot_clouds.gcp.zones import Zones
from everspot_core.capacity.launching import LaunchTrouble, store_mark
from everspot_core.capacity.market import Market
from everspot_core.cluster.manifest import Manifest
from everspot_core.jobs.records import Role
from everspot_local.cloud import LocalCloud
from everspot_store import ManualClock
from google_site import CLUSTER, MARK, SPOT, A, B, C, GoogleSite

FOUR, EIGHT = "g2-standard-4", "g2-standard-8"
AT = "2026-01-01T00:00:00+00:00"
MANIFEST = Manifest(cluster=CLUSTER, cloud="gcp", region="europe-west4", control_url="file://c", data_url="file://d")


@pytest.fixture
def site(google: LocalCloud) -> GoogleSite:
    """A cluster's network and template. Every pool has four instances."""
    built = GoogleSite(google)
    built.build()
    for zone in (A, B, C):
        for kind in (FOUR, EIGHT):
            google.do("depth", pool=f"{kind}/{zone}", instances=4)
    return built


@pytest.fixture
def cloud(site: GoogleSite) -> Iterator[GcpCloud]:
    """The cloud as the cluster's scheduler sees it, on the market's clock."""
    opened = GcpCloud.open(site.manifest(notice=timedelta(seconds=120)), site.clock)
    yield opened
    opened.close()


def until(condition: Callable[[], Any]) -> Any:
    """Ask again and again until it gives something."""
    end = time.monotonic() + 60
    while not (value := condition()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)
    return value


def test_what_was_launched_is_described_with_its_launch(site: GoogleSite, cloud: GcpCloud) -> None:
    intent = site.intent((FOUR, A), (FOUR, B), jobs=3)
    began = site.clock.now()
    answer = cloud.launch(intent)
    assert len(answer.instances) == 3 and answer.errors == ()
    described = {i.instance_id: i for i in cloud.instances()}
    assert set(described) == {i.instance_id for i in answer.instances}
    instance = described[answer.instances[0].instance_id]
    assert instance.instance_id.isdecimal()
    assert (instance.instance_type, instance.market, instance.role, instance.launch) == (
        FOUR,
        Market.SPOT,
        Role.AGENT,
        intent.token,
    )
    assert (instance.phase, instance.image, instance.ended_at, instance.interrupted) == (
        Phase.ALIVE,
        "train-image-7",
        None,
        None,
    )
    assert instance.zone in (A, B)
    assert began - timedelta(minutes=1) <= instance.launched_at <= site.clock.now()
    assert cloud.ends() == []


def test_asked_again_by_the_same_intent_nothing_more_comes(site: GoogleSite, cloud: GcpCloud) -> None:
    intent = site.intent((FOUR, A), jobs=2)
    first = cloud.launch(intent)
    again = GcpCloud.open(site.manifest(), site.clock).launch(intent)
    assert set(again.instances) == set(first.instances)
    assert len(cloud.instances()) == 2


def test_names_that_are_taken_tell_what_a_request_has_brought_that_google_has_forgotten(
    site: GoogleSite, cloud: GcpCloud
) -> None:
    intent = site.intent((FOUR, A), jobs=2)
    first = cloud.launch(intent)
    site.cloud.provider.compute.operations._by_request_id.clear()  # after a day or so it is another request
    again = GcpCloud.open(site.manifest(), site.clock).launch(intent)
    assert (set(again.instances), again.errors) == (set(first.instances), ())
    assert len(cloud.instances()) == 2


def test_an_operation_that_is_not_found_yet_refuses_no_pool(site: GoogleSite, cloud: GcpCloud) -> None:
    site.cloud.do("delays", found="30m")
    intent = site.intent((FOUR, A), jobs=2)
    with pytest.raises(StillUnderWay, match="not found"):
        cloud.launch(intent)
    site.cloud.do("delays", found="0s")
    answer = cloud.launch(intent)
    assert (len(answer.instances), answer.errors) == (2, ())
    assert len(cloud.instances()) == 2


def test_one_that_may_not_be_ended_is_told_once_the_others_have_ended(site: GoogleSite, cloud: GcpCloud) -> None:
    launched = cloud.launch(site.intent((FOUR, A), jobs=3)).instances
    protected, *others = (instance.instance_id for instance in launched)
    name = {raw["id"]: raw["name"] for raw in of_cluster(site.api, MANIFEST.region, CLUSTER, "")}[protected]
    site.do("POST", f"zones/{A}/instances/{name}/setDeletionProtection?deletionProtection=true")
    with pytest.raises(ApiError, match=r"(?i)deletion"):
        cloud.terminate([protected, "12345", *others])
    until(lambda: {i.instance_id for i in cloud.instances()} == {protected})


@pytest.mark.parametrize("by_user", [False, True])
def test_instances_are_ended_beside_a_zone_of_the_cluster_that_cannot_be_reached(
    site: GoogleSite, cloud: GcpCloud, monkeypatch: pytest.MonkeyPatch, by_user: bool
) -> None:
    reachable, hidden = (cloud.launch(site.intent((FOUR, zone), jobs=1)).instances[0].instance_id for zone in (A, B))
    with monkeypatch.context() as patched:
        hide(patched, f"zones/{B}")
        with pytest.raises(ApiError, match=f"zones/{B} cannot be reached"):
            cloud.instances()
        end = GcpSite(site.manifest(), site.clock).end if by_user else cloud.terminate
        with pytest.raises((ApiError, CloudError), match=f"zones/{B} cannot be reached"):
            end([hidden, reachable])
    until(lambda: {instance.instance_id for instance in cloud.instances()} == {hidden})


def hide(monkeypatch: pytest.MonkeyPatch, scope: str) -> None:
    """Have lists of all places lack those of a scope that cannot be reached."""
    get = Api.get

    def lack(api: Api, product: str, path: str, **query: Any) -> dict[str, Any]:
        page = get(api, product, path, **query)
        if "/aggregated/" not in path:
            return page
        items = {name: part for name, part in page.get("items", {}).items() if name != scope}
        return {**page, "items": items, "unreachables": [scope], "warning": {"code": "UNREACHABLE"}}

    monkeypatch.setattr(Api, "get", lack)


def test_a_machine_that_got_an_ended_ones_name_lives_on(site: GoogleSite, cloud: GcpCloud) -> None:
    name, labels = f"{CLUSTER}-agent-spot-abcd", {"everspot-cluster": CLUSTER}
    old = site.run(name, A, labels=labels)
    cloud.instances()
    site.do("DELETE", f"zones/{A}/instances/{name}")
    new = site.run(name, A, labels=labels)
    cloud.terminate([old])
    (instance,) = cloud.instances()
    assert (instance.instance_id, instance.phase) == (new, Phase.ALIVE)


def test_a_gang_comes_whole_into_one_zone_or_not_at_all(site: GoogleSite, cloud: GcpCloud) -> None:
    site.cloud.do("drought", pool=f"{FOUR}/{A}")
    answer = cloud.launch(site.intent((FOUR, A), (FOUR, B), (EIGHT, B), jobs=4, whole=True))
    assert {(i.instance_type, i.zone) for i in answer.instances} == {(FOUR, B)}
    refused = cloud.launch(site.intent((FOUR, A), (FOUR, B), (EIGHT, B), jobs=4, whole=True))
    assert refused.instances == ()
    assert {(e.instance_type, e.zone, e.kind) for e in refused.errors} == {
        (FOUR, A, LaunchTrouble.CAPACITY), (FOUR, B, LaunchTrouble.CAPACITY),
    }  # fmt: skip
    assert {e.code for e in refused.errors} == {"ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS"}
    assert len(cloud.instances()) == 4


def test_single_instances_take_the_next_rank_and_shortages_are_reported(site: GoogleSite, cloud: GcpCloud) -> None:
    pools = [(FOUR, A), (EIGHT, A)]
    answer = cloud.launch(site.intent(*pools, jobs=6))
    assert sorted(i.instance_type for i in answer.instances) == [FOUR] * 4 + [EIGHT] * 2
    short = cloud.launch(site.intent(*pools, jobs=6))
    assert [i.instance_type for i in short.instances] == [EIGHT] * 2
    assert {e.kind for e in short.errors} == {LaunchTrouble.CAPACITY}
    dry = cloud.launch(site.intent(*pools, jobs=6))
    assert dry.instances == ()
    assert {(e.instance_type, e.zone) for e in dry.errors} == {(FOUR, ""), (EIGHT, "")}, "of its zones, all"


def test_capacity_that_runs_out_after_the_launch_was_accepted_is_a_shortage(site: GoogleSite, cloud: GcpCloud) -> None:
    site.cloud.do("fail_launches", pool=f"{FOUR}/{A}", code="ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", instances=2)
    answer = cloud.launch(site.intent((FOUR, A), jobs=3))
    assert len(answer.instances) == 1
    assert {(e.code, e.kind, e.instance_type, e.zone) for e in answer.errors} == {
        ("ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", LaunchTrouble.CAPACITY, FOUR, ""),
    }
    assert [i.instance_id for i in cloud.instances()] == [answer.instances[0].instance_id]
    assert [end for end in cloud.ends() if end.interrupted] == []


def test_a_quota_of_a_gpu_family_refuses_its_types_alone(site: GoogleSite, cloud: GcpCloud) -> None:
    """No region states the quotas of H100 and newer: only the refusal tells the metric and the family."""
    site.cloud.do("quota", code="GPUS_PER_GPU_FAMILY/NVIDIA_H100", value=0)
    h100 = "a3-highgpu-8g"
    site.cloud.do("depth", pool=f"{h100}/{B}", instances=4)
    site.cloud.do("quota", code="NVIDIA_L4_GPUS", value=0)
    answer = cloud.launch(site.intent((h100, B), (FOUR, B), market=Market.ON_DEMAND))
    assert {(e.instance_type, e.kind, e.code) for e in answer.errors} == {
        (h100, LaunchTrouble.QUOTA, "QUOTA_EXCEEDED (GPUS_PER_GPU_FAMILY, NVIDIA_H100)"),
        (FOUR, LaunchTrouble.QUOTA, "QUOTA_EXCEEDED (NVIDIA_L4_GPUS)"),
    }


def test_on_demand_is_launched_by_the_same_template(site: GoogleSite, cloud: GcpCloud) -> None:
    cloud.launch(site.intent((FOUR, C), market=Market.ON_DEMAND))
    (instance,) = cloud.instances()
    assert (instance.market, instance.zone) == (Market.ON_DEMAND, C)


def test_a_template_that_is_not_there_is_a_mistake_of_the_request(site: GoogleSite, cloud: GcpCloud) -> None:
    intent = site.intent((FOUR, A)).model_copy(
        update={"template": "projects/everspot-local/regions/europe-west4/instanceTemplates/none"}
    )
    (error,) = cloud.launch(intent).errors
    assert (error.kind, error.instance_type, error.zone) == (LaunchTrouble.REQUEST, "", "")


def test_an_instance_that_was_ended_has_an_end_although_nobody_describes_it(site: GoogleSite, cloud: GcpCloud) -> None:
    (launched,) = cloud.launch(site.intent((FOUR, A))).instances
    cloud.instances()
    began = site.clock.now()
    cloud.terminate([launched.instance_id, "12345"])
    until(lambda: launched.instance_id not in {i.instance_id for i in cloud.instances()})
    (end,) = until(cloud.ends)
    assert (end.instance_id, end.interrupted) == (launched.instance_id, False)
    assert began - timedelta(minutes=1) <= end.ended_at <= site.clock.now()
    later = GcpCloud.open(site.manifest(), site.clock, reads=True)
    assert (later.instances(), later.ends()) == ([], [end])


def test_an_instance_that_was_taken_was_interrupted(site: GoogleSite, cloud: GcpCloud) -> None:
    (launched,) = cloud.launch(site.intent((FOUR, A))).instances
    cloud.instances()
    site.cloud.do("interrupt", instance=launched.instance_id)
    until(lambda: not cloud.instances())
    (end,) = until(cloud.ends)
    assert (end.instance_id, end.interrupted) == (launched.instance_id, True)


class Scripted:
    """What an API says, turn by turn: the status of one instance, and the operations of its zone."""

    project, status, kind = "everspot-local", "RUNNING", "stop"
    labels: Mapping[str, str] = {}

    def get(self, _product: str, _path: str) -> dict[str, Any]:
        return {"zones": [f"projects/everspot-local/zones/{zone}" for zone in (A, "europe-west4-ai1a")]}

    def pages(self, _product: str, path: str, **_query: Any) -> Iterator[dict[str, Any]]:
        link = f"projects/everspot-local/zones/{A}/instances/one"
        if path.endswith("operations"):
            assert "-ai" not in path
            op = {"status": "DONE", "operationType": self.kind, "targetLink": link, "targetId": "7", "endTime": AT}
            yield {"items": [{**op, "insertTime": ManualClock().now().isoformat()}]}
            return
        instance = {
            "id": "7",
            "name": "one",
            "zone": A,
            "machineType": FOUR,
            "status": self.status,
            "labels": self.labels,
            "creationTimestamp": AT,
        }
        if self.status == "TERMINATED":
            instance["lastStopTimestamp"] = AT
        yield {"items": {A: {"instances": [instance]}}}

    def aggregated(self, product: str, path: str, _region: str, **query: Any) -> Iterator[dict[str, Any]]:
        return self.pages(product, path, **query)


def test_one_that_runs_again_under_its_old_id_has_not_ended() -> None:
    api, clock = Scripted(), ManualClock()
    cloud = GcpCloud(cast(Any, api), MANIFEST, clock, None, reads=True)
    for status, ended in (("RUNNING", []), ("TERMINATED", ["7"]), ("RUNNING", [])):
        api.status = status
        clock.advance(timedelta(minutes=2))
        (instance,) = cloud.instances()
        assert (instance.instance_id, [end.instance_id for end in cloud.ends()]) == ("7", ended)


@pytest.mark.parametrize(
    ("kind", "interrupted"),
    [
        ("compute.instances.preempted", True),
        ("compute.instances.baremetalCaretakerPreempted", True),
        ("compute.instances.kmsKeyError", False),
        ("compute.instances.localSsdRecoveryFailedError", False),
    ],
)
def test_every_event_that_ends_a_machine_dates_its_end(kind: str, interrupted: bool) -> None:
    api: Any = Scripted()
    api.kind = kind
    (end,), unfinished = instances.ended(api, Zones(api).list_zones("europe-west4"), ManualClock().now())
    assert unfinished is None
    assert (end.instance_id, end.ended_at.isoformat(), end.interrupted) == ("7", AT, interrupted)


class Slow(Scripted):
    """An instance whose deletion takes long, and another one that is switched off and cannot be deleted."""

    def __init__(self, clock: ManualClock) -> None:
        self.insert_time, self.is_done = clock.now().isoformat(), False

    def pages(self, product: str, path: str, **query: Any) -> Iterator[dict[str, Any]]:
        for page in super().pages(product, path, **query):
            if path.endswith("operations"):
                for op in page["items"]:
                    op |= {"insertTime": self.insert_time, "status": "DONE" if self.is_done else "RUNNING"}
            elif self.is_done:
                page = {"items": {}}
            yield page

    def call(self, *_words: Any, **_query: Any) -> Any:
        raise requests.ReadTimeout("no answer in 15 s")


def test_an_end_is_told_however_long_its_operation_has_taken() -> None:
    clock = ManualClock()
    clock.advance(timedelta(minutes=1))
    api = Slow(clock)
    cloud = GcpCloud(cast(Any, api), MANIFEST, clock, None, reads=True)
    for _ in range(5):
        clock.advance(timedelta(minutes=20))
        assert [i.instance_id for i in cloud.instances()] == ["7"]
        assert cloud.ends() == []
    api.is_done = True
    assert cloud.instances() == []
    assert [end.instance_id for end in cloud.ends()] == ["7"]


def test_a_deletion_without_an_answer_hides_no_instance() -> None:
    clock = ManualClock()
    api = Slow(clock)
    api.status, api.labels = "TERMINATED", {"everspot-launch": store_mark(MANIFEST.control_url)}
    cloud = GcpCloud(cast(Any, api), MANIFEST, clock, None)
    assert [i.instance_id for i in cloud.instances()] == ["7"]


def test_what_is_only_switched_off_is_deleted_if_a_scheduler_launched_it(site: GoogleSite, cloud: GcpCloud) -> None:
    stops = {"provisioningModel": "SPOT", "instanceTerminationAction": "STOP"}
    labels = {"everspot-cluster": CLUSTER}
    own = site.run("by-hand", B, scheduling=stops, labels=labels)
    launched = site.run("launched", A, scheduling=stops, labels={**labels, "everspot-launch": MARK + "1" * 24})
    reading = GcpCloud.open(site.manifest(), site.clock, reads=True)
    for name in (own, launched):
        site.cloud.do("interrupt", instance=name, notice=False)
    stopped = until(lambda: [i for i in reading.instances() if i.phase is Phase.ENDED and i.instance_id == launched])
    assert stopped[0].ended_at is not None
    assert {(end.instance_id, end.interrupted) for end in reading.ends()} >= {(launched, True)}
    until(lambda: {i.instance_id for i in cloud.instances()} == {own})


def test_the_site_tells_what_still_costs_money(site: GoogleSite, cloud: GcpCloud) -> None:
    (launched,) = cloud.launch(site.intent((FOUR, A))).instances
    own = site.run("by-hand", B)
    place = GcpSite(site.manifest(), site.clock)
    by_name = {resource.name: resource for resource in place.remaining() if resource.kind == "instance"}
    assert set(by_name) == {launched.instance_id, own}
    assert (by_name[launched.instance_id].launched, by_name[own].launched) == (True, False)
    assert f"{FOUR} in {A}, running" in by_name[launched.instance_id].detail
    disks = {resource.name: resource for resource in place.remaining() if resource.kind == "disk"}
    assert len(disks) == 2 and all(resource.ending for resource in disks.values()), "they go with their instances"
    place.end([launched.instance_id, own, "1"])
    until(lambda: not place.remaining())


def test_nobody_else_is_described(site: GoogleSite, cloud: GcpCloud) -> None:
    site.run("stranger", A, labels={"everspot-cluster": "other"})
    own = site.run("mine", A, scheduling=SPOT, labels={"everspot-cluster": CLUSTER, "everspot-role": "scheduler"})
    (instance,) = cloud.instances()
    assert (instance.instance_id, instance.role, instance.launch) == (own, Role.SCHEDULER, "")
