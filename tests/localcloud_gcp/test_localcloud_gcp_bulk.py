"""Bulk creation: one attempt with one answer, all of the minimum or nothing, by shape, rank and capacity."""

from typing import Any

import pytest

REGION = "regions/europe-west4"
A, B, C = (f"europe-west4-{letter}" for letter in "abc")
BULK = f"{REGION}/instances/bulkInsert"


@pytest.fixture
def net(kit: Any) -> Any:
    kit.network()
    for letter in "abc":
        for kind in ("g2-standard-4", "g2-standard-8"):
            kit.market("depth", pool=f"{kind}/europe-west4-{letter}", instances=4)
    return kit


def placed(kit: Any) -> list[tuple[str, str]]:
    return sorted((i["zone"].rpartition("/")[2], i["machineType"].rpartition("/")[2]) for i in kit.instances())


def policy(**ranks: int) -> Any:
    types = {"four": "g2-standard-4", "eight": "g2-standard-8"}
    chosen = {name: {"machineTypes": [types[name]], "rank": rank} for name, rank in ranks.items()}
    return {"instanceFlexibilityPolicy": {"instanceSelections": chosen}}


def test_all_come_from_a_template_into_one_zone(net: Any) -> None:
    link = net.template(labels={"everspot-launch": "t"})
    done = net.bulk(4, sourceInstanceTemplate=link, instanceProperties={"labels": {"more": "x"}})
    assert "error" not in done and done["operationType"] == "bulkInsert"
    assert len({zone for zone, _ in placed(net)}) == 1
    assert sorted(i["name"] for i in net.instances()) == ["vm-001", "vm-002", "vm-003", "vm-004"]
    assert {i["status"] for i in net.instances()} == {"RUNNING"}
    assert net.instances()[0]["labels"] == {"everspot-launch": "t", "more": "x"}
    ((zone, status),) = done["instancesBulkInsertOperationMetadata"]["perLocationStatus"].items()
    assert zone == f"zones/{placed(net)[0][0]}" and status["createdVmCount"] == 4
    inserts = net.get("aggregated/operations?filter=operationType%3Dinsert")["items"][zone]["operations"]
    own = [o for o in inserts if o.get("operationGroupId") == done["operationGroupId"]]
    assert len(own) == 4 and {o["status"] for o in own} == {"DONE"}
    assert net.bulk(1, sourceInstanceTemplate=link)["status"] == "DONE"
    assert sorted(i["name"] for i in net.instances())[-1] == "vm-005"


def test_fewer_than_the_least_are_none(net: Any) -> None:
    failed = net.bulk(5, sourceInstanceTemplate=net.template())
    first, *others = failed["error"]["errors"]
    assert first["code"] == "VM_MIN_COUNT_NOT_REACHED" and "count of 5" in first["message"]
    assert {e["code"] for e in others} == {"ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS"}
    zones = [e["errorDetails"][0]["errorInfo"]["metadatas"]["zone"] for e in others]
    assert sorted(zones) == [A, B, C]
    assert net.instances() == [] and net.log("launch") == []


def test_what_can_be_had_comes_if_it_is_the_least(net: Any) -> None:
    done = net.bulk(9, 3, sourceInstanceTemplate=net.template())
    assert "error" not in done
    assert len(net.instances()) == 4
    ((_, status),) = done["instancesBulkInsertOperationMetadata"]["perLocationStatus"].items()
    assert (status["targetVmCount"], status["createdVmCount"]) == (9, 4)


def test_any_shape_fills_all_zones_and_balanced_spreads(net: Any) -> None:
    net.market("depth", pool=f"g2-standard-4/{A}", instances=1)
    link = net.template()
    net.bulk(6, sourceInstanceTemplate=link, locationPolicy={"targetShape": "ANY"})
    assert [zone for zone, _ in placed(net)] == [B] * 4 + [C] * 2
    for instance in net.instances():
        net.begin("DELETE", f"zones/{instance['zone'].rpartition('/')[2]}/instances/{instance['name']}")
    net.until(lambda: not net.instances())
    net.bulk(5, sourceInstanceTemplate=link, locationPolicy={"targetShape": "BALANCED"})
    assert [zone for zone, _ in placed(net)] == [A, B, B, C, C]


def test_zones_that_are_denied_are_not_taken_and_others_are(net: Any) -> None:
    denied = {f"zones/{A}": {"preference": "DENY"}, f"zones/{B}": {"preference": "ALLOW"}}
    link, shape = net.template(), {"targetShape": "ANY", "locations": denied}
    net.bulk(8, sourceInstanceTemplate=link, locationPolicy=shape)
    assert {zone for zone, _ in placed(net)} == {B, C}


def test_types_are_taken_by_rank(net: Any) -> None:
    shape = {"targetShape": "ANY", "locations": {f"zones/{z}": {"preference": "DENY"} for z in (B, C)}}
    link = net.template(machine_type="n2-standard-8")  # which is not listed, and so not used
    net.bulk(6, sourceInstanceTemplate=link, locationPolicy=shape, **policy(eight=1, four=2))
    assert placed(net) == [(A, "g2-standard-4")] * 2 + [(A, "g2-standard-8")] * 4


def test_one_zone_has_to_hold_all_with_all_of_its_types(net: Any) -> None:
    net.market("drought", pool=f"g2-standard-4/{B}")
    done = net.bulk(6, sourceInstanceTemplate=net.template(), **policy(four=1, eight=2))
    assert "error" not in done
    assert len({zone for zone, _ in placed(net)}) == 1 and placed(net)[0][0] != B


def test_a_request_that_is_repeated_launches_nothing_more(net: Any) -> None:
    body = {"count": 2, "namePattern": "vm-#", "sourceInstanceTemplate": net.template()}
    path = f"{BULK}?requestId=6a4e1f5c-0000-4000-8000-000000000001"
    first, again = (net.wait(net.begin("POST", path, body)) for _ in range(2))
    assert first["id"] == again["id"] and len(net.instances()) == 2


def test_on_demand_is_launched_from_a_template_that_says_nothing_of_it(net: Any) -> None:
    done = net.bulk(1, instanceProperties=net.properties(standard=True))
    assert "error" not in done
    (line,) = net.log("launch")
    assert line["market"] == "on-demand" and line["usd_per_hour"] > 0


def test_the_zonal_call_launches_in_its_zone(net: Any) -> None:
    body = {"count": 2, "namePattern": "vm-#", "instanceProperties": net.properties()}
    net.do("POST", f"zones/{B}/instances/bulkInsert", body)
    assert [zone for zone, _ in placed(net)] == [B, B]
    body |= policy(four=1)
    refused = net.call("POST", f"zones/{B}/instances/bulkInsert", body)
    assert refused.status == 400 and "regional" in refused.message


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"count": 0}, "resource.count"),
        ({"count": 1001}, "resource.count"),
        ({"minCount": 3}, "resource.minCount"),
        ({"namePattern": "vm"}, "placeholder"),
        ({"namePattern": "vm-#-#"}, "placeholder"),
        ({"namePattern": "Vm-#"}, "regex"),
        ({"namePattern": "vm-#", "count": 12}, "too few placeholders"),
        ({"perInstanceProperties": {"a": {}}}, "Exactly one"),
        ({"namePattern": "", "perInstanceProperties": {"a": {}}}, "fewer entries"),
        ({"namePattern": ""}, "resource.namePattern"),
        ({"instanceProperties": {}}, "sourceInstanceTemplate or instanceProperties"),
        ({"sourceInstanceTemplate": "global/instanceTemplates/none"}, "not found"),
        ({"locationPolicy": {"locations": {"zones/us-central1-a": {"preference": "DENY"}}}}, "not found"),
        ({"locationPolicy": {"locations": {f"zones/{z}": {"preference": "DENY"} for z in (A, B, C)}}}, "no zone"),
        ({"locationPolicy": {"targetShape": "EVEN"}}, "targetShape"),
        ({"instanceFlexibilityPolicy": {"instanceSelections": {"a": {"rank": 1}}}}, "At least one machine type"),
        (
            {"instanceFlexibilityPolicy": {"instanceSelections": {
                "a": {"machineTypes": ["g2-standard-4"]}, "b": {"machineTypes": ["g2-standard-4"]},
            }}},
            "one instance selection only",
        ),
        ({"instanceFlexibilityPolicy": {"instanceSelections": {"a": {"machineTypes": ["a4-highgpu-8g"]}}}}, "flexib"),
    ],
)  # fmt: skip
def test_a_request_that_cannot_be(net: Any, change: Any, message: str) -> None:
    body = {"count": 2, "namePattern": "vm-##", "instanceProperties": net.properties(), **change}
    refused = net.call("POST", BULK, body)
    assert refused.status in (400, 404) and message in refused.message, refused.body
    assert net.instances() == []
