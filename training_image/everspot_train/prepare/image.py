"""Unpacks the OCI image of a job: a folder in OCI's image layout, which is one of the job's datasets, or which the
agent has fetched from a registry.

Layout, manifest and layers are of the OCI image specification 1.1 (image-layout.md, manifest.md, layer.md). All files
of the unpacked tree belong to the job's user, the only one in the container.
"""

import errno
import hashlib
import os
import shutil
import stat
import sys
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any

from everspot_core.clock import Clock
from everspot_core.counting import counted
from everspot_store import TreeCache, TreeInUse, remove_tree
from everspot_store.tree_cache import RESERVE

from everspot_train.prepare.errors import NotReady
from everspot_train.prepare.inside import resolve_inside
from everspot_train.prepare.oci_layout import blob_path, find_manifest, list_layers, read_digest, read_document

MOUNT_POINTS = ("proc", "sys", "dev", "tmp")
"""Folders of the tree that the container shows from the machine."""
MACHINE_FILES = ("etc/resolv.conf", "etc/hosts")
"""Files of the machine that the container shows."""
CERTIFICATES = "etc/ssl/certs/ca-certificates.crt"
"""The machine's certificates of authorities, which the container shows if its image has none: without any, no client of
a store can be made."""
CERTIFICATE_PLACES = (
    CERTIFICATES, "etc/ssl/cert.pem", "etc/ssl/ca-bundle.pem", "etc/pki/tls/certs/ca-bundle.crt",
    "etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
)  # fmt: skip
"""Where distributions of Linux keep them (openssl-probe 0.1)."""
MOST_TREES = 3
"""The most unpacked images on a machine. The least recently used ones are removed."""
_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"


@dataclass(frozen=True)
class UnpackedImage:
    """An image on this machine.

    Attributes:
        tree: its tree, which is not removed before it is closed.
        environment: the variables that it sets.
    """

    tree: TreeInUse
    environment: Mapping[str, str]

    @property
    def root(self) -> Path:
        """The root of its tree."""
        return self.tree.path

    @property
    def machine_files(self) -> list[str]:
        """The files of the machine that its container shows."""
        certificates = self.root / CERTIFICATES
        is_mount_point = not certificates.is_symlink() and certificates.is_file() and not certificates.stat().st_size
        return [*MACHINE_FILES, *([CERTIFICATES] if is_mount_point else [])]


def lay_image(layout: Path, trees: Path, clock: Clock, digest: str | None = None) -> UnpackedImage:
    """Unpack an image, unless another job of this machine has done so. The tree stays locked for this process and the
    programs that it executes.

    Args:
        layout: the folder in OCI's image layout.
        trees: the folder with the unpacked images of this machine.
        clock: for waiting while another job unpacks it.
        digest: that the image has to have; None: any.

    Raises:
        NotReady: if it is no image, has none for this machine's processor, or does not fit on the disk.
        StoreUnavailable: if another job unpacks it for too long.
    """
    manifest_digest = find_manifest(layout, digest)
    manifest = read_document(layout, manifest_digest)
    config = read_document(layout, read_digest(manifest.get("config")))
    cache = TreeCache(trees, clock)
    tree = cache.use(manifest_digest.partition(":")[2], f"image {layout.name}", partial(_unpack, layout, manifest))
    tree.outlive()
    cache.limit(MOST_TREES)
    return UnpackedImage(tree, _variables(config))


def _variables(config: dict[str, Any]) -> dict[str, str]:
    entries = (config.get("config") or {}).get("Env") or []
    return dict(entry.split("=", 1) for entry in entries if isinstance(entry, str) and "=" in entry)


def _unpack(layout: Path, manifest: dict[str, Any], part: Path) -> None:
    remove_tree(part)
    part.mkdir()
    layers = list_layers(manifest)
    sys.stdout.write(f"everspot: unpacking the image, {counted(len(layers), 'layer')}\n")
    sys.stdout.flush()
    unpacker = LayerUnpacker(part)
    try:
        for digest in layers:
            with _VerifiedFile(blob_path(layout, digest), digest) as blob:
                unpacker.add_layer(blob)
        unpacker.make_mount_points()
    except (OSError, tarfile.TarError, EOFError) as error:
        remove_tree(part)
        raise NotReady(f"image: it cannot be unpacked: {error}") from error


class _VerifiedFile:
    """A blob that is read once. Its digest is checked at the end."""

    def __init__(self, path: Path, digest: str) -> None:
        self._file: IO[bytes] = path.open("rb")
        self._expected = digest
        self._hash = hashlib.sha256()

    def read(self, size: int) -> bytes:
        data = self._file.read(size)
        self._hash.update(data)
        return data

    def __enter__(self) -> "_VerifiedFile":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            while kind is None and self.read(1 << 20):
                continue
        finally:
            self._file.close()
        if kind is None and f"sha256:{self._hash.hexdigest()}" != self._expected:
            raise NotReady(f"image: {self._expected} has other bytes than its digest says")


class LayerUnpacker:
    """Unpacks layers, one above another, into one tree. Nothing is written outside the tree: symbolic links in an
    entry's path are resolved relative to the tree, as in the container.

    Args:
        root: of the tree.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def add_layer(self, blob: Any) -> None:
        """Unpack one layer. `blob`: a file with a tar archive, perhaps compressed; only `read` is used.

        Raises:
            OSError: if the disk is full, or an entry cannot be made.
            tarfile.TarError: if it is no archive.
        """
        layer_paths: set[Path] = set()
        folder_modes: dict[Path, int] = {}
        with tarfile.open(fileobj=blob, mode="r|*") as archive:
            for member in archive:
                self._check_space(member.size)
                path = self._locate(member.name)
                if path == self._root:
                    continue
                if path.name == _OPAQUE:
                    self._clear(path.parent, layer_paths)
                elif path.name.startswith(_WHITEOUT):
                    _remove(path.with_name(path.name.removeprefix(_WHITEOUT)))
                else:
                    self._add(archive, member, path, folder_modes)
                    layer_paths.update((path, *(p for p in path.parents if p != self._root)))
        for folder, mode in folder_modes.items():
            with suppress(FileNotFoundError):
                folder.chmod(mode)

    def make_mount_points(self) -> None:
        """Create the mount points for the machine's folders and files that the image lacks."""
        for name in MOUNT_POINTS:
            path = self._root / name
            if path.is_symlink() or not path.is_dir():
                _remove(path)
                path.mkdir()
        has_certificates = any(os.path.lexists(self._root / name) for name in CERTIFICATE_PLACES)
        for name in (*MACHINE_FILES, *(() if has_certificates else (CERTIFICATES,))):
            path = self._root / name
            if path.parent.is_symlink() or not path.parent.is_dir():
                _remove(path.parent)
                path.parent.mkdir(parents=True)
            if path.is_symlink() or not path.is_file():
                _remove(path)
                path.touch()

    def _check_space(self, size: int) -> None:
        if size + RESERVE > shutil.disk_usage(self._root).free:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _locate(self, name: str) -> Path:
        """Return the path of an entry. A link in the last part of its name is not followed."""
        parts = [part for part in PurePosixPath(name).parts if part not in ("/", ".")]
        if not parts or parts[-1] == "..":
            return self._root
        return resolve_inside(self._root, parts[:-1]) / parts[-1]

    def _add(
        self, archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path, folder_modes: dict[Path, int]
    ) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        if member.isdir():
            if path.is_symlink() or not path.is_dir():
                _remove(path)
                path.mkdir()
            folder_modes[path] = member.mode & 0o777 | stat.S_IRWXU
            return
        if member.ischr() or member.isblk() or member.isfifo():  # the container uses the machine's devices
            return
        _remove(path)
        if member.issym():
            path.symlink_to(member.linkname)
        elif member.islnk():
            os.link(self._locate(member.linkname), path, follow_symlinks=False)
        else:
            source = archive.extractfile(member)
            if source is None:
                raise tarfile.ReadError(f"{member.name} is neither a file nor a folder nor a link")
            with path.open("xb") as file:
                shutil.copyfileobj(source, file, 1 << 20)
            path.chmod(member.mode & 0o777 | stat.S_IRUSR | stat.S_IWUSR)
            os.utime(path, (member.mtime, member.mtime))  # Python compares it with compiled modules

    def _clear(self, folder: Path, layer_paths: set[Path]) -> None:
        """Remove the files of lower layers from a folder."""
        for path in _lower_paths(folder, layer_paths):
            _remove(path)


def _lower_paths(folder: Path, layer_paths: set[Path]) -> Iterator[Path]:
    """Yield the paths of lower layers in a folder. Folders that this layer does not have are yielded as a whole."""
    for path in sorted(folder.iterdir()) if folder.is_dir() and not folder.is_symlink() else ():
        if path not in layer_paths:
            yield path
        elif path.is_dir() and not path.is_symlink():
            yield from _lower_paths(path, layer_paths)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
