"""Downloads with short timeouts: if an official server cannot be reached, the next source is tried immediately."""

import gzip
import hashlib
import http.client
import platform
import shutil
import sys
import tarfile
import urllib.error
import urllib.request
import zlib
from pathlib import Path

CONNECT_SECONDS = 5.0


class Unreachable(Exception):
    """A place that cannot be reached or does not have what was asked for."""


def fetch(url: str, target: Path) -> None:
    """Download a file.

    Raises:
        Unreachable: the answer did not come, or was not the file.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_suffix(".part")
    try:
        with urllib.request.urlopen(url, timeout=CONNECT_SECONDS) as answer, part.open("wb") as out:
            shutil.copyfileobj(answer, out)
    except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError) as error:
        part.unlink(missing_ok=True)
        raise Unreachable(f"{url}: {getattr(error, 'reason', error)}") from error
    part.replace(target)


def verify(archive: Path, name: str, sums: Path) -> None:
    """Check a download against a file of SHA-256 sums as `sha256sum` writes them; what is wrong is removed.

    Raises:
        Unreachable: the file has another sum, or no sum is published for it.
    """
    lines = (line.split() for line in sums.read_text(errors="replace").splitlines())
    expected = next((words[0].lower() for words in lines if len(words) == 2 and words[1].lstrip("*") == name), "")
    with archive.open("rb") as file:
        actual = hashlib.file_digest(file, "sha256").hexdigest()
    if actual != expected:
        archive.unlink()
        raise Unreachable(f"{name} has the SHA-256 {actual}, and {expected or 'none at all'} is published for it")


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a tar archive below a folder, replacing what was there.

    Raises:
        Unreachable: it is not a tar archive (a page of a captive portal, say).
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise Unreachable(f"{archive.name} is not an archive: {error}") from error


def system(x64: str) -> tuple[str, str]:
    """Return the system and processor as download names have them; `x64` is how this place calls that processor."""
    machine = platform.machine().lower()
    return sys.platform, "arm64" if machine in ("arm64", "aarch64") else x64
