"""A bake on the local cloud by Packer itself, and a cluster of the image that it makes.

Debian's Packer drives the template's own values, steps and scripts: an instance boots a base image in contained form,
is provisioned over SSH and sealed, switched off and made an image, which is copied with encryption; its id goes into
the Systems Manager parameter. What is not proven: the settings that this Packer is too old for (`YOUNGER`), Session
Manager, and the installation of the dependencies, which are those that `make image` keeps.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from builder_image import USER, Proxy, builder_image, package_settings
from e2e_helpers import LiveCluster
from everspot_core.jobs.records import EventKind, Role
from everspot_local.image.bake import build_wheel
from everspot_local.image.inputs import commit
from everspot_local.options import DOORS
from image_machine import BOOT, BootedMachine
from image_source import CACHE, ROOT
from packer_template import BAKE, block, without_younger

pytestmark = pytest.mark.timeout(1800)
PARAMETER = "/everspot/image/dev"
TEMPLATE = "everspot.pkr.hcl"
REGION = "eu-west-1"
PUT_PARAMETER = """import sys, boto3
assert sys.argv[1:3] == ["ssm", "put-parameter"] and sys.argv[-1] == "--overwrite"
words = dict(zip(sys.argv[3:-1:2], sys.argv[4:-1:2]))
ssm = boto3.client("ssm", region_name=words["--region"])
ssm.put_parameter(Name=words["--name"], Type=words["--type"], Value=words["--value"], Overwrite=True)
"""
"""The one call that `publish.sh` makes, for machines without the AWS CLI."""


def adapted(text: str, endpoint: str) -> str:
    """Return the template for Debian's Packer and the local cloud. The base image is found by the template's filters,
    in the form that a source had before there were data sources."""
    data = block(text, 'data "amazon-ami" "base" {')
    filters = data.partition("region      = var.region\n")[2].rpartition("}")[0]
    text = without_younger(text, TEMPLATE).replace(
        "  source_ami    = data.amazon-ami.base.id\n", f"  source_ami_filter {{\n{filters}  }}\n"
    )
    local = f'  custom_endpoint_ec2 = "{endpoint}"\n  skip_region_validation = true\n  skip_metadata_api_check = true\n'
    opening = 'source "amazon-ebs" "everspot" {\n'
    assert opening in text and "source_ami_filter" in text
    return text.replace(opening, opening + local)


class BakedCluster(LiveCluster):
    """A cluster whose image Packer bakes first. A notice is half a minute of real time.

    Attributes:
        packer_output: what Packer printed.
        bake_seconds: how long Packer took.
        image_id: of the image, as its parameter has it.
        commit: what its wheel was built of.
    """

    scale = 4.0
    target = 1
    shutdown = timedelta(seconds=360)
    packer_output = ""
    bake_seconds = 0.0
    image_id = ""
    commit = ""

    def _lay(self) -> None:
        self._bake()
        super()._lay()

    def _bake(self) -> None:
        ec2 = self.client("ec2")
        ec2.register_image(
            Name="base 1", Architecture="x86_64", VirtualizationType="hvm", EnaSupport=True,
            RootDeviceName="/dev/sda1", BlockDeviceMappings=[{"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 35}}],
        )  # fmt: skip
        folder = self.folder / "bake"
        shutil.copytree(BAKE, folder / "bake")
        path = folder / "bake" / TEMPLATE
        path.write_text(adapted(path.read_text(), self.cloud.endpoint))
        wheel, self.commit = build_wheel(ROOT, folder), commit(ROOT)
        variables = {
            "region": REGION, "wheel": wheel, "commit": self.commit, "python": "python3", "base_image_name": "base *",
            "base_image_owner": "self", "ssh_interface": "private_ip", "image_parameter": PARAMETER,
            "manifest": folder / "manifest.json",
        }  # fmt: skip
        network = [sys.executable, str(Path(__file__).with_name("builder_network.py")), self.cloud.endpoint, REGION]
        packer = ["packer", "build", "-color=false", *(f"-var={name}={value}" for name, value in variables.items())]
        env = {**os.environ, "HOME": str(folder), "CHECKPOINT_DISABLE": "1", "PACKER_PLUGIN_PATH": str(folder)}
        if shutil.which("aws") is None:
            (folder / "aws").write_text(f"#!{sys.executable}\n{PUT_PARAMETER}")
            (folder / "aws").chmod(0o755)
            env["PATH"] = f"{folder}:{env['PATH']}"
        began = time.monotonic()
        answer = subprocess.run(
            [*network, *packer, str(path)], cwd=folder, env=env, capture_output=True, text=True, timeout=1200
        )
        self.bake_seconds = time.monotonic() - began
        self.packer_output = answer.stdout + answer.stderr
        assert answer.returncode == 0, self.packer_output[-6000:] + self.consoles()
        self.image_id = str(self.client("ssm").get_parameter(Name=PARAMETER)["Parameter"]["Value"])

    def _template_data(self, role: Role, kind: str) -> dict[str, Any]:
        return {**super()._template_data(role, kind), "ImageId": self.image_id}

    def machine(self, instance_id: str) -> BootedMachine:
        pid = self.cloud.machines.processes.pid(instance_id)
        assert pid is not None, f"{instance_id} is off"
        return BootedMachine(pid)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory, lower_layers: None) -> Iterator[BakedCluster]:
    """A cluster of the image that Packer has baked."""
    if shutil.which("packer") is None:
        pytest.skip("Packer is not installed: Debian's package `packer`")
    folder = tmp_path_factory.mktemp("baked")
    proxy = Proxy()
    words = [f"{name}={value}" for name, value in package_settings(proxy.url).items()]
    base = builder_image(ROOT, CACHE, folder / "base")
    boot = ("/usr/bin/env", *words, *BOOT, "--image", str(base), *DOORS["aws"])
    try:
        with BakedCluster(folder / "cloud", boot=boot) as cluster:
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
    assert (
        "self-test: passed" in live.packer_output
        and f"{PARAMETER} in {REGION} is {live.image_id}" in live.packer_output
    )


def test_what_packer_leaves_in_the_image_is_sealed(live: BakedCluster) -> None:
    folder = live.folder / "images" / live.image_id
    tree = next(path for path in live.folder.glob("images/*/tree"))
    assert (tree / "opt/everspot/image.json").exists(), folder
    leftovers = (f"home/{USER}/.ssh/authorized_keys", "etc/ssh/ssh_host_*", "root/.ssh/authorized_keys", "tmp/*",
                 "var/tmp/*", "var/lib/everspot", "var/lib/systemd/random-seed", "home/*/.bash_history")  # fmt: skip
    present = [str(path) for name in leftovers for path in tree.glob(name) if not path.is_char_device()]
    assert present == []
    assert (tree / "etc/machine-id").read_text() == ""


def test_a_cluster_of_the_image_trains_meets_a_notice_and_goes_on_elsewhere(live: BakedCluster) -> None:
    first = str(live.until(lambda: next(iter(live.store.instances.names()), None)))
    machine = live.machine(first)
    assert machine.await_boot() == "running", machine.run("systemctl", "--failed", "--no-legend")
    version = machine.run("/opt/everspot/bin/everspot-agent", "--version")
    assert f"commit {live.commit}," in version
    job = live.submit_toy("baked", steps=1_000_000, seconds=live.scale / 2)
    assert live.until(lambda: live.trains(job, steps=2)) == first
    live.cloud.do("interrupt", instance=first)
    interrupted = live.until(lambda: next(iter(live.list_events(job, EventKind.INTERRUPTED)), None))
    second = live.until(lambda: next((o for o in [live.trains(job)] if o not in (None, first)), None))
    training = live.until(
        lambda: next((e for e in live.list_events(job, EventKind.TRAINING) if e.instance_id == second), None)
    )
    assert (training.data["from_step"], training.data["restored"]) == (interrupted.data["durable_step"], True)
    (described,) = live.client("ec2").describe_instances(InstanceIds=[second])["Reservations"][0]["Instances"]
    assert described["ImageId"] == live.image_id
