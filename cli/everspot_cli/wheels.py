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
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from everspot_cli.errors import CliError, list_problems

if TYPE_CHECKING:
    from everspot_store import Store

IMAGE_PACKAGES = frozenset(
    {
        *("everspot", "torch", "triton", "cuda-bindings", "cuda-pathfinder", "cuda-toolkit"),
        *("nvidia-cublas", "nvidia-cuda-cccl", "nvidia-cuda-cupti", "nvidia-cuda-nvrtc", "nvidia-cuda-runtime"),
        *("nvidia-cudnn", "nvidia-cufft", "nvidia-cufile", "nvidia-cusolver", "nvidia-cusparse", "nvidia-cusparselt"),
        *("nvidia-ml-py", "nvidia-nccl", "nvidia-nvjitlink", "nvidia-nvshmem", "nvidia-nvtx"),
    }
)
"""Packages that the image contains in matching versions, named without the version of CUDA (`-cu13`). A lock file may
name them; they are left out. tests/cli/test_cli_job_inputs.py compares them with training_image/bake/lock.txt."""
_OPTIONS_LEFT_OUT = ("-i ", "--index-url", "--extra-index-url", "--trusted-host", "-f ", "--find-links")
_MACHINES = {"x86_64": "x86_64", "arm64": "aarch64"}
_GLIBC_MINORS = range(35, 4, -1)
"""Wheels for glibc 2.5 to 2.35 run in the image. pip takes `manylinux_2_28` as that one alone, and not as older ones
(PEP 600); it adds only the legacy names below `manylinux2014`."""
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
        requirement = _parse_pin(bare)
        if requirement is None:
            faults.append(Problem(f"requirement {number}", f"{bare[:80]!r} is no `name==version`"))
        elif is_of_image(requirement.name):
            image_packages.append(requirement.name)
        else:
            pinned_lines.append(line)
    if faults:
        raise CliError(
            f"{file} is no lock file: it has to pin every package",
            hint="`pip-compile`, `uv pip compile` or `uv export` make one",
            problems=list_problems(faults),
        )
    return pinned_lines, image_packages


def _parse_pin(text: str) -> Requirement | None:
    """Return a requirement that pins one version, or None."""
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        return None
    pins = [spec for spec in requirement.specifier if spec.operator == "==" and not spec.version.endswith(".*")]
    return requirement if requirement.url is None and len(pins) == len(requirement.specifier) == 1 else None


def is_of_image(package: str) -> bool:
    """Return whether the image has a package, for any version of CUDA."""
    return re.sub(r"-cu\d+$", "", canonicalize_name(package)) in IMAGE_PACKAGES


def select_lines(lines: Sequence[str], python: str, arch: str) -> list[str]:
    """Return the lines of a lock file whose markers hold on an instance, without the markers.

    pip would evaluate them for the machine on which it runs. Of the instance's Python only the minor version is known:
    a marker counts if it holds for one of its patch versions.
    """
    environment = {
        "implementation_name": "cpython", "os_name": "posix", "platform_machine": _MACHINES[arch],
        "platform_python_implementation": "CPython", "platform_release": "", "platform_system": "Linux",
        "platform_version": "", "python_version": python, "sys_platform": "linux", "extra": "",
    }  # fmt: skip
    versions = [{"python_full_version": full, "implementation_version": full} for full in _patch_versions(python)]
    selected = []
    for line in lines:
        bare, *hashes = line.split(" --hash=")
        requirement = Requirement(bare)
        marker, requirement.marker = requirement.marker, None
        if marker is None or any(marker.evaluate(environment | version) for version in versions):
            selected.append(" --hash=".join([str(requirement), *(digest.strip() for digest in hashes)]))
    return selected


def _patch_versions(python: str) -> tuple[str, str]:
    return f"{python}.0", f"{python}.99"


def read_lock_file(file: Path) -> tuple[list[str], list[str]]:
    """Return what `parse_lock_file` does of a file.

    Raises:
        CliError: if it cannot be read, or is no lock file.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"{file} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    return parse_lock_file(text, file)


def fetch_wheels(
    store: "Store", file: Path, *, python: str, archs: Sequence[str], notify: Callable[[str], None]
) -> list[Wheel]:
    """Fetch the wheels that a lock file names for Linux, this `python` (`3.12`) and these architectures, with pip and
    its own settings, and put them into the data bucket.

    Raises:
        CliError: if the file is no lock file, or pip cannot get a wheel.
        StoreError: if one cannot be uploaded.
    """
    lines, _ = read_lock_file(file)
    wheels: dict[str, Wheel] = {}
    with tempfile.TemporaryDirectory(prefix="everspot-wheels-") as scratch:
        for arch in archs:
            selected = select_lines(lines, python, arch)
            if not selected:
                continue
            lock, folder = Path(scratch, f"{arch}.txt"), Path(scratch, arch)
            lock.write_text("\n".join(selected) + "\n", encoding="utf-8")
            notify(f"fetching {counted(len(selected), 'package')} for {arch}")
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
    machine = _MACHINES[arch]
    names = [*(f"manylinux_2_{minor}_{machine}" for minor in _GLIBC_MINORS), f"manylinux2014_{machine}"]
    platforms = [argument for name in (*names, f"linux_{machine}") for argument in ("--platform", name)]
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
            hint="instances install wheels alone: pin versions that have them, or build them and name their folder in "
            "PIP_FIND_LINKS",
            problems=[{"field": "pip", "problem": " ".join(done.stdout.split())[-_TOLD:]}],
        )


def _put(store: "Store", wheel: Wheel, path: Path) -> None:
    from everspot_store import KeyTaken

    try:
        store.data.upload(wheel.key, path)
    except KeyTaken:  # named by its digest, so the existing object is the same
        return
