"""Reads specifications of the Container Device Interface (CDI), and selects the changes for a job's own GPUs.

The container is no runtime's, so no hook is executed. The hooks of NVIDIA's toolkit that matter are applied by their
meaning, and unknown hooks are refused.

Format: SPEC.md of cncf-tags/container-device-interface. Hooks: cmd/nvidia-cdi-hook of NVIDIA/nvidia-container-toolkit.
"""

import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from everspot_train.device_edits import DeviceEdits, DeviceMount

KIND = "nvidia.com/gpu"
FOLDERS = (Path("/etc/cdi"), Path("/var/run/cdi"))
"""The folders of specifications. A device in a later folder replaces one of the same name in an earlier folder."""
_VERSION = re.compile(r"(0\.[5-8]|1\.0)\.\d+")
_SUFFIXES = (".json", ".yaml")
_LONGEST = 16 << 20  # bytes of a specification
_OWN_PLACES = ("/dev", "/proc", "/sys", "/tmp")  # noqa: S108  folders that the container mounts itself
_WITHOUT_EFFECT = frozenset({"chmod", "disable-device-node-modification", "enable-cuda-compat"})
"""Hooks without an effect here: nodes keep the machine's modes, no program of the container can make a node, and the
driver's own libraries are used, not newer ones of the image."""


class CdiError(Exception):
    """The machine has no usable specification of its GPUs. The message names the file and the field."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


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
    kind: Literal["bind"] | None = Field(default=None, alias="type")
    options: list[Literal["ro", "rw", "bind", "rbind", "nosuid", "nodev", "noexec", "private", "rprivate"]] = []


class _Hook(_Part):
    hook_name: Literal["createContainer"] = Field(alias="hookName")
    path: str
    args: list[str] = []
    env: list[str] = []
    timeout: int | None = None


class _Edits(_Part):
    env: list[str] = []
    nodes: list[_Node] = Field(default=[], alias="deviceNodes")
    mounts: list[_Mount] = []
    hooks: list[_Hook] = []


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
        edits.add(specification.edits, f"{file}, containerEdits")
    for located in selected:
        edits.add(located.device.edits, f"{located.file}, device {located.device.name}")
    # The driver counts only the GPUs whose nodes can be opened.
    edits.environment["CUDA_VISIBLE_DEVICES"] = ",".join(str(number) for number in range(len(gpus)))
    return DeviceEdits(edits.environment, edits.nodes, edits.mounts, edits.links, list(edits.library_folders))


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

    def add(self, edits: _Edits, place: str) -> None:
        """Add changes. `place`: file and part, for errors."""
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
            self.nodes[path] = source
        for mount in edits.mounts:
            target = _inner(mount.container_path, f"{place}: mounts.containerPath")
            source = _absolute(mount.host_path, f"{place}: mounts.hostPath")
            if source == "/":
                raise CdiError(f"{place}: mounts.hostPath is the whole machine, /")
            self.mounts.append(DeviceMount(source, target, tuple(mount.options)))
        for hook in edits.hooks:
            self._add_hook(hook, place)

    def _add_hook(self, hook: _Hook, place: str) -> None:
        # `nvidia-cdi-hook COMMAND …`, and `nvidia-ctk hook COMMAND …` until 1.15
        program, words = PurePosixPath(hook.path).name, hook.args[1:]
        if program == "nvidia-ctk" and words[:1] == ["hook"]:
            words = words[1:]
        elif program != "nvidia-cdi-hook":
            raise CdiError(f"{place}: hooks has {hook.path}, which is no hook of NVIDIA's toolkit")
        command, options = (words[0] if words else ""), words[1:]
        if command in _WITHOUT_EFFECT:
            return
        if command == "create-symlinks":
            for value in _values(options, "--link", place):
                target, _, path = value.partition("::")
                link = _inner(path, f"{place}: hooks.args --link")
                if not target:
                    raise CdiError(f"{place}: hooks.args --link {value} has no target")
                self.links[link] = target
        elif command == "update-ldcache":
            for value in _values(options, "--folder", place):
                self.library_folders[_absolute(value, f"{place}: hooks.args --folder")] = None
        else:
            raise CdiError(f"{place}: hooks has the command {command!r}, which is not known")


def _values(options: Sequence[str], name: str, place: str) -> Iterator[str]:
    """Yield the values of a hook's only option, `--NAME VALUE` or `--NAME=VALUE`."""
    pending = list(options)
    while pending:
        option, equals, value = pending.pop(0).partition("=")
        if option == "--ldconfig-path" and (equals or pending):  # of the program that this module does not execute
            _ = value if equals else pending.pop(0)
            continue
        if option != name or not (equals or pending):
            raise CdiError(f"{place}: hooks.args has {option}, which is not known")
        yield value if equals else pending.pop(0)


def _absolute(path: str, field: str) -> str:
    parts: Any = PurePosixPath(path)
    if not parts.is_absolute() or ".." in parts.parts or "\0" in path or ":" in path:
        raise CdiError(f"{field} {path!r} is no absolute path without .. and colons")
    return f"/{'/'.join(part for part in parts.parts if part.strip('/'))}"


def _inner(path: str, field: str) -> str:
    """Return a path in the container at which something may be put: no folder of the root, and none of those that the
    container mounts itself."""
    normal = _absolute(path, field)
    if normal.count("/") < 2 or any(normal.startswith(f"{place}/") for place in _OWN_PLACES):
        raise CdiError(f"{field} {normal} would hide a folder of the container's own")
    return normal


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
