"""Reads specifications of the Container Device Interface (CDI), and selects the changes for a job's own GPUs.

The container is no runtime's, so no hook is executed. The hooks of NVIDIA's toolkit that matter are applied by their
meaning. What is unknown, as newer toolkits write it, is left out and named in the job's log: a field, or the whole hook
or mount that has an unknown part. What is known and malformed is refused.

Format: SPEC.md of cncf-tags/container-device-interface. Hooks: cmd/nvidia-cdi-hook of NVIDIA/nvidia-container-toolkit.
"""

import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, Literal, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from everspot_train.device_edits import DeviceEdits, DeviceMount

KIND = "nvidia.com/gpu"
FOLDERS = (Path("/etc/cdi"), Path("/var/run/cdi"))
"""The folders of specifications. A device in a later folder replaces one of the same name in an earlier folder."""
_VERSION = re.compile(r"(0\.[3-9]|1\.\d+)\.\d+")
_SUFFIXES = (".json", ".yaml")
_LONGEST = 16 << 20  # bytes of a specification
_LONGEST_NOTE = 300  # characters of an entry in a job's log
_OWN_PLACES = ("/dev", "/proc", "/sys", "/tmp")  # noqa: S108  folders that the container mounts itself
_BY_PATH = "/dev/dri/by-path/"
"""Links to the nodes of graphics, by PCI address (toolkit 1.14 and later, where nvidia-drm is loaded). CUDA does not
open these nodes, and the container's /dev has no such links."""
_MountOption = Literal["ro", "rw", "bind", "rbind", "nosuid", "nodev", "noexec", "private", "rprivate"]
_WITHOUT_EFFECT = frozenset(
    {"chmod", "disable-device-node-modification", "enable-cuda-compat", "update-application-profile"}
)
"""Hooks without an effect here: nodes keep the machine's modes, no program of the container can make a node, the
driver's own libraries are used, not newer ones of the image, and EGL's and Vulkan's choice of GPUs (toolkit 1.20 and
later) does not matter to CUDA."""


class CdiError(Exception):
    """The machine has no usable specification of its GPUs. The message names the file and the field."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True)


class _Node(_Part):
    # A bind mount shows the machine's node, with its mode and owner.
    path: str
    host_path: str | None = Field(default=None, alias="hostPath")
    kind: Literal["b", "c", "u"] | None = Field(default=None, alias="type")
    major: int | None = None
    minor: int | None = None
    file_mode: int | None = Field(default=None, alias="fileMode")
    permissions: Literal["rw", "rwm"] | None = None
    uid: int | None = None
    gid: int | None = None


class _Mount(_Part):
    host_path: str = Field(alias="hostPath")
    container_path: str = Field(alias="containerPath")
    kind: str | None = Field(default=None, alias="type")
    options: list[str] = []


class _Hook(_Part):
    hook_name: str = Field(alias="hookName")
    path: str
    args: list[str] = []
    env: list[str] = []
    timeout: int | None = None


class _Edits(_Part):
    env: list[str] = []
    nodes: list[_Node] = Field(default=[], alias="deviceNodes")
    mounts: list[_Mount] = []
    hooks: list[_Hook] = []
    # For nodes that a group may open (toolkit 1.19 and later). The job's user is in the machine's groups `video` and
    # `render`, and a container cannot add groups.
    groups: list[int] = Field(default=[], alias="additionalGids")


class _Device(_Part):
    name: str
    annotations: dict[str, str] = {}
    edits: _Edits = Field(alias="containerEdits")


class Specification(_Part):
    """One file."""

    version: str = Field(alias="cdiVersion", pattern=f"^{_VERSION.pattern}$")
    kind: str
    annotations: dict[str, str] = {}
    devices: list[_Device]
    edits: _Edits = Field(default=_Edits(), alias="containerEdits")


@dataclass(frozen=True)
class _Located:
    """A device, the file that defines it, and the specification in the file."""

    file: Path
    specification: Specification
    device: _Device


def read_edits(folders: Sequence[Path], gpus: Sequence[int]) -> DeviceEdits:
    """Read the specifications of this machine, and return the changes for GPUs, by their indexes on this machine.

    Raises:
        CdiError: if there is no specification or device, or it cannot be applied.
    """
    texts: list[dict[Path, str]] = []
    for folder in folders:
        try:
            names = sorted(path for path in folder.iterdir() if path.suffix in _SUFFIXES)
            texts.append({path: _read(path) for path in names})
        except FileNotFoundError:
            continue
        except (OSError, UnicodeDecodeError) as error:
            raise CdiError(f"the CDI specifications in {folder} cannot be read: {error}") from None
    edits = select_edits(texts, gpus)
    for mount in edits.mounts:
        if not Path(mount.source).exists():
            raise CdiError(f"a CDI specification mounts {mount.source}, which this machine does not have")
    return replace(edits, links={**_library_links(edits), **edits.links})


def select_edits(folders: Sequence[Mapping[Path, str]], gpus: Sequence[int]) -> DeviceEdits:
    """Return the changes for GPUs. `folders`: the texts of the specifications by their files, for each folder.

    Raises:
        CdiError: if a GPU has no device, or a specification cannot be applied.
    """
    devices: dict[str, _Located] = {}
    for texts in folders:
        devices |= _named_devices(texts)
    missing = [str(index) for index in gpus if str(index) not in devices]
    if missing:
        names = f"only {', '.join(sorted(devices))}" if devices else "none at all: everspot-gpus.service writes them"
        raise CdiError(f"no CDI specification has the device {KIND}={missing[0]} of this machine, {names}")
    selected = [devices[str(index)] for index in gpus]
    edits = _Collector()
    for file, specification in {located.file: located.specification for located in selected}.items():
        _check_common_nodes(file, specification, {located.device.name for located in selected})
        edits.leave_out_unknown(specification, str(file))
        edits.add(specification.edits, f"{file}, containerEdits")
    for located in selected:
        place = f"{located.file}, device {located.device.name}"
        edits.leave_out_unknown(located.device, place)
        edits.add(located.device.edits, place)
    # The driver counts only the GPUs whose nodes can be opened.
    edits.environment["CUDA_VISIBLE_DEVICES"] = ",".join(str(number) for number in range(len(gpus)))
    folders_of_libraries, left_out = list(edits.library_folders), list(edits.left_out)
    return DeviceEdits(edits.environment, edits.nodes, edits.mounts, edits.links, folders_of_libraries, left_out)


def _library_links(edits: DeviceEdits) -> dict[str, str]:
    """Return this machine's links to the libraries, such as libcuda.so.1, which `update-ldcache` makes in a container:
    a specification mounts only the files that they point to."""
    links: dict[str, str] = {}
    targets = {mount.source: PurePosixPath(mount.target) for mount in edits.mounts if ".so." in mount.source}
    for folder in {Path(source).parent for source in targets}:
        for path in folder.iterdir():
            target = targets.get(str(folder / path.readlink())) if path.is_symlink() else None
            if target is not None:
                links[str(target.with_name(path.name))] = target.name
    return links


def _read(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(_LONGEST).decode()


def _named_devices(texts: Mapping[Path, str]) -> dict[str, _Located]:
    """Return the devices of one folder."""
    devices: dict[str, _Located] = {}
    for file, text in texts.items():
        specification = _parse(file, text)
        for device in specification.devices if specification is not None else ():
            if device.name in devices:
                raise CdiError(f"{file}: {devices[device.name].file} has a device {device.name} too")
            devices[device.name] = _Located(file, specification, device)  # type: ignore[arg-type]
    return devices


def _parse(file: Path, text: str) -> Specification | None:
    """Return the specification in a file; None if it is of other devices."""
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise CdiError(f"{file} is no YAML: {' '.join(str(error).split())}") from None
    if not isinstance(document, dict):
        raise CdiError(f"{file} is no CDI specification")
    if document.get("kind") != KIND:
        return None
    try:
        return Specification.model_validate(document)
    except ValidationError as error:
        problems = (f"{'.'.join(map(str, entry['loc']))}: {entry['msg']}" for entry in error.errors()[:3])
        raise CdiError(f"{file} cannot be applied: {'; '.join(problems)}") from None


def _check_common_nodes(file: Path, specification: Specification, selected: set[str]) -> None:
    """Raise `CdiError` if the changes for all devices contain the node of a device that is not selected."""
    owners = {node.path: device.name for device in specification.devices for node in device.edits.nodes}
    for device in specification.devices:
        if device.name in selected:
            owners |= {node.path: device.name for node in device.edits.nodes}
    for node in specification.edits.nodes:
        if (owner := owners.get(node.path)) is not None and owner not in selected:
            raise CdiError(f"{file}, containerEdits: deviceNodes has {node.path} of the device {owner}")


class _Collector:
    """The changes of several parts of specifications."""

    def __init__(self) -> None:
        self.environment: dict[str, str] = {}
        self.nodes: dict[str, str] = {}
        self.mounts: list[DeviceMount] = []
        self.links: dict[str, str] = {}
        self.library_folders: dict[str, None] = {}
        self.left_out: dict[str, None] = {}

    def leave_out_unknown(self, part: _Part, place: str) -> bool:
        """Note the unknown fields of a part. Returns whether there are any."""
        unknown = sorted(part.model_extra or {})
        self.left_out |= {f"{place}: {name}": None for name in unknown}
        return bool(unknown)

    def add(self, edits: _Edits, place: str) -> None:
        """Add changes. `place`: file and part, for errors and for what is left out."""
        self.leave_out_unknown(edits, place)
        for entry in edits.env:
            name, equals, value = entry.partition("=")
            if not name or not equals:
                raise CdiError(f"{place}: env has {entry!r}, which is not NAME=VALUE")
            self.environment[name] = value
        for node in edits.nodes:
            path = _absolute(node.path, f"{place}: deviceNodes.path")
            source = _absolute(node.host_path or node.path, f"{place}: deviceNodes.hostPath")
            if not path.startswith("/dev/"):
                raise CdiError(f"{place}: deviceNodes.path {path} is not below /dev")
            _check_node(node, source, place)
            self.leave_out_unknown(node, f"{place}: deviceNodes {path}")
            self.nodes[path] = source
        for mount in edits.mounts:
            self._add_mount(mount, place)
        for hook in edits.hooks:
            self._add_hook(hook, place)

    def _add_mount(self, mount: _Mount, place: str) -> None:
        target = _absolute(mount.container_path, f"{place}: mounts.containerPath")
        source = _absolute(mount.host_path, f"{place}: mounts.hostPath")
        if source == "/":
            raise CdiError(f"{place}: mounts.hostPath is the whole machine, /")
        _check_hides_nothing(target, f"{place}: mounts.containerPath")
        unknown = set(mount.options) - set(get_args(_MountOption))
        if _is_own(target) or mount.kind not in (None, "bind") or unknown or mount.model_extra:
            self.left_out[f"{place}: the mount {target}"] = None
        else:
            self.mounts.append(DeviceMount(source, target, tuple(mount.options)))

    def _add_hook(self, hook: _Hook, place: str) -> None:
        # `nvidia-cdi-hook COMMAND …`, and `nvidia-ctk hook COMMAND …` until 1.15
        program, words = PurePosixPath(hook.path).name, hook.args[1:]
        if program == "nvidia-ctk" and words[:1] == ["hook"]:
            words = words[1:]
        command, options = (words[0] if words else ""), words[1:]
        is_known = hook.hook_name == "createContainer" and program in ("nvidia-cdi-hook", "nvidia-ctk")
        if is_known and command in _WITHOUT_EFFECT:
            return
        option = {"create-symlinks": "--link", "update-ldcache": "--folder"}.get(command, "")
        values = _values(options, option) if is_known and option else None
        if values is None or hook.model_extra:
            self.left_out[f"{place}: the hook {' '.join([hook.path, *hook.args[1:]])}"[:_LONGEST_NOTE]] = None
        elif command == "create-symlinks":
            for value in values:
                self._add_link(value, place)
        else:
            self.library_folders |= {_absolute(value, f"{place}: hooks.args --folder"): None for value in values}

    def _add_link(self, value: str, place: str) -> None:
        target, _, path = value.partition("::")
        if path.startswith(_BY_PATH):
            return
        link = _absolute(path, f"{place}: hooks.args --link")
        _check_hides_nothing(link, f"{place}: hooks.args --link")
        if not target:
            raise CdiError(f"{place}: hooks.args --link {value} has no target")
        if _is_own(link):
            self.left_out[f"{place}: the link {link}"] = None
        else:
            self.links[link] = target


def _values(options: Sequence[str], name: str) -> list[str] | None:
    """Return the values of a hook's only option, `--NAME VALUE` or `--NAME=VALUE`; None if it has another option."""
    values, pending = [], list(options)
    while pending:
        option, equals, value = pending.pop(0).partition("=")
        if option not in (name, "--ldconfig-path") or not (equals or pending):
            return None
        value = value if equals else pending.pop(0)
        if option == name:  # the other one names a program, which this module does not execute
            values.append(value)
    return values


def _absolute(path: str, field: str) -> str:
    parts: Any = PurePosixPath(path)
    if not parts.is_absolute() or ".." in parts.parts or "\0" in path or ":" in path:
        raise CdiError(f"{field} {path!r} is no absolute path without .. and colons")
    return f"/{'/'.join(part for part in parts.parts if part.strip('/'))}"


def _check_hides_nothing(path: str, field: str) -> None:
    """Raise `CdiError` if a normal path is a folder of the container's root."""
    if path.count("/") < 2:
        raise CdiError(f"{field} {path} would hide a folder of the container's own")


def _is_own(path: str) -> bool:
    """Return whether a normal path is in a folder that the container mounts itself."""
    return any(path.startswith(f"{place}/") for place in _OWN_PLACES)


def _check_node(node: _Node, source: str, place: str) -> None:
    """Raise `CdiError` unless the machine has the node, with the numbers that the specification names."""
    try:
        status = os.stat(source)  # noqa: PTH116
    except OSError as error:
        raise CdiError(f"{place}: deviceNodes has {source}: {error.strerror}") from None
    kind = "b" if stat.S_ISBLK(status.st_mode) else "c" if stat.S_ISCHR(status.st_mode) else None
    if kind is None:
        raise CdiError(f"{place}: deviceNodes has {source}, which is no device")
    expected = ("c" if node.kind == "u" else node.kind or kind, node.major, node.minor)
    actual = (kind, os.major(status.st_rdev), os.minor(status.st_rdev))
    if any(number not in (None, value) for number, value in zip(expected, actual, strict=True)):
        raise CdiError(f"{place}: deviceNodes has {source} with other numbers than this machine")
