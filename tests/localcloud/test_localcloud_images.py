"""Images made of instances: stopping, CreateImage, CopyImage and what EC2 refuses of them; the trees that they hold."""

import json
from pathlib import Path
from typing import Any

import pytest
from everspot_local.aws.ec2.images import BAKED_IMAGE
from everspot_local.market.delays import Delays
from everspot_local.market.disturbances import CALM
from everspot_local.options import Options
from localcloud_refusals import refused

BOOT = """
import json, os, pathlib, sys, time
home = pathlib.Path.cwd()
image = os.environ.get("EVERSPOT_MACHINE_IMAGE")
layers = json.loads(pathlib.Path(image, "image.json").read_text())["layers"] if image else [sys.argv[1]]
if "EVERSPOT_MACHINE_DISK" in os.environ:
    upper = home / "disk" / "upper"
    upper.mkdir(parents=True)
    (upper / "written").write_text("by the machine")
    (home / "disk" / "image.json").write_text(json.dumps({"layers": [*layers, str(upper)]}))
(home / "layers.part").write_text(json.dumps(layers))
(home / "layers.part").rename(home / "layers.json")
time.sleep(1000)
"""
"""What a machine does with its disk, without namespaces: it writes a layer above those of its image."""


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> Options:
    folder = Path(tmp_path_factory.mktemp("images"))
    (folder / "base").mkdir()
    (folder / "base" / "file").write_text("x" * 5000)
    boot = ("python3", "-c", BOOT, str(folder / "base"))
    return Options(folder, scale=120, boot_command=boot, delays=Delays(), disturbances=CALM)


def stopped(kit: Any, helpers: Any, **request: Any) -> str:
    """An instance that has written on its disk and is stopped."""
    instance_id = kit.run(**request)
    helpers.until((home(kit, instance_id) / "layers.json").exists)
    assert kit.ec2.stop_instances(InstanceIds=[instance_id])["StoppingInstances"][0]["InstanceId"] == instance_id
    kit.reaches(instance_id, "stopped")
    return instance_id


def home(kit: Any, instance_id: str) -> Path:
    return Path(kit.cloud.machines.processes.folder(instance_id))


def described(kit: Any, image_id: str) -> dict[str, Any]:
    (image,) = kit.ec2.describe_images(ImageIds=[image_id])["Images"]
    return dict(image)


def available(kit: Any, helpers: Any, image_id: str) -> dict[str, Any]:
    return dict(helpers.until(lambda: [i for i in [described(kit, image_id)] if i["State"] == "available"])[0])


def describe_snapshot(kit: Any, image: dict[str, Any]) -> dict[str, Any]:
    snapshot_id = image["BlockDeviceMappings"][0]["Ebs"]["SnapshotId"]
    return dict(kit.ec2.describe_snapshots(SnapshotIds=[snapshot_id])["Snapshots"][0])


def test_an_image_of_a_stopped_instance_has_its_size_and_its_tree_which_its_machines_boot(
    kit: Any, helpers: Any
) -> None:
    volume = {"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 75, "VolumeType": "gp3"}}
    instance_id = stopped(kit, helpers, BlockDeviceMappings=[volume])
    assert kit.cloud.market.pools.get("m6i.large", "us-east-1a").used[kit.cloud.machines.all[instance_id].market] == 0
    tags = [{"ResourceType": kind, "Tags": [{"Key": "made", "Value": kind}]} for kind in ("image", "snapshot")]
    with kit.still():
        image_id = kit.ec2.create_image(InstanceId=instance_id, Name="baked", TagSpecifications=tags)["ImageId"]
        assert described(kit, image_id)["State"] == "pending"
        with refused("InvalidAMIID.Unavailable", f"AMI '{image_id}' is pending, and cannot be run"):
            kit.run(ImageId=image_id)
    image = available(kit, helpers, image_id)
    assert image["BlockDeviceMappings"][0]["Ebs"]["VolumeSize"] == 75
    assert (image["Architecture"], image["EnaSupport"], image["Tags"][0]["Value"]) == ("x86_64", True, "image")
    assert image["SourceInstanceId"] == instance_id
    snapshot = describe_snapshot(kit, image)
    assert (snapshot["VolumeSize"], snapshot["State"], snapshot["Tags"][0]["Value"]) == (75, "completed", "snapshot")
    assert 5000 < snapshot["FullSnapshotSizeInBytes"] < 1 << 20
    kit.ec2.terminate_instances(InstanceIds=[instance_id])
    kit.reaches(instance_id, "terminated")
    assert not (home(kit, instance_id) / "disk").exists()
    second = kit.run(ImageId=image_id, InstanceInitiatedShutdownBehavior="terminate")
    helpers.until((home(kit, second) / "layers.json").exists)
    base, tree = json.loads((home(kit, second) / "layers.json").read_text())
    assert (Path(base) / "file").exists() and (Path(tree) / "written").read_text() == "by the machine"
    assert not (home(kit, second) / "disk").exists()


def test_a_copy_may_be_encrypted_and_its_original_may_go(kit: Any, helpers: Any) -> None:
    """As a bake with an encrypted volume does: create, copy, deregister, delete the first snapshot."""
    instance_id = stopped(kit, helpers)
    with kit.still():
        image_id = kit.ec2.create_image(InstanceId=instance_id, Name="plain")["ImageId"]
        request = {"SourceImageId": image_id, "SourceRegion": "us-east-1", "Name": "encrypted", "Encrypted": True}
        with refused("InvalidAMIID.Unavailable", "is currently pending"):
            kit.ec2.copy_image(**request)
    first = describe_snapshot(kit, available(kit, helpers, image_id))
    assert first["Encrypted"] is False
    with refused("InvalidAMIName.Duplicate", f"AMI name plain is already in use by AMI {image_id}"):
        kit.ec2.copy_image(**{**request, "Name": "plain"})
    copy = available(kit, helpers, kit.ec2.copy_image(**request)["ImageId"])
    assert copy["BlockDeviceMappings"][0]["Ebs"]["Encrypted"] is True
    second = describe_snapshot(kit, copy)
    assert (second["Encrypted"], second["FullSnapshotSizeInBytes"]) == (True, first["FullSnapshotSizeInBytes"])
    with refused("InvalidSnapshot.InUse", f"is currently in use by {image_id}"):
        kit.ec2.delete_snapshot(SnapshotId=first["SnapshotId"])
    kit.ec2.deregister_image(ImageId=image_id)
    kit.ec2.delete_snapshot(SnapshotId=first["SnapshotId"])
    with refused("InvalidAMIID.Unavailable"):
        kit.ec2.deregister_image(ImageId=image_id)
    with refused("InvalidAMIID.Unavailable", "no longer available"):
        kit.run(ImageId=image_id)
    machine = kit.run(ImageId=copy["ImageId"])
    helpers.until((home(kit, machine) / "layers.json").exists)
    assert len(json.loads((home(kit, machine) / "layers.json").read_text())) == 2
    answer = kit.ec2.deregister_image(ImageId=copy["ImageId"], DeleteAssociatedSnapshots=True)
    assert answer["DeleteSnapshotResults"][0]["SnapshotId"] == second["SnapshotId"]
    assert kit.instance(machine)["State"]["Name"] in ("pending", "running")
    remaining = {s["SnapshotId"] for s in kit.ec2.describe_snapshots()["Snapshots"]}
    assert not remaining & {first["SnapshotId"], second["SnapshotId"]}


def test_an_image_is_made_of_an_instance_that_is_there_and_under_a_name_that_is_free(kit: Any, helpers: Any) -> None:
    ended = kit.run()
    kit.ec2.terminate_instances(InstanceIds=[ended])
    kit.reaches(ended, "terminated")
    with refused("InvalidParameterValue", "Instance is not in state 'running' or 'stopping' or 'stopped'"):
        kit.ec2.create_image(InstanceId=ended, Name="of-the-ended")
    with refused("InvalidInstanceID.NotFound"):
        kit.ec2.create_image(InstanceId="i-0123456789abcdef0", Name="of-nothing")
    instance_id = stopped(kit, helpers)
    for name in ("a" * 129, "with:colon"):
        with refused("InvalidAMIName.Malformed"):
            kit.ec2.create_image(InstanceId=instance_id, Name=name)
    used_name = described(kit, BAKED_IMAGE)["Name"]
    with refused("InvalidAMIName.Duplicate", f"is already in use by AMI {BAKED_IMAGE}"):
        kit.ec2.create_image(InstanceId=instance_id, Name=used_name)
    with refused("UnsupportedOperation", "does not support BlockDeviceMappings of CreateImage"):
        kit.ec2.create_image(InstanceId=instance_id, Name="other", BlockDeviceMappings=[{"DeviceName": "/dev/sdf"}])


def test_a_registered_image_is_not_smaller_than_its_snapshot(kit: Any) -> None:
    snapshot = describe_snapshot(kit, described(kit, BAKED_IMAGE))["SnapshotId"]
    device = {"DeviceName": "/dev/sda1", "Ebs": {"SnapshotId": snapshot}}
    request = {"Name": "again", "RootDeviceName": "/dev/sda1", "Architecture": "x86_64"}
    small = {**device, "Ebs": {**device["Ebs"], "VolumeSize": 74}}  # type: ignore[dict-item]
    with refused("InvalidBlockDeviceMapping", "expect size >= 75GB"):
        kit.ec2.register_image(**request, BlockDeviceMappings=[small])
    missing = {"DeviceName": "/dev/sda1", "Ebs": {"SnapshotId": "snap-0123456789abcdef0"}}
    with refused("InvalidSnapshot.NotFound"):
        kit.ec2.register_image(**request, BlockDeviceMappings=[missing])
    image_id = kit.ec2.register_image(**request, BlockDeviceMappings=[device])["ImageId"]
    assert described(kit, image_id)["BlockDeviceMappings"][0]["Ebs"]["VolumeSize"] == 75
    with refused("InvalidAMIName.Duplicate"):
        kit.ec2.register_image(**request, BlockDeviceMappings=[device])


def test_an_image_of_somebody_else_is_not_deregistered(kit: Any) -> None:
    with refused("AuthFailure", "Not authorized for image:ami-12c6146b"):
        kit.ec2.deregister_image(ImageId="ami-12c6146b")


def test_only_on_demand_instances_that_run_are_stopped(kit: Any, helpers: Any) -> None:
    (spot,) = kit.spot()
    kit.reaches(spot, "running")
    with refused("UnsupportedOperation", f"You can't stop the Spot Instance '{spot}'"):
        kit.ec2.stop_instances(InstanceIds=[spot])
    with kit.still():
        young = kit.run()
        with refused("IncorrectInstanceState", "has never reached the 'running' state"):
            kit.ec2.stop_instances(InstanceIds=[young])
    kit.ec2.terminate_instances(InstanceIds=[young])
    kit.reaches(young, "terminated")
    with refused("IncorrectInstanceState", "is not in a state from which it can be stopped"):
        kit.ec2.stop_instances(InstanceIds=[young])


def test_an_instance_reads_the_public_key_of_its_launch(kit: Any, helpers: Any) -> None:
    kit.ec2.create_key_pair(KeyName="a-bake", KeyType="ed25519")
    instance_id = kit.run(KeyName="a-bake")
    documents = kit.cloud.account.metadata.source
    path = "/latest/meta-data/public-keys"
    assert documents.document(instance_id, path) == "0=a-bake"
    key = documents.document(instance_id, f"{path}/0/openssh-key")
    assert key.startswith("ssh-ed25519 ") and key.endswith(" a-bake")
    assert documents.document(kit.run(), path) is None
