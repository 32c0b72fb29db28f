"""The kernel of emulated machines: the distribution's kernel, of the image's release.

An image has no kernel, because on a cloud the base image has it. The kernel and its modules come from the
distribution's package. A short shell script in an archive that is made here mounts the machine's root before systemd
starts.
"""

import hashlib
import lzma
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from everspot_local.machines.vm import DISK, IMAGE_TAG, Kernel

PACKAGE = "linux-image-cloud-amd64"
_PACKAGES = (PACKAGE, "busybox-static", "kmod", "liblzma5", "base-files")
"""The kernel, the programs that run before the root is mounted, and depmod."""
_EARLY_MODULES = ("virtio_blk", "overlay")
_INIT = f"""#!/bin/busybox sh
# Mounts the machine's root: its read-only image, and above it the machine's disk, which keeps the changes.
set -e
export PATH=/bin
trap 'echo "the root of the machine cannot be mounted"' EXIT
busybox mkdir -p /dev /image /disk /root
busybox mount -t devtmpfs dev /dev
for module in /modules/*; do busybox insmod "$module"; done
busybox mount -t virtiofs -o ro {IMAGE_TAG} /image
busybox mount -t ext4 -o noatime {DISK} /disk
busybox mkdir -p /disk/upper /disk/work /disk/state
busybox mount -t overlay -o lowerdir=/image,upperdir=/disk/upper,workdir=/disk/work overlay /root
# An overlay cannot be shown with other owners (mount_setattr(2)), as a disk can.
busybox mkdir -p /root/STATE
busybox mount -o bind /disk/state /root/STATE
busybox umount /dev
trap - EXIT
exec busybox switch_root /root /sbin/init
"""


class KernelUnavailable(RuntimeError):
    """The kernel is not available. The message names its package."""


def find_suite(layers: Sequence[Path]) -> str:
    """Return the code name of an image's release of Debian.

    Raises:
        KernelUnavailable: if the image is not made of Debian.
    """
    for layer in layers:
        for name in ("usr/lib/os-release", "etc/os-release"):
            if (layer / name).is_file() and not (layer / name).is_symlink():
                text = (layer / name).read_text()
                suite = re.search(r'^VERSION_CODENAME="?(\w+)"?$', text, re.MULTILINE)
                if suite and re.search(r'^ID="?debian"?$', text, re.MULTILINE):
                    return suite[1]
    raise KernelUnavailable(f"the image is not made of Debian, for which alone a kernel package is known ({PACKAGE})")


def fetch(suite: str, cache: Path, state: Path) -> Kernel:
    """Fetch a release's kernel package, unless it is cached.

    Args:
        suite: the release.
        cache: folder of kernels.
        state: the folder of the root tree that is bind-mounted from the machine's disk.

    Raises:
        KernelUnavailable: if the package cannot be downloaded.
    """
    init = _INIT.replace("STATE", str(state)).encode()
    name = f"{suite}-{hashlib.sha256(b' '.join([init, *map(str.encode, _PACKAGES)])).hexdigest()[:16]}"
    kernel = Kernel(cache / name)
    if kernel.initrd.exists():
        return kernel
    program = shutil.which("mmdebstrap")
    if program is None:
        raise KernelUnavailable(
            f"there is no mmdebstrap on this machine, which fetches {PACKAGE}: apt install mmdebstrap"
        )
    part = cache / f"{name}.part"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    command = [program, "--variant=extract", f"--include={','.join(_PACKAGES)}", "--format=directory"]
    _call([*command, suite, str(part / "all")], suite)
    tree = part / "all"
    (version,) = (path.name for path in (tree / "usr/lib/modules").iterdir())
    _call(["chroot", str(tree), "depmod", version], suite)
    shutil.copyfile(tree / f"boot/vmlinuz-{version}", part / "vmlinuz")
    layer = part / "tree/usr/lib/modules"
    layer.mkdir(parents=True)
    shutil.copytree(tree / "usr/lib/modules" / version, layer / version, symlinks=True)
    files = {"init": init, "bin/busybox": (tree / "usr/bin/busybox").read_bytes()}
    for place, module in enumerate(_early_modules(layer / version)):
        data = module.read_bytes()
        files[f"modules/{place:02}.ko"] = lzma.decompress(data) if module.suffix == ".xz" else data
    shutil.rmtree(tree)
    (part / "initrd").write_bytes(pack(files))
    shutil.rmtree(kernel.folder, ignore_errors=True)
    part.rename(kernel.folder)
    return kernel


def _call(command: list[str], suite: str) -> None:
    answer = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)  # noqa: S603
    if answer.returncode != 0:
        lines = [line for line in answer.stderr.splitlines() if line.strip()] or ["no word of why"]
        raise KernelUnavailable(f"the package {PACKAGE} of Debian {suite} cannot be had: {lines[-1]}")


def _early_modules(folder: Path) -> list[Path]:
    """Return the modules that are needed to mount the root, in the order in which they are loaded."""
    needs: dict[str, list[str]] = {}
    for line in (folder / "modules.dep").read_text().splitlines():
        module, _, others = line.partition(":")
        needs[module] = others.split()
    order: list[str] = []
    for name in _EARLY_MODULES:
        for module in [path for path in needs if Path(path).name.partition(".")[0] == name]:  # empty if it is built in
            order += [path for path in [*reversed(needs[module]), module] if path not in order]  # modules.dep(5)
    return [folder / path for path in order]


def pack(files: dict[str, bytes]) -> bytes:
    """Return an initramfs archive (cpio(5), "newc") with executable files and their folders."""
    folders = sorted({str(parent) for name in files for parent in Path(name).parents if str(parent) != "."})
    entries = [(name, 0o40755, b"") for name in folders]
    entries += [(name, 0o100755, data) for name, data in files.items()]
    archive = b""
    for number, (name, mode, data) in enumerate([*entries, ("TRAILER!!!", 0, b"")], 1):
        fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0)
        head = b"070701" + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0"
        archive += head + b"\0" * (-len(head) % 4) + data + b"\0" * (-len(data) % 4)
    return archive
