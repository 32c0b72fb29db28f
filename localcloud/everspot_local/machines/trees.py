"""The root trees of a cloud's images, and the disks that outlive a power-off, from which images are made.

A machine that boots an image (`everspot_local.machines.contained`) writes on its disk above the image's layers. A disk
that outlives the machine is a folder in the machine's home, with an `image.json` of its own: as a snapshot it is an
image. Machines that are bare processes have no tree, and images that are made of them have none either.
"""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

IMAGE_VARIABLE, DISK_VARIABLE = "EVERSPOT_MACHINE_IMAGE", "EVERSPOT_MACHINE_DISK"
"""Of a machine: the folder of its image's tree, where that has one; whether its disk outlives it."""
HOST_NAME_VARIABLE = "EVERSPOT_MACHINE_HOST_NAME"
"""Of a machine: its host name, where that is not its id."""
MANIFEST = "image.json"
"""In an image's folder: its layers, the lowest first."""
DISK, LASTING = "disk", "lasting"


class Trees:
    """The trees of one cloud's images, by image id.

    Args:
        folder: that holds them, on a file system that can be an overlay's layer.
        home: of a machine, by its id.
    """

    def __init__(self, folder: Path, home: Callable[[str], Path]) -> None:
        self._folder = folder
        self._home = home

    def variables(self, image_id: str, *, lasting: bool) -> dict[str, str]:
        """Return the variables that let a machine boot its image's tree. `lasting`: whether its disk outlives it."""
        folder = self._folder / image_id
        image = {IMAGE_VARIABLE: str(folder)} if (folder / MANIFEST).exists() else {}
        return {**image, **({DISK_VARIABLE: LASTING} if lasting else {})}

    def has_disk(self, machine_id: str) -> bool:
        """Return whether a machine has a disk that can be a tree."""
        return (self._home(machine_id) / DISK / MANIFEST).exists()

    def snapshot(self, machine_id: str, image_id: str) -> int:
        """Make the tree of an image from the disk of a machine that is off; return the bytes of all its layers.

        Raises:
            OSError: if the disk cannot be read or copied.
            subprocess.CalledProcessError: the same.
        """
        disk = self._home(machine_id) / DISK
        *lower, upper = json.loads((disk / MANIFEST).read_text())["layers"]
        folder = self._folder / image_id
        folder.mkdir(parents=True)
        # Owners, devices that stand for deleted files, and the overlay's own attributes are part of a layer.
        subprocess.run(["cp", "--archive", "--reflink=auto", upper, folder / "tree"], check=True)  # noqa: S603, S607
        layers = [*lower, str(folder / "tree")]
        (folder / MANIFEST).write_text(json.dumps({"layers": layers}))
        command = ["du", "--summarize", "--total", "--block-size=1", "--", *layers]
        answer = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
        return int(answer.stdout.splitlines()[-1].split()[0])

    def copy(self, source_id: str, image_id: str) -> None:
        """Let an image have the tree of another one."""
        if (manifest := self._folder / source_id / MANIFEST).exists():
            (self._folder / image_id).mkdir(parents=True)
            shutil.copyfile(manifest, self._folder / image_id / MANIFEST)

    def remove_disk(self, machine_id: str) -> None:
        """Remove the disk of a machine that is off."""
        if self.has_disk(machine_id):
            shutil.rmtree(self._home(machine_id) / DISK)

    def clear(self) -> None:
        """Remove all trees. Before that they stay: the machines of a deregistered image go on."""
        shutil.rmtree(self._folder, ignore_errors=True)
