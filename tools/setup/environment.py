"""The virtual environment with the pinned dependencies, and the stubs that are generated with it."""

import subprocess
import sys
import tomllib
from pathlib import Path

import provider
from problems import VENV_BYTES, Missing, disk, go
from steps import PYTHON, ROOT, STAMPS, STUBS, VENV, Step, call

CONSTRAINTS = ROOT / "tools" / "constraints.txt"
PROJECT = ROOT / "pyproject.toml"
LOCALCLOUD = ROOT / "localcloud" / "pyproject.toml"
"""The second distribution, which has no extras."""
UV = VENV / "bin" / "uv"
# This module has the schema of the plugin protocol, and every upstream provider requires it.
PROTOCOL_MODULE = "github.com/hashicorp/terraform-plugin-go"


def requirements() -> list[str]:
    """Return the requirements of the development group, all extras and the local cloud."""
    project, localcloud = (tomllib.loads(path.read_text()) for path in (PROJECT, LOCALCLOUD))
    extras = project["project"]["optional-dependencies"]
    lines = {
        *project["project"]["dependencies"],
        *(r for rs in extras.values() for r in rs),
        *localcloud["project"]["dependencies"],
        *project["dependency-groups"]["dev"],
    }
    return sorted(r for r in lines if not r.startswith("everspot"))


def make_venv() -> str:
    """Create `.venv` and install everything, both distributions as editable.

    Raises:
        Missing: no room, no network, or Python without venv.
    """
    disk(
        VENV,
        VENV_BYTES if not (VENV / "lib").exists() else 0,
        "the virtual environment (torch with its CUDA libraries)",
    )
    damaged = (STAMPS / venv.name).exists() and not all(p.exists() for p in venv.products())
    if damaged or not PYTHON.exists():
        if subprocess.run(
            [sys.executable, "-c", "import venv, ensurepip"], capture_output=True, check=False
        ).returncode:
            raise Missing(f"{sys.executable} has no venv module: install it (Debian: apt-get install python3-venv)")
        # Once whole and now with holes: pip would take for installed what is not there any more.
        call([sys.executable, "-m", "venv", *(["--clear"] if damaged else []), VENV], "venv")
    pip: list[str | Path] = [PYTHON, "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    installer = install_requirements(pip)
    alone = ["--no-deps", "--no-build-isolation"] if has_backend() else ["--no-deps"]
    # One after the other: an `everspot` of before takes the local cloud's program with it when it goes.
    call([*pip, *alone, "-e", ROOT], "pip-project")
    call([*pip, *alone, "-e", LOCALCLOUD.parent], "pip-localcloud")
    name_sources()
    return f"Python {sys.version.split()[0]} with the versions of {CONSTRAINTS.name}, by {installer}"


def install_requirements(pip: list[str | Path]) -> str:
    """Install all requirements with uv, and with pip where uv cannot be had or fails. Return the installer's name.

    Measured cold on two cores: uv 46 s and 54 CPU-seconds, bytecode included; pip 576 s and 240 CPU-seconds.
    """
    arguments: list[str | Path] = ["-c", CONSTRAINTS, *requirements()]
    try:
        call([*pip, "-c", CONSTRAINTS, "uv"], "pip-uv")
        call([UV, "pip", "install", "--python", PYTHON, "--compile-bytecode", *arguments], "uv")
    except Missing:
        # uv does not read pip's configuration, which may name the only index that can be reached from here.
        call([*pip, *arguments], "pip")
        return "pip"
    return "uv"


def name_sources() -> None:
    """Let the editable installation list the packages' folders, instead of starting setuptools' finder for them: with
    it, every Python of the environment takes twice as long to start (27 ms instead of 11)."""
    for project, name in ((PROJECT, "everspot"), (LOCALCLOUD, "everspot_localcloud")):
        folders = tomllib.loads(project.read_text())["tool"]["setuptools"]["packages"]["find"]["where"]
        for pointer in (VENV / "lib").glob(f"python*/site-packages/__editable__.{name}-*.pth"):
            pointer.write_text("".join(f"{(project.parent / folder).resolve()}\n" for folder in folders))


def has_backend() -> bool:
    """Whether the build backend is in the environment already (then nothing has to be fetched for it)."""
    check = subprocess.run(
        [PYTHON, "-c", "import setuptools, sys; sys.exit(int(setuptools.__version__.split('.')[0]) < 77)"],
        capture_output=True,
        check=False,
    )
    return check.returncode == 0


def make_stubs() -> str:
    """Generate the client of the upstream providers' protocol.

    Raises:
        Missing: there is no Go, or its module cannot be had.
    """
    built = next(plugin for plugin in provider.PLUGINS_OF.values() if plugin.copy.exists())
    where = call([go(), "list", "-mod=mod", "-m", "-f", "{{.Dir}}", PROTOCOL_MODULE], "stubs-module", built.sources)
    folder = f"{where.strip().splitlines()[-1]}/tfprotov5/internal/tfplugin5"
    STUBS.mkdir(parents=True, exist_ok=True)
    call(
        [
            PYTHON,
            "-m",
            "grpc_tools.protoc",
            f"-I{folder}",
            f"--python_out={STUBS}",
            f"--grpc_python_out={STUBS}",
            "tfplugin5.proto",
        ],
        "stubs",
    )
    return "the plugin protocol's client"


venv = Step(
    "venv", (PROJECT, LOCALCLOUD, CONSTRAINTS, Path(__file__)), lambda: [PYTHON, VENV / "bin" / "pytest"], make_venv
)
stubs = Step("stubs", (provider.AWS.sources / "go.mod",), lambda: [STUBS / "tfplugin5_pb2.py"], make_stubs)
