"""Installs a job's packages from wheels in the data bucket, without a package index, into a folder that jobs share."""

import hashlib
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from everspot_core.counting import counted
from everspot_core.jobs.job import JobSubmission, Wheel
from everspot_store import Store, TreeCache, remove_tree

from everspot_train.prepare.errors import NotReady

MOST_LAYERS = 6
"""The most package folders (layers) on a machine, beside those in use. The least recently used ones are removed."""
_PIP = ("--no-index", "--no-deps", "--no-compile", "--no-input", "--disable-pip-version-check", "--quiet")
_TOLD = 2000  # characters of pip's last output


def lay_packages(
    store: Store, submission: JobSubmission, cache: Path, environment: Mapping[str, str]
) -> dict[str, str]:
    """Install the job's wheels, unless another job of this machine has done so.

    Returns the environment variables that put them before the image's packages; empty for a job without requirements.
    The layer is locked against removal until the last process that this one starts has ended.

    Raises:
        NotReady: with pip's message, if they do not fit this machine's interpreter.
        StoreError: if a wheel cannot be fetched, its digest does not match, or another job installs them for too long.
    """
    wheels = submission.wheels
    if not wheels:
        return {}
    layers = TreeCache(cache / "layers", store.clock)
    layer = layers.use(_name(wheels), "the job's packages", partial(_install, store, wheels))
    layer.outlive()
    layers.limit(MOST_LAYERS)
    paths = {"PYTHONPATH": str(layer.path), "PATH": str(layer.path / "bin")}
    return {name: os.pathsep.join([path, *filter(None, [environment.get(name)])]) for name, path in paths.items()}


def _name(wheels: list[Wheel]) -> str:
    """Return the layer's name, a digest of the wheels and the interpreter."""
    text = "\n".join([sys.implementation.cache_tag or "", *sorted(w.sha256 for w in wheels)])
    return hashlib.sha256(text.encode()).hexdigest()


def _install(store: Store, wheels: list[Wheel], part: Path) -> None:
    wheels = fitting(wheels)
    remove_tree(part)
    downloads = part / ".wheels"
    downloads.mkdir(parents=True)
    sys.stdout.write(f"everspot: installing {counted(len(wheels), 'package')}\n")
    sys.stdout.flush()
    for wheel in wheels:
        store.data.download(wheel.key, downloads / wheel.name, wheel.sha256)
    names = sorted(str(path) for path in downloads.iterdir())
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-I", "-m", "pip", "install", *_PIP, "--target", str(part), *names],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        version = f"Python {sys.version_info.major}.{sys.version_info.minor} of this image"
        raise NotReady(f"the requirements cannot be installed on {version}: {done.stdout.strip()[-_TOLD:]}")
    remove_tree(downloads)


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
