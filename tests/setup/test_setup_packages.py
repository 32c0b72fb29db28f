"""Installation: the content of both wheels, programs without their extras, the components from any folder, and the
components' folder as the engine's language host installs it."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
from everspot_core.extras import lacking, sentence

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
ROOMS = PROJECT["tool"]["setuptools"]["packages"]["find"]["where"]
LOCALCLOUD = tomllib.loads((ROOT / "localcloud/pyproject.toml").read_text())
QUIET = ["--quiet", "--disable-pip-version-check", "--no-deps"]
PROGRAMS = {
    "everspot": "cli",
    "everspot-agent": "image",
    "everspot-scheduler": "scheduler",
    "everspot-policy": "policy",
}


def run(*words: object, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PYTHON"))}
    return subprocess.run(
        [str(argument) for argument in words],
        cwd=cwd,
        env={**plain, **env},
        capture_output=True,
        text=True,
        check=False,
    )


def environment(folder: Path, *, others: bool, without: str = "") -> Path:
    """The interpreter of a fresh environment; with `others` it sees what the tests' own has, but for Everspot and for
    what begins with `without`."""
    venv.create(folder, with_pip=False)
    python = folder / "bin/python"
    if others:
        (site,) = folder.glob("lib/python*/site-packages")
        # A path in a .pth file is looked through for modules only: the editable installation beside them stays unseen.
        modules = Path(sysconfig.get_path("purelib"))
        if without:
            links = folder / "others"
            links.mkdir()
            for path in modules.iterdir():
                if not path.name.startswith(without) and path.suffix != ".pth":
                    (links / path.name).symlink_to(path)
            modules = links
        (site / "others.pth").write_text(f"{modules}\n")
    return python


def install(python: Path, *words: object, cwd: Path) -> None:
    done = run(sys.executable, "-m", "pip", "--python", python, "install", *QUIET, *words, cwd=cwd)
    assert done.returncode == 0, done.stderr


def tracked() -> list[str]:
    listing = run("git", "ls-files", "--cached", "--others", "--exclude-standard", cwd=ROOT).stdout.splitlines()
    return [name for name in listing if (ROOT / name).is_file()]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository as git gives it, in a folder of its own: nothing else may get into a wheel."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in tracked():
        if name.split("/")[0] in (*ROOMS, "localcloud", "pyproject.toml", "README.md", "LICENSE"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


def built(project: Path, folder: Path) -> Path:
    """The wheel of a distribution."""
    done = run(sys.executable, "-m", "pip", "wheel", *QUIET, "--no-build-isolation", "-w", folder, project, cwd=folder)
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that users and images install: `everspot`."""
    return built(checkout, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def localcloud_wheel(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The second distribution: `everspot-localcloud`."""
    return built(checkout / "localcloud", tmp_path_factory.mktemp("wheel"))


def packed_files(wheel: Path) -> set[str]:
    return {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}


def test_the_wheel_has_every_file_of_every_package_and_nothing_of_the_local_cloud(wheel: Path) -> None:
    rooms = {room: f"{room}/everspot" for room in ROOMS}
    expected = {name.partition("/")[2] for name in tracked() for start in rooms.values() if name.startswith(start)}
    packed = packed_files(wheel)
    assert packed == expected
    packages = {name.split("/")[0] for name in packed}
    assert len(packages) == len(ROOMS)
    assert {f"{package}/py.typed" for package in packages} <= packed
    assert "everspot_local" not in packages


def test_the_local_clouds_wheel_holds_every_file_of_its_room(localcloud_wheel: Path) -> None:
    assert localcloud_wheel.name.startswith("everspot_localcloud-")
    expected = {name.partition("/")[2] for name in tracked() if name.startswith("localcloud/everspot_local/")}
    assert packed_files(localcloud_wheel) == expected
    assert "everspot_local/demo/__main__.py" in expected and "everspot_local/bridge/__main__.py" in expected


def test_both_distributions_have_one_version_and_the_local_cloud_asks_for_it() -> None:
    assert LOCALCLOUD["project"]["version"] == PROJECT["project"]["version"]
    assert f"everspot=={PROJECT['project']['version']}" in LOCALCLOUD["project"]["dependencies"]
    assert "moto" not in str(PROJECT["project"]["optional-dependencies"])


def test_the_local_cloud_runs_beside_an_installed_everspot(wheel: Path, localcloud_wheel: Path, tmp_path: Path) -> None:
    python = environment(tmp_path / "venv", others=True)
    install(python, wheel, localcloud_wheel, "--ignore-installed", cwd=tmp_path)
    done = run(tmp_path / "venv/bin/everspot-local", "--help", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "everspot-local" in done.stdout
    place = run(python, "-c", "import everspot_local, sys; print(everspot_local.__file__)", cwd=tmp_path).stdout
    assert Path(place.strip()).is_relative_to(tmp_path / "venv")


def list_files(folder: Path) -> set[str]:
    """The files under a folder, without the interpreter's caches."""
    files = {path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    return {str(path.relative_to(folder)) for path in files}


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`bin` of an environment that has the wheel and none of its extras."""
    folder = tmp_path_factory.mktemp("bare")
    install(environment(folder / "venv", others=False), wheel, cwd=folder)
    return folder / "venv/bin"


def test_every_program_is_documented() -> None:
    assert set(PROJECT["project"]["scripts"]) == set(PROGRAMS)
    assert set(LOCALCLOUD["project"]["scripts"]) == {"everspot-local"}
    assert "`everspot-local`" in (ROOT / "docs/guide/installing.md").read_text()


def test_the_page_about_installing_says_what_each_extra_is_for() -> None:
    page = (ROOT / "docs/guide/installing.md").read_text().partition("| extra |")[2].partition("\n\n")[0]
    rows = dict(re.findall(r"^\| `([\w-]+)` \| (.*) \|$", page, re.MULTILINE))
    assert set(rows) == set(PROJECT["project"]["optional-dependencies"])
    for program, extra in PROGRAMS.items():
        assert f"`{program}`" in rows[extra]


@pytest.mark.parametrize(("program", "extra"), PROGRAMS.items())
def test_a_program_without_its_extra_names_it(bare: Path, program: str, extra: str, tmp_path: Path) -> None:
    done = run(bare / program, "--help", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"{program} needs ")
    assert line.endswith(f"not installed: pip install 'everspot[{extra}]'")


def test_the_sentence_names_what_is_missing_and_nothing_else() -> None:
    requirements = ["numpy>=2", 'rich>=14; extra == "cli"', 'pyyaml>=6; extra == "cli"', "torch==2; extra == 'image'"]
    assert lacking(requirements, "cli", {"rich"}.__contains__) == ["pyyaml"]
    assert lacking(requirements, "image", {"rich"}.__contains__) == ["torch"]
    assert lacking(requirements, "cli", lambda _: True) == []
    assert sentence("everspot", "cli", ["rich", "pyyaml"]) == (
        "everspot needs rich, pyyaml, which are not installed: pip install 'everspot[cli]'"
    )


def test_components_installed_from_a_wheel_declare_a_cluster(wheel: Path, tmp_path: Path) -> None:
    python = environment(tmp_path / "venv", others=True)
    install(python, wheel, "--ignore-installed", cwd=tmp_path)
    program = """
import sys, everspot
from everspot_core.extras import check
assert everspot.__file__.startswith(sys.prefix), everspot.__file__
check("everspot", "components")
print(len([getattr(everspot, name) for name in everspot.__all__]))
"""
    done = run(python, "-c", program, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 20


@pytest.mark.engine
@pytest.mark.parametrize(
    ("cloud", "other"),
    [("aws", "gcp"), pytest.param("gcp", "aws", marks=pytest.mark.nightly)],  # the same steps with the other names
)
def test_a_program_takes_up_the_components_of_one_cloud_and_is_told_what_is_wrong(
    checkout: Path, tmp_path: Path, cloud: str, other: str
) -> None:
    """Runs `pulumi package add …/components/CLOUD` in another folder, and then a program with the generated SDK. Both
    environments exist before and use the packages of the tests' environment, so nothing comes from an index. The other
    cloud's plugin is not available, and the engine could not fetch it."""
    program = tmp_path / "program"
    environment(program / "venv", others=True, without="pulumi_")
    environment(checkout / f".everspot/components-{cloud}", others=True, without=f"pulumi_{other}")
    (version,) = re.findall(rf'"pulumi-{cloud}==([\d.]+)"', (ROOT / "pyproject.toml").read_text())[:1]
    plugins = tmp_path / "home/plugins"
    plugin = plugins / f"resource-{cloud}-v{version}/pulumi-resource-{cloud}"
    plugin.parent.mkdir(parents=True)  # no link: the real one looks for the rest from where it lies
    plugin.write_text(f'#!/bin/sh\nexec {ROOT}/.everspot/toolchain/plugins/{plugin.name} "$@"\n')
    plugin.chmod(0o755)
    source_files = list_files(checkout / "components")
    (program / "Pulumi.yaml").write_text("name: program\nruntime: {name: python, options: {virtualenv: venv}}\n")
    (tmp_path / "state").mkdir()

    def pulumi(*words: str) -> subprocess.CompletedProcess[str]:
        return run(
            "pulumi", *words, "--non-interactive", "--color=never", cwd=program,
            PATH=f"{ROOT / '.everspot/toolchain/bin'}:{os.environ['PATH']}", PULUMI_HOME=str(tmp_path / "home"),
            PULUMI_BACKEND_URL=f"file://{tmp_path / 'state'}", PULUMI_CONFIG_PASSPHRASE="x",
            PULUMI_SKIP_UPDATE_CHECK="1", PIP_NO_BUILD_ISOLATION="0", PIP_NO_DEPS="1", PIP_NO_INDEX="1",
        )  # fmt: skip

    added = pulumi("package", "add", "../" + os.path.relpath(checkout / "components" / cloud, tmp_path))
    assert added.returncode == 0, added.stdout + added.stderr
    assert list_files(checkout / "components") == source_files
    assert (program / "requirements.txt").read_text() == "sdks/everspot\n"
    sdk = program / "sdks/everspot/pulumi_everspot/__init__.py"
    declared = json.loads((ROOT / "components/schema.json").read_text())["resources"]
    names = {token.rpartition(":")[2] for token in declared}
    sdk_names = set(re.findall(r"\b(?:Aws|Gcp)\w+", sdk.read_text())) & names
    assert sdk_names == {name for name in names if name.startswith(cloud.capitalize())}

    call = f'{cloud.capitalize()}Store("v", cluster="NOT A NAME", jobs_expire_days=7, tags={{"Project": "vision"}})'
    (program / "__main__.py").write_text(f"import pulumi_everspot\npulumi_everspot.{call}\n")
    assert pulumi("stack", "init", "dev").returncode == 0
    refused = pulumi("preview", "--stack", "dev")
    assert refused.returncode != 0, refused.stdout
    assert all(f"{name}: " in refused.stdout for name in ("cluster", "jobsExpireDays", "tags")), refused.stdout
    assert "Unexpected" not in refused.stdout and "store.py" not in refused.stdout, "no traceback of the components"
    assert list_files(checkout / "components") == source_files
    assert {path.name for path in plugins.iterdir() if path.is_dir()} == {plugin.parent.name}
