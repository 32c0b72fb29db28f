"""Boots a baked image as an emulated machine: QEMU with a kernel of the image's distribution, and never with KVM.

`python -m everspot_local.machines.vm --image DIR --kernel DIR` is a boot command of the local cloud. A machine has a
kernel, modules, devices, udev, a wall clock and a disk of its own, and nothing that it does reaches this machine's
kernel. It is some thirty times as slow as a contained one (`everspot_local.machines.contained`).

Its root is the image's tree, which it sees by virtiofs, and above that its disk, which ends with it. It has a network
with nothing in it but doors: the metadata service at 169.254.169.254, and this machine's end at 10.0.2.2, to which
systemd's socket proxies lead from the very addresses of the loopback URLs that the machine's environment names.

SIGTERM presses the power button. The machine ends when QEMU does, and so does this process: with 0 after the machine
was switched off, with 1 after anything else.
"""

import argparse
import ctypes
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from everspot_local.machines import keeper, namespaces
from everspot_local.machines.contained import MachineSettings, manager_configuration, read_layers, read_settings
from everspot_local.machines.doors import METADATA, carry, carry_inside, open_network
from everspot_local.machines.qmp import Monitor
from everspot_local.machines.trees import HOST_NAME_VARIABLE

QEMU = "qemu-system-x86_64"
IMAGE_TAG, DISK = "image", "/dev/vda"
"""The tag of the file system (virtiofs) that is the machine's image, and its disk, which takes what it writes."""
DISK_MIB, MEMORY_MIB = 4096, 2048
GATEWAY, OWN_ADDRESS = "10.0.2.2", "10.0.2.15"
"""This machine and the emulated one, in the network that QEMU makes (its "user" network's defaults)."""
BOOT_DEADLINE_SECONDS = 1800
"""As on bare metal, which takes as long to boot. From its manifest on, the agent states the cluster's own."""
_SLOWER_TIMER = "[Timer]\nOnBootSec=\nOnBootSec=240s\nOnUnitActiveSec=60s\n"
"""Four times the image's own: a look takes seconds of an emulated processor, which the agent's start needs."""
START_SECONDS = 600
"""How long a unit may take to start, where it does not say so itself: systemd's usual 90 s are for real machines."""
BUTTON_SECONDS = 5.0
"""How long until the power button is pressed again (see `keep_pressing`)."""
_NICENESS = 10
VIRTIOFSD = ("/usr/lib/qemu/virtiofsd", "/usr/libexec/virtiofsd")
_PATH = "/usr/sbin:/sbin:/usr/bin:/bin"


@dataclass(frozen=True)
class Kernel:
    """The files of a kernel, by their folder.

    Attributes:
        folder: in which `everspot_local.image.kernel` has put them.
    """

    folder: Path

    @property
    def image(self) -> Path:
        """Return the kernel itself."""
        return self.folder / "vmlinuz"

    @property
    def initrd(self) -> Path:
        """Return the archive whose program mounts the machine's root."""
        return self.folder / "initrd"

    @property
    def modules(self) -> Path:
        """Return a layer of a root tree that holds the kernel's modules."""
        return self.folder / "tree"


@dataclass(frozen=True)
class VmOptions:
    """How a machine is booted, beside its image, its kernel and its environment.

    Attributes:
        added: layers above those of its image.
        disk_mib: size of its disk.
        memory_mib: size of its memory.
        metadata_name: name of its metadata service's address in /etc/hosts; empty for none.
    """

    added: tuple[Path, ...] = ()
    disk_mib: int = DISK_MIB
    memory_mib: int = MEMORY_MIB
    metadata_name: str = ""


def why_not() -> str:
    """Return why no machine can be emulated here; empty if machines can be."""
    if reason := namespaces.why_not():
        return reason
    if platform.machine() != "x86_64":
        return f"images and {QEMU} are for x86_64, and this machine is {platform.machine()}"
    if shutil.which(QEMU) is None:
        return f"there is no {QEMU} on this machine: apt install qemu-system-x86"
    if _virtiofsd() is None:
        return "there is no virtiofsd on this machine: apt install virtiofsd (on Debian 12 qemu-system-common)"
    if shutil.which("mkfs.ext4", path=_PATH) is None:
        return "there is no mkfs.ext4 on this machine: apt install e2fsprogs"
    return ""


def _virtiofsd() -> str | None:
    return next((path for path in VIRTIOFSD if os.access(path, os.X_OK)), None)


def write_settings(folder: Path, name: str, machine: MachineSettings, metadata_name: str) -> None:
    """Write what makes a machine of an image, as a layer above it: its name, its network, its services' environment."""
    hosts = f"127.0.0.1 localhost\n::1 localhost\n127.0.1.1 {name}\n"
    if metadata_name:
        hosts += f"{METADATA[0]} {metadata_name}\n"
    units, system = Path("etc/systemd/system"), "/usr/lib/systemd/system"
    timeouts = f"DefaultTimeoutStartSec={START_SECONDS}\nDefaultDeviceTimeoutSec={START_SECONDS}\n"
    texts = {
        Path("etc/hostname"): f"{name}\n",
        Path("etc/hosts"): hosts,
        Path("etc/systemd/system.conf.d/machine.conf"): manager_configuration(machine.environment) + timeouts,
        Path("etc/systemd/network/10-machine.network"): "[Match]\nName=e*\n[Network]\nDHCP=ipv4\nIPv6AcceptRA=no\n",
        units / "everspot-boot-deadline.timer.d/machine.conf": _SLOWER_TIMER,
        Path("etc/tmpfiles.d/machine.conf"): (
            "d /run/everspot 0755 everspot everspot\n"
            f"f /run/everspot/boot-deadline 0644 everspot everspot - {BOOT_DEADLINE_SECONDS}\n"
        ),
    }
    links = {
        units / "serial-getty@ttyS0.service": "/dev/null",  # nobody logs in
        units / "getty@tty1.service": "/dev/null",
        units / "multi-user.target.wants/systemd-networkd.service": f"{system}/systemd-networkd.service",
        units / "network-online.target.wants/systemd-networkd-wait-online.service": (
            f"{system}/systemd-networkd-wait-online.service"
        ),
    }
    proxies = {inside: f"{GATEWAY}:{inside[1]}" for inside in machine.doors if inside[0] == "127.0.0.1"}
    if machine.health is not None:
        proxies[(OWN_ADDRESS, machine.health[1])] = f"127.0.0.1:{machine.health[1]}"
    for (host, port), target in proxies.items():
        unit = f"machine-door-{host}-{port}"
        texts[units / f"{unit}.socket"] = f"[Socket]\nListenStream={host}:{port}\nFreeBind=yes\n"
        # On a shutdown it ends behind what is ordered behind the network, as the network itself does.
        texts[units / f"{unit}.service"] = (
            "[Unit]\nBefore=network-online.target\n"
            f"[Service]\nExecStart=/usr/lib/systemd/systemd-socket-proxyd {target}\n"
        )
        links[units / f"sockets.target.wants/{unit}.socket"] = f"../{unit}.socket"
    for folder_of_updates in ("etc", "var"):  # what a first boot does once, the base image of a cloud has done
        texts[Path(folder_of_updates, ".updated")] = ""
    for path, text in texts.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    for path, target in links.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).symlink_to(target)


def lay_image(home: Path, layers: list[Path], data: Path | None) -> Path:
    """Mount the tree that the machine sees as its image, in this process's own mounts; return it."""
    namespaces.unshare(namespaces.NEWNS)
    namespaces.private_mounts()
    root, own = home / "root", home / "own"
    root.mkdir(exist_ok=True)
    if data is not None:
        layers = [*layers, own / "data"]
        (own / "data" / data.relative_to("/")).mkdir(parents=True)
    namespaces.overlay_read_only(layers, root)
    if data is not None:
        namespaces.mount(data, root / data.relative_to("/"), flags=namespaces.BIND | namespaces.RDONLY)
    return root


def make_disk(home: Path, mebibytes: int) -> Path:
    """Make the machine's disk, an empty file system in a sparse file; return the file."""
    disk = home / "disk.img"
    disk.unlink(missing_ok=True)
    with disk.open("wb") as file:
        file.truncate(mebibytes << 20)
    program = shutil.which("mkfs.ext4", path=_PATH) or "mkfs.ext4"
    options = ["-q", "-F", "-m", "0", "-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard"]
    subprocess.run([program, *options, str(disk)], check=True)  # noqa: S603
    return disk


def qemu_command(
    kernel: Kernel, disk: Path, memory_mib: int, health: int | None, monitor: int, files: int
) -> list[str]:
    """Return the command that emulates the machine.

    Args:
        kernel: what it boots.
        disk: its disk.
        memory_mib: size of its memory.
        health: port of its health checks; None for none.
        monitor: descriptor of the connection to its monitor.
        files: descriptor of the connection to what serves its image.
    """
    words = "console=ttyS0 quiet panic=-1 systemd.log_target=console systemd.show_status=yes TERM=dumb"
    forward = "" if health is None else f",hostfwd=tcp:127.0.0.1:{health}-{OWN_ADDRESS}:{health}"
    return [
        QEMU, "-accel", "tcg,thread=multi", "-machine", "q35,memory-backend=memory", "-cpu", "max,la57=off",
        "-smp", "1", "-m", str(memory_mib), "-object", f"memory-backend-memfd,id=memory,size={memory_mib}M,share=on",
        "-nodefaults", "-display", "none", "-no-reboot", "-serial", "stdio",
        "-kernel", str(kernel.image), "-initrd", str(kernel.initrd), "-append", words,
        "-drive", f"file={disk},if=virtio,format=raw,cache=unsafe,discard=unmap",
        "-chardev", f"socket,id=files,fd={files}", "-device", f"vhost-user-fs-pci,chardev=files,tag={IMAGE_TAG}",
        "-netdev", f"user,id=net,ipv6=off{forward}", "-device", "virtio-net-pci,netdev=net,romfile=",
        "-device", "virtio-rng-pci",
        "-chardev", f"socket,id=monitor,fd={monitor}", "-mon", "chardev=monitor,mode=control",
    ]  # fmt: skip


def _end_with_parent(niceness: int = 0) -> Callable[[], None]:
    """Return what a child calls before it becomes another program."""
    prctl = ctypes.CDLL(None).prctl

    def prepare() -> None:
        prctl(namespaces.SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        os.setsid()
        os.nice(niceness)

    return prepare


def serve_files(root: Path) -> socket.socket:
    """Start what serves the image to the machine, which ends with the connection to it; return the connection."""
    with tempfile.TemporaryDirectory(prefix="everspot-") as folder, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{folder}/files")
        listener.listen(1)
        program = _virtiofsd() or "virtiofsd"
        subprocess.Popen(  # noqa: S603
            [program, "-f", f"--fd={listener.fileno()}", "-o", f"source={root}", "-o", "cache=always,log_level=warn"],
            stdin=subprocess.DEVNULL, pass_fds=[listener.fileno()], preexec_fn=_end_with_parent(),
        )  # fmt: skip
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(f"{folder}/files")
    return connection


def keep_pressing(pressed: threading.Event, monitor: Monitor) -> None:
    """From the first press on, press the machine's power button again and again, until the machine is off.

    A press has an effect once udev has loaded the drivers of the button and of its events (`button`, `evdev`) and
    systemd-logind has opened the device. A press before that is lost, and nothing shows that it is.
    """
    pressed.wait()
    while True:
        monitor.press_power()
        time.sleep(BUTTON_SECONDS)


def boot(home: Path, image: Path, kernel: Kernel, name: str, machine: MachineSettings, options: VmOptions) -> int:
    """Boot a machine and wait until it is off; return 0 if it was switched off, else 1.

    Args:
        home: a folder for its disk, which goes with it.
        image: the folder of its image.
        kernel: what it boots.
        name: its host name.
        machine: its doors and its environment.
        options: how it is booted.

    Raises:
        OSError: if the kernel refuses something, or the address of its health checks is taken.
        ValueError: if the folder holds no image.
        subprocess.CalledProcessError: if its disk cannot be made.
    """
    started = time.monotonic()
    namespaces.prctl(namespaces.SET_PDEATHSIG, signal.SIGKILL)  # it ends with who has booted it
    own = home / "own"
    shutil.rmtree(own, ignore_errors=True)
    write_settings(own / "settings", name, machine, options.metadata_name)
    layers = [kernel.modules, *read_layers(image), *options.added, own / "settings"]
    disk = make_disk(home, options.disk_mib)
    health = socket.create_server(machine.health) if machine.health else None
    files = serve_files(lay_image(home, layers, machine.data))
    outside = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    listeners = open_network(machine.doors)
    network = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    monitor_end, qemu_end = socket.socketpair()
    port = machine.health[1] if machine.health else None
    process = subprocess.Popen(  # noqa: S603
        qemu_command(kernel, disk, options.memory_mib, port, qemu_end.fileno(), files.fileno()),
        stdin=subprocess.DEVNULL, pass_fds=[qemu_end.fileno(), files.fileno()],
        preexec_fn=_end_with_parent(_NICENESS),
    )  # fmt: skip
    namespaces.enter(outside, namespaces.NEWNET)
    qemu_end.close()
    files.close()
    monitor = Monitor(monitor_end)
    disk.unlink()  # it ends with the machine, however that ends
    pressed = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: pressed.set())
    threading.Thread(target=keep_pressing, args=(pressed, monitor), daemon=True).start()
    reader = threading.Thread(target=monitor.read, daemon=True)
    reader.start()
    for listener, true_address in listeners:
        threading.Thread(target=carry, args=(listener, true_address), daemon=True).start()
    if health is not None and machine.health is not None:
        threading.Thread(target=carry_inside, args=(health, machine.health, network), daemon=True).start()
    status = process.wait()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    reader.join()
    shutil.rmtree(own)
    endings = {"guest-shutdown": "was switched off", "guest-reset": "wanted to start anew"}
    ending = endings.get(monitor.ending, f"ended with {status} ({monitor.ending or 'cut off'})")
    print(f"{name} {ending} after {time.monotonic() - started:.1f} s", flush=True)  # noqa: T201 - the console's last line
    return 0 if monitor.ending == "guest-shutdown" else 1


def main(arguments: list[str] | None = None) -> int:
    """Boot the machine of this process's environment in the current folder; return its exit status."""
    parser = argparse.ArgumentParser(prog="vm", description="Boots a baked image as one emulated machine.")
    parser.add_argument("--image", type=Path, required=True, help="folder of a baked image")
    parser.add_argument("--kernel", type=Path, required=True, help="folder of a kernel")
    parser.add_argument("--metadata", default="", help="variable with the address of the machine's metadata service")
    parser.add_argument("--metadata-name", default="", help="name of that address in /etc/hosts")
    parser.add_argument("--health", default="", help="variable with the address of the machine's health checks")
    parser.add_argument("--add", type=Path, action="append", default=[], help="a folder that is a layer above; often")
    parser.add_argument("--disk-mib", type=int, default=DISK_MIB, help="size of the disk (default: %(default)s)")
    parser.add_argument("--memory-mib", type=int, default=MEMORY_MIB, help="size of the memory (default: %(default)s)")
    options = parser.parse_args(arguments)
    try:
        machine = read_settings(os.environ, options.metadata, options.health)
        name = os.environ.get(HOST_NAME_VARIABLE) or os.environ.get(keeper.MARK, "machine")
        chosen = VmOptions(tuple(options.add), options.disk_mib, options.memory_mib, options.metadata_name)
        return boot(Path.cwd(), options.image, Kernel(options.kernel), name, machine, chosen)
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        print(f"the machine does not boot: {error}", file=sys.stderr)  # noqa: T201
        return 1


if __name__ == "__main__":
    sys.exit(main())
