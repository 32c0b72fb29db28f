"""Instances: valid settings, descriptions, terminations, and the operations that report them."""

import itertools
from datetime import datetime
from typing import Any

import pytest

ZONE = "europe-west4-a"


@pytest.fixture
def net(kit: Any) -> Any:
    kit.network()
    return kit


def test_an_instance_is_made_told_and_deleted(net: Any) -> None:
    body = {
        "name": "one",
        **net.properties(f"zones/{ZONE}/machineTypes/g2-standard-4", labels={"everspot-cluster": "a"}),
    }
    with net.still() as later:
        begun = net.begin("POST", f"zones/{ZONE}/instances", body)
        early = net.get(f"zones/{ZONE}/instances/one")
        later(5)
        staged = net.get(f"zones/{ZONE}/instances/one")
        later(5)
    net.wait(begun)
    instance = net.get(f"zones/{ZONE}/instances/one")
    assert [early["status"], staged["status"], instance["status"]] == ["PROVISIONING", "STAGING", "RUNNING"]
    assert instance["id"] == begun["targetId"] and instance["id"].isdigit()
    assert instance["machineType"].endswith(f"/zones/{ZONE}/machineTypes/g2-standard-4")
    assert instance["guestAccelerators"][0]["acceleratorType"].endswith("/nvidia-l4")
    assert instance["scheduling"] == {
        "provisioningModel": "SPOT", "preemptible": True, "automaticRestart": False, "onHostMaintenance": "TERMINATE",
        "instanceTerminationAction": "DELETE",
    }  # fmt: skip
    assert "initializeParams" not in instance["disks"][0] and instance["disks"][0]["diskSizeGb"] == "20"
    assert instance["networkInterfaces"][0]["networkIP"] == "10.0.0.2"
    assert [i["name"] for i in net.instances("?filter=labels.everspot-cluster%3Da")] == ["one"]
    assert net.instances("?filter=labels.everspot-cluster%3Db") == []
    (launch,) = net.log("launch")
    assert (launch["id"], launch["type"], launch["zone"], launch["market"]) == (
        instance["id"],
        "g2-standard-4",
        ZONE,
        "spot",
    )
    ended = net.do("DELETE", f"zones/{ZONE}/instances/one")
    assert net.call("GET", f"zones/{ZONE}/instances/one").status == 404
    (end,) = net.log("end")
    assert (end["id"], end["interrupted"]) == (instance["id"], False)
    assert datetime.fromisoformat(end["at"]) == datetime.fromisoformat(ended["endTime"])
    again = net.run("one")
    assert again["id"] != instance["id"]


def test_what_is_preempted_is_told_by_an_operation_of_the_system_and_deleted(net: Any) -> None:
    instance = net.run("one")
    net.market("interrupt", instance=instance["id"])
    net.wait_until_deleted("one")
    (operation,) = net.zone_operations("compute.instances.preempted")
    assert (operation["user"], operation["targetId"], operation["status"]) == ("system", instance["id"], "DONE")
    (end,) = net.log("end")
    assert end["interrupted"] and datetime.fromisoformat(end["at"]) == datetime.fromisoformat(operation["endTime"])


@pytest.mark.parametrize("preempted", [True, False])
def test_a_life_is_as_long_in_the_api_as_in_the_markets_log_however_slow_the_machine(
    net: Any, monkeypatch: pytest.MonkeyPatch, preempted: bool
) -> None:
    clock = net.cloud.market.clock
    exact, late = clock._exact, itertools.count()
    monkeypatch.setattr(clock, "_exact", lambda: exact() + next(late))  # a second passes between any two looks at it
    instance = net.run("one")
    if preempted:
        net.market("interrupt", instance=instance["id"])
        net.wait_until_deleted("one")
        (ended,) = net.zone_operations("compute.instances.preempted")
    else:
        ended = net.do("DELETE", f"zones/{ZONE}/instances/one")
    for event, reported_at in (("launch", instance["creationTimestamp"]), ("end", ended["endTime"])):
        (line,) = net.log(event)
        assert datetime.fromisoformat(line["at"]) == datetime.fromisoformat(reported_at), event


@pytest.mark.parametrize(("notice_seconds", "seconds"), [(None, 30), (120, 150)])
def test_a_notice_of_two_minutes_comes_before_the_thirty_seconds_if_it_was_asked_for(
    net: Any, notice_seconds: int | None, seconds: int
) -> None:
    more = {} if notice_seconds is None else {"preemptionNoticeDuration": {"seconds": notice_seconds}}
    instance = net.run("one", scheduling=more)
    with net.still() as later:
        now = net.cloud.market.clock.now()
        net.market("interrupt", instance=instance["id"])
        (status,) = net.call("GET", "/_market/status").body["instances"]
        assert (datetime.fromisoformat(status["action_at"]) - now).total_seconds() == seconds
        if notice_seconds:
            assert net.get(f"zones/{ZONE}/instances/one")["status"] == "RUNNING"
        later(seconds - 20)
        net.until(lambda: net.get(f"zones/{ZONE}/instances/one")["status"] == "STOPPING")
        assert net.zone_operations("compute.instances.preempted") == []
    net.wait_until_deleted("one")


def test_stopped_is_what_was_taken_unless_it_is_to_be_deleted(net: Any) -> None:
    instance = net.run("one", scheduling={"instanceTerminationAction": "STOP"})
    net.market("interrupt", instance=instance["id"], notice=False)
    stopped = net.until(lambda: next((i for i in net.instances() if i["status"] == "TERMINATED"), None))
    assert stopped["id"] == instance["id"] and stopped["lastStopTimestamp"]
    duplicate = net.call(
        "POST", f"zones/{ZONE}/instances", {"name": "one", **net.properties(f"zones/{ZONE}/machineTypes/g2-standard-4")}
    )
    assert (duplicate.status, duplicate.reason) == (409, "alreadyExists")
    net.do("DELETE", f"zones/{ZONE}/instances/one")
    assert net.instances() == []


def test_the_longest_run_ends_an_instance(net: Any) -> None:
    limit = {"maxRunDuration": {"seconds": 60}, "instanceTerminationAction": "DELETE"}
    instance = net.run("one", standard=True, scheduling=limit)
    limit_at = datetime.fromisoformat(instance["resourceStatus"]["scheduling"]["terminationTimestamp"])
    assert (limit_at - datetime.fromisoformat(instance["lastStartTimestamp"])).total_seconds() == 60
    net.wait_until_deleted("one")
    (end,) = net.log("end")
    assert not end["interrupted"] and datetime.fromisoformat(end["at"]) >= limit_at


def test_a_simulated_maintenance_event_preempts_a_spot_instance(net: Any) -> None:
    net.run("one")
    net.do("POST", f"zones/{ZONE}/instances/one/simulateMaintenanceEvent")
    net.wait_until_deleted("one")
    assert len(net.zone_operations("compute.instances.preempted")) == 1


def test_a_host_that_fails_leaves_a_stopped_instance(net: Any) -> None:
    instance = net.run("one", standard=True, machine_type="n2-standard-8")
    net.market("interrupt", instance=instance["id"], notice=False)
    net.until(lambda: net.get(f"zones/{ZONE}/instances/one")["status"] == "TERMINATED")
    assert [o["targetId"] for o in net.zone_operations("compute.instances.hostError")] == [instance["id"]]


def test_an_empty_pool_is_a_failed_operation_and_no_instance(net: Any) -> None:
    net.market("drought", pool=f"g2-standard-4/{ZONE}")
    body = {"name": "one", **net.properties(f"zones/{ZONE}/machineTypes/g2-standard-4")}
    failed = net.wait(net.begin("POST", f"zones/{ZONE}/instances", body))
    (error,) = failed["error"]["errors"]
    assert error["code"] == "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS"
    assert f"zones/{ZONE}" in error["message"] and failed["httpErrorStatusCode"] == 503
    assert error["errorDetails"][0]["errorInfo"]["metadatas"]["vmType"] == "g2-standard-4"
    assert net.instances() == [] and net.log("launch") == []
    assert net.run("one", zone="europe-west4-b")["status"] == "RUNNING"


def test_one_that_is_taken_before_it_runs_fails_to_start(net: Any) -> None:
    body = {"name": "one", **net.properties(f"zones/{ZONE}/machineTypes/g2-standard-4")}
    with net.still():
        begun = net.begin("POST", f"zones/{ZONE}/instances", body)
        net.market("interrupt", instance=begun["targetId"], notice=False)
    failed = net.wait(begun)
    assert [e["code"] for e in failed["error"]["errors"]] == ["PREEMPTED"]
    net.wait_until_deleted("one")


def test_labels_and_metadata_change_by_their_fingerprints(net: Any) -> None:
    path = f"zones/{ZONE}/instances/one"
    instance = net.run("one", labels={"a": "1"}, metadata={"items": [{"key": "k", "value": ""}]})
    assert instance["metadata"]["items"] == [{"key": "k", "value": ""}]
    stale = net.call("POST", f"{path}/setLabels", {"labels": {"b": "2"}, "labelFingerprint": "AAAAAAAAAAA="})
    assert (stale.status, stale.reason) == (412, "conditionNotMet")
    net.do("POST", f"{path}/setLabels", {"labels": {"b": ""}, "labelFingerprint": instance["labelFingerprint"]})
    net.do("POST", f"{path}/setMetadata", {"items": [], "fingerprint": instance["metadata"]["fingerprint"]})
    changed = net.get(path)
    assert changed["labels"] == {"b": ""} and "items" not in changed["metadata"]


def test_a_protected_instance_is_not_deleted(net: Any) -> None:
    net.run("one")
    net.do("POST", f"zones/{ZONE}/instances/one/setDeletionProtection?deletionProtection=true")
    refused = net.call("DELETE", f"zones/{ZONE}/instances/one")
    assert (refused.status, refused.reason) == (400, "invalidResourceUsage")


def test_what_is_used_stays(net: Any) -> None:
    net.run("one")
    refused = net.call("DELETE", "regions/europe-west4/subnetworks/net")
    assert (refused.status, refused.reason) == (400, "resourceInUseByAnotherResource")
    assert f"zones/{ZONE}/instances/one" in refused.message


def test_a_template_makes_instances_and_is_never_changed(net: Any) -> None:
    link = net.template(labels={"a": "1"}, metadata={"items": [{"key": "k", "value": "v"}]})
    template_properties = net.get(link)["properties"]
    assert template_properties["scheduling"]["preemptible"] is True
    assert template_properties["disks"][0]["initializeParams"]["sourceImage"].endswith("debian-12")
    duplicate = net.call(
        "POST", "regions/europe-west4/instanceTemplates", {"name": "t1", "properties": net.properties()}
    )
    assert duplicate.status == 409
    net.do("POST", f"zones/{ZONE}/instances?sourceInstanceTemplate={link}", {"name": "one", "labels": {"b": "2"}})
    instance = net.get(f"zones/{ZONE}/instances/one")
    assert instance["labels"] == {"a": "1", "b": "2"} and instance["metadata"]["items"] == [{"key": "k", "value": "v"}]
    net.do("DELETE", link)
    assert net.call("GET", link).status == 404


SPOT = {"provisioningModel": "SPOT"}
DEBIAN = {"sourceImage": "projects/debian-cloud/global/images/family/debian-12", "diskType": "pd-balanced"}
HYPER = "hyperdisk-balanced"
BOOT = {"boot": True, "initializeParams": DEBIAN}


@pytest.mark.parametrize(
    ("change", "status", "message"),
    [
        ({"scheduling": {**SPOT, "automaticRestart": True}}, 400, "preemptible be false when AutomaticRestart is true"),
        ({"scheduling": {**SPOT, "onHostMaintenance": "MIGRATE"}}, 400, "when OnHostMaintenance isn't TERMINATE"),
        ({"scheduling": {**SPOT, "preemptible": False}}, 400, "preemptible be true"),
        ({"scheduling": {"provisioningModel": "STANDARD", "preemptible": True}}, 400, "preemptible"),
        ({"scheduling": {"provisioningModel": "STANDARD"}}, 400, "do not support live migration"),
        ({"scheduling": {"onHostMaintenance": "TERMINATE", "preemptionNoticeDuration": {"seconds": 120}}}, 400, "Spot"),
        ({"scheduling": {**SPOT, "preemptionNoticeDuration": {"seconds": 60}}}, 400, "0 or 120"),
        ({"scheduling": {**SPOT, "maxRunDuration": {"seconds": 29}}}, 400, "30 seconds and 120 days"),
        ({"scheduling": {**SPOT, "maxRunDuration": {"seconds": 10368001}}}, 400, "30 seconds and 120 days"),
        ({"scheduling": {"onHostMaintenance": "TERMINATE", "instanceTerminationAction": "DELETE"}}, 400, "Termination"),
        ({"scheduling": {"provisioningModel": "FLEX_START"}}, 501, "FLEX_START"),
        ({"scheduling": {**SPOT, "minNodeCpus": 4}}, 501, "minNodeCpus"),
        ({"machineType": "g2-standard-5"}, 400, "does not exist"),
        ({"machineType": "n1-standard-8"}, 400, "does not exist"),
        ({"guestAccelerators": [{"acceleratorType": "nvidia-l4", "acceleratorCount": 2}]}, 400, "not compatible"),
        ({"guestAccelerators": [{"acceleratorType": "nvidia-k9", "acceleratorCount": 1}]}, 400, "does not exist"),
        ({"labels": {"Project": "x"}}, 400, "Label key 'Project' violates"),
        ({"labels": {"everspot:cluster": "x"}}, 400, "violates"),
        ({"labels": {"a": "UPPER"}}, 400, "Label value 'UPPER' violates"),
        ({"labels": {"a": "x" * 64}}, 400, "violates"),
        ({"labels": {f"k{n}": "" for n in range(65)}}, 400, "64"),
        ({"metadata": {"items": [{"key": "a", "value": "x" * 262145}]}}, 400, "262144"),
        ({"metadata": {"items": [{"key": "a b", "value": "x"}]}}, 400, "regex"),
        ({"metadata": {"items": [{"key": "a", "value": "1"}, {"key": "a", "value": "2"}]}}, 400, "Duplicate"),
        ({"tags": {"items": ["Door"]}}, 400, "regex"),
        ({"disks": []}, 400, "Boot disk"),
        ({"disks": [{**BOOT, "diskSizeGb": "5"}]}, 400, "smaller than the image size (10 GB)"),
        ({"disks": [{**BOOT, "initializeParams": {**DEBIAN, "sourceImage": "global/images/none"}}]}, 404, "not found"),
        ({"disks": [{"boot": True, "initializeParams": {**DEBIAN, "diskType": "pd-standard"}}]}, 400, "pd-standard"),
        ({"disks": [{"boot": True, "initializeParams": {**DEBIAN, "diskType": "pd-extreme"}}]}, 400, "not compatible"),
        ({"disks": [{"boot": True, "initializeParams": {**DEBIAN, "diskType": "none"}}]}, 400, "cannot be found"),
        (
            {"machineType": "e2-small", "disks": [{"boot": True, "initializeParams": {**DEBIAN, "diskType": HYPER}}]},
            400, "[hyperdisk-balanced, e2-small] features are not compatible",
        ),
        ({"disks": [{"boot": True, "source": "zones/europe-west4-a/disks/d"}]}, 501, "disks that exist"),
        ({"networkInterfaces": []}, 400, "network interface"),
        ({"networkInterfaces": [{"network": "global/networks/net"}]}, 400, "Subnetwork should be specified"),
        ({"networkInterfaces": [{"subnetwork": "regions/europe-west4/subnetworks/none"}]}, 404, "not found"),
        ({"serviceAccounts": [{"email": "none@x.iam.gserviceaccount.com", "scopes": ["x"]}]}, 404, "not found"),
        ({"serviceAccounts": [{"email": "default"}]}, 400, "scopes"),
        ({"canIpForward": True}, 501, "canIpForward"),
        ({"minCpuPlatform": "Intel Ice Lake"}, 501, "minCpuPlatform"),
    ],
)  # fmt: skip
def test_an_instance_that_cannot_be(shared: Any, change: Any, status: int, message: str) -> None:
    """The same of an instance and of a template."""
    properties = {**shared.properties(), **change}
    machine = f"zones/{ZONE}/machineTypes/{properties['machineType']}"
    instance = shared.call("POST", f"zones/{ZONE}/instances", {"name": "one", **properties, "machineType": machine})
    template = shared.call("POST", "regions/europe-west4/instanceTemplates", {"name": "t", "properties": properties})
    for refused in (instance, template):
        assert refused.status == status, refused.body
        assert message in refused.message


@pytest.mark.parametrize("name", ["One", "1one", "one_", "o" * 64, "one-", ""])
def test_names_are_those_of_rfc_1035(shared: Any, name: str) -> None:
    refused = shared.call("POST", f"zones/{ZONE}/instances", {"name": name, **shared.properties()})
    assert refused.status == 400 and "resource.name" in refused.message


@pytest.fixture(scope="module")
def shared(module_cloud: Any, gcp_kit: Any) -> Any:
    """One kit for every rule that leaves nothing behind."""
    with pytest.MonkeyPatch.context() as patch:
        module_cloud.reset()
        kit = gcp_kit(module_cloud, patch)
        kit.network()
        yield kit
