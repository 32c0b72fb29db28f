"""Set-up as a whole: its variants, repeated runs, and what it installs."""

import hashlib
import http.server
import importlib.metadata
import io
import re
import shutil
import socket
import subprocess
import sys
import tarfile
import threading
import time
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]


@pytest.fixture
def place(tmp_path):
    """A download place: (its URL, the folder that it serves)."""
    folder = tmp_path / "place"
    folder.mkdir()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=str(folder))

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", folder
        server.shutdown()


def archive(path, **files):
    with tarfile.open(path, "w:gz") as tar:
        for name, text in files.items():
            info = tarfile.TarInfo(name.replace("__", "/").replace("_", "-"))
            info.size, info.mode = len(text), 0o755
            tar.addfile(info, io.BytesIO(text.encode()))
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_an_official_engine_is_taken_only_with_the_sum_that_is_published(run_setup, checkout, place):
    url, folder = place
    name = run_setup("import engine; p, m = engine.system('x64'); "
               "print(engine.RELEASE.format(version=engine.VERSION, system=p, machine=m))").strip()  # fmt: skip
    digest = archive(folder / name, pulumi__pulumi="#!/bin/sh\n", pulumi__pulumi_language_python="#!/bin/sh\n")
    code = f"import engine; engine.PLACE = {url!r}; engine.official()"
    target = checkout / ".everspot/toolchain/bin/pulumi"

    assert "checksums.txt: File not found" in run_setup(code)
    sums = folder / f"pulumi-{re.search(r'[0-9.]+[0-9]', name)[0]}-checksums.txt"
    sums.write_text(f"{'0' * 64}  {name}\n")
    assert digest in run_setup(code) and not target.exists()
    sums.write_text(f"{digest}  another-{name}\n")
    assert "none at all is published" in run_setup(code) and not target.exists()
    sums.write_text(f"{'0' * 64}  another\n{digest}  {name}\n")
    assert run_setup(code) == "" and target.exists()
    assert (checkout / ".everspot/toolchain/bin/pulumi-language-python").stat().st_mode & 0o111


def test_the_official_plugin_is_taken_where_it_can_be_had_and_needs_no_bridge(run_setup, checkout, place):
    url, folder = place
    archive(folder / "plugin.tar.gz", pulumi_resource_aws='#!/bin/sh\necho "proxy=$HTTP_PROXY $*"\n')
    code = f"import provider; provider.RELEASE = '{url}/plugin.tar.gz'; print(provider.AWS.make())\n"
    code += "print(provider.AWS.official_in_place(), all(p.exists() for p in provider.AWS.products()))"
    text = run_setup(code)
    assert "the official plugin" in text and "True True" in text

    def started(**env):
        plugin = checkout / ".everspot/toolchain/plugins/pulumi-resource-aws"
        return subprocess.run([plugin, "a", "b c"], env=env, capture_output=True, text=True, check=True).stdout.strip()

    # The plugin uses a local cloud's endpoint as its proxy, and no other endpoint.
    assert started(AWS_ENDPOINT_URL="http://127.0.0.1:5") == "proxy=http://127.0.0.1:5 a b c"
    assert started(AWS_ENDPOINT_URL="http://127.0.0.1:5", HTTP_PROXY="mine") == "proxy=mine a b c"
    assert started(AWS_ENDPOINT_URL="https://cloud.example") == started() == "proxy= a b c"

    # A download that is not the plugin, such as a captive portal's page, is refused. Then the build is tried, here
    # without Go.
    (folder / "plugin.tar.gz").write_text("<html>Sign in</html>")
    text = run_setup(code, PATH=str(checkout))
    assert "not an archive" in text and "Go compiler" in text
    (folder / "plugin.tar.gz").write_bytes(archive_bytes(folder)[:-20])
    assert "not an archive" in run_setup(code, PATH=str(checkout))


def test_each_cloud_has_a_plugin_of_its_own_by_the_version_that_is_pinned(run_setup, checkout, place):
    url, folder = place
    code = f"import provider; provider.RELEASE = '{url}/{{name}}-{{version}}.tar.gz'; print(provider.GCP.make())\n"
    code += "print(provider.GCP.official_in_place(), provider.AWS.official_in_place(), provider.GCP.version())"
    version = re.search(r"pulumi-gcp==([\d.]+)", (checkout / "pyproject.toml").read_text())[1]
    archive(folder / f"gcp-{version}.tar.gz", pulumi_resource_gcp='#!/bin/sh\necho "$*"\n')
    text = run_setup(code)
    assert f"the official plugin {version}" in text and f"True False {version}" in text
    plugins = checkout / ".everspot/toolchain/plugins"
    assert [p.name for p in sorted(plugins.glob("pulumi-*"))] == ["pulumi-resource-gcp"]
    started = subprocess.run([plugins / "pulumi-resource-gcp", "a", "b c"], capture_output=True, text=True, check=True)
    assert started.stdout == "a b c\n"
    # Where it cannot be had: what is built instead, and how long that takes, is said before it begins.
    (folder / f"gcp-{version}.tar.gz").unlink()
    text = run_setup(code, PATH=str(checkout))
    assert "building the upstream provider, about 4 minutes the first time" in text and "Go compiler" in text


def test_the_kubernetes_provider_has_the_version_that_the_component_pins(run_setup, checkout, place):
    url, folder = place
    component = Path("components/everspot/kubernetes/pool.py")
    (checkout / component).parent.mkdir(parents=True)
    shutil.copy(ROOT / component, checkout / component)
    version = re.search(r'^PLUGIN = "([\d.]+)"$', (ROOT / component).read_text(), re.M)[1]
    archive(folder / f"kubernetes-{version}.tar.gz", pulumi_resource_kubernetes='#!/bin/sh\necho "$*"\n')
    code = f"import kubernetes_plugin as kubernetes, provider; provider.RELEASE = '{url}/{{name}}-{{version}}.tar.gz'\n"
    code += "print(kubernetes.PLUGIN.make(), all(p.exists() for p in kubernetes.PLUGIN.products()))"
    assert f"the official plugin {version} True" in run_setup(code)
    plugin = checkout / ".everspot/toolchain/plugins/pulumi-resource-kubernetes"
    assert subprocess.run([plugin, "a", "b c"], capture_output=True, text=True, check=True).stdout == "a b c\n"
    (folder / f"kubernetes-{version}.tar.gz").unlink()
    text = run_setup(code, PATH=str(checkout))
    assert "provider-kubernetes: no official download" in text and "Go compiler" in text


def archive_bytes(folder):
    archive(folder / "whole.tar.gz", pulumi_resource_aws="#!/bin/sh\n" * 1000)
    return (folder / "whole.tar.gz").read_bytes()


def test_a_place_that_does_not_answer_is_given_up_soon(run_setup):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/x"
        began = time.monotonic()
        text = run_setup(f"import downloads, pathlib; downloads.CONNECT_SECONDS = 0.5; "
                   f"downloads.fetch({url!r}, pathlib.Path('x'))")  # fmt: skip
    assert "Unreachable" in text and "timed out" in text
    assert time.monotonic() - began < 9, "not in the time that was set"
    assert float(run_setup("import downloads; print(downloads.CONNECT_SECONDS)")) <= 10


FAKED = """
import dataclasses, sys
import dataset, engine, environment, plan, provider

NOTES = {plugin.label: (plugin.note, "bridge") for plugin in (provider.AWS, provider.GCP)}
NOTES["engine"] = engine.CHOICE, str(engine.BIN / "pulumi")

def faked(step):
    def make():
        if step.name in NOTES:
            note, text = NOTES[step.name]
            note.parent.mkdir(parents=True, exist_ok=True)
            note.write_text(text)
        for path in step.products():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch() if not path.exists() else None
        return "MADE"
    return dataclasses.replace(step, make=make)

environment.venv, environment.stubs = faked(environment.venv), faked(environment.stubs)
dataset.step, engine.step = faked(dataset.step), faked(engine.step)
provider.steps = {name: faked(step) for name, step in provider.steps.items()}
sys.exit(plan.main(CLOUDS))
"""


def test_only_the_step_whose_product_or_source_is_gone_is_done_again(run_setup, checkout):
    def made_steps(*clouds):
        return sorted(re.findall(r"([\w-]+): MADE", run_setup(FAKED.replace("CLOUDS", repr(clouds)))))

    everything = ["dataset", "engine", "provider", "stubs", "venv"]
    assert made_steps() == everything
    assert made_steps() == []
    tools = checkout / ".everspot/toolchain"
    for path, step in (
        (tools / "bin/pulumi", "engine"),
        (tools / "bin/terraform-provider-aws", "provider"),
        (tools / "plugins/pulumi-resource-aws", "provider"),
        (tools / "stubs/tfplugin5_pb2.py", "stubs"),
        (checkout / ".everspot/data/fashion-mnist/train-images-idx3-ubyte.gz", "dataset"),
        (checkout / ".venv/bin/pytest", "venv"),
        (checkout / ".everspot/stamps/engine", "engine"),
    ):
        path.unlink()
        assert made_steps() == [step], path
    (checkout / "tools/constraints.txt").write_text("")
    assert made_steps() == ["venv"]
    # Another cloud's provider is had when it is asked for, and never else.
    assert made_steps("aws") == []
    assert made_steps("aws", "gcp") == ["provider-gcp"]
    (checkout / "tools/upstream_google/trim.py").write_text("")
    assert made_steps() == []
    assert made_steps("gcp") == ["provider-gcp"]


def test_one_clouds_provider_is_had_without_the_others(run_setup):
    text = run_setup(FAKED.replace("CLOUDS", "['gcp']"))
    assert sorted(re.findall(r"([\w-]+): MADE", text)) == ["dataset", "engine", "provider-gcp", "stubs", "venv"]


def test_a_cloud_that_there_is_not_is_named_before_anything_is_done(run_setup, checkout):
    text = run_setup(FAKED.replace("CLOUDS", "['aws', 'gpc']"))
    assert "no cloud gpc; there are aws, gcp" in text and "MADE" not in text
    assert not (checkout / ".everspot").exists()


@pytest.mark.parametrize(
    ("target", "clouds", "printed"),
    [
        ("demo", "gcp", "tools/setup gcp\n.venv/bin/python -m everspot_local.demo --cloud gcp"),
        ("demo", "kubernetes", "tools/setup kubernetes provider-kubernetes\n.venv/bin/python -m everspot_local.demo"),
        ("demo", "aws gcp", "demo runs on one cloud, with CLOUD=aws or CLOUD=gcp"),
        ("live", "gcp", "tests/e2e/live.py --cloud gcp"),
        ("live", "aws gcp", "live runs on one cloud, with CLOUD=aws or CLOUD=gcp"),
        ("review-demo", "aws", "tools/setup aws forge\n.venv/bin/python -m everspot_local.demo.review"),
        ("review-demo", "gcp", "review-demo runs on AWS, with CLOUD=aws, and not on gcp"),
        ("bench", "gcp", "bench runs on AWS, with CLOUD=aws, and not on gcp"),
    ],
)
def test_make_sets_up_the_cloud_that_is_played_on(target, clouds, printed):
    command = ["make", "-n", target, f"CLOUD={clouds}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert printed in done.stdout + done.stderr and (done.returncode == 0) == ("runs on" not in printed)


def test_a_step_that_did_not_make_its_product_is_not_taken_for_done(run_setup):
    code = """
import pathlib
from problems import Missing
from steps import STAMPS, Step
step = Step("x", (), lambda: [pathlib.Path("absent").absolute()], lambda: "nothing")
try:
    step.run()
except Missing as error:
    print(error, (STAMPS / "x").exists())
"""
    text = run_setup(code)
    assert "absent is still not there" in text and text.strip().endswith("False")


def test_without_network_and_without_go_it_says_both_and_fails(run_setup, checkout):
    done = subprocess.run(
        [sys.executable, str(checkout / "tools/setup")],
        cwd=checkout,
        env={
            "PATH": str(checkout),
            "PIP_INDEX_URL": "http://127.0.0.1:1/simple",
            "PIP_RETRIES": "1",
            "PIP_CONFIG_FILE": "/dev/null",
            "https_proxy": "http://127.0.0.1:1",
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    assert "venv: `" in done.stderr and "network cannot be reached" in done.stderr
    assert "engine: neither the official downloads can be reached nor is there a Go compiler" in done.stderr
    assert not (checkout / ".everspot/stamps").exists()


def test_the_constraints_name_every_package_that_is_installed(run_setup):
    lines = run_setup("import environment as e; print(e.CONSTRAINTS.read_text()); print('==='); "
                "print(*e.requirements(), sep='\\n')")  # fmt: skip
    pinned, requirements = (part.strip().splitlines() for part in lines.split("===\n", 1))
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+]+", line) for line in pinned)
    versions = {canonicalize_name(n): v for n, v in (line.split("==") for line in pinned)}
    needed, queue = set(), [(Requirement(r), "") for r in requirements]
    while queue:
        requirement, extra = queue.pop()
        name = canonicalize_name(requirement.name)
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        for wanted_extra in {"", *requirement.extras}:
            if (name, wanted_extra) not in needed:
                needed.add((name, wanted_extra))
                below = importlib.metadata.requires(name) or []
                queue += [(Requirement(r), wanted_extra) for r in below]
    names = {name for name, _ in needed}
    assert len(names) > 100
    assert {n: importlib.metadata.version(n) for n in names} == {n: versions.get(n) for n in names}
    assert set(versions) == names | {"setuptools"}


def test_python_starts_without_looking_for_the_project(tmp_path):
    """The folders of its packages are named; a finder of setuptools' would double the time of each start."""
    code = (
        "import sys; print(*(name for name in sys.modules if name.startswith('__editable__')))\n"
        "import everspot_core; print(everspot_core.__file__)"
    )
    output = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout
    loaded, place = output.splitlines()
    assert "__editable__" not in loaded
    assert Path(place).is_relative_to(ROOT / "core")


INSTALL = """
import environment
from problems import Missing
commands = []
def call(command, log, *rest, **more):
    commands.append(log)
    if log == BROKEN:
        raise Missing("refused")
environment.call = call
print(environment.install_requirements(["pip"]), *commands)
"""


@pytest.mark.parametrize(
    ("broken", "expected"),
    [("", "uv pip-uv uv"), ("pip-uv", "pip pip-uv pip"), ("uv", "pip pip-uv uv pip")],
)
def test_packages_are_installed_by_uv_and_by_pip_where_uv_fails(run_setup, broken, expected):
    assert run_setup(f"BROKEN = {broken!r}{INSTALL}").strip() == expected
