"""Regional managed instance groups: valid settings, and their reaction to preemptions and to missing capacity."""

from typing import Any

import pytest

REGION = "regions/europe-west4"
GROUPS = f"{REGION}/instanceGroupManagers"
A, B, C = (f"europe-west4-{letter}" for letter in "abc")
TEMPLATE = f"{REGION}/instanceTemplates/t1"
FLEXIBLE = {
    "instanceFlexibilityPolicy": {"instanceSelections": {
        "best": {"machineTypes": ["g2-standard-8"], "rank": 1}, "next": {"machineTypes": ["g2-standard-4"], "rank": 2},
    }},
}  # fmt: skip
MOVES = {
    "defaultActionOnFailure": "REPAIR", "forceUpdateOnRepair": "YES", "onRepair": {"allowChangingZone": "YES"},
}  # fmt: skip


@pytest.fixture
def net(kit: Any) -> Any:
    kit.network()
    kit.template()
    for letter in "abc":
        for kind in ("g2-standard-4", "g2-standard-8"):
            kit.market("depth", pool=f"{kind}/europe-west4-{letter}", instances=4)
    return kit


def body(size: int, shape: str = "ANY", **more: Any) -> Any:
    zones = [{"zone": f"zones/{zone}"} for zone in (A, B, C)]
    return {
        "name": "g", "baseInstanceName": "vm", "targetSize": size, "versions": [{"instanceTemplate": TEMPLATE}],
        "distributionPolicy": {"targetShape": shape, "zones": zones}, **more,
    }  # fmt: skip


def managed(kit: Any) -> list[Any]:
    return kit.call("POST", f"{GROUPS}/g/listManagedInstances").body.get("managedInstances", [])


def stable(kit: Any, size: int) -> list[Any]:
    """The members once the group rests with so many."""
    kit.until(lambda: len(managed(kit)) == size and kit.get(f"{GROUPS}/g")["status"]["isStable"])
    return managed(kit)


def read_zone(member: Any) -> str:
    return str(member["instance"].split("/")[-3])


def test_a_group_makes_its_instances_and_tells_what_it_does(net: Any) -> None:
    with net.still():
        begun = net.begin("POST", GROUPS, body(2))
        group = net.get(f"{GROUPS}/g")
        assert group["currentActions"]["creating"] == 2 and group["status"]["isStable"] is False
        assert {(m["currentAction"], m["instanceStatus"]) for m in managed(net)} == {("CREATING", "PROVISIONING")}
    net.wait(begun)
    members = stable(net, 2)
    assert {m["currentAction"] for m in members} == {"NONE"}
    assert {i["id"] for i in net.instances()} == {m["id"] for m in members}
    assert all(len(m["name"]) == len("vm-0000") for m in members)
    group = net.get(f"{GROUPS}/g")
    assert group["instanceTemplate"].endswith(TEMPLATE) and group["currentActions"]["none"] == 2
    assert group["updatePolicy"]["type"] == "OPPORTUNISTIC" and group["updatePolicy"]["maxSurge"]["fixed"] == 3
    assert net.get(f"{REGION}/instanceGroups/g")["size"] == 2
    assert list(net.get("aggregated/instanceGroupManagers")["items"]) == [REGION]


def test_a_group_changes_its_size_and_ends_its_instances_with_itself(net: Any) -> None:
    net.do("POST", GROUPS, body(3))
    stable(net, 3)
    net.do("POST", f"{GROUPS}/g/resize?size=1")
    (member,) = stable(net, 1)
    net.until(lambda: len(net.instances()) == 1)
    # As the provider patches: an only version whose size is empty.
    version = {"instanceTemplate": TEMPLATE, "targetSize": {}}
    net.do("PATCH", f"{GROUPS}/g", {"targetSize": 2, "versions": [version]})
    assert "targetSize" not in net.get(f"{GROUPS}/g")["versions"][0]
    assert member["id"] in {m["id"] for m in stable(net, 2)}
    net.do("DELETE", f"{GROUPS}/g")
    assert net.instances() == [] and net.call("GET", f"{GROUPS}/g").status == 404


def test_what_is_preempted_comes_again_by_its_name_with_a_new_id(net: Any) -> None:
    net.do("POST", GROUPS, body(1))
    (before,) = stable(net, 1)
    net.market("interrupt", instance=before["id"], notice=False)
    after = net.until(lambda: [m for m in managed(net) if m.get("id", before["id"]) != before["id"]])[0]
    assert after["name"] == before["name"] and read_zone(after) == read_zone(before)
    stable(net, 1)
    assert [o["targetId"] for o in net.zone_operations("compute.instances.preempted", read_zone(before))] == [
        before["id"]
    ]


def test_one_that_is_deleted_or_stops_is_made_again(net: Any) -> None:
    net.do("POST", GROUPS, body(1))
    (first,) = stable(net, 1)
    net.do("DELETE", f"zones/{read_zone(first)}/instances/{first['name']}")
    second = net.until(lambda: [m for m in managed(net) if m.get("id", first["id"]) != first["id"]])[0]
    stable(net, 1)
    assert second["name"] == first["name"]


def test_a_group_that_does_nothing_leaves_a_gap(net: Any) -> None:
    net.do("POST", GROUPS, body(1, instanceLifecyclePolicy={"defaultActionOnFailure": "DO_NOTHING"}))
    (first,) = stable(net, 1)
    net.market("interrupt", instance=first["id"], notice=False)
    net.wait_until_deleted(first["name"], read_zone(first))
    with net.still() as later:
        later(300)
        assert net.instances() == []


def test_a_dry_zone_is_told_and_tried_again(net: Any) -> None:
    net.market("drought", pool="g2-standard-4")
    net.do("POST", GROUPS, body(1))
    (member,) = managed(net)
    assert member["currentAction"] == "CREATING" and "id" not in member
    codes = {e["code"] for e in member["lastAttempt"]["errors"]["errors"]}
    assert codes == {"ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS"}
    (error, *_) = net.get(f"{GROUPS}/g/listErrors")["items"]
    assert error["error"]["code"] in codes and error["instanceActionDetails"]["action"] == "CREATING"
    net.market("recover", pool=f"g2-standard-4/{C}")
    (member,) = stable(net, 1)
    assert read_zone(member) == C and "lastAttempt" not in member


def test_types_are_taken_by_rank_and_again_on_repair(net: Any) -> None:
    net.market("drought", pool="g2-standard-8")
    net.market("recover", pool=f"g2-standard-8/{B}")
    net.do("POST", GROUPS, body(5, **FLEXIBLE, instanceLifecyclePolicy=MOVES))
    members = stable(net, 5)
    kinds = [m["propertiesFromFlexibilityPolicy"]["machineType"] for m in members]
    assert sorted(kinds) == ["g2-standard-4"] + ["g2-standard-8"] * 4
    (struck,) = net.market("depth", pool=f"g2-standard-8/{B}", instances=3)["instances"]
    name = next(m["name"] for m in members if m["id"] == struck)
    again = net.until(lambda: [m for m in stable(net, 5) if m["name"] == name and m["id"] != struck])[0]
    assert again["propertiesFromFlexibilityPolicy"]["machineType"] == "g2-standard-4"


def test_a_repair_stays_in_its_zone_unless_it_may_change_it(net: Any) -> None:
    net.do("POST", GROUPS, body(1))
    (first,) = stable(net, 1)
    net.market("drought", pool=f"g2-standard-4/{read_zone(first)}")
    waiting = net.until(lambda: [m for m in managed(net) if m.get("lastAttempt")])[0]
    assert waiting["currentAction"] == "RECREATING" and read_zone(waiting) == read_zone(first)
    net.do("PATCH", f"{GROUPS}/g", {"instanceLifecyclePolicy": MOVES})
    moved = net.until(lambda: [m for m in managed(net) if m["currentAction"] == "NONE"])[0]
    assert read_zone(moved) != read_zone(first) and moved["name"] == first["name"]


def test_shapes_place_instances(net: Any) -> None:
    net.do("POST", GROUPS, body(3, "EVEN"))
    assert sorted(map(read_zone, stable(net, 3))) == [A, B, C]
    net.do("POST", GROUPS, {**body(3, "ANY_SINGLE_ZONE"), "name": "s", "baseInstanceName": "s"})
    single = net.instances("?filter=name%3Ds-*")
    assert len(single) == 3 and len({i["zone"] for i in single}) == 1


def test_a_new_template_waits_for_a_repair_unless_it_is_pressed_for(net: Any) -> None:
    net.do("POST", GROUPS, body(1, instanceLifecyclePolicy={"forceUpdateOnRepair": "YES"}))
    (first,) = stable(net, 1)
    new = net.template("t2", labels={"new": "yes"})
    net.do("PATCH", f"{GROUPS}/g", {"versions": [{"instanceTemplate": new}]})
    used = net.call("DELETE", new)
    assert (used.status, used.reason) == (400, "resourceInUseByAnotherResource")
    assert net.call("DELETE", TEMPLATE).status == 200
    assert net.get(f"{GROUPS}/g")["status"]["versionTarget"]["isReached"] is False
    assert managed(net)[0]["id"] == first["id"]
    net.market("interrupt", instance=first["id"], notice=False)
    net.until(lambda: [i for i in net.instances() if i.get("labels") == {"new": "yes"}])
    stable(net, 1)
    assert net.get(f"{GROUPS}/g")["status"]["versionTarget"]["isReached"] is True


def test_a_proactive_update_brings_the_new_one_up_before_the_old_one_goes(net: Any) -> None:
    policy = {
        "type": "PROACTIVE", "minimalAction": "REPLACE", "maxSurge": {"fixed": 3}, "maxUnavailable": {"fixed": 0},
        "instanceRedistributionType": "NONE",
    }  # fmt: skip
    net.do("POST", GROUPS, body(1, updatePolicy=policy))
    (first,) = stable(net, 1)
    new = net.template("t2", labels={"new": "yes"})
    net.do("PATCH", f"{GROUPS}/g", {"versions": [{"instanceTemplate": new}]})
    (second,) = net.until(lambda: [m for m in stable(net, 1) if m["id"] != first["id"]])
    launched, ended = net.log("launch"), net.log("end")
    assert [line["id"] for line in launched] == [first["id"], second["id"]]
    assert ended[0]["id"] == first["id"] and launched[1]["at"] < ended[0]["at"]


def test_members_are_deleted_and_the_size_falls(net: Any) -> None:
    net.do("POST", GROUPS, body(3))
    first, second, third = stable(net, 3)
    stranger = f"zones/{A}/instances/none"
    refused = net.call("POST", f"{GROUPS}/g/deleteInstances", {"instances": [first["instance"], stranger]})
    assert refused.status == 400 and "not a member" in refused.message and len(managed(net)) == 3
    skip = {"instances": [first["instance"], stranger], "skipInstancesOnValidationError": True}
    net.do("POST", f"{GROUPS}/g/deleteInstances", skip)
    assert net.get(f"{GROUPS}/g")["targetSize"] == 2
    assert {m["id"] for m in stable(net, 2)} == {second["id"], third["id"]}
    net.do("POST", f"{GROUPS}/g/recreateInstances", {"instances": [second["instance"]]})
    again = net.until(lambda: [m for m in stable(net, 2) if m["name"] == second["name"] and m["id"] != second["id"]])
    assert again


@pytest.mark.parametrize(
    ("change", "status", "message"),
    [
        ({"targetSize": None}, 400, "resource.targetSize"),
        ({"targetSize": 2001}, 400, "between 0 and 2000"),
        ({"baseInstanceName": "v" * 59}, 400, "58"),
        ({"versions": []}, 400, "resource.instanceTemplate"),
        ({"versions": [{"instanceTemplate": f"{REGION}/instanceTemplates/none"}]}, 404, "not found"),
        ({"versions": [{"instanceTemplate": TEMPLATE}] * 2}, 501, "canary"),
        ({"distributionPolicy": {"targetShape": "any"}}, 400, "targetShape"),
        ({"distributionPolicy": {"zones": [{"zone": "zones/us-central1-a"}]}}, 404, "not found"),
        ({**FLEXIBLE, "distributionPolicy": {"targetShape": "EVEN"}}, 400, "supported only for RMIGs"),
        ({"updatePolicy": {"instanceRedistributionType": "PROACTIVE"}}, 400, "redistribution must be disabled"),
        ({"updatePolicy": {"maxSurge": {"fixed": 1}}}, 400, "either 0 or at least equal to the number of zones"),
        ({"updatePolicy": {"maxUnavailable": {"fixed": 2}}}, 400, "either 0 or at least equal"),
        ({"updatePolicy": {"maxSurge": {"fixed": 0}, "maxUnavailable": {"fixed": 0}}}, 400, "must not both be 0"),
        ({"updatePolicy": {"replacementMethod": "RECREATE", "maxSurge": {"fixed": 3}}}, 400, "RECREATE"),
        ({"instanceLifecyclePolicy": {"onRepair": {"allowChangingZone": "YES"}}}, 400, "forceUpdateOnRepair=YES"),
        (
            {"instanceLifecyclePolicy": MOVES, "distributionPolicy": {"targetShape": "ANY_SINGLE_ZONE"}},
            400,
            "needs target shape ANY or BALANCED",
        ),
        ({"autoHealingPolicies": [{"healthCheck": "global/healthChecks/none"}]}, 404, "not found"),
        ({"statefulPolicy": {"preservedState": {"disks": {"d": {}}}}}, 501, "statefulPolicy"),
        ({"targetSizePolicy": {"mode": "BULK"}}, 501, "bulk"),
        ({"instanceFlexibilityPolicy": {"provisioningModelMix": {"standardCapacityBase": 1}}}, 400, "Unknown name"),
    ],
)
def test_a_group_that_cannot_be(net: Any, change: Any, status: int, message: str) -> None:
    refused = net.call("POST", GROUPS, {**body(0), **change})
    assert refused.status == status and message in refused.message, refused.body
    assert "items" not in net.get(GROUPS)


def test_a_group_keeps_its_names_and_zones(net: Any) -> None:
    net.do("POST", GROUPS, body(0))
    for change in ({"baseInstanceName": "other"}, {"distributionPolicy": {"zones": [{"zone": f"zones/{A}"}]}}):
        assert "cannot be changed" in net.call("PATCH", f"{GROUPS}/g", change).message
    stale = net.call("PATCH", f"{GROUPS}/g", {"targetSize": 1, "fingerprint": "AAAAAAAAAAA="})
    assert (stale.status, stale.reason) == (412, "conditionNotMet")
