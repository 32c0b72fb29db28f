"""The image as a container: built by the Dockerfile without root, and a job that a notice moves to the next one."""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from everspot_local.image.chroot import CERTIFICATES
from everspot_local.image.inputs import commit
from everspot_local.machines import contained
from everspot_local.market.delays import Delays
from image_cluster import SCALE, ImageCluster, check_resumption, check_shutdown
from rootless import rootless

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(7200)]
ROOT = Path(__file__).resolve().parents[2]
BASE, TAG = "localhost/everspot-base", "localhost/everspot"
PROGRAMS = {"buildah": "buildah", "podman": "podman", "newuidmap": "uidmap", "runc": "runc"}
FREE_GIB = 30
"""Two trees of 5.5 GiB, of the build and of the image, the image's archive, and what pip unpacks."""


@pytest.fixture(scope="module")
def home(image: Path) -> Iterator[Path]:
    """The folder of a user who is not root, and has the image of the Dockerfile on the local base."""
    for program, package in PROGRAMS.items():
        if shutil.which(program) is None:
            pytest.skip(f"there is no {program} on this machine: apt install {package}")
    folder = Path(tempfile.mkdtemp(prefix="everspot-", dir="/var/tmp"))
    try:
        if (free := shutil.disk_usage(folder).free >> 30) < FREE_GIB:
            pytest.skip(f"a build needs {FREE_GIB} GiB in /var/tmp, where there are {free}")
        import_base(folder, contained.read_layers(image)[0])
        build(folder)
        yield folder
    finally:
        shutil.rmtree(folder)


def run(home: Path, *command: str) -> str:
    answer = subprocess.run(rootless(home, list(command)), capture_output=True, text=True)
    assert answer.returncode == 0, f"{command}: {answer.stdout[-2000:]}{answer.stderr[-2000:]}"
    return answer.stdout


def import_base(home: Path, layer: Path) -> None:
    """Make the base of the baked image's lowest layer: Debian, with Python by the name that Python's images give it."""
    archive = home / "base.tar"
    added = home / "added"
    (added / "usr/bin").mkdir(parents=True)
    (added / "usr/bin/python").symlink_to("python3")
    subprocess.run(["tar", "-C", str(layer), "-cf", str(archive), "."], check=True)
    subprocess.run(["tar", "-C", str(added), "-rf", str(archive), "./usr/bin/python"], check=True)
    run(home, "podman", "import", str(archive), BASE)
    archive.unlink()


def build(home: Path) -> None:
    settings = home / "pip.conf"
    settings.write_text(f"[global]\ncert = {CERTIFICATES}\n")
    volumes = [f"{CERTIFICATES}:{CERTIFICATES}:ro", f"{settings}:/etc/pip.conf:ro"] if CERTIFICATES.exists() else []
    words = ["buildah", "bud", "--isolation", "chroot", "--network", "host", "--build-arg", f"BASE={BASE}"]
    words += ["--build-arg", f"COMMIT={commit(ROOT)}", *(part for volume in volumes for part in ("--volume", volume))]
    run(home, *words, "--file", f"{ROOT}/training_image/bake/Dockerfile", "--tag", TAG, str(ROOT))


class ContainerCluster(ImageCluster):
    """One agent, in a container, and the scheduler, a process."""

    delays = replace(Delays(), shutdown=timedelta(seconds=90 * SCALE))


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory, home: Path) -> Iterator[ContainerCluster]:
    by_role, container = (str(Path(__file__).with_name(f"boot_{name}.py")) for name in ("by_role", "container"))
    boot = (sys.executable, by_role, sys.executable, container, str(home), TAG)
    with ContainerCluster(tmp_path_factory.mktemp("container"), boot=boot) as cluster:
        yield cluster


def test_the_container_is_of_this_commit_and_not_root(home: Path) -> None:
    version = run(home, "podman", "run", "--rm", "--runtime", "runc", "--network", "host", TAG, "--version")
    assert f"commit {commit(ROOT)}" in version and "unknown" not in version
    inspect = ["podman", "inspect", "--format", "{{.Config.User}} {{.Config.StopSignal}}", TAG]
    assert run(home, *inspect).split() == ["10001:10001", "SIGTERM"]


def test_a_job_in_a_container_meets_its_notice_and_goes_on_in_another(live: ContainerCluster) -> None:
    first = str(live.until(lambda: next(iter(live.store.instances.names()), None)))
    job = live.submit_toy("shipped", steps=1_000_000, seconds=SCALE / 2)
    assert live.until(lambda: live.trains(job, steps=2)) == first
    step = live.step(job)
    live.cloud.do("interrupt", instance=first)
    second = check_resumption(live, job, first, step)

    # As `podman stop`: SIGTERM to its process 1, which lets the job write its checkpoint and ends.
    check_shutdown(live, job, second)
