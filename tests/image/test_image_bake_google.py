"""A bake on the local Google Cloud by Packer itself, and a cluster of the family that its image leads.

Debian's Packer drives the template's own values, steps and scripts: an instance boots a base image in contained form,
is provisioned over SSH through a tunnel and sealed; it is deleted without its disk, which is made an image of the
family. What is not proven: TLS to Google itself and its sign-in (`google_front`), the Google Cloud CLI, whose one call
has a stand-in (`gcloud_tunnel`), Packer's wait for it of half a minute, Shielded VM, and the installation of the
dependencies, which are those that `make image` keeps.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from builder_image import Proxy
from e2e_google import REGION, GoogleLive
from everspot_core.jobs.records import EventKind, Role
from image_machine import BootedMachine
from packer_bake import Bake, boot_builder, list_leftovers
from packer_google import bake_on_google

# test_image_bake.py bakes by Packer as well, and tests/agent/test_agent_bake.py reads this template.
pytestmark = [pytest.mark.timeout(1800), pytest.mark.nightly]
FAMILY = "everspot-dev"
ZONE = f"{REGION}-a"


class BakedCluster(GoogleLive):
    """A cluster whose image Packer bakes first. A notice is half a minute of real time.

    Attributes:
        bake: the bake of its image.
    """

    scale = 4.0
    bake: Bake

    def __init__(self, folder: Path, boot: tuple[str, ...]) -> None:
        self._boot = boot
        super().__init__(folder)

    def boot_command(self) -> tuple[str, ...]:
        return self._boot

    def _create(self) -> None:
        self.bake = bake_on_google(self.folder / "bake", self.do, self.cloud.endpoint, REGION, FAMILY, self._consoles)
        super()._create()

    def _instance_properties(self, manifest: str, role: Role = Role.AGENT) -> dict[str, Any]:
        properties = super()._instance_properties(manifest, role)
        properties["disks"][0]["initializeParams"]["sourceImage"] = f"global/images/family/{FAMILY}"
        return properties

    def _consoles(self) -> str:
        return "\n".join(log.read_text()[-3000:] for log in self.folder.glob("instances/*/console.log"))

    def get(self, path: str) -> Any:
        """Return a resource of Compute."""
        return self.api.get("compute", f"projects/everspot-local/{path}")

    def machine(self, instance_id: str) -> BootedMachine:
        return BootedMachine.from_instance(self.cloud, instance_id)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory, lower_layers: None) -> Iterator[BakedCluster]:
    """A cluster of the family that Packer has baked an image for."""
    folder = tmp_path_factory.mktemp("baked")
    proxy = Proxy()
    try:
        with BakedCluster(folder / "cloud", boot_builder(folder, "gcp", proxy)) as cluster:
            yield cluster
    finally:
        proxy.close()


def test_packer_makes_an_image_that_leads_its_family_and_leaves_nothing_else(live: BakedCluster) -> None:
    image = live.get(f"global/images/family/{FAMILY}")
    assert image["name"].startswith("everspot-1") and image["labels"] == {"everspot-python": "python3"}
    assert (image["status"], image["diskSizeGb"]) == ("READY", "60")
    assert 1 << 30 < int(image["archiveSizeBytes"]) < 20 << 30
    assert [disk["name"] for disk in live.get(f"zones/{ZONE}/disks")["items"]] == ["scheduler"]
    assert [each["name"] for each in live.get(f"zones/{ZONE}/instances")["items"]] == ["scheduler"]
    assert "self-test: passed" in live.bake.output


def test_what_packer_leaves_in_the_image_is_sealed(live: BakedCluster) -> None:
    (tree,) = live.folder.glob("images/*/tree")
    assert (tree / "opt/everspot/image.json").exists()
    assert list_leftovers(tree, "packer") == []
    assert (tree / "etc/machine-id").read_text() == ""
    assert str((tree / "etc/systemd/system/apt-daily-upgrade.timer").readlink()) == "/dev/null"
    assert (tree / "etc/chrony/chrony.conf").read_text().startswith("server metadata.google.internal ")
    assert str((tree / "etc/resolv.conf").readlink()) == "../run/systemd/resolve/stub-resolv.conf"


def test_a_cluster_of_the_family_trains_meets_a_notice_and_goes_on_elsewhere(live: BakedCluster) -> None:
    job = live.toy("baked", live.folder / "trace", env={"TOY_STEPS": "1000000", "TOY_STEP_SECONDS": "0.5"})
    first = live.until(lambda: live.trains(job, steps=2))
    machine = live.machine(first)
    assert machine.await_boot() == "running", machine.run("systemctl", "--failed", "--no-legend")
    assert machine.run("hostname").strip() == live.agents()[first]["name"]
    version = machine.run("/opt/everspot/bin/everspot-agent", "--version")
    assert f"commit {live.bake.commit}," in version
    live.cloud.do("interrupt", instance=first)
    interrupted = live.until(lambda: next(iter(live.list_events(job, EventKind.INTERRUPTED)), None))
    second = live.until(lambda: next((o for o in [live.trains(job)] if o not in (None, first)), None))
    (training,) = live.until(lambda: [e for e in live.list_events(job, EventKind.TRAINING) if e.instance_id == second])
    assert (training.data["from_step"], training.data["restored"]) == (interrupted.data["durable_step"], True)
    disk = live.agents()[second]["disks"][0]["source"].partition("/projects/everspot-local/")[2]
    assert live.get(disk)["sourceImage"] == live.get(f"global/images/family/{FAMILY}")["selfLink"]
