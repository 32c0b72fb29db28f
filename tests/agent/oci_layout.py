"""Makes small OCI images, in the image layout, with the Python of this machine."""

import gzip
import hashlib
import io
import json
import platform
import re
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path

Entry = tuple[tarfile.TarInfo, bytes]
ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]


def entry(name: str, data: bytes = b"", *, kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644) -> Entry:
    """An entry of a layer."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode, info.size, info.mtime = kind, link, mode, len(data), 1_000_000_000
    return info, data


def pack_layer(entries: Iterable[Entry], files: Mapping[str, Path] | None = None) -> bytes:
    """A compressed layer. `files`: of this machine, by their names in it."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as archive:
        for info, data in entries:
            archive.addfile(info, io.BytesIO(data))
        for name, path in (files or {}).items():
            archive.add(path.resolve(), name, recursive=False)
    return gzip.compress(raw.getvalue(), 1)


def write_layout(
    folder: Path,
    layers: list[bytes],
    env: Iterable[str] = (),
    architecture: str = ARCHITECTURE,
    compression: str = "gzip",
) -> None:
    """Write an image into a folder, as image-layout.md of the OCI image specification describes it."""
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)

    def add(data: bytes, kind: str) -> dict[str, object]:
        digest = hashlib.sha256(data).hexdigest()
        (blobs / digest).write_bytes(data)
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(data)}

    config = {"architecture": architecture, "os": "linux", "config": {"Env": list(env)}, "rootfs": {"type": "layers"}}
    manifest = {
        "schemaVersion": 2,
        "config": add(json.dumps(config).encode(), "config.v1+json"),
        "layers": [add(layer, f"layer.v1.tar+{compression}") for layer in layers],
    }
    described = add(json.dumps(manifest).encode(), "manifest.v1+json")
    described["platform"] = {"architecture": architecture, "os": "linux"}
    (folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [described]}))
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')


def python_files() -> dict[str, Path]:
    """This machine's Python with its standard library and the libraries that it loads, by their paths without `/`."""
    home = Path(sysconfig.get_path("stdlib"))
    program = Path(sys.executable).resolve()
    left_out = {"test", "tests", "idlelib", "lib2to3", "ensurepip", "site-packages", "dist-packages", "tkinter"}
    files = [
        path
        for path in home.rglob("*")
        if path.is_file() and path.suffix in (".py", ".so") and not left_out & set(path.relative_to(home).parts)
    ]
    libraries = loaded_libraries([program, *(path for path in files if path.suffix == ".so")])
    by_name = {str(path).lstrip("/"): path for path in files}
    return {**by_name, **libraries, "usr/bin/python3": program, str(program).lstrip("/"): program}


def loaded_libraries(modules: Iterable[Path]) -> dict[str, Path]:
    """The libraries of this machine that programs and modules load, by their paths without `/`."""
    listed = subprocess.run(["ldd", *modules], capture_output=True, text=True, check=False).stdout
    paths = {Path(path) for path in re.findall(r"(/\S+\.so\S*)(?= \(0x)", listed)}
    return {str(path).lstrip("/"): path for path in paths}


FIND_PACKAGES = """
import json, os, pathlib, sys
run_dir = os.environ.get("EVERSPOT_RUN_DIR")
if run_dir:
    context = json.loads(pathlib.Path(run_dir, "run.json").read_text())
    sys.path.append(context["cache_dir"] + "/packages")
"""


def write_trainer_image(folder: Path, packages: Path) -> None:
    """Write an image with this machine's Python and this checkout's trainer library.

    The installed packages that it needs, torch among them, are not in the image, where they would take gigabytes: the
    image's Python also looks for them in `packages` of the job's cache. `packages`: where they are on this machine, for
    the libraries that they load.
    """
    root = Path(__file__).parents[2]
    names = ("core/everspot_core", "store/everspot_store", "clouds/everspot_clouds", "training_image/everspot_train")
    own = {
        f"packages/{path.relative_to((root / name).parent)}": path
        for name in names
        for path in (root / name).rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    compiled = ("torch", "numpy", "pydantic_core", "obstore", "xxhash", "yaml")
    modules = [path for name in compiled for path in (packages / name).rglob("*.so*") if path.is_file()]
    loaded = {name: path for name, path in loaded_libraries(modules).items() if packages not in path.parents}
    finder = pack_layer([entry("packages/sitecustomize.py", FIND_PACKAGES.encode())])
    layers = [pack_layer([], {**python_files(), **loaded}), pack_layer([], own), finder]
    write_layout(folder, layers, ["PYTHONPATH=/packages"])


def write_python_image(folder: Path) -> None:
    """Write an image of two layers, with this machine's Python and a file `marker`."""
    base = pack_layer([entry("marker", b"of the lower layer")], python_files())
    write_layout(folder, [base, pack_layer([entry("marker", b"of the image")])], ["OF_IMAGE=yes", "OWN=of the image"])
