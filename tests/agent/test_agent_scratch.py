"""The script that mounts a machine's own disks, run with tools that only write down what they were asked."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "training_image" / "bake" / "scratch.sh"
Machine = Callable[..., list[str]]


@pytest.fixture
def boot(tmp_path: Path) -> Machine:
    """Run the script on a machine with so many disks; the commands that it gave, in order."""

    def run(disks: int, *, mounted: str = "", tools: tuple[str, ...] = ("mdadm",), there: bool = False) -> list[str]:
        calls, tools_dir, by_id = tmp_path / "calls", tmp_path / "bin", tmp_path / "by-id"
        for folder in (tools_dir, by_id):
            folder.mkdir()
        calls.touch()
        (by_id / "nvme-Amazon_Elastic_Block_Store_vol0").touch()
        for number in range(disks):
            disk = tmp_path / f"nvme{number}n1"
            disk.touch()
            for suffix in ("", "-ns-1"):  # udev makes two links to each
                (by_id / f"nvme-Amazon_EC2_NVMe_Instance_Storage_AWS{number}{suffix}").symlink_to(disk)
        for tool in ("mkfs.ext4", "mount", *tools):
            tool_file(tools_dir / tool, f'echo "{tool} $*" >> {calls}')
        tool_file(tools_dir / "lsblk", f'echo "{mounted}"')
        tool_file(tools_dir / "mountpoint", f"exit {0 if there else 1}")
        env = {"PATH": f"{tools_dir}:/usr/bin:/bin", "EVERSPOT_SCRATCH": f"{tmp_path}/at", "EVERSPOT_DISKS": str(by_id)}
        done = subprocess.run(["bash", str(SCRIPT)], env=env, capture_output=True, text=True, check=False, timeout=30)
        assert done.returncode == 0, done.stderr
        return calls.read_text().replace(str(tmp_path), "").splitlines()

    return run


def tool_file(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


def test_a_machine_without_disks_of_its_own_keeps_its_root_volume(boot: Machine) -> None:
    assert boot(0) == []


def test_one_disk_is_formatted_and_mounted(boot: Machine) -> None:
    formatted, mounted = boot(1)
    assert formatted.startswith("mkfs.ext4 ") and formatted.endswith(" /nvme0n1")
    assert mounted == "mount -o noatime,nodev,nosuid /nvme0n1 /at"


def test_several_disks_become_one(boot: Machine) -> None:
    joined, formatted, mounted = boot(3)
    assert (
        joined == "mdadm --create /dev/md/everspot --run --quiet --level=0 --raid-devices=3 /nvme0n1 /nvme1n1 /nvme2n1"
    )
    assert formatted.endswith(" /dev/md/everspot") and mounted.endswith(" /dev/md/everspot /at")


def test_what_the_base_image_has_mounted_already_is_shared(boot: Machine, tmp_path: Path) -> None:
    held = tmp_path / "dlami"
    assert boot(2, mounted=str(held)) == ["mount --bind /dlami/everspot /at"]
    assert (held / "everspot").is_dir()


def test_a_second_start_changes_nothing(boot: Machine) -> None:
    assert boot(2, there=True) == []
