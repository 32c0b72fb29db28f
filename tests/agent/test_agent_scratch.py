"""The script that mounts a machine's own disks, run with tools that only write down what they were asked."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "training_image" / "bake" / "scratch.sh"
Machine = Callable[..., list[str]]


OWN = "Amazon EC2 NVMe Instance Storage"
LINKS = ("nvme-Amazon_EC2_NVMe_Instance_Storage_AWS{}", "nvme-Amazon_EC2_NVMe_Instance_Storage_AWS{}-ns-1")
"""Those that udev makes to each of them."""
SSD = ("google-local-nvme-ssd-{}",)


def line(name: str, kind: str = "disk", model: str = "", fs: str = "", label: str = "", at: str = "") -> str:
    """Return lsblk's line for a device (util-linux 2.38, `--pairs --paths`)."""
    return f'NAME="{name}" TYPE="{kind}" MODEL="{model}" FSTYPE="{fs}" LABEL="{label}" MOUNTPOINT="{at}"'


LSBLK = """
for word in "$@"; do
    case $word in
        --nodeps) first=1 ;;
        */nvme*) if [ -n "$first" ]; then head -n 1 "$word.lsblk"; else cat "$word.lsblk"; fi ;;
    esac
done"""


@pytest.fixture
def boot(tmp_path: Path) -> Machine:
    """Run the script on a machine with these disks, given as lsblk's lines, and return its commands in order. `signed`:
    the numbers of the disks with a signature for wipefs."""

    def run(
        *disks: list[str],
        signed: tuple[int, ...] = (),
        model: str = OWN,
        fs: str = "",
        label: str = "",
        at: str = "",
        tools: tuple[str, ...] = ("mdadm",),
        is_mounted: bool = False,
        links: tuple[str, ...] = LINKS,
        settled: bool = True,
    ) -> list[str]:
        calls, tools_dir, by_id = tmp_path / "calls", tmp_path / "bin", tmp_path / "by-id"
        for folder in (tools_dir, by_id):
            folder.mkdir()
        calls.touch()
        (by_id / "nvme-Amazon_Elastic_Block_Store_vol0").touch()
        for number, more in enumerate(disks):
            disk = tmp_path / f"nvme{number}n1"
            disk.touch()
            lines = [line(str(disk), model=model, fs=fs, label=label, at=at), *more]
            disk.with_name(f"{disk.name}.lsblk").write_text("\n".join(lines) + "\n")
            if number in signed:
                disk.with_name(f"{disk.name}.signed").touch()
            for link in links:
                (by_id / link.format(number)).symlink_to(disk)
        for tool in ("mkfs.ext4", "mount", *tools):
            tool_file(tools_dir / tool, f'echo "{tool} $*" >> {calls}')
        tool_file(tools_dir / "udevadm", f'echo "$*" >> {tmp_path}/waits\nexit {0 if settled else 1}')
        tool_file(tools_dir / "lsblk", LSBLK)
        tool_file(tools_dir / "wipefs", '[ "$1" = --no-act ] || exit 1\n[ -e "$2.signed" ] && echo 0x438 ext4\nexit 0')
        tool_file(tools_dir / "mountpoint", f"exit {0 if is_mounted else 1}")
        env = {"PATH": f"{tools_dir}:/usr/bin:/bin", "EVERSPOT_SCRATCH": f"{tmp_path}/at", "EVERSPOT_DISKS": str(by_id)}
        done = subprocess.run(["bash", str(SCRIPT)], env=env, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stderr
        return calls.read_text().replace(str(tmp_path), "").splitlines()

    return run


def tool_file(path: Path, lines: str) -> None:
    path.write_text(f"#!/bin/sh\n{lines}\n")
    path.chmod(0o755)


def test_a_machine_without_disks_of_its_own_keeps_its_root_volume(boot: Machine) -> None:
    assert boot() == []


def test_one_blank_disk_is_formatted_and_mounted(boot: Machine) -> None:
    formatted, mounted = boot([])
    assert formatted.startswith("mkfs.ext4 ") and formatted.endswith(" /nvme0n1")
    assert mounted == "mount -o noatime,nodev,nosuid /nvme0n1 /at"


def test_the_agent_waits_for_udev_a_bounded_time(boot: Machine, tmp_path: Path) -> None:
    """While other devices keep udev busy for minutes, the known disks are mounted after seconds."""
    assert boot([], settled=False)[-1] == "mount -o noatime,nodev,nosuid /nvme0n1 /at"
    assert (tmp_path / "waits").read_text() == "settle --timeout=10\n"


def test_several_disks_become_one(boot: Machine) -> None:
    joined, formatted, mounted = boot([], [], [])
    assert (
        joined == "mdadm --create /dev/md/everspot --run --quiet --level=0 --raid-devices=3 /nvme0n1 /nvme1n1 /nvme2n1"
    )
    assert formatted.endswith(" /dev/md/everspot") and mounted.endswith(" /dev/md/everspot /at")


@pytest.mark.parametrize(
    ("more", "signed", "fs"),
    [
        pytest.param([], (0,), "xfs", id="a file system"),
        pytest.param([], (0,), "LVM2_member", id="a volume group's"),
        pytest.param([], (0,), "", id="a table of partitions"),
        pytest.param([], (), "xfs", id="a file system that lsblk alone sees"),
        pytest.param([line("/dev/nvme0n1p1", "part")], (), "", id="a partition"),
        pytest.param([line("/dev/md127", "raid0", fs="ext4", label="data")], (), "linux_raid_member", id="an array"),
        pytest.param([line("/dev/mapper/c", "crypt")], (), "", id="an encrypted volume"),
    ],
)
def test_a_disk_that_somebody_has_put_something_on_is_left_alone(
    boot: Machine, more: list[str], signed: tuple[int, ...], fs: str
) -> None:
    assert boot(more, signed=signed, fs=fs) == []


def test_a_disk_that_is_swapped_to_is_left_alone(boot: Machine) -> None:
    assert boot([], at="[SWAP]") == []


def test_only_the_blank_ones_of_several_are_taken(boot: Machine) -> None:
    formatted, mounted = boot([], [], signed=(0,))
    assert formatted.endswith(" /nvme1n1") and mounted.endswith(" /nvme1n1 /at")


@pytest.mark.parametrize("model", ["Amazon Elastic Block Store", "", "SAMSUNG MZ"])
def test_a_disk_of_another_model_is_never_touched_whatever_its_link_says(boot: Machine, model: str) -> None:
    assert boot([], model=model) == []


@pytest.mark.parametrize("model", ["nvme_card", "nvme_card0", "nvme_card12"])
def test_local_ssds_of_google_are_taken_as_well(boot: Machine, model: str) -> None:
    joined, _, mounted = boot([], [], model=model, links=SSD)
    assert joined.endswith("--raid-devices=2 /nvme0n1 /nvme1n1") and mounted.endswith(" /dev/md/everspot /at")


@pytest.mark.parametrize("model", ["nvme_card-pd", "PersistentDisk", "", "nvme_cards"])
def test_a_persistent_disk_of_google_is_never_touched(boot: Machine, model: str) -> None:
    assert boot([], model=model, links=SSD) == []


def test_local_ssds_of_google_keep_what_is_on_them(boot: Machine) -> None:
    assert boot([], [], model="nvme_card", links=SSD, signed=(0, 1), fs="xfs") == []


def test_after_a_reboot_the_disk_is_mounted_as_it_is(boot: Machine) -> None:
    assert boot([], signed=(0,), fs="ext4", label="everspot") == ["mount -o noatime,nodev,nosuid /nvme0n1 /at"]


def test_after_a_reboot_the_array_is_mounted_as_it_is(boot: Machine) -> None:
    array = line("/dev/md127", "raid0", fs="ext4", label="everspot")
    commands = boot([array], [array], signed=(0, 1), fs="linux_raid_member", label="host:everspot")
    assert commands == ["mount -o noatime,nodev,nosuid /dev/md127 /at"]


def test_what_the_base_image_has_mounted_already_is_shared(boot: Machine, tmp_path: Path) -> None:
    mount_point = tmp_path / "dlami"
    mounted = line("/dev/mapper/vg.01-lv_ephemeral", "lvm", fs="ext4", at=str(mount_point))
    assert boot([mounted], [mounted], fs="LVM2_member", signed=(0, 1)) == ["mount --bind /dlami/everspot /at"]
    assert (mount_point / "everspot").is_dir()


def test_a_second_start_changes_nothing(boot: Machine) -> None:
    assert boot([], [], is_mounted=True) == []
