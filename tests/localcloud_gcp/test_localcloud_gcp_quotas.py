"""Quotas of instances by metric and market; advice: how likely capacity is, what it costs, how often it was taken."""

from itertools import product
from typing import Any

import pytest
from everspot_clouds.gcp.quotas import list_metrics
from everspot_core.capacity.catalogue import builtin
from everspot_core.capacity.market import Market
from everspot_local.gcp.discovery import document
from everspot_local.gcp.quotas import DEFAULTS, quota_codes

REGION = "regions/europe-west4"
ZONE = "europe-west4-a"
GROUPS = f"{REGION}/instanceGroupManagers"


@pytest.fixture
def net(kit: Any) -> Any:
    kit.network()
    return kit


def refused(kit: Any, name: str = "late", **more: Any) -> Any:
    """Return the error of the operation for an instance that cannot be created."""
    machine_type, zone = more.pop("machine_type", "g2-standard-4"), more.pop("zone", ZONE)
    body = {"name": name, **kit.properties(f"zones/{zone}/machineTypes/{machine_type}", **more)}
    (error,) = kit.wait(kit.begin("POST", f"zones/{zone}/instances", body))["error"]["errors"]
    return error


def quota(kit: Any, metric: str) -> Any:
    return next(q for q in kit.get(REGION)["quotas"] if q["metric"] == metric)


def test_gpus_for_spot_have_a_quota_of_their_own_once_it_is_granted(net: Any) -> None:
    net.market("quota", code="PREEMPTIBLE_NVIDIA_L4_GPUS", value=1)
    net.run("one")
    assert quota(net, "PREEMPTIBLE_NVIDIA_L4_GPUS") == {"metric": "PREEMPTIBLE_NVIDIA_L4_GPUS", "limit": 1, "usage": 1}
    error = refused(net)
    assert error["code"] == "QUOTA_EXCEEDED"
    assert "Quota 'PREEMPTIBLE_NVIDIA_L4_GPUS' exceeded.  Limit: 1.0 in region europe-west4." in error["message"]
    info = error["errorDetails"][0]["quotaInfo"]
    assert info["metricName"] == "compute.googleapis.com/preemptible_nvidia_l4_gpus"
    assert (info["limit"], info["dimensions"]) == (1, {"region": "europe-west4"})
    assert net.run("standard", standard=True)["status"] == "RUNNING"
    net.do("DELETE", f"zones/{ZONE}/instances/one")
    assert net.run("again")["status"] == "RUNNING"


def test_without_one_spot_takes_the_standard_quota(net: Any) -> None:
    net.market("quota", code="PREEMPTIBLE_NVIDIA_L4_GPUS", value=0)
    net.market("quota", code="NVIDIA_L4_GPUS", value=1)
    net.run("one")
    assert "'NVIDIA_L4_GPUS'" in refused(net)["message"]


def test_vcpus_and_the_gpus_of_all_regions_count(net: Any) -> None:
    net.market("quota", code="N2_CPUS", value=8)
    net.market("quota", code="GPUS_ALL_REGIONS", value=1)
    net.run("one", machine_type="n2-standard-8", standard=True)
    assert "'N2_CPUS'" in refused(net, machine_type="n2-standard-8", standard=True)["message"]
    net.run("two")
    assert "'GPUS_ALL_REGIONS' exceeded.  Limit: 1.0 globally." in refused(net)["message"]
    quotas = {q["metric"]: q for q in net.get("/compute/v1/projects/everspot-local")["quotas"]}
    assert (quotas["GPUS_ALL_REGIONS"]["limit"], quotas["GPUS_ALL_REGIONS"]["usage"]) == (1, 1)


def test_the_products_quotas_are_those_of_the_cloud() -> None:
    """Two tables, each from Google's own pages: the emulator would not show a mistake of a table that it shares."""
    schema = document("compute.v1")["schemas"]["Quota"]
    api_metrics = set(schema["properties"]["metric"]["enum"])
    assert {quota.code for quota in DEFAULTS if quota.service == "compute"} <= api_metrics
    google = [kind for kind in builtin().types if "." not in kind and "-" in kind]
    assert len(google) > 30
    for kind, market in product([*google, "n1-standard-4", "f1-micro", "a3-edgegpu-8g"], Market):
        codes = quota_codes(kind, market)
        regional = tuple(code for code in codes if "/" not in code)  # a region states none with a limit for each family
        assert codes and list_metrics(kind, market) == regional, (kind, market)
        assert set(regional) <= api_metrics, (kind, market)


def test_gpus_with_a_limit_for_each_family_count_apart_and_no_region_states_them(net: Any) -> None:
    net.market("quota", code="GPUS_PER_GPU_FAMILY/NVIDIA_H100", value=8)
    net.run("one", "europe-west4-b", machine_type="a3-highgpu-8g", standard=True)
    error = refused(net, zone="europe-west4-b", machine_type="a3-highgpu-8g", standard=True)
    assert "Quota 'GPUS_PER_GPU_FAMILY' exceeded.  Limit: 8.0 in region europe-west4." in error["message"]
    info = error["errorDetails"][0]["quotaInfo"]
    assert info["metricName"] == "compute.googleapis.com/gpus_per_gpu_family"
    assert info["limitName"] == "GPUS-PER-GPU-FAMILY-per-project-region"
    assert info["dimensions"] == {"region": "europe-west4", "gpu_family": "NVIDIA_H100"}
    net.run("spot", "europe-west4-b", machine_type="a3-highgpu-8g")
    assert quota(net, "PREEMPTIBLE_NVIDIA_H100_GPUS")["usage"] == 8
    assert not {q["metric"] for q in net.get(REGION)["quotas"] if "FAMILY" in q["metric"]}


def test_requests_are_limited_by_the_minute_of_the_clock_and_by_their_kind(kit: Any) -> None:
    kit.market("quota", code="LIST_REQUESTS", value=2)
    with kit.still() as later:
        later(60)
        assert [kit.call("GET", "aggregated/instances").status for _ in range(2)] == [200, 200]
        refused = kit.call("GET", "zones/europe-west4-a/instances")
        assert (refused.status, refused.reason) == (403, "rateLimitExceeded")
        assert "'compute.googleapis.com/list_requests'" in refused.message
        assert refused.body["error"]["details"][0]["reason"] == "RATE_LIMIT_EXCEEDED"
        assert kit.call("GET", "zones/europe-west4-a").status == 200  # reads are counted apart
        later(60)
        assert kit.call("GET", "zones/europe-west4-a/instances").status == 200
    assert "LIST_REQUESTS" not in {q["metric"] for q in kit.get(REGION)["quotas"]}


def test_bulk_creation_launches_up_to_the_quota_and_groups_tell_it(net: Any) -> None:
    net.market("quota", code="PREEMPTIBLE_NVIDIA_L4_GPUS", value=2)
    link = net.template()
    failed = net.bulk(3, sourceInstanceTemplate=link)
    codes = [e["code"] for e in failed["error"]["errors"]]
    assert codes[0] == "VM_MIN_COUNT_NOT_REACHED" and net.instances() == []
    net.bulk(3, 1, sourceInstanceTemplate=link)
    assert len(net.instances()) == 2
    group = {"name": "g", "targetSize": 1, "versions": [{"instanceTemplate": link}]}
    net.do("POST", GROUPS, group)
    (member,) = net.call("POST", f"{GROUPS}/g/listManagedInstances").body["managedInstances"]
    (error,) = member["lastAttempt"]["errors"]["errors"]
    assert error["code"] == "QUOTA_EXCEEDED" and error["errorDetails"][0]["quotaInfo"]["limit"] == 2


def capacity(kit: Any, size: int, **more: Any) -> Any:
    body = {
        "size": size, "instanceProperties": {"scheduling": {"provisioningModel": "SPOT"}},
        "instanceFlexibilityPolicy": {"instanceSelections": {"a": {"machineTypes": ["g2-standard-4"]}}}, **more,
    }  # fmt: skip
    return kit.call("POST", f"{REGION}/advice/capacity", body)


def test_capacity_is_rated_by_what_there_is(kit: Any) -> None:
    for letter, depth in {"a": 2, "b": 6, "c": 1}.items():
        kit.market("depth", pool=f"g2-standard-4/europe-west4-{letter}", instances=depth)

    def rated(size: int, **more: Any) -> Any:
        (recommendation,) = capacity(kit, size, **more).body["recommendations"]
        return recommendation["scores"].get("obtainability", 0), recommendation.get("shards", [])

    score, shards = rated(2)
    assert score == 0.95 and [(s["zone"][-1], s["instanceCount"]) for s in shards] == [("b", 2)]
    only_a = {"targetShape": "ANY_SINGLE_ZONE", "zones": [{"zone": f"zones/{ZONE}"}]}
    assert rated(2, distributionPolicy=only_a)[0] == 0.7
    assert rated(4, distributionPolicy=only_a)[0] == 0.5
    assert rated(9, distributionPolicy={"targetShape": "ANY"})[0] == 0.7
    kit.market("drought", pool="g2-standard-4")
    assert rated(1) == (0, [])


@pytest.mark.parametrize(
    ("change", "status", "message"),
    [
        ({"size": 0}, 400, "resource.size"),
        ({"instanceFlexibilityPolicy": {}}, 400, "instanceSelections"),
        ({"instanceProperties": {"scheduling": {"provisioningModel": "STANDARD"}}}, 501, "STANDARD"),
        ({"distributionPolicy": {"zones": [{"zone": "zones/us-central1-a"}]}}, 404, "not found"),
        ({"instanceFlexibilityPolicy": {"instanceSelections": {"a": {"machineTypes": ["none"]}}}}, 400, "not exist"),
    ],
)
def test_advice_that_cannot_be_given(kit: Any, change: Any, status: int, message: str) -> None:
    answer = capacity(kit, **{"size": 1, **change})
    assert answer.status == status and message in answer.message, answer.body


def test_prices_are_the_regions_and_have_a_history(kit: Any) -> None:
    body = {
        "types": ["PRICE"],
        "instanceProperties": {"machineType": "g2-standard-4", "scheduling": {"provisioningModel": "SPOT"}},
    }
    first = kit.call("POST", f"{REGION}/advice/capacityHistory", body).body["priceHistory"]
    kit.market("price", pool="g2-standard-4", usd=1.25)
    price_history = kit.call("POST", f"{REGION}/advice/capacityHistory", body).body["priceHistory"]
    assert len(price_history) == len(first) + 1
    assert price_history[-1]["listPrice"] == {"currencyCode": "USD", "units": "1", "nanos": 250000000}
    assert price_history[-1]["interval"]["startTime"] == price_history[-2]["interval"]["endTime"]
    prices = {pool.spot_usd for pool in kit.cloud.market.pools.matching("g2-standard-8")}
    assert len(prices) == 1


def test_the_rate_of_preemptions_is_this_markets(net: Any) -> None:
    preempted_vm, _ = net.run("one"), net.run("two")
    net.market("interrupt", instance=preempted_vm["id"], notice=False)
    net.wait_until_deleted("one")
    net.do("DELETE", f"zones/{ZONE}/instances/two")
    body = {
        "types": ["PREEMPTION"], "locationPolicy": {"location": f"zones/{ZONE}"},
        "instanceProperties": {"machineType": "g2-standard-4", "scheduling": {"provisioningModel": "SPOT"}},
    }  # fmt: skip
    history = net.call("POST", f"{REGION}/advice/capacityHistory", body).body
    assert history["preemptionHistory"][-1]["preemptionRate"] == 0.5 and history["location"].endswith(f"zones/{ZONE}")
