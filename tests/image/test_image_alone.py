"""The image's units on machines without a cloud: what ends one whose agent never reports, and what a job may use."""

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from everspot_local.machines import contained
from image_machine import LoneMachine, until
from image_source import ROOT

Boot = Callable[[Path], LoneMachine]


@pytest.fixture
def boot(tmp_path: Path, image: Path) -> Iterator[Boot]:
    """Boots a machine with a folder above the image."""
    machines = []

    def start(added: Path) -> LoneMachine:
        machines.append(LoneMachine(tmp_path / "machine", image, added))
        return machines[-1]

    yield start
    for machine in machines:
        machine.close()


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_machine_whose_agent_never_reports_is_switched_off(tmp_path: Path, boot: Boot) -> None:
    """The timer fires immediately here, and the machine has been on for longer than allowed."""
    units = tmp_path / "added/etc/systemd/system"
    write(units / "everspot-boot-deadline.timer.d/soon.conf", "[Timer]\nOnBootSec=\nOnBootSec=1s\nAccuracySec=1s\n")
    command = "ExecStart=\nExecStart=/opt/everspot/sbin/boot-deadline.sh /run/everspot /etc/uptime\n"
    write(units / "everspot-boot-deadline.service.d/late.conf", f"[Service]\n{command}")
    write(tmp_path / "added/etc/uptime", "1900.0 0.0\n")  # longer than on any machine
    machine = boot(tmp_path / "added")
    assert machine.process.wait(timeout=300) == 0
    console = machine.log.read_text()
    assert "machine was switched off after" in console
    assert "Reached target poweroff.target" in console


def test_a_machine_with_disks_of_its_own_has_the_agents_folder_on_them(tmp_path: Path, boot: Boot) -> None:
    """The disk is a file behind a loop device, which udev and lsblk take for an instance store."""
    file = tmp_path / "disk.img"
    with file.open("wb") as out:
        out.truncate(64 << 20)
    try:
        attach = ["losetup", "--show", "--find", str(file)]
        device = subprocess.run(attach, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"this machine has no loop devices: {error}")
    try:
        added = tmp_path / "added"
        number = Path(device).name.removeprefix("loop")
        links = "/run/disks"
        name = "nvme-Amazon_EC2_NVMe_Instance_Storage_1"
        prepare = f"umount /var/lib/everspot; mknod {device} b 7 {number}; mkdir {links}; ln -s {device} {links}/{name}"
        settings = f"[Service]\nEnvironment=EVERSPOT_DISKS={links} PATH=/opt/tests:/usr/sbin:/usr/bin\n"
        write(added / "etc/systemd/system/everspot-scratch.service.d/disks.conf", settings)
        unit = f"[Unit]\nBefore=everspot-scratch.service\n[Service]\nType=oneshot\nExecStart=/bin/sh -ec '{prepare}'\n"
        write(added / "etc/systemd/system/tests-disks.service", unit)
        dependency = added / "etc/systemd/system/everspot-scratch.service.wants/tests-disks.service"
        dependency.parent.mkdir(parents=True)
        dependency.symlink_to("/etc/systemd/system/tests-disks.service")
        model = 's/MODEL=""/MODEL="Amazon EC2 NVMe Instance Storage"/'
        write(added / "opt/tests/lsblk", f"#!/bin/sh\n/usr/bin/lsblk \"$@\" | sed '{model}'\n")
        (added / "opt/tests/lsblk").chmod(0o755)
        machine = boot(added)
        machine.await_boot()
        assert machine.show("everspot-scratch.service", "Result") == "success", machine.log.read_text()
        mounted = machine.run("findmnt", "--noheadings", "--output", "SOURCE,FSTYPE,OPTIONS", "/var/lib/everspot")
        assert mounted.split()[:2] == [device, "ext4"]
        assert {"nodev", "nosuid"} <= set(mounted.split()[2].split(","))
        until(lambda: "everspot" in machine.run("stat", "--format=%U", "/var/lib/everspot"), "it is the agent's")
        machine.close()
    finally:
        subprocess.run(["losetup", "--detach", device], check=True)


def test_an_image_is_sealed_where_the_agents_folder_and_what_is_in_it_are_mounted(tmp_path: Path, boot: Boot) -> None:
    """As on a machine that bakes: its self-test starts the agent's unit, and it may have disks of its own."""
    added = tmp_path / "added"
    write(added / "opt/tests/provision.sh", (ROOT / "training_image/bake/provision.sh").read_text())
    machine = boot(added)
    machine.await_boot()
    mounts = ("findmnt", "--noheadings", "--list", "--output", "TARGET")
    home = "/var/lib/everspot"
    folders = {f"{home}/{name}" for name in ("runs", "work", "tmp")}
    assert {home, *folders} <= set(machine.run(*mounts).split())  # as with disks of its own
    seal = ("bash", "/opt/tests/provision.sh", "--seal")
    work_there = ("systemd-run", "--collect", "--working-directory")
    machine.run(*work_there, home, "sleep", "600")  # as a process that is about to end
    machine.run(*seal)
    assert not [target for target in machine.run(*mounts).split() if target.startswith(home)]
    machine.run("systemctl", "start", "everspot-folders.service")
    present = {target for target in machine.run(*mounts).split() if target.startswith(home)}
    assert present == folders  # as on a root volume
    machine.run(*work_there, f"{home}/work", "sleep", "600")
    machine.run(*seal)
    assert not [target for target in machine.run(*mounts).split() if target.startswith(home)]
    remaining = machine.run("sh", "-c", f"ls -d {home} /run/everspot /var/lib/systemd/random-seed 2>/dev/null || true")
    assert remaining.split() == []
    assert machine.run("cat", "/etc/machine-id") == ""


def test_an_image_holds_nothing_of_its_bake(image: Path) -> None:
    """Neither caches nor wheels, nor what one machine draws for itself."""
    layers = contained.read_layers(image)
    leftovers = ("tmp/*", "var/tmp/*", "root/.cache", "mnt/*", "etc/resolv.conf", "etc/ssh/ssh_host_*",
                 "var/lib/apt/lists/*_*", "var/cache/apt/archives/*.deb", "var/lib/systemd/random-seed",
                 "var/lib/systemd/credential.secret", "var/lib/everspot", "opt/everspot/**/*.whl")  # fmt: skip
    present = [str(path) for layer in layers for name in leftovers for path in layer.glob(name)]
    # A character device with the number 0 stands for a file of a lower layer that is gone.
    assert [path for path in present if not Path(path).is_char_device()] == []
    assert [path for layer in layers for path in (layer / "run").rglob("*") if path.is_file()] == []
    assert (layers[-1] / "etc/machine-id").read_text() == ""


def test_the_agent_of_an_image_prints_its_commit_and_lock(tmp_path: Path, boot: Boot) -> None:
    (tmp_path / "added").mkdir()
    machine = boot(tmp_path / "added")
    machine.await_boot()
    version = machine.run("/opt/everspot/bin/everspot-agent", "--version")
    assert version.startswith("everspot ") and ", commit " in version and ", lock " in version
    assert "unknown" not in version
    # Its own name leads to it: gloo and torchrun look it up.
    assert machine.run("getent", "hosts", machine.run("hostname").strip()).split()


def test_an_image_names_its_packages_and_their_licences(image: Path) -> None:
    product = contained.read_layers(image)[-1] / "opt/everspot"
    components = {part["name"]: part for part in json.loads((product / "sbom.json").read_text())["components"]}
    assert {"everspot", "torch", "boto3"} <= components.keys()
    assert components["boto3"]["licenses"] and components["boto3"]["purl"].startswith("pkg:pypi/boto3@")
    assert "cyclonedx-bom" not in components
    rows = [line.split("\t") for line in (product / "packages.tsv").read_text().splitlines()]
    assert {"systemd", "gcc", "chrony"} <= {name for name, _, _ in rows} and all(version for _, version, _ in rows)
