"""The changes that give a container its GPUs, from the agent to the job's first process."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class DeviceMount:
    """A file or folder of the machine that the container shows.

    Attributes:
        source: its path on the machine.
        target: its path in the container.
        options: of mount(8).
    """

    source: str
    target: str
    options: Sequence[str] = ()


@dataclass(frozen=True)
class DeviceEdits:
    """The changes to a container.

    Attributes:
        environment: variables to set.
        nodes: device nodes of the machine by their paths in the container. The container has no others, except those
            that belong to no hardware.
        mounts: files and folders to show.
        links: targets of symbolic links by their paths.
        library_folders: folders with the driver's libraries.
        left_out: entries of the specifications that are not known and not applied, by file and part.
    """

    environment: Mapping[str, str] = field(default_factory=dict)
    nodes: Mapping[str, str] = field(default_factory=dict)
    mounts: Sequence[DeviceMount] = ()
    links: Mapping[str, str] = field(default_factory=dict)
    library_folders: Sequence[str] = ()
    left_out: Sequence[str] = ()
