"""The request of a launch on Google Cloud, held to the official discovery document, and what its answer says."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from everspot_clouds.gcp import capacity
from everspot_clouds.gcp.errors import OperationError, read_failures
from everspot_core.capacity.launching import LaunchIntent, LaunchPool, LaunchTrouble
from everspot_core.capacity.market import Market
from everspot_local.gcp.discovery import Api

AT = datetime(2026, 1, 1, tzinfo=UTC)
TOKEN = "0123456789abcdef0123456789abcdef"
ZONES = ["europe-west4-a", "europe-west4-b", "europe-west4-c"]
TEMPLATE = "projects/everspot-local/regions/europe-west4/instanceTemplates/train-elastic"


def intent(*pools: str, jobs: int = 2, whole: bool = False, market: Market = Market.SPOT) -> LaunchIntent:
    """A launch of pools such as `g2-standard-4/a`, best first."""
    pairs = [pool.split("/") for pool in pools]
    return LaunchIntent(
        seq=1, token=TOKEN, jobs=tuple(f"job-{n}" for n in range(jobs)),
        pools=tuple(
            LaunchPool(instance_type=kind, zone=f"europe-west4-{letter}", market=market, place="subnet")
            for kind, letter in pairs
        ),
        ordered=False, whole=whole, template=TEMPLATE, template_version="", tags={"team": "vision"}, usd_per_hour=1.0,
        made_at=AT, scheduler_id="s-1",
    )  # fmt: skip


def accepted(launch_intent: LaunchIntent, notice: timedelta | None = None) -> dict[str, Any]:
    """The body of a launch as the API reads it; what its document does not know is an error."""
    body = capacity.request("train", launch_intent, ZONES, notice)
    method = Api("compute.v1", empties=False).find(
        "POST", "/compute/v1/projects/everspot-local/regions/europe-west4/instances/bulkInsert"
    )
    assert method is not None and method.method.body is not None
    return method.method.body.read(body)


def test_types_become_ranks_and_zones_are_allowed_or_denied():
    body = accepted(intent("g2-standard-8/a", "g2-standard-8/b", "g2-standard-4/a", "g2-standard-4/b"))
    assert body["instanceFlexibilityPolicy"]["instanceSelections"] == {
        "rank-1": {"rank": "1", "machineTypes": ["g2-standard-8"]},
        "rank-2": {"rank": "2", "machineTypes": ["g2-standard-4"]},
    }
    assert body["locationPolicy"] == {
        "targetShape": "ANY",
        "locations": {
            "zones/europe-west4-a": {"preference": "ALLOW"},
            "zones/europe-west4-b": {"preference": "ALLOW"},
            "zones/europe-west4-c": {"preference": "DENY"},
        },
    }
    assert (body["count"], body["minCount"]) == ("2", "1")
    assert "machineType" not in body["instanceProperties"]


def test_a_gang_is_whole_in_one_zone_and_of_one_type():
    body = accepted(intent("g2-standard-8/a", "g2-standard-4/a", "g2-standard-8/b", jobs=4, whole=True))
    assert (body["count"], body["minCount"]) == ("4", "4")
    assert body["locationPolicy"]["targetShape"] == "ANY_SINGLE_ZONE"
    assert body["instanceProperties"]["machineType"] == "g2-standard-8"
    assert "instanceFlexibilityPolicy" not in body
    assert body["locationPolicy"]["locations"]["zones/europe-west4-b"] == {"preference": "ALLOW"}


def test_names_and_the_id_of_the_request_come_from_the_token_alone():
    body = accepted(intent("g2-standard-4/a"))
    names = list(body["perInstanceProperties"])
    assert names == ["train-e-cdef0123456789abcdef-0000", "train-e-cdef0123456789abcdef-0001"]
    assert capacity.request_id(TOKEN) == capacity.request_id(TOKEN) == "01234567-89ab-4def-8123-456789abcdef"
    long = capacity.request("c" * 32, intent("g2-standard-4/a"), ZONES, None)
    assert all(len(name) <= 63 and name.startswith("c" * 32) for name in long["perInstanceProperties"])


def test_labels_find_what_was_launched_and_the_intents_own_are_kept():
    labels = accepted(intent("g2-standard-4/a"))["instanceProperties"]["labels"]
    assert labels == {
        "everspot-cluster": "train", "everspot-role": "agent", "everspot-launch": TOKEN, "team": "vision",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("market", "notice", "scheduling"),
    [
        (Market.ON_DEMAND, timedelta(seconds=120), {"provisioningModel": "STANDARD"}),
        (
            Market.SPOT,
            timedelta(seconds=120),
            {
                "provisioningModel": "SPOT", "preemptible": True, "automaticRestart": False,
                "onHostMaintenance": "TERMINATE", "instanceTerminationAction": "DELETE",
                "preemptionNoticeDuration": {"seconds": "120"},
            },
        ),
        (
            Market.SPOT,
            timedelta(0),
            {
                "provisioningModel": "SPOT", "preemptible": True, "automaticRestart": False,
                "onHostMaintenance": "TERMINATE", "instanceTerminationAction": "DELETE",
            },
        ),
    ],
)  # fmt: skip
def test_request_market_overrides_template(market, notice, scheduling):
    body = accepted(intent("g2-standard-4/a", market=market), notice)
    assert body["instanceProperties"]["scheduling"] == scheduling


def test_attached_gpus_are_asked_for_alone_and_written_where_the_instance_reads_them():
    body = accepted(intent("n1-standard-8+t4/a", "g2-standard-4/a", "n1-standard-8+t4/b"))
    own = body["instanceProperties"]
    assert own["machineType"] == "n1-standard-8"
    assert own["guestAccelerators"] == [{"acceleratorType": "nvidia-tesla-t4", "acceleratorCount": 1}]
    assert own["description"] == "Everspot n1-standard-8+t4"
    assert "instanceFlexibilityPolicy" not in body


@pytest.mark.parametrize(
    ("pools", "chosen"),
    [
        (["x/a"], ["x/a"]),
        (["x/a", "y/b"], ["x/a"]),  # y is not wanted in a, nor x in b
        (["x/a", "x/b", "y/a", "y/b", "y/c"], ["x/a", "x/b", "y/a", "y/b"]),
        (["x/a", "y/a", "y/b", "z/a"], ["x/a", "y/a", "z/a"]),
        (["x/a", "x/b", "x/c", "y/a"], ["x/a", "x/b", "x/c"]),
        (["x/a", "x/b", "y/a", "y/b", "n1-standard-8+t4/a"], ["x/a", "x/b", "y/a", "y/b"]),
        (["a3-ultragpu-8g/a", "x/a"], ["a3-ultragpu-8g/a"]),
    ],
)
def test_nothing_is_asked_for_that_the_intent_does_not_hold(pools, chosen):
    launch_intent = intent(*pools)
    pool_names = [f"{p.instance_type}/{p.zone[-1]}" for p in capacity.block(launch_intent)]
    assert pool_names == chosen
    assert pool_names[0] == pools[0]


def test_no_more_than_ten_types_are_asked_for():
    launch_intent = intent(*[f"t{n}/a" for n in range(12)])
    assert len(capacity.block(launch_intent)) == 10


BOTH = ("g2-standard-8/a", "g2-standard-8/b", "a2-highgpu-1g/a", "a2-highgpu-1g/b")


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (OperationError("ZONE_RESOURCE_POOL_EXHAUSTED", zone="europe-west4-b", machine="g2-standard-8"),
         [("g2-standard-8", "europe-west4-b", LaunchTrouble.CAPACITY)]),
        (OperationError("ZONE_RESOURCE_POOL_EXHAUSTED", zone="europe-west4-b"),
         [("", "europe-west4-b", LaunchTrouble.CAPACITY)]),
        (OperationError("VM_MIN_COUNT_NOT_REACHED"), [("", "", LaunchTrouble.CAPACITY)]),
        (OperationError("QUOTA_EXCEEDED", metric="NVIDIA_A100_GPUS"), [("a2-highgpu-1g", "", LaunchTrouble.QUOTA)]),
        (OperationError("QUOTA_EXCEEDED", metric="PREEMPTIBLE_NVIDIA_L4_GPUS"),
         [("g2-standard-8", "", LaunchTrouble.QUOTA)]),
        (OperationError("QUOTA_EXCEEDED", metric="SSD_TOTAL_GB"), [("", "", LaunchTrouble.QUOTA)]),
        (OperationError("QUOTA_EXCEEDED", metric="GPUS_PER_GPU_FAMILY", family="NVIDIA_H200"),
         [("", "", LaunchTrouble.QUOTA)]),
        (OperationError("INVALID_FIELD_VALUE"), [("", "", LaunchTrouble.REQUEST)]),
        (OperationError("NOBODY_KNOWS"), [("", "", LaunchTrouble.TRANSIENT)]),
    ],
)  # fmt: skip
def test_an_error_is_about_the_pools_that_it_names(failure, expected):
    errors = capacity._errors(failure, intent(*BOTH))
    assert [(e.instance_type, e.zone, e.kind) for e in errors] == expected


@pytest.mark.parametrize(
    ("code", "unresolved"),
    [("EXTERNAL_RESOURCE_NOT_FOUND", True), ("RESOURCE_NOT_FOUND", True), ("INVALID_FIELD_VALUE", False)],
)
def test_a_service_account_that_google_does_not_know_may_be_a_new_one(code, unresolved):
    message = "The resource 'agent@p.iam.gserviceaccount.com' of type 'serviceAccount' was not found."
    (error,) = capacity._errors(OperationError(code, message), intent(*BOTH))
    assert (error.kind, error.unresolved) == (LaunchTrouble.REQUEST, unresolved)


def test_pools_that_were_not_asked_for_are_not_blamed():
    launch_intent = intent("g2-standard-8/a", "a2-highgpu-1g/b", whole=True)
    errors = capacity._errors(OperationError("VM_MIN_COUNT_NOT_REACHED"), launch_intent)
    assert [(e.instance_type, e.zone) for e in errors] == [("g2-standard-8", "europe-west4-a")]


def test_the_error_of_an_operation_tells_type_zone_and_quota():
    """As recorded in the tests of cockroach's roachprod (gce), and in the API's ErrorInfo and QuotaExceededInfo."""
    stockout = {
        "code": "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS",
        "message": "The zone 'projects/p/zones/us-central1-a' does not have enough resources available to fulfill the "
        "request.",
        "errorDetails": [
            {"localizedMessage": {"locale": "en-US", "message": "A t2a-standard-8 VM instance is unavailable"}},
            {
                "errorInfo": {
                    "domain": "compute.googleapis.com", "reason": "resource_availability",
                    "metadatas": {"vmType": "t2a-standard-8", "zone": "us-central1-a", "zonesAvailable": ""},
                }
            },
        ],
    }  # fmt: skip
    quota = {
        "code": "QUOTA_EXCEEDED", "message": "Quota 'NVIDIA_L4_GPUS' exceeded.  Limit: 1.0 in region us-central1.",
        "errorDetails": [
            {"quotaInfo": {"metricName": "compute.googleapis.com/nvidia_l4_gpus", "limitName": "NVIDIA-L4-GPUS"}}
        ],
    }  # fmt: skip
    summary = {"code": "VM_MIN_COUNT_NOT_REACHED", "message": "Requested minimum count of 4 VMs could not be created."}
    assert [(s.code, s.zone, s.machine, s.metric) for s in read_failures([summary, stockout, quota])] == [
        ("ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", "us-central1-a", "t2a-standard-8", ""),
        ("QUOTA_EXCEEDED", "", "", "NVIDIA_L4_GPUS"),
    ]
    assert [s.code for s in read_failures([summary])] == ["VM_MIN_COUNT_NOT_REACHED"]
