"""Runs programs of containers as a user who is not root, of whom this machine's own files know nothing."""

import os
from pathlib import Path

USER, FIRST_ID, IDS = 60321, 2_000_000, 65_536
_PREPARE = f"""
set -e
home=$1 run=$2
shift 2
for name in passwd group subuid subgid; do cat /etc/$name >"$run/$name" 2>/dev/null || true; done
echo "builder:x:{USER}:{USER}::$home:/bin/sh" >>"$run/passwd"
echo "builder:x:{USER}:" >>"$run/group"
for name in subuid subgid; do echo "builder:{FIRST_ID}:{IDS}" >>"$run/$name"; done
for name in passwd group subuid subgid; do mount --bind "$run/$name" "/etc/$name"; done
cd "$home"
exec setpriv --reuid {USER} --regid {USER} --clear-groups "$@"
"""


BUILD = "build"


def rootless(home: Path, command: list[str], store: str = BUILD) -> list[str]:
    """Return the command that runs Podman's or Buildah's as that user, who has 65,536 user ids of the kernel's.

    Args:
        home: the user's folder. The layers of images and containers need the file system of a disk.
        command: what runs, by its program.
        store: name of the folder of containers. Those that end apart from each other have one each, beside that of the
            build, whose images all of them see.
    """
    folder, temporary = home / store, home / "tmp"
    for path in (home, temporary, folder):
        path.mkdir(parents=True, exist_ok=True)
        os.chown(path, USER, USER)
    variables = {
        "HOME": home, "USER": "builder", "TMPDIR": temporary, "XDG_RUNTIME_DIR": folder,
        "PATH": "/usr/bin:/bin:/usr/sbin:/sbin",
    }  # fmt: skip
    program = [command[0], "--root", f"{folder}/storage", "--runroot", f"{folder}/run", "--storage-driver", "overlay"]
    if command[0] == "podman":
        program += ["--cgroup-manager", "cgroupfs"]
    if store != BUILD:
        program += ["--storage-opt", f"overlay.imagestore={home}/{BUILD}/storage"]
    words = ["env", "-i", *(f"{name}={value}" for name, value in variables.items()), *program, *command[1:]]
    prepare = ["unshare", "--mount", "--propagation", "private", "sh", "-c", _PREPARE, "sh", str(home), str(folder)]
    return [*prepare, *words]
