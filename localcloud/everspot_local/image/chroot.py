"""Runs one command inside a root tree, with this machine's network, in its own mount and process namespaces.

`python -m everspot_local.image.chroot JSON COMMAND…`. Its mounts and processes end with it. The command's files are
written to the uppermost layer.
"""

import json
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from everspot_local.machines import namespaces

CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
RESOLVER = Path("/etc/resolv.conf")
PASSED = (
    "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_CERT", "PIP_DEFAULT_TIMEOUT", "SOURCE_DATE_EPOCH",
    "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
)  # fmt: skip
"""Environment variables of this machine with the settings of package managers."""


@dataclass(frozen=True)
class LayerMounts:
    """A root tree that is being made, as paths that can be passed to the program.

    Attributes:
        layers: finished layers, the lowest first.
        upper: the layer that is being made.
        work: the overlay's work folder, beside `upper`.
        root: an empty folder, where the tree is mounted.
        shared: a folder of this machine that the tree sees as /mnt, read-only.
    """

    layers: tuple[str, ...]
    upper: str
    work: str
    root: str
    shared: str


def command(tree: LayerMounts, words: list[str]) -> list[str]:
    """Return the command that runs `words` inside a tree."""
    return [sys.executable, "-m", "everspot_local.image.chroot", json.dumps(asdict(tree)), *words]


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the environment inside the tree: of this machine's variables only those of package managers."""
    return {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/root",
        "LANG": "C.UTF-8",
        "SYSTEMD_OFFLINE": "1",
        **{name: variables[name] for name in PASSED if name in variables},
    }


def _enter(tree: LayerMounts) -> None:
    """Mount the tree and make it this process's root. Runs as process 1 of new namespaces."""
    namespaces.private_mounts()
    root = Path(tree.root)
    upper, work = Path(tree.upper), Path(tree.work)
    namespaces.overlay([Path(layer) for layer in tree.layers], upper, work, root)
    namespaces.mount("/dev", root / "dev", flags=namespaces.BIND | namespaces.REC)
    namespaces.mount("proc", root / "proc", "proc")
    namespaces.mount("tmpfs", root / "run", "tmpfs", data="mode=755")
    namespaces.mount(tree.shared, root / "mnt", flags=namespaces.BIND | namespaces.RDONLY)
    (root / "etc/resolv.conf").unlink(missing_ok=True)
    (root / "etc/resolv.conf").write_text(RESOLVER.read_text())  # removed by --seal
    # Bind-mounted over the tree's file for the life of this process, because local registries may use their own
    # certificates.
    if CERTIFICATES.exists():
        namespaces.mount(CERTIFICATES.resolve(), root / CERTIFICATES.relative_to("/"), flags=namespaces.BIND)
    os.chdir(root)
    os.chroot(".")


def main(arguments: list[str]) -> int:
    """Run the command of the arguments and return its exit status."""
    tree, words = LayerMounts(**json.loads(arguments[0])), arguments[1:]
    namespaces.prctl(namespaces.SET_PDEATHSIG, signal.SIGKILL)  # so that it ends with the bake
    namespaces.unshare(namespaces.NEWNS | namespaces.NEWPID)
    child = os.fork()
    if child == 0:
        try:
            namespaces.prctl(namespaces.SET_PDEATHSIG, signal.SIGKILL)
            _enter(tree)
            os.execvpe(words[0], words, environment(os.environ))  # noqa: S606 - the bake's own command
        except BaseException as error:
            os.write(2, f"cannot run {words[0]} in the tree: {error!r}\n".encode())
        os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
