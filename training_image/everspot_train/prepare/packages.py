"""Installs a job's packages from wheels in the data bucket, without a package index, into a folder that jobs share."""

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from everspot_core.counting import counted
from everspot_core.jobs.job import JobSubmission, Wheel
from everspot_store import Store

from everspot_train.prepare.errors import NotReady

KEPT = 5
"""The most package folders (layers) on a machine. The least recently used ones are removed."""
_PIP = ("--no-index", "--no-deps", "--no-compile", "--no-input", "--disable-pip-version-check", "--quiet")
_TOLD = 2000  # characters of pip's last output


def lay_packages(
    store: Store, submission: JobSubmission, cache: Path, environment: Mapping[str, str]
) -> dict[str, str]:
    """Install the job's wheels, unless another job of this machine has done so.

    Returns the environment variables that put them before the image's packages; empty for a job without requirements.

    Raises:
        NotReady: with pip's message, if they do not fit this machine's interpreter.
        StoreError: if a wheel cannot be fetched, or its digest does not match.
    """
    wheels = submission.wheels
    if not wheels:
        return {}
    layers = cache / "layers"
    layers.mkdir(parents=True, exist_ok=True)
    layer = layers / _name(wheels)
    with (layers / f"{layer.name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not layer.is_dir():
            _install(store, wheels, layer)
        os.utime(layer)
    _forget(layers, layer)
    paths = {"PYTHONPATH": str(layer), "PATH": str(layer / "bin")}
    return {name: os.pathsep.join([path, *filter(None, [environment.get(name)])]) for name, path in paths.items()}


def _name(wheels: list[Wheel]) -> str:
    """Return the layer's name, a digest of the wheels and the interpreter."""
    text = "\n".join([sys.implementation.cache_tag or "", *sorted(w.sha256 for w in wheels)])
    return hashlib.sha256(text.encode()).hexdigest()


def _install(store: Store, wheels: list[Wheel], layer: Path) -> None:
    wheels = fitting(wheels)
    part = layer.with_name(f"{layer.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    downloads = part / "wheels"
    downloads.mkdir(parents=True)
    sys.stdout.write(f"everspot: installing {counted(len(wheels), 'package')}\n")
    sys.stdout.flush()
    for wheel in wheels:
        store.data.download(wheel.key, downloads / wheel.name, wheel.sha256)
    names = sorted(str(path) for path in downloads.iterdir())
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-I", "-m", "pip", "install", *_PIP, "--target", str(part / "site"), *names],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        version = f"Python {sys.version_info.major}.{sys.version_info.minor} of this image"
        raise NotReady(f"the requirements cannot be installed on {version}: {done.stdout.strip()[-_TOLD:]}")
    (part / "site").rename(layer)
    shutil.rmtree(part, ignore_errors=True)


def _forget(layers: Path, used: Path) -> None:
    """Remove the least recently used layers. A layer in use is never among them, because it was touched when its job
    began, and a machine runs few jobs at a time."""
    layers_by_name = [path for path in layers.iterdir() if path.is_dir() and "." not in path.name and path != used]
    for path in sorted(layers_by_name, key=lambda path: path.stat().st_mtime, reverse=True)[KEPT:]:
        with suppress(OSError):
            doomed = path.with_name(f"{path.name}.gone")
            path.rename(doomed)
            shutil.rmtree(doomed, ignore_errors=True)


def fitting(wheels: Sequence[Wheel]) -> list[Wheel]:
    """Return one wheel of each package: for this machine's architecture, or for any architecture.

    The platform is the end of a wheel's name. If none fits, or there is only one, all wheels of the package are
    returned, and pip reports any problem.
    """
    packages: dict[str, list[Wheel]] = {}
    for wheel in wheels:
        packages.setdefault(wheel.name.partition("-")[0].lower().replace(".", "_"), []).append(wheel)
    chosen = []
    for some in packages.values():
        ranked = [(rank, wheel) for wheel in some if (rank := _rank(wheel)) is not None]
        chosen += [min(ranked, key=lambda pair: pair[0])[1]] if ranked and len(some) > 1 else some
    return chosen


def _rank(wheel: Wheel) -> int | None:
    """Return how well a wheel fits, 0 is best; None if it does not fit."""
    platforms = wheel.name.removesuffix(".whl").rpartition("-")[2].split(".")
    if any(name.endswith(f"_{platform.machine()}") for name in platforms):
        return 0
    return 1 if "any" in platforms else None
