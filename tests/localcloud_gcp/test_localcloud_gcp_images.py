"""Disks that outlive their instances, images of them, and image families in launches."""

from typing import Any

import pytest

ZONE = "europe-west4-a"
ZONED = f"zones/{ZONE}"
DEBIAN = "projects/debian-cloud/global/images/family/debian-12"


def launch(net: Any, name: str, image: str = DEBIAN, gib: str = "20", *, lasting: bool = True, **initial: Any) -> Any:
    """Create an instance; return its document. `lasting`: whether its disk outlives it."""
    parameters = {"sourceImage": image, "diskType": "pd-balanced", "diskSizeGb": gib, **initial}
    disk = {"boot": True, "autoDelete": not lasting, "initializeParams": parameters}
    return net.run(name, machine_type="e2-standard-4", standard=True, disks=[disk])


def image_body(name: str, disk: str = "builder", **more: Any) -> dict[str, Any]:
    return {"name": name, "sourceDisk": f"{ZONED}/disks/{disk}", **more}


def bake(net: Any, name: str, **more: Any) -> Any:
    """Make an image of the disk `builder`; return it."""
    net.do("POST", "global/images", image_body(name, **more))
    return net.get(f"global/images/{name}")


@pytest.fixture
def net(kit: Any) -> Any:
    kit.network()
    return kit


@pytest.fixture
def disk(net: Any) -> Any:
    """The disk of an instance that was deleted."""
    launch(net, "builder", gib="30", labels={"team": "a"})
    net.do("DELETE", f"{ZONED}/instances/builder")
    return net.get(f"{ZONED}/disks/builder")


def test_a_disk_stays_or_goes_as_its_instance_says(net: Any) -> None:
    for instance in (launch(net, "stays"), launch(net, "goes", lasting=False)):
        disk = net.get(f"{ZONED}/disks/{instance['name']}")
        assert (disk["users"], disk["sizeGb"]) == ([instance["selfLink"]], "20")
        refused = net.call("DELETE", f"{ZONED}/disks/{instance['name']}")
        assert (refused.status, refused.reason) == (400, "resourceInUseByAnotherResource")
        net.do("DELETE", f"{ZONED}/instances/{instance['name']}")
    (disk,) = net.get(f"{ZONED}/disks")["items"]
    assert disk["name"] == "stays" and "users" not in disk
    assert net.call("GET", f"{ZONED}/disks/goes").status == 404
    conflict = net.call(
        "POST", f"{ZONED}/instances", {"name": "stays", **net.properties(f"{ZONED}/machineTypes/g2-standard-4")}
    )
    assert (conflict.status, conflict.message) == (
        409,
        f"The resource 'projects/everspot-local/{ZONED}/disks/stays' already exists",
    )
    net.do("DELETE", f"{ZONED}/disks/stays")
    assert net.call("GET", f"{ZONED}/disks/stays").status == 404


def test_an_image_is_made_of_a_disk_and_leads_its_family(net: Any, disk: Any) -> None:
    first = bake(net, "base-1", family="base", labels={"python": "3-12"}, description="d")
    assert (first["status"], first["diskSizeGb"], first["family"]) == ("READY", "30", "base")
    assert (first["sourceDiskId"], first["labels"], first["storageLocations"]) == (
        disk["id"],
        {"python": "3-12"},
        ["eu"],
    )
    assert {"type": "UEFI_COMPATIBLE"} in first["guestOsFeatures"] and first["architecture"] == "X86_64"
    second = bake(net, "base-2", family="base")
    net.do("DELETE", f"{ZONED}/disks/builder")  # an image no longer needs its disk
    family = "projects/everspot-local/global/images/family/base"
    assert net.get("global/images/family/base")["id"] == second["id"]
    launched = launch(net, "of-family", family, gib="30")
    assert net.get(f"{ZONED}/disks/of-family")["sourceImageId"] == second["id"]
    assert launched["disks"][0]["diskSizeGb"] == "30"
    net.do("POST", "global/images/base-2/deprecate", {"state": "DEPRECATED"})
    assert net.get("global/images/family/base")["id"] == first["id"]
    names = {image["name"] for image in net.get("global/images?filter=family%3Dbase")["items"]}
    assert names == {"base-1", "base-2"}
    net.do("DELETE", "global/images/base-1")  # though a disk was made of another of the family
    family_answer = net.call("GET", "global/images/family/base")
    assert (family_answer.status, family_answer.reason) == (404, "notFound")
    net.do("DELETE", "global/images/base-2")
    assert net.call("GET", "global/images/base-2").status == 404


def test_an_image_is_pending_until_it_is_made_and_cannot_be_used_before(net: Any, disk: Any) -> None:
    with net.still() as later:
        begun = net.begin("POST", "global/images", image_body("slow", family="slow"))
        assert net.get("global/images/slow")["status"] == "PENDING"
        assert net.call("GET", "global/images/family/slow").status == 404
        body = {"name": "early", **net.properties(f"{ZONED}/machineTypes/g2-standard-4")}
        body["disks"][0]["initializeParams"]["sourceImage"] = "global/images/slow"
        early = net.call("POST", f"{ZONED}/instances", body)
        assert (early.status, early.reason) == (400, "resourceNotReady")
        busy = net.call("DELETE", f"{ZONED}/disks/builder")
        assert (busy.status, busy.reason) == (400, "resourceInUseByAnotherResource")
        later(5)
    net.wait(begun)
    assert net.get("global/images/slow")["status"] == "READY"


def test_an_instance_needs_a_disk_as_large_as_its_image_and_one_that_may_be_used(net: Any, disk: Any) -> None:
    bake(net, "large")
    body = {"name": "one", **net.properties(f"{ZONED}/machineTypes/g2-standard-4")}
    body["disks"][0]["initializeParams"] = {"sourceImage": "global/images/large", "diskType": "pd-balanced"}
    small = {**body["disks"][0]["initializeParams"], "diskSizeGb": "29"}
    refused = net.call("POST", f"{ZONED}/instances", {**body, "disks": [{"boot": True, "initializeParams": small}]})
    assert refused.status == 400 and "smaller than the image size (30 GB)" in refused.message
    net.do("POST", f"{ZONED}/instances", body)
    assert net.get(f"{ZONED}/instances/one")["disks"][0]["diskSizeGb"] == "30"  # by default the image's
    net.do("POST", "global/images/large/deprecate", {"state": "OBSOLETE"})
    obsolete = net.call("POST", f"{ZONED}/instances", {**body, "name": "two"})
    assert obsolete.status == 400 and "obsolete" in obsolete.message


def test_no_image_is_made_of_a_disk_that_an_instance_writes_on(net: Any) -> None:
    launch(net, "builder")
    running = net.call("POST", "global/images", image_body("early"))
    assert (running.status, running.reason) == (400, "resourceInUseByAnotherResource")
    assert f"is already being used by 'projects/everspot-local/{ZONED}/instances/builder'" in running.message
    assert net.call("POST", "global/images?forceCreate=true", image_body("early")).status == 501
    assert net.call("GET", "global/images/early").status == 404


@pytest.mark.parametrize(
    ("change", "status", "message"),
    [
        ({"name": "Upper"}, 400, "resource.name"),
        ({"name": "ends-with-"}, 400, "resource.name"),
        ({"name": "everspot"}, 409, "already exists"),
        ({"name": "taken"}, 409, "already exists"),
        ({"family": "9th"}, 400, "resource.family"),
        ({"labels": {"Team": "a"}}, 400, "Label key"),
        ({"sourceDisk": f"{ZONED}/disks/none"}, 404, "disks/none' was not found"),
        ({"sourceDisk": f"{ZONED}/instances/builder"}, 400, "The URL is malformed"),
        ({"sourceDisk": "https://compute.googleapis.com/compute/v1/p/zones/z/disks/d"}, 400, "'resource.sourceDisk'"),
        ({"sourceDisk": None}, 400, "'resource.sourceDisk' not specified"),
        ({"sourceImage": DEBIAN}, 501, "sourceImage"),
        ({"imageEncryptionKey": {"kmsKeyName": "k"}}, 501, "imageEncryptionKey"),
    ],
)
def test_an_image_that_cannot_be(net: Any, disk: Any, change: dict[str, Any], status: int, message: str) -> None:
    if change.get("name") == "taken":
        bake(net, "taken")
    refused = net.call("POST", "global/images", {**image_body("new"), **change})
    assert refused.status == status and message in refused.message, refused.body
    assert net.call("GET", "global/images/new").status == 404


def test_an_empty_account_is_none_and_absent_entries_are_passed_over(net: Any) -> None:
    """Packer's builder sends both."""
    body = {"name": "one", **net.properties(f"{ZONED}/machineTypes/g2-standard-4")}
    body["metadata"] = {"items": [None, {"key": "ssh-keys", "value": "packer:ssh-ed25519 AAAA packer"}]}
    body["networkInterfaces"][0]["accessConfigs"] = [None]
    net.do("POST", f"{ZONED}/instances", {**body, "serviceAccounts": [{}]})
    instance = net.get(f"{ZONED}/instances/one")
    assert "serviceAccounts" not in instance
    assert [item["key"] for item in instance["metadata"]["items"]] == ["ssh-keys"]
