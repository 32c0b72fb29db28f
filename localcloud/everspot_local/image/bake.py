"""Bakes the training image as layers of a root tree, by the product's own provisioning script.

There are three layers: Debian; the packages and the virtual environment with its dependencies; and Everspot itself.
Each layer is cached under the digest of its inputs, so that a change of Everspot's code bakes only the last one. An
image that fails its self-test is deleted.
"""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path

from everspot_local.image import chroot, inputs
from everspot_local.image.inputs import BAKE, WHEEL, Base
from everspot_local.machines.trees import MANIFEST

SELF_TEST_TIMEOUT = timedelta(minutes=15)
_KEPT = 3
"""The most images in the cache: the newest of each cloud, and one to compare with."""
_SELF_TEST_ENDS = "[Unit]\nSuccessAction=poweroff\nFailureAction=poweroff\n"

Report = Callable[[str], None]


class BakeFailed(RuntimeError):
    """The image cannot be baked. The message names the step and its log."""


@dataclass(frozen=True)
class Image:
    """A baked image, as described in the `image.json` of its folder.

    Attributes:
        layers: the folders of its root tree, the lowest first.
        cloud: the cloud whose metadata service its machines use.
        commit: the commit that it was baked from.
        digest: of its inputs.
        mebibytes: size of its layers on the disk.
        seconds: the duration of each step that was run.
    """

    layers: list[str]
    cloud: str
    commit: str
    digest: str
    mebibytes: list[int]
    seconds: dict[str, float]


def image_folder(root: Path, cache: Path, cloud: str, base: Base) -> Path:
    """Return the folder of the image of these inputs, which exists once it is baked.

    Raises:
        NotACheckout: if `root` is no checkout.
    """
    return cache / "images" / inputs.digest_product(root, base, cloud, inputs.commit(root))


def has_dependencies(root: Path, cache: Path, base: Base) -> bool:
    """Return whether the lower layers are cached, so that a bake downloads no packages."""
    return (cache / "layers" / f"dependencies-{inputs.digest_dependencies(root, base)}").is_dir()


def bake(root: Path, cache: Path, cloud: str, base: Base, report: Report) -> Path:
    """Bake the image of a checkout, unless it is cached. Return its folder.

    Args:
        root: the checkout.
        cache: folder of layers and images, on a file system that can be an overlay's layer.
        cloud: the cloud whose metadata service the machines use.
        base: the base system.
        report: called with a line for each step.

    Raises:
        BakeFailed: if a step fails.
        NotACheckout: if `root` is no checkout.
    """
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # so that two tests that need the same image bake it once
        folder = image_folder(root, cache, cloud, base)
        if (folder / MANIFEST).exists():
            os.utime(folder)
            return folder
        work = _Bake(root, cache, cloud, base, report)
        work.run(folder)
        _prune(cache)
    return folder


def describe(folder: Path) -> str:
    """Describe an image and the duration of its steps in one line."""
    image = Image(**json.loads((folder / MANIFEST).read_text()))
    sizes = " + ".join(f"{size:,}" for size in image.mebibytes)
    steps = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in image.seconds.items())
    return f"{image.cloud}, commit {image.commit}: {sum(image.mebibytes):,} MiB ({sizes}); {steps}"


class _Bake:
    """One bake: its inputs, and the steps' times."""

    def __init__(self, root: Path, cache: Path, cloud: str, base: Base, report: Report) -> None:
        self._root = root
        self._layers = cache / "layers"
        self._layers.mkdir(exist_ok=True)
        self._cloud = cloud
        self._base = base
        self._report = report
        self._seconds: dict[str, float] = {}

    def run(self, folder: Path) -> None:
        """Make the layers that are missing, test the image and write its manifest."""
        commit = inputs.commit(self._root)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        lower = self._base_layer()
        dependencies = self._layer(
            f"dependencies-{inputs.digest_dependencies(self._root, self._base)}", [lower], "dependencies", self._depend
        )
        upper = folder / "tree"
        self._provision(upper, [lower, dependencies], "product", lambda run, shared: self._install(run, shared, commit))
        layers = [lower, dependencies, upper]
        image = Image(
            layers=[str(layer) for layer in layers],
            cloud=self._cloud,
            commit=commit,
            digest=folder.name,
            mebibytes=[_mebibytes(layer) for layer in layers],
            seconds=self._seconds,
        )
        draft = folder / "draft"
        draft.mkdir()
        (draft / MANIFEST).write_text(json.dumps(asdict(image)))
        with self._step("self-test", folder / "self-test.log") as log:
            self._self_test(draft, log)
        shutil.rmtree(draft)
        unfinished = folder / f"{MANIFEST}.part"
        unfinished.write_text(json.dumps(asdict(image), indent=2))
        unfinished.rename(folder / MANIFEST)

    def _base_layer(self) -> Path:
        layer = self._layers / f"base-{inputs.digest_base(self._base)}"
        if layer.is_dir():
            return layer
        program = shutil.which("mmdebstrap")
        if program is None:
            raise BakeFailed(
                "there is no mmdebstrap on this machine, which makes Debian's tree: apt install mmdebstrap"
            )
        base, part = self._base, layer.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        command = [  # without a mirror mmdebstrap uses Debian's: the suite, its updates and its security fixes
            program, "--variant=minbase", f"--include={','.join(base.packages)}", "--format=directory",
            # mmdebstrap copies these two from this machine; booted machines have their own.
            "--customize-hook=rm -f \"$1/etc/hostname\" \"$1/etc/resolv.conf\"",
            base.suite, str(part),
        ]  # fmt: skip
        with self._step("base", self._layers / "base.log") as log:
            self._call(command, log)
        part.rename(layer)
        return layer

    def _layer(self, name: str, lower: list[Path], step: str, make: "_Make") -> Path:
        layer = self._layers / name
        if not layer.is_dir():
            self._provision(layer, lower, step, make)
        return layer

    def _provision(self, layer: Path, lower: list[Path], step: str, make: "_Make") -> None:
        """Make one layer above others. It gets its name once it is complete and sealed."""
        part = layer.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        places = {name: part / name for name in ("upper", "work", "root", "shared")}
        for place in places.values():
            place.mkdir(parents=True)
        shutil.copytree(self._root / BAKE, places["shared"] / "bake")
        tree = chroot.LayerMounts(
            tuple(map(str, lower)), **{name: str(places[name]) for name in ("upper", "work", "root", "shared")}
        )
        with self._step(step, layer.parent / f"{step}.log") as log:

            def run(*words: str, script: str = "provision.sh") -> None:
                self._call(chroot.command(tree, ["bash", f"/mnt/bake/{script}", *words]), log)

            make(run, places["shared"])
            run("--seal")
        places["upper"].rename(layer)
        shutil.rmtree(part)

    def _depend(self, run: Callable[..., None], _shared: Path) -> None:
        run("--dependencies")

    def _install(self, run: Callable[..., None], shared: Path, commit: str) -> None:
        wheel = build_wheel(self._root, shared)
        run(self._cloud, script="clock.sh")
        run("--commit", commit, f"/mnt/{wheel.name}", "python3", self._cloud)
        if self._cloud == "gcp":
            run(script="resolver.sh")

    def _self_test(self, draft: Path, log: Path) -> None:
        with tempfile.TemporaryDirectory() as home:
            added = Path(home, "added")
            override = added / "etc/systemd/system/everspot-agent.service.d"
            override.mkdir(parents=True)
            shutil.copyfile(self._root / BAKE / "self-test.conf", override / "self-test.conf")
            (override / "self-test-ends.conf").write_text(_SELF_TEST_ENDS)
            command = [sys.executable, "-m", "everspot_local.machines.contained", "--image", str(draft)]
            command += ["--add", str(added)]
            with log.open("w") as out, suppress(subprocess.TimeoutExpired):  # then its last line is missing
                seconds = SELF_TEST_TIMEOUT.total_seconds()
                subprocess.run(command, cwd=home, stdout=out, stderr=out, timeout=seconds, check=False)  # noqa: S603
        lines = [line.partition("self-test: ")[2] for line in log.read_text().splitlines() if "self-test: " in line]
        for line in lines:
            self._report(f"  {line}")
        if not any(line.startswith("passed") for line in lines):
            raise BakeFailed(f"the image fails its self-test; its console: {log}")

    def _call(self, command: list[str], log: Path) -> None:
        with log.open("a") as out:
            answer = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, check=False)  # noqa: S603
        if answer.returncode != 0:
            last = "\n".join(log.read_text(errors="replace").splitlines()[-8:])
            raise BakeFailed(f"{command[0]} exited with {answer.returncode}; the end of {log}:\n{last}")

    @contextmanager
    def _step(self, name: str, log: Path) -> Iterator[Path]:
        began = time.monotonic()
        log.unlink(missing_ok=True)
        yield log
        self._seconds[name] = round(time.monotonic() - began, 1)
        self._report(f"{name}: {self._seconds[name]:.0f} s")


_Make = Callable[[Callable[..., None], Path], None]
"""A function that makes a layer. Its arguments are a function that runs provision.sh (or a script beside it) in the
tree, and the folder that the tree sees as /mnt."""


def build_wheel(root: Path, folder: Path) -> Path:
    """Build the wheel of an image's packages from a copy of their sources. Return its path.

    Wheels of the same sources and commit have the same digest, because their files have the date of the commit.

    Raises:
        BakeFailed: if the build fails.
        NotACheckout: if `root` is no checkout.
    """
    with tempfile.TemporaryDirectory() as temporary:
        copy = Path(temporary)
        for file in inputs.source_files(root, WHEEL):
            (copy / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / file, copy / file)
        # setuptools searches each of the project's folders for packages.
        for name in ("simulator", "components", "policy", "cli", "review"):
            (copy / name).mkdir()
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
        answer = subprocess.run(  # noqa: S603 - this environment's own pip
            [*command, "--wheel-dir", str(folder), str(copy)], capture_output=True, text=True, check=False,
            env={**os.environ, "SOURCE_DATE_EPOCH": str(inputs.commit_seconds(root))},
        )  # fmt: skip
        if answer.returncode != 0:
            raise BakeFailed(f"the wheel cannot be built: {answer.stderr.strip()[-1000:]}")
    return next(folder.glob("everspot-*.whl"))


def _mebibytes(layer: Path) -> int:
    """Return the size of a layer on the disk. A file with several names counts once."""
    blocks: dict[int, int] = {}
    for folder, _, names in os.walk(layer):
        for name in names:
            status = os.lstat(os.path.join(folder, name))  # noqa: PTH118 - a hundred thousand of them
            blocks[status.st_ino] = status.st_blocks
    return sum(blocks.values()) * 512 >> 20


def _prune(cache: Path) -> None:
    """Delete all but the newest images. The lower layers are large: only the newest image's are kept, and only images
    above them."""
    images = {path: path.stat().st_mtime for path in (cache / "images").iterdir() if (path / MANIFEST).exists()}
    newest = sorted(images, key=lambda path: images[path], reverse=True)
    layers = {path: json.loads((path / MANIFEST).read_text())["layers"] for path in newest}
    lower = layers[newest[0]][:-1]
    keep = [path for path in newest if layers[path][:-1] == lower][:_KEPT]
    for path in (cache / "images").iterdir():
        if path not in keep:
            shutil.rmtree(path)
    for path in (cache / "layers").iterdir():
        if path.is_dir() and str(path) not in lower:
            shutil.rmtree(path)
