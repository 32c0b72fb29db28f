"""A bake on the local cloud by Packer itself, and a cluster of the image that it makes.

Debian's Packer drives the template's own values, steps and scripts: an instance boots a base image in contained form,
is provisioned over SSH and sealed, switched off and made an image, which is copied with encryption; its id goes into
the Systems Manager parameter. What is not proven: the settings that this Packer is too old for (`YOUNGER`), Session
Manager, and the installation of the dependencies, which are those that `make image` keeps.
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from builder_image import USER, Proxy
from e2e_helpers import REGION, LiveCluster
from everspot_core.jobs.records import EventKind, Role
from everspot_local.market.delays import Delays
from image_machine import BootedMachine
from packer_aws import bake_on_aws
from packer_bake import Bake, boot_builder, list_leftovers

pytestmark = pytest.mark.timeout(1800)
PARAMETER = "/everspot/image/dev"
SCALE = 4.0


class BakedCluster(LiveCluster):
    """A cluster whose image Packer bakes first. A notice is half a minute of real time.

    It has two agents, so that a job goes on before the lost one is replaced.

    Attributes:
        bake: the bake of its image.
        image_id: of the image, as its parameter has it.
    """

    scale = SCALE
    target = 2
    delays = Delays(shutdown=timedelta(seconds=90 * SCALE))
    bake: Bake
    image_id = ""

    def _create(self) -> None:
        folder, endpoint = self.folder / "bake", self.cloud.endpoint
        self.bake = bake_on_aws(folder, self.client("ec2"), endpoint, REGION, PARAMETER, self.consoles)
        self.image_id = str(self.client("ssm").get_parameter(Name=PARAMETER)["Parameter"]["Value"])
        super()._create()

    def _template_data(self, role: Role, kind: str) -> dict[str, Any]:
        return {**super()._template_data(role, kind), "ImageId": self.image_id}

    def machine(self, instance_id: str) -> BootedMachine:
        return BootedMachine.from_instance(self.cloud, instance_id)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory, lower_layers: None) -> Iterator[BakedCluster]:
    """A cluster of the image that Packer has baked."""
    folder = tmp_path_factory.mktemp("baked")
    proxy = Proxy()
    try:
        with BakedCluster(folder / "cloud", boot=boot_builder(folder, "aws", proxy)) as cluster:
            yield cluster
    finally:
        proxy.close()


def test_packer_makes_an_image_with_its_size_and_leaves_nothing_else(live: BakedCluster) -> None:
    ec2 = live.client("ec2")
    (image,) = ec2.describe_images(ImageIds=[live.image_id])["Images"]
    ebs = image["BlockDeviceMappings"][0]["Ebs"]
    assert (image["State"], ebs["VolumeSize"], ebs["Encrypted"]) == ("available", 75, True)
    tags = {tag["Key"]: tag["Value"] for tag in image["Tags"]}
    assert tags == {"Name": "everspot", "everspot:base": "base 1", "everspot:python": "python3"}
    (snapshot,) = ec2.describe_snapshots(SnapshotIds=[ebs["SnapshotId"]])["Snapshots"]
    assert (snapshot["VolumeSize"], snapshot["Encrypted"], snapshot["State"]) == (75, True, "completed")
    assert 1 << 30 < snapshot["FullSnapshotSizeInBytes"] < 20 << 30
    own = ec2.describe_images(Owners=["self"], Filters=[{"Name": "name", "Values": ["everspot-*"]}])["Images"]
    assert live.image_id in {each["ImageId"] for each in own} and len(own) == 2  # the other one the account came with
    assert ec2.describe_key_pairs()["KeyPairs"] == []
    groups = ec2.describe_security_groups()["SecurityGroups"]
    assert not [group for group in groups if group["GroupName"].startswith("packer")]
    assert "self-test: passed" in live.bake.output
    assert f"{PARAMETER} in {REGION} is {live.image_id}" in live.bake.output


def test_what_packer_leaves_in_the_image_is_sealed(live: BakedCluster) -> None:
    (tree,) = live.folder.glob("images/*/tree")
    assert (tree / "opt/everspot/image.json").exists()
    assert list_leftovers(tree, USER) == []
    assert (tree / "etc/machine-id").read_text() == ""
    assert (tree / "etc/chrony/chrony.conf").read_text().startswith("server 169.254.169.123 ")


def test_a_cluster_of_the_image_trains_meets_a_notice_and_goes_on_elsewhere(live: BakedCluster) -> None:
    job = live.submit_toy("baked", steps=1_000_000, seconds=live.scale / 2)
    first = live.until(lambda: live.trains(job, steps=2))
    machine = live.machine(first)
    assert machine.await_boot() == "running", machine.run("systemctl", "--failed", "--no-legend")
    version = machine.run("/opt/everspot/bin/everspot-agent", "--version")
    assert f"commit {live.bake.commit}," in version
    # An earlier layer of the image may have masked it, so that the baked tree alone does not show it.
    assert machine.run("systemctl", "is-enabled", "apt-daily-upgrade.timer", check=False).strip() == "masked"
    live.cloud.do("interrupt", instance=first)
    interrupted = live.until(lambda: next(iter(live.list_events(job, EventKind.INTERRUPTED)), None))
    second = live.until(lambda: next((o for o in [live.trains(job)] if o not in (None, first)), None))
    training = live.until(
        lambda: next((e for e in live.list_events(job, EventKind.TRAINING) if e.instance_id == second), None)
    )
    assert (training.data["from_step"], training.data["restored"]) == (interrupted.data["durable_step"], True)
    (described,) = live.client("ec2").describe_instances(InstanceIds=[second])["Reservations"][0]["Instances"]
    assert described["ImageId"] == live.image_id
