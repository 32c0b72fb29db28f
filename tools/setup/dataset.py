"""Fashion-MNIST: from EVERSPOT_DATA, else Debian's package, else the official place; known by its digests."""

import gzip
import hashlib
import os
import shutil
from pathlib import Path

from downloads import Unreachable, fetch
from problems import Missing
from steps import STATE, Step, call, print_progress

FOLDER = STATE / "data" / "fashion-mnist"
PACKAGE = "dataset-fashion-mnist"
OFFICIAL = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"
# SHA-256 of the uncompressed files in Debian's package 0.0~git20200523.55506a9-1.
# Not of the packed ones: packers write different headers.
DIGESTS = {
    "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
}


def wrong(folder: Path) -> list[str]:
    """Return the files that a folder lacks or has with other contents."""
    return [name for name, digest in DIGESTS.items() if _digest(folder / f"{name}.gz", folder / name) != digest]


def _digest(packed: Path, plain: Path) -> str:
    try:
        data = gzip.decompress(packed.read_bytes()) if packed.exists() else plain.read_bytes()
    except OSError:
        return ""
    return hashlib.sha256(data).hexdigest()


def take(folder: Path) -> None:
    """Copy the files of a folder into place.

    Raises:
        Unreachable: they are not all there, or not what they should be.
    """
    bad = wrong(folder)
    if bad:
        raise Unreachable(f"{folder} has no whole {', '.join(bad)}")
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in DIGESTS:
        source = folder / f"{name}.gz" if (folder / f"{name}.gz").exists() else folder / name
        target = FOLDER / source.name
        if source.resolve() != target.resolve():
            shutil.copyfile(source, target)


def from_debian() -> None:
    """Unpack Debian's package; apt's lists and caches are kept below `.everspot`, so no root is needed.

    Raises:
        Unreachable: there is no apt, or the package cannot be had.
    """
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise Unreachable("no apt-get here")
    work = STATE / "apt"
    for folder in ("state/lists/partial", "cache/archives/partial", "deb"):
        (work / folder).mkdir(parents=True, exist_ok=True)
    own = [
        "-o",
        f"Dir::State={work}/state",
        "-o",
        f"Dir::Cache={work}/cache",
        "-o",
        "Dir::State::status=/var/lib/dpkg/status",
        "-o",
        "APT::Sandbox::User=",
        "-o",
        "Acquire::Retries=1",
        "-o",
        "Acquire::http::Timeout=10",
    ]
    try:
        call(["apt-get", *own, "-q", "update"], "dataset-lists", work / "deb")
        call(["apt-get", *own, "-q", "download", PACKAGE], "dataset-package", work / "deb")
        archives = sorted((work / "deb").glob(f"{PACKAGE}_*.deb"))
        call(["dpkg", "-x", *archives[-1:], work / "tree"], "dataset-unpack")
    except Missing as error:
        raise Unreachable(str(error).splitlines()[0]) from error
    take(work / "tree/usr/share/datasets/fashion-mnist")
    shutil.rmtree(work)


def from_official() -> None:
    """Download the four files from their authors' place.

    Raises:
        Unreachable: they cannot be had.
    """
    work = STATE / "download" / "fashion-mnist"
    for name in DIGESTS:
        fetch(f"{OFFICIAL}/{name}.gz", work / f"{name}.gz")
    take(work)
    shutil.rmtree(work)


def make() -> str:
    """Get the dataset by the first way that works.

    Raises:
        Missing: none did.
    """
    source = os.environ.get("EVERSPOT_DATA")
    if not wrong(FOLDER):
        return "was there, digests right"
    ways = [("Debian's package", from_debian), ("the official download", from_official)]
    if source:
        ways[:0] = [(f"EVERSPOT_DATA ({source})", lambda: take(_inside(Path(source))))]
    tried = []
    for name, way in ways:
        try:
            way()
            return name
        except Unreachable as error:
            tried.append(f"{name}: {error}")
            print_progress(f"dataset: not from {name} ({error})")
    raise Missing(
        "Fashion-MNIST cannot be had:\n  "
        + "\n  ".join(tried)
        + f"\nPut its four IDX files ({', '.join(DIGESTS)}, packed or not) into a folder and name it: "
        "EVERSPOT_DATA=FOLDER make setup"
    )


def _inside(folder: Path) -> Path:
    return next((p for p in (folder, folder / "fashion-mnist") if not wrong(p)), folder)


def products() -> list[Path]:
    """Return the four files."""
    return [next((p for p in (FOLDER / f"{n}.gz", FOLDER / n) if p.exists()), FOLDER / f"{n}.gz") for n in DIGESTS]


step = Step("dataset", (), products, make)
