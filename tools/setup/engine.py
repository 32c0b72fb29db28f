"""The Pulumi engine: the one on PATH if it fits, else the official release, else a build from its Go modules."""

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from downloads import Unreachable, fetch, system, unpack, verify
from problems import GO_BYTES, disk, go
from steps import BIN, ROOT, TOOLCHAIN, Step, call, print_progress

VERSION = "3.259.0"
PLACE = "https://get.pulumi.com/releases/sdk"
RELEASE = "pulumi-v{version}-{system}-{machine}.tar.gz"
SUMS = "pulumi-{version}-checksums.txt"
ENGINE = ROOT / "tools" / "engine"
LANGHOST = ROOT / "tools" / "langhost"
PYHOST = ROOT / "tools" / "pyhost"
BUILD = ["build", "-trimpath"]
# A build from source does not know its version, and the Automation API refuses an engine that does not.
STAMPED = ["-ldflags", f"-s -w -X github.com/pulumi/pulumi/sdk/v3/go/common/version.Version=v{VERSION}"]
CHOICE = TOOLCHAIN / "engine"  # a note of where the engine is


def on_path() -> Path | None:
    """Return a `pulumi` on PATH that is not older than the SDK and has its Python language host beside it."""
    others = [p for p in os.environ.get("PATH", "").split(os.pathsep) if p and Path(p).resolve() != BIN.resolve()]
    path = os.pathsep.join(others)
    command = shutil.which("pulumi", path=path)
    if command is None or shutil.which("pulumi-language-python", path=path) is None:
        return None
    text = subprocess.run([command, "version"], capture_output=True, text=True, check=False).stdout
    numbers = re.search(r"v(\d+)\.(\d+)\.(\d+)", text)
    version = tuple(int(n) for n in numbers.groups()) if numbers else (0, 0, 0)
    required = tuple(int(n) for n in VERSION.split("."))
    return Path(command) if required <= version < (required[0] + 1, 0, 0) else None


def official() -> None:
    """Download the official release into the toolchain, and check it against the sums published beside it.

    Raises:
        Unreachable: it cannot be had, or is not what was published.
    """
    platform, machine = system("x64")
    archive = TOOLCHAIN / "download" / "pulumi.tar.gz"
    name, sums = RELEASE.format(version=VERSION, system=platform, machine=machine), archive.with_name("pulumi.sums")
    fetch(f"{PLACE}/{SUMS.format(version=VERSION)}", sums)
    fetch(f"{PLACE}/{name}", archive)
    verify(archive, name, sums)
    unpack(archive, archive.parent / "pulumi")
    BIN.mkdir(parents=True, exist_ok=True)
    for path in (archive.parent / "pulumi").rglob("pulumi*"):
        if path.is_file():
            shutil.copy2(path, BIN / path.name)


def module_folder(module: str, log: str) -> Path:
    """Return where Go keeps the source of a module, `PATH@VERSION`, which it downloads if need be.

    Raises:
        Missing: there is no Go, or no module source.
    """
    # Outside any module: one of this project may replace the module, or does not require it.
    output = call([go(), "mod", "download", "-json", module], log, TOOLCHAIN, {"GOWORK": "off"})
    where = re.search(r'"Dir": "([^"]+)"', output)
    if where is None:
        raise RuntimeError("go mod download names no folder")
    return Path(where[1])


def build(folder: Path, package: str, target: Path, log: str, flags: Sequence[str] = ("-ldflags", "-s -w")) -> None:
    """Build one Go program into the toolchain; a half-written binary never takes its place.

    Raises:
        Missing: there is no Go, or the build failed.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_name(f".{target.name}.new")
    call([go(), *BUILD, *flags, "-o", fresh, package], log, folder, {"GOFLAGS": "-buildvcs=false"})
    fresh.replace(target)


def built() -> None:
    """Build the engine and its Python language host from their Go modules: the last host that is one, and before it
    what does the calls that came later.

    Raises:
        Missing: there is no Go, no room, or no module source.
    """
    disk(TOOLCHAIN, GO_BYTES if not (BIN / "pulumi").exists() else 0, "building the Pulumi engine (Go's caches)")
    build(ENGINE, "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi", BIN / "pulumi", "engine", STAMPED)
    build(
        LANGHOST,
        "github.com/pulumi/pulumi/sdk/v3/python/cmd/pulumi-language-python",
        BIN / "pulumi-language-python-base",
        "langhost",
    )
    build(PYHOST, ".", BIN / "pulumi-language-python", "pyhost")
    sdk = call([go(), "list", "-m", "-f", "{{.Dir}}", "github.com/pulumi/pulumi/sdk/v3"], "engine-scripts", ENGINE)
    for script in ("cmd/pulumi-language-python-exec", "dist/pulumi-resource-pulumi-python"):
        target = BIN / Path(script).name
        target.unlink(missing_ok=True)
        shutil.copyfile(Path(sdk.strip()) / "python" / script, target)
        target.chmod(0o755)


def make() -> str:
    """Get the engine by the first way that works."""
    TOOLCHAIN.mkdir(parents=True, exist_ok=True)
    command = on_path()
    if command:
        CHOICE.write_text(str(command))
        return f"the one on PATH, {command}"
    try:
        official()
        how = f"the official release {VERSION}"
    except Unreachable as error:
        print_progress(
            f"engine: no official download ({error}), building it from its Go modules, about 7 minutes the first time"
        )
        built()
        how = f"{VERSION}, built from its Go modules"
    CHOICE.write_text(str(BIN / "pulumi"))
    return how


def products() -> list[Path]:
    """Return what proves that there is an engine."""
    return [CHOICE, Path(CHOICE.read_text()) if CHOICE.exists() else CHOICE]


_MODULES = [folder / name for folder in (ENGINE, LANGHOST, PYHOST) for name in ("go.mod", "go.sum")]
step = Step("engine", (*_MODULES, PYHOST / "main.go"), products, make)
