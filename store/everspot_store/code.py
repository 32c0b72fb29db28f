"""The user's code as one archive, named by its digest."""

import fnmatch
import gzip
import hashlib
import os
import stat
import tarfile
from collections.abc import Callable
from functools import partial
from pathlib import Path, PurePosixPath
from typing import NoReturn

from everspot_store.errors import UnsafeArchive

CREDENTIALS = (
    *(".ssh", ".aws", ".azure", ".kube", ".docker", ".gnupg", ".netrc", ".pgpass"),
    *("id_rsa", "id_ecdsa", "id_ed25519", "application_default_credentials.json"),
)
"""Folders and files in which programs keep keys of people. Who may read the data bucket would read them."""
LEFT_OUT = (
    *("__pycache__", "*.pyc", ".git", ".venv", ".everspot", ".mypy_cache", ".ruff_cache", ".pytest_cache"),
    *CREDENTIALS,
)
_COMPRESSION = 6


Ignored = Callable[[str], bool]
"""A function that returns whether a path inside the folder (`a/b`, or `a/b/` for a folder) is left out."""


def pack(folder: Path, archive: Path, ignored: Ignored | None = None) -> str:
    """Pack a folder into a `.tar.gz` and return its SHA-256. The same content always gives the same bytes: entries are
    sorted, owners and times are left out, and the mode is reduced to "executable" or not.

    Names in `LEFT_OUT` and `ignored` paths are not packed. A link to a file inside the folder is packed as that file.

    Raises:
        NotADirectoryError: if `folder` is not a folder.
        UnsafeArchive: if a link leads to a folder or out of the packed one, an entry is neither a file nor a folder, or
            a folder cannot be listed.
    """
    if not folder.is_dir():
        raise NotADirectoryError(f"{folder} is not a folder")
    with (
        archive.open("wb") as raw,
        gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=_COMPRESSION, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        root = folder.resolve()
        for path in sorted(
            _files(root, ignored or (lambda path: False)), key=lambda path: path.relative_to(root).as_posix()
        ):
            info = tarfile.TarInfo(path.relative_to(root).as_posix())
            with path.open("rb") as file:
                status = os.fstat(file.fileno())
                info.size = status.st_size
                info.mode = 0o755 if status.st_mode & stat.S_IXUSR else 0o644
                tar.addfile(info, file)
    return hash_file(archive)


def unpack(archive: Path, folder: Path) -> None:
    """Unpack into a folder, which is created. Nothing is ever written outside it.

    Raises:
        UnsafeArchive: if an entry is absolute, leads upwards, or is neither file nor folder. Nothing is unpacked then.
    """
    try:
        with tarfile.open(archive, "r:gz") as tar:
            members = tar.getmembers()
            for member in members:
                _check(member)
            folder.mkdir(parents=True, exist_ok=True)
            for member in members:
                tar.extract(member, folder, set_attrs=True, filter="data")
    except (tarfile.TarError, EOFError, gzip.BadGzipFile) as error:
        raise UnsafeArchive(f"{archive.name} is no archive of code: {error}") from error


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def refuse_unlisted(root: Path, error: OSError) -> NoReturn:
    """Raise an error that names the folder which cannot be listed. `os.walk` would leave it out."""
    folder = Path(error.filename).relative_to(root)
    raise UnsafeArchive(f"folder {folder} of {root} cannot be listed: {error.strerror}; allow it, or remove the folder")


def _files(root: Path, ignored: Ignored) -> list[Path]:
    paths: list[Path] = []
    for parent, folders, names in os.walk(root, onerror=partial(refuse_unlisted, root)):
        here = Path(parent).relative_to(root)
        folders[:] = sorted(n for n in folders if not (_left_out(n) or ignored(f"{(here / n).as_posix()}/")))
        names = [name for name in names if not (_left_out(name) or ignored((here / name).as_posix()))]
        for path in (Path(parent, name) for name in folders):
            if path.is_symlink():
                raise UnsafeArchive(f"{path.relative_to(root)} is a link to a folder; only files may be links")
        for path in (Path(parent, name) for name in names):
            if not path.is_file():
                raise UnsafeArchive(f"{path.relative_to(root)} is neither a file nor a folder")
            if not path.resolve().is_relative_to(root):
                raise UnsafeArchive(f"{path.relative_to(root)} is a link that leads out of the folder")
            paths.append(path)
    return paths


def _left_out(name: str) -> bool:
    return any(fnmatch.fnmatch(name, pattern) for pattern in LEFT_OUT)


def _check(member: tarfile.TarInfo) -> None:
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts or not (member.isfile() or member.isdir()):
        raise UnsafeArchive(f"entry {member.name!r} must not be unpacked")
