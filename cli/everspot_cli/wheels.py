"""A job's requirements: fetches the wheels of a lock file with pip, and puts them into the data bucket."""

import hashlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from everspot_core.counting import counted
from everspot_core.jobs.job import Wheel
from everspot_core.validation.problems import Problem

from everspot_cli.errors import CliError, list_problems

if TYPE_CHECKING:
    from everspot_store import Store

FROM_IMAGE = re.compile(r"^(torch|triton|nvidia-.*|everspot|cuda-.*)$")
"""Packages that the image contains in matching versions. A lock file may name them; they are left out."""
_PINNED = re.compile(r"^(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)(\[[^\]]*\])?\s*==\s*[^\s;*]+\s*(;.*)?$")
_OPTIONS_LEFT_OUT = ("-i ", "--index-url", "--extra-index-url", "--trusted-host", "-f ", "--find-links")
_PLATFORMS = {
    "x86_64": ("manylinux_2_35_x86_64", "manylinux_2_28_x86_64", "manylinux2014_x86_64", "linux_x86_64"),
    "arm64": ("manylinux_2_35_aarch64", "manylinux_2_28_aarch64", "manylinux2014_aarch64", "linux_aarch64"),
}
_TOLD = 1500  # characters of pip's last words


def parse_lock_file(text: str, file: Path) -> tuple[list[str], list[str]]:
    """Return the lines of a lock file for pip, hashes included, and the names of the packages that the image contains.

    Raises:
        CliError: naming every line that is no `name==version`.
    """
    pinned_lines, image_packages, faults = [], [], []
    for number, line in enumerate(_join_lines(text), 1):
        bare = line.split(" --hash=", 1)[0].strip()
        if bare.startswith(_OPTIONS_LEFT_OUT):  # pip's own settings say which index; a job says which packages
            continue
        pin = _PINNED.match(bare)
        if pin is None:
            faults.append(Problem(f"requirement {number}", f"{bare[:80]!r} is no `name==version`"))
        elif FROM_IMAGE.match(pin["name"].lower().replace("_", "-").replace(".", "-")):
            image_packages.append(pin["name"])
        else:
            pinned_lines.append(line)
    if faults:
        raise CliError(
            f"{file} is no lock file: it has to pin every package",
            hint="`pip-compile`, `uv pip compile` or `uv export` make one",
            problems=list_problems(faults),
        )
    return pinned_lines, image_packages


def fetch_wheels(
    store: "Store", file: Path, *, python: str, archs: Sequence[str], notify: Callable[[str], None]
) -> list[Wheel]:
    """Fetch the wheels that a lock file names for Linux, this `python` (`3.12`) and these architectures, with pip and
    its own settings, and put them into the data bucket.

    Raises:
        CliError: if the file is no lock file, or pip cannot get a wheel.
        StoreError: if one cannot be uploaded.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"{file} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    lines, image_packages = parse_lock_file(text, file)
    if image_packages:
        notify(f"{', '.join(sorted(image_packages))}: the version in the image is used instead")
    if not lines:
        return []
    wheels: dict[str, Wheel] = {}
    with tempfile.TemporaryDirectory(prefix="everspot-wheels-") as scratch:
        lock = Path(scratch, "requirements.txt")
        lock.write_text("\n".join(lines) + "\n", encoding="utf-8")
        for arch in archs:
            folder = Path(scratch, arch)
            notify(f"fetching {counted(len(lines), 'package')} for {arch}")
            _download(lock, folder, python, arch)
            for path in sorted(folder.iterdir()):
                wheel = Wheel(name=path.name, sha256=hashlib.sha256(path.read_bytes()).hexdigest())
                if wheel.name not in wheels:
                    _put(store, wheel, path)
                    wheels[wheel.name] = wheel
    return list(wheels.values())


def _join_lines(text: str) -> list[str]:
    """Return logical lines: continued lines are joined, comments and empty lines left out."""
    lines = text.replace("\\\r\n", " ").replace("\\\n", " ").splitlines()
    bare = (re.sub(r"(^|\s)#.*$", "", line).strip() for line in lines)
    return [" ".join(line.split()) for line in bare if line]


def _download(lock: Path, folder: Path, python: str, arch: str) -> None:
    platforms = [argument for name in _PLATFORMS[arch] for argument in ("--platform", name)]
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--disable-pip-version-check",
         "--no-input", "--quiet", "--implementation", "cp", "--python-version", python, *platforms,
         "--dest", str(folder), "--requirement", str(lock)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        if "No module named pip" in done.stdout:
            raise CliError("pip is needed to fetch the requirements", hint="install pip beside everspot")
        raise CliError(
            f"the requirements cannot be downloaded as wheels for Python {python} on Linux {arch}",
            hint="--python says which Python the image has; packages without a wheel cannot be installed on instances",
            problems=[{"field": "pip", "problem": " ".join(done.stdout.split())[-_TOLD:]}],
        )


def _put(store: "Store", wheel: Wheel, path: Path) -> None:
    from everspot_store import KeyTaken

    try:
        store.data.upload(wheel.key, path)
    except KeyTaken:  # named by its digest, so the existing object is the same
        return
