"""Emulated machines: what this machine needs for them, what they get of their cloud, and where their kernel is from.

Machines that boot are in `tests/image/test_image_vm.py`.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from everspot_local.image import kernel
from everspot_local.machines import namespaces, vm
from everspot_local.machines.contained import MachineSettings

REASON = namespaces.why_not()
OS_RELEASE = 'NAME="Debian GNU/Linux"\nVERSION_CODENAME=trixie\nID=debian\n'


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """The folder of an image whose tree says which Debian it is made of."""
    release = tmp_path / "layer/usr/lib/os-release"
    release.parent.mkdir(parents=True)
    release.write_text(OS_RELEASE)
    (tmp_path / "image.json").write_text(json.dumps({"layers": [str(tmp_path / "layer")], "cloud": "aws"}))
    return tmp_path


def programs(folder: Path, *names: str) -> str:
    """Return a search path with only these programs."""
    folder.mkdir()
    for name in names:
        (folder / name).write_text("#!/bin/sh\nexit 3\n")
        (folder / name).chmod(0o755)
    return str(folder)


def refused(image: Path, path: str) -> str:
    command = [sys.executable, "-m", "everspot_local.main", "up", "--machines", "vm", "--image", str(image)]
    answer = subprocess.run(
        [*command, "--state-dir", str(image / "state")],
        capture_output=True, text=True, cwd=image, env={"PATH": path}, timeout=60,
    )  # fmt: skip
    assert answer.returncode == 1, answer.stdout
    return " ".join(answer.stderr.split())


@pytest.mark.skipif(bool(REASON), reason=f"no machine can be booted here: {REASON}")
def test_up_names_the_package_that_is_missing(image: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert refused(image, programs(image / "nothing")) == (
        "--machines vm: there is no qemu-system-x86_64 on this machine: apt install qemu-system-x86"
    )
    monkeypatch.setenv("PATH", programs(image / "qemu", vm.QEMU))
    monkeypatch.setattr(vm, "VIRTIOFSD", ("/nonexistent",))
    assert "apt install virtiofsd" in vm.why_not()
    monkeypatch.setattr(vm, "VIRTIOFSD", (f"{image}/qemu/{vm.QEMU}",))
    assert vm.why_not() == ""


def test_a_kernel_that_cannot_be_had_is_named(image: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suite = kernel.find_suite([image / "layer"])
    assert suite == "trixie"
    monkeypatch.setenv("PATH", programs(image / "nothing"))
    with pytest.raises(
        kernel.KernelUnavailable, match=r"which fetches linux-image-cloud-amd64: apt install mmdebstrap"
    ):
        kernel.fetch(suite, image / "kernels", Path("state"))
    monkeypatch.setenv("PATH", programs(image / "fails", "mmdebstrap"))
    with pytest.raises(kernel.KernelUnavailable, match=r"linux-image-cloud-amd64 of Debian trixie cannot be had"):
        kernel.fetch(suite, image / "kernels", Path("state"))
    (image / "layer/usr/lib/os-release").write_text("ID=ubuntu\nVERSION_CODENAME=noble\n")
    with pytest.raises(kernel.KernelUnavailable, match="not made of Debian"):
        kernel.find_suite([image / "layer"])


def test_its_doors_have_the_addresses_that_they_have_outside(tmp_path: Path) -> None:
    """Its own loopback interface is not this machine's: proxies lead from one to the other."""
    doors = {("169.254.169.254", 80): ("127.0.0.1", 4000), ("127.0.0.1", 5000): ("127.0.0.1", 5000)}
    machine = MachineSettings(doors, ("127.0.0.1", 6000), {"ENDPOINT": "http://127.0.0.1:5000"}, None)
    vm.write_settings(tmp_path, "i-0", machine, "metadata.google.internal")
    units = tmp_path / "etc/systemd/system"
    proxies = {
        path.read_text().split("=", 1)[1].split()[0]: path.with_suffix(".service").read_text().split()[-1]
        for path in units.glob("*.socket")
    }
    assert proxies == {"127.0.0.1:5000": "10.0.2.2:5000", "10.0.2.15:6000": "127.0.0.1:6000"}
    assert {path.name for path in (units / "sockets.target.wants").iterdir()} == {
        p.name for p in units.glob("*.socket")
    }
    assert "169.254.169.254 metadata.google.internal\n" in (tmp_path / "etc/hosts").read_text()
    assert '"ENDPOINT=http://127.0.0.1:5000"' in (tmp_path / "etc/systemd/system.conf.d/machine.conf").read_text()
    command = vm.qemu_command(vm.Kernel(tmp_path), tmp_path / "disk", 512, 6000, 3, 4)
    assert command[command.index("-accel") + 1].startswith("tcg")
    assert "hostfwd=tcp:127.0.0.1:6000-10.0.2.15:6000" in command[command.index("-netdev") + 1]
