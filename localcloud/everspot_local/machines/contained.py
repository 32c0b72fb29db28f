"""Boots a baked image as one machine: its systemd is process 1 in namespaces of its own, above the image's layers.

`python -m everspot_local.machines.contained --image DIR` is a boot command of the local cloud. The machine has its own
processes, mounts, host name and network; it shares this machine's kernel and processors, however many its type has, and
so has no initrd, no modules and no udev of its own. Its files are in memory and end with it, unless its environment
asks for a disk that outlives it: then the disk is a folder in the machine's home, and an image in itself. An image that
the machine's environment names goes before `--image`.

In its network there are only doors: the metadata service at 169.254.169.254, and at the very addresses outside whatever
loopback URLs its environment names, such as the cloud's endpoint. Each connection is carried out to the true address.
A machine that answers health checks has one door that leads inside, at the address of its environment's variable.

SIGTERM is the power button. The machine ends when its process 1 does, and so does this process: with 0 after it was
switched off, with 1 after anything else.
"""

import argparse
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import tty
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from everspot_local.machines import keeper, namespaces
from everspot_local.machines.doors import METADATA, Address, carry, carry_inside, open_network
from everspot_local.machines.trees import DISK, DISK_VARIABLE, HOST_NAME_VARIABLE, IMAGE_VARIABLE, MANIFEST

STATE = Path("var/lib/everspot")
"""The agent's folder in an image, which lies on the machine's disk itself."""
DISK_MIB = 4096
DATA_VARIABLE = "EVERSPOT_DATA"
_HOSTS_OWN = {
    "PATH", "HOME", "LANG", "EVERSPOT_HOME", "EVERSPOT_WORK", keeper.MARK, IMAGE_VARIABLE, DISK_VARIABLE,
    HOST_NAME_VARIABLE,
}  # fmt: skip
"""Variables of a machine that is a process tree of this machine's. An image has its own."""
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_POWER_OFF = signal.SIGRTMIN + 4
"""By which systemd as process 1 starts poweroff.target (systemd(1), "Signals")."""
_HOSTS_KERNEL = (16, 17, 25, 34)
"""CAP_SYS_MODULE, CAP_SYS_RAWIO, CAP_SYS_TIME, CAP_SYSLOG (linux/capability.h): what they reach has no namespace."""
_GROUP_PREFIX = "everspot-machine-"
_STALE_SECONDS = 60.0
_CONSOLE_SECONDS = 5.0


@dataclass(frozen=True)
class MachineSettings:
    """What a machine's environment says about it.

    Attributes:
        doors: true address by the address inside.
        health: address of its health checks, the same outside and inside; None if nothing asks for its health.
        environment: variables of the machine's services.
        data: folder of datasets that the machine reads at the same path; None for none.
    """

    doors: dict[Address, Address]
    health: Address | None
    environment: dict[str, str]
    data: Path | None


@dataclass(frozen=True)
class BootOptions:
    """How a machine is booted, beside its image and its environment.

    Attributes:
        added: layers above those of its image.
        disk_mib: size of its disk, if that is in memory.
        lasting: whether its disk is a folder that outlives it.
        metadata_name: name of its metadata service's address in /etc/hosts; empty for none.
        host_name: its host name; empty for its own name.
    """

    added: tuple[Path, ...] = ()
    disk_mib: int = DISK_MIB
    metadata_name: str = ""
    host_name: str = ""
    lasting: bool = False


def read_layers(image: Path) -> list[Path]:
    """Return an image's layers, the lowest first.

    Raises:
        ValueError: if the folder holds no image.
    """
    try:
        layers = [Path(layer) for layer in json.loads((image / MANIFEST).read_text())["layers"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{image} holds no image ({error}): `everspot-local image` bakes one") from None
    if missing := [str(layer) for layer in layers if not layer.is_dir()]:
        raise ValueError(f"{image}: its layer {missing[0]} is gone: `everspot-local image` bakes it anew")
    return layers


def read_settings(variables: Mapping[str, str], metadata: str, health: str = "") -> MachineSettings:
    """Divide a machine's variables into doors and what its services get.

    Args:
        variables: of the machine.
        metadata: the variable with the metadata service's address, which inside is the link-local one; empty for none.
        health: the variable with the address of the machine's health checks; empty for none.

    Raises:
        ValueError: if the metadata service or the health checks have no address.
    """
    doors: dict[Address, Address] = {}
    environment = {name: value for name, value in variables.items() if name not in _HOSTS_OWN}
    if metadata:
        doors[METADATA] = _read_address(
            environment.pop(metadata, ""), f"{metadata} has no address of a metadata service"
        )
    for value in environment.values():
        parts = urlsplit(value)
        if parts.scheme == "http" and parts.hostname == "127.0.0.1" and parts.port:
            doors[(parts.hostname, parts.port)] = (parts.hostname, parts.port)
    folder = Path(environment.get(DATA_VARIABLE, "/nonexistent"))
    if not folder.is_dir():
        environment.pop(DATA_VARIABLE, None)
    health_address = _read_address(environment.get(health, ""), f"{health} has no address") if health else None
    return MachineSettings(doors, health_address, environment, folder if folder.is_dir() else None)


def _read_address(url: str, complaint: str) -> Address:
    parts = urlsplit(url if "//" in url else f"//{url}")
    if parts.hostname is None or parts.port is None:
        raise ValueError(f"{complaint}: {url!r}")
    return parts.hostname, parts.port


def manager_configuration(environment: Mapping[str, str]) -> str:
    """Return a systemd-system.conf(5) that gives every service an environment. A percent sign starts a specifier."""
    signs = str.maketrans({"\\": "\\\\", '"': '\\"', "%": "%%", "\n": "\\n"})
    words = " ".join(f'"{name}={value.translate(signs)}"' for name, value in sorted(environment.items()))
    return f"[Manager]\nDefaultEnvironment={words}\n"


class ControlGroup:
    """The control group of one machine, below which its systemd makes its own."""

    def __init__(self, name: str) -> None:
        top = namespaces.control_groups()
        if top is None:
            raise OSError("no control groups of version 2 are mounted here")
        self._top = top
        self.folder = top / f"{_GROUP_PREFIX}{name}"

    def make(self) -> None:
        """Create it, with every controller that this machine has. Remove those of machines that were cut off."""
        for old in self._top.glob(f"{_GROUP_PREFIX}*"):
            with contextlib.suppress(OSError):
                if time.time() - old.stat().st_mtime > _STALE_SECONDS:
                    self._remove(old)
        for controller in (self._top / "cgroup.controllers").read_text().split():
            with contextlib.suppress(OSError):  # one that this machine keeps to itself
                (self._top / "cgroup.subtree_control").write_text(f"+{controller}")
        self.folder.mkdir(exist_ok=True)

    def join(self) -> None:
        """Move this process into it."""
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def remove(self) -> None:
        """Remove it, once no process is left in it."""
        with contextlib.suppress(OSError):
            self._remove(self.folder)

    @staticmethod
    def _remove(folder: Path) -> None:
        for below in sorted((path for path in folder.rglob("*") if path.is_dir()), reverse=True):
            below.rmdir()
        folder.rmdir()


def lay_root(
    home: Path, layers: list[Path], host_name: str, terminal: str, machine: MachineSettings, options: BootOptions
) -> Path:
    """Mount the machine's root tree below its home, and what the kernel gives every machine; return the root.

    Called within the machine's namespaces.
    """
    namespaces.private_mounts()
    disk, root = home / DISK, home / "root"
    for folder in (disk, root):
        folder.mkdir(exist_ok=True)
    if options.lasting:
        lower = layers[: len(layers) - len(options.added)]  # what is added to a machine is no part of its image
        (disk / MANIFEST).write_text(json.dumps({"layers": [str(layer) for layer in (*lower, disk / "upper")]}))
    else:
        namespaces.mount("tmpfs", disk, "tmpfs", data=f"size={options.disk_mib}m,mode=755")
    for part in ("upper", "work"):
        (disk / part).mkdir()
    namespaces.overlay(layers, disk / "upper", disk / "work", root)
    hosts = "127.0.0.1 localhost\n::1 localhost\n"
    if options.metadata_name:
        hosts += f"{METADATA[0]} {options.metadata_name}\n"
    for path, text in (("etc/hostname", f"{host_name}\n"), ("etc/hosts", hosts)):
        (root / path).unlink(missing_ok=True)  # through a link with a whole path, a file outside would be written
        (root / path).write_text(text)

    _mount_new(root / "dev", "tmpfs", namespaces.NOSUID, "mode=755")
    for name in _DEVICES:
        _bind(Path("/dev", name), root / "dev" / name)
    _mount_new(root / "dev/pts", "devpts", namespaces.NOSUID | namespaces.NOEXEC, "newinstance,ptmxmode=0666,mode=620")
    (root / "dev/ptmx").symlink_to("pts/ptmx")
    _bind(Path(terminal), root / "dev/console")
    _mount_new(root / "dev/shm", "tmpfs", namespaces.NOSUID | namespaces.NODEV, "mode=1777")
    _mount_new(root / "run", "tmpfs", namespaces.NOSUID | namespaces.NODEV, "mode=755")

    _mount_new(root / "proc", "proc", namespaces.NOSUID | namespaces.NODEV | namespaces.NOEXEC)
    for shared in ("sys", "sysrq-trigger", "irq", "bus"):  # this machine's own settings
        if (root / "proc" / shared).exists():
            _bind(root / "proc" / shared, root / "proc" / shared, namespaces.RDONLY)
    _mount_new(root / "sys", "sysfs", namespaces.NOSUID | namespaces.NODEV | namespaces.NOEXEC | namespaces.RDONLY)
    _mount_new(root / "sys/fs/cgroup", "cgroup2", namespaces.NOSUID | namespaces.NODEV | namespaces.NOEXEC)
    if machine.data is not None:
        _bind(machine.data, root / machine.data.relative_to("/"), namespaces.RDONLY)

    # An overlay cannot be shown with other owners (mount_setattr(2)), as the disk of a machine can.
    for folder in (disk / "state", root / STATE):
        folder.mkdir(exist_ok=True)
    namespaces.mount(disk / "state", root / STATE, flags=namespaces.BIND)

    settings = root / "run/systemd"
    for part in ("system", "system.conf.d"):
        (settings / part).mkdir(parents=True)
    (settings / "system.conf.d/machine.conf").write_text(manager_configuration(machine.environment))
    (settings / "system/console-getty.service").symlink_to("/dev/null")  # nobody logs in on this console
    return root


def _mount_new(target: Path, kind: str, flags: int = 0, data: str = "") -> None:
    target.mkdir(exist_ok=True)
    namespaces.mount(kind, target, kind, flags, data)


def _bind(source: Path, target: Path, flags: int = 0) -> None:
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.touch()
    namespaces.mount(source, target, flags=namespaces.BIND | flags)


def open_console() -> tuple[int, int]:
    """Return the machine's console: the end that reads what it writes, and its terminal."""
    master, terminal = os.openpty()
    tty.setraw(terminal)
    return master, terminal


def write_on(console: int) -> None:
    """Write what a console gets on this process's output, until nothing has the console open any more."""
    with contextlib.suppress(OSError):
        while data := os.read(console, 1 << 16):
            os.write(1, data)


def boot(home: Path, layers: list[Path], name: str, machine: MachineSettings, options: BootOptions) -> int:
    """Boot a machine and wait until it is off; return 0 if it was switched off, else 1.

    Args:
        home: a folder for its mounts, which it leaves empty.
        layers: of its image.
        name: that no other machine has.
        machine: its doors and its environment.
        options: how it is booted.

    Raises:
        OSError: if the kernel refuses something, or the address of its health checks is taken.
    """
    started = time.monotonic()
    namespaces.prctl(namespaces.SET_PDEATHSIG, signal.SIGKILL)  # it ends with who has booted it
    group = ControlGroup(name)
    group.make()
    kinds = {"net": namespaces.NEWNET, "pid": namespaces.NEWPID, "time": namespaces.NEWTIME}
    own = {os.open(f"/proc/self/ns/{name}", os.O_RDONLY | os.O_CLOEXEC): kind for name, kind in kinds.items()}
    health = socket.create_server(machine.health) if machine.health else None
    listeners = open_network(machine.doors)
    network = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    console, terminal = open_console()
    namespaces.start_uptime()
    namespaces.unshare(namespaces.NEWPID)
    child = os.fork()
    if child == 0:
        try:
            group.join()
            _become_process_1(home, layers, options.host_name or name, terminal, machine, options)
        except BaseException as error:
            os.write(2, f"the machine does not boot: {error!r}\n".encode())
        os._exit(1)
    signal.signal(signal.SIGTERM, lambda *_: os.kill(child, _POWER_OFF))
    for descriptor, kind in own.items():  # while children would get others, threads cannot start
        namespaces.enter(descriptor, kind)
    writer = threading.Thread(target=write_on, args=(console,), daemon=True)
    writer.start()
    for listener, outside in listeners:
        threading.Thread(target=carry, args=(listener, outside), daemon=True).start()
    if health is not None and machine.health is not None:
        threading.Thread(target=carry_inside, args=(health, machine.health, network), daemon=True).start()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.close(terminal)  # not before: systemd has its console open only now and then
    writer.join(_CONSOLE_SECONDS)
    group.remove()
    # pid_namespaces(7), "reboot(2)": SIGINT for a machine that was switched off, SIGHUP for one that reboots.
    ending = {-signal.SIGINT: "was switched off", -signal.SIGHUP: "wanted to start anew"}.get(
        status, f"ended with {status}"
    )
    print(f"{name} {ending} after {time.monotonic() - started:.1f} s", flush=True)  # noqa: T201 - the console's last line
    return 0 if status == -signal.SIGINT else 1


def _become_process_1(
    home: Path, layers: list[Path], host_name: str, terminal: int, machine: MachineSettings, options: BootOptions
) -> None:
    """Turn this process, the first in its namespace of processes, into the image's init."""
    namespaces.prctl(namespaces.SET_PDEATHSIG, signal.SIGKILL)
    namespaces.unshare(namespaces.NEWNS | namespaces.NEWUTS | namespaces.NEWIPC | namespaces.NEWCGROUP)
    socket.sethostname(host_name)
    root = lay_root(home, [*layers, *options.added], host_name, os.ttyname(terminal), machine, options)
    for capability in _HOSTS_KERNEL:
        namespaces.prctl(namespaces.CAPBSET_DROP, capability)
    os.setsid()
    for descriptor in (0, 1, 2):
        os.dup2(terminal, descriptor)
    os.chdir(root)
    namespaces.mount(".", "/", flags=namespaces.MOVE)
    os.chroot(".")
    os.execve("/sbin/init", ["/sbin/init", "systemd.log_target=console"], {"container": "everspot", "TERM": "dumb"})  # noqa: S606


def main(arguments: list[str] | None = None) -> int:
    """Boot the machine of this process's environment in the current folder; return its exit status."""
    parser = argparse.ArgumentParser(prog="contained", description="Boots a baked image as one machine.")
    parser.add_argument("--image", type=Path, required=True, help="folder of a baked image")
    parser.add_argument("--metadata", default="", help="variable with the address of the machine's metadata service")
    parser.add_argument("--metadata-name", default="", help="name of that address in /etc/hosts")
    parser.add_argument("--health", default="", help="variable with the address of the machine's health checks")
    parser.add_argument("--add", type=Path, action="append", default=[], help="a folder that is a layer above; often")
    parser.add_argument("--disk-mib", type=int, default=DISK_MIB, help="size of the disk (default: %(default)s)")
    options = parser.parse_args(arguments)
    try:
        layers = read_layers(Path(os.environ.get(IMAGE_VARIABLE) or options.image))
        machine = read_settings(os.environ, options.metadata, options.health)
        name = os.environ.get(keeper.MARK, "machine")
        lasting = DISK_VARIABLE in os.environ
        host_name = os.environ.get(HOST_NAME_VARIABLE, "")
        chosen = BootOptions(tuple(options.add), options.disk_mib, options.metadata_name, host_name, lasting)
        return boot(Path.cwd(), layers, name, machine, chosen)
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        print(f"the machine does not boot: {error}", file=sys.stderr)  # noqa: T201
        return 1


if __name__ == "__main__":
    sys.exit(main())
