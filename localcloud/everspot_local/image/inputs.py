"""The inputs of an image, and the digests that name its layers in the cache."""

import hashlib
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

ROOMS = ("core", "store", "clouds", "scheduler", "training_image")
"""Folders of the packages in an image. The components and the command are not among them."""
WHEEL = ("pyproject.toml", "README.md", "LICENSE", *ROOMS)
BAKE = Path("training_image/bake")


@dataclass(frozen=True)
class Base:
    """The base system of a local image, in place of a cloud's own base image.

    Attributes:
        suite: Debian's code name of the release.
        packages: packages besides Debian's minimum, as the clouds' base images have them.
    """

    suite: str = "trixie"
    packages: tuple[str, ...] = (
        "systemd-sysv", "dbus", "udev", "kmod", "util-linux", "e2fsprogs", "iproute2", "libnss-myhostname",
        "ca-certificates", "python3", "python3-venv",
    )  # fmt: skip


class NotACheckout(RuntimeError):
    """The folder is no checkout of Everspot."""


def source_files(root: Path, paths: tuple[str, ...]) -> list[Path]:
    """Return the files of a checkout below some paths, relative to its root, without files that git ignores.

    Raises:
        NotACheckout: if `root` is no checkout.
    """
    if not (root / BAKE / "provision.sh").exists():
        raise NotACheckout(f"{root} is no checkout of Everspot: an image is baked of its sources")
    answer = _git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *paths)
    names = {name for name in answer.split("\0") if name}
    return sorted(path for path in map(Path, names) if (root / path).is_file())


def commit(root: Path) -> str:
    """Return the last commit that changed an image's files, with `-dirty` if the files differ from it.

    Raises:
        NotACheckout: if there is no such commit.
    """
    last = _git(root, "log", "-1", "--format=%H", "--", *WHEEL)
    if not last:
        _refuse(root)
    return f"{last}-dirty" if _git(root, "status", "--porcelain", "--", *WHEEL) else last


def commit_seconds(root: Path) -> int:
    """Return the time of the last commit that changed an image's files, in seconds since 1970.

    Raises:
        NotACheckout: if there is no such commit.
    """
    return int(_git(root, "log", "-1", "--format=%ct", "--", *WHEEL) or _refuse(root))


def _refuse(root: Path) -> NoReturn:
    raise NotACheckout(f"{root} has no commit of Everspot")


def _git(root: Path, *words: str) -> str:
    command = ["git", "-C", str(root), *words]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if answer.returncode != 0:
        raise NotACheckout(f"{root}: git {words[0]} failed: {answer.stderr.strip()}")
    return answer.stdout.strip()


def digest_base(base: Base) -> str:
    """Return the digest of the lowest layer."""
    return _digest([base.suite, *base.packages])


def digest_dependencies(root: Path, base: Base) -> str:
    """Return the digest of the layer with the packages and the dependencies."""
    return _digest([digest_base(base), *_contents(root, [BAKE / "provision.sh", BAKE / "lock.txt"])])


def digest_product(root: Path, base: Base, cloud: str, commit: str) -> str:
    """Return the digest of the uppermost layer.

    Raises:
        NotACheckout: if `root` is no checkout.
    """
    files = source_files(root, WHEEL)
    return _digest([digest_dependencies(root, base), cloud, commit, *_contents(root, files)])


def _contents(root: Path, files: list[Path]) -> list[str]:
    lines = []
    for file in files:
        path = root / file
        mode = "x" if path.stat().st_mode & 0o100 else "-"
        lines.append(f"{file} {mode} {hashlib.sha256(path.read_bytes()).hexdigest()}")
    return lines


def _digest(lines: list[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
