"""Jobs with `image`, by real agents: containers of the kernel's own namespaces, and their images."""

import json
import os
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from agent_helpers import Cluster, eventually
from everspot_core.jobs.image_reference import RegistryImage
from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_core.jobs.records import JobState, Reason
from everspot_local.aws import account, ecr
from everspot_local.cloud import LocalCloud
from everspot_local.options import Options
from everspot_store import SystemClock
from everspot_train.agent.program import command_for
from everspot_train.prepare.enter import Container
from everspot_train.prepare.errors import NotReady
from everspot_train.prepare.image import lay_image
from everspot_train.worker import ERROR_FILE_VARIABLE
from oci_layout import Entry, entry, pack_layer, python_files, write_layout, write_python_image
from werkzeug.wrappers import Response

from tests.registry_push import HOST, REGION, EcrClient

CLOCK = SystemClock()
PROGRAM = Path(__file__).parent / "programs" / "container" / "main.py"


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("layout") / "image"
    write_python_image(folder)
    return folder


class Registry:
    """The local cloud's ECR, with one repository."""

    def __init__(self, endpoint: str) -> None:
        keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
        self.environment = {"AWS_ENDPOINT_URL": endpoint, "AWS_REGION": REGION, **keys}
        self.client = EcrClient(endpoint)
        self.client.api.create_repository(repositoryName="team/train")

    def push(self, layout: Path) -> str:
        """Push an image, and return its reference."""
        return f"{HOST}/team/train@{self.client.push('team/train', layout)}"


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    with LocalCloud(Options(tmp_path / "cloud", boot_command=None)) as cloud:
        registry = Registry(cloud.endpoint)
        yield registry
        registry.client.api.close()


def submit(cluster: Cluster, layout: Path, code: Path, program: str = PROGRAM.read_text(), **fields: Any) -> None:
    datasets = [] if "image" in fields else [cluster.store.datasets.put("my-image", layout).id]
    code.mkdir()
    (code / "main.py").write_text(program)
    fields = {"image": "my-image", **fields}
    spec = JobSpec(name="toy", entrypoint=["main.py"], code=str(code), **fields)
    job = JobSubmission(job_id="job-1", spec=spec, submitted_at=cluster.clock.now(), datasets=datasets)
    cluster.store.submit(job, code)


def printed_documents(cluster: Cluster) -> list[dict[str, Any]]:
    return [json.loads(line) for line in cluster.printed().splitlines() if line.startswith("{")]


# The variant without a registry differs in where the layers come from; other tests here run images of the store.
@pytest.mark.parametrize("in_registry", [pytest.param(False, marks=pytest.mark.nightly), True])
def test_a_job_in_an_image_is_interrupted_and_goes_on_elsewhere(
    cluster: Cluster, layout: Path, tmp_path: Path, request: pytest.FixtureRequest, in_registry: bool
) -> None:
    registry = request.getfixturevalue("registry") if in_registry else None
    image = {"image": registry.push(layout)} if registry is not None else {}
    environment = registry.environment if registry is not None else {}
    submit(cluster, layout, tmp_path / "code", env={"OWN": "of the job"}, **image)
    server = cluster.metadata_server("i-1")
    cluster.assign("job-1", "i-1")
    cluster.start_with_metadata(server, "i-1", **environment)
    step = lambda: (record := cluster.record("job-1")) is not None and record.progress.step == 20  # noqa: E731
    eventually("it is at its twentieth step", step)
    server.announce_interruption(cluster.clock.now() + timedelta(seconds=20))
    assert cluster.wait_state("job-1", JobState.PENDING).last_reason is Reason.NOTICE
    cluster.assign("job-1", "i-2")
    agent = cluster.start_agent("i-2", **environment)
    cluster.wait_state("job-1", JobState.SUCCEEDED)
    outputs = cluster.store.outputs("job-1")
    (steps,) = [output for output in outputs.list() if output.path == "steps"]
    outputs.fetch(steps, tmp_path / "fetched")
    assert (tmp_path / "fetched" / "steps").read_text() == "20 40"
    first, second = printed_documents(cluster)
    assert first == second
    assert first["marker"] == "of the image" and not first["of_machine"] and not first["root_writable"]
    assert first["tmp_writable"] and first["uid"] == os.getuid() and first["capabilities"] == 0
    assert (first["of_image"], first["own"]) == ("yes", "of the job")
    assert not {"boot", "home", "mnt"} & set(first["root"])
    (tree,) = [path for path in (agent.home / "cache" / "images").iterdir() if path.is_dir()]
    assert (tree / "marker").read_text() == "of the image"
    if registry is not None:
        tokens = [token.encode() for token in account.current().registry.tokens]
        assert len(tokens) == 3, "of the test and of each agent"
        for folder, _, names in os.walk(cluster.root):  # which bears that the agent is still tidying up
            for path in (Path(folder, name) for name in names):
                with suppress(FileNotFoundError):
                    assert not path.is_file() or not any(token in path.read_bytes() for token in tokens), path


@pytest.mark.parametrize(
    ("changed", "reason", "words"),
    [
        ({"digest": f"sha256:{'0' * 64}"}, Reason.MISSING, "404 MANIFEST_UNKNOWN: Requested image not found"),
        ({"host": HOST.replace("123456789012", "210987654321")}, Reason.DENIED, "403 DENIED"),
        ({"host": "docker.io"}, Reason.DENIED, "docker.io is no registry of ECR"),
    ],
)
def test_an_image_that_its_registry_refuses_is_not_fetched_again(
    cluster: Cluster, layout: Path, tmp_path: Path, registry: Registry, changed: Any, reason: Reason, words: str
) -> None:
    digest = registry.push(layout).partition("@")[2]
    image = RegistryImage(**{"host": HOST, "repository": "team/train", "digest": digest, **changed})
    submit(cluster, layout, tmp_path / "code", image=f"{image.name}@{image.digest}")
    cluster.assign("job-1", "i-1")
    cluster.start_agent("i-1", **registry.environment)
    ended = eventually("it ends", lambda: (r := cluster.record("job-1")) and r.last_reason and r)
    assert (ended.last_reason, ended.state is JobState.RUNNING) == (reason, False)
    assert words in ended.detail


def test_a_job_whose_image_is_being_fetched_stops_at_a_notice(
    cluster: Cluster, layout: Path, tmp_path: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a registry whose layer never ends, when the instance is to be interrupted, then the job is given back."""
    begun, over = threading.Event(), threading.Event()

    def send_forever(*_: object) -> Response:
        begun.set()
        return Response((b"x" * (1 << 16) for _ in iter(lambda: over.wait(0.01), True)), 200)

    monkeypatch.setattr(ecr, "_send_layer", send_forever)
    submit(cluster, layout, tmp_path / "code", image=registry.push(layout))
    server = cluster.metadata_server("i-1")
    cluster.assign("job-1", "i-1")
    agent = cluster.start_with_metadata(server, "i-1", **registry.environment)
    try:
        assert begun.wait(180)
        server.announce_interruption(cluster.clock.now() + timedelta(seconds=60))
        record = cluster.wait_state("job-1", JobState.PENDING)
    finally:
        over.set()
    assert record.last_reason is Reason.SHUTDOWN
    assert "it had to stop while its image was fetched" in agent.output


SHOW_CERTIFICATES = """
import json, pathlib
folder = pathlib.Path("/etc/ssl/certs")
print(json.dumps({path.name: path.read_bytes().decode() for path in folder.iterdir()}))
"""
OWN_CERTIFICATES = entry("etc/ssl/certs/ca-certificates.crt", b"of the image")


@pytest.mark.parametrize("entries", [(), (OWN_CERTIFICATES,)])
def test_an_image_without_certificates_has_those_of_the_machine(
    cluster: Cluster, tmp_path: Path, entries: tuple[Entry, ...]
) -> None:
    write_layout(tmp_path / "layout", [pack_layer(entries, python_files())])
    submit(cluster, tmp_path / "layout", tmp_path / "code", SHOW_CERTIFICATES)
    cluster.assign("job-1", "i-1")
    cluster.start_agent("i-1")
    cluster.wait_state("job-1", JobState.SUCCEEDED)
    machine = Path("/etc/ssl/certs/ca-certificates.crt").read_text()
    expected = "of the image" if entries else machine
    assert printed_documents(cluster) == [{"ca-certificates.crt": expected}]


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("import sys; sys.exit(7)", "exited with 7"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"),
        ("import torch", "ModuleNotFoundError: No module named 'torch'"),
    ],
)
def test_a_program_in_an_image_that_fails_is_the_jobs_error(
    cluster: Cluster, layout: Path, tmp_path: Path, program: str, message: str
) -> None:
    submit(cluster, layout, tmp_path / "code", program, retries={"errors": 0})
    cluster.assign("job-1", "i-1")
    cluster.start_agent("i-1")
    record = cluster.wait_state("job-1", JobState.FAILED)
    assert record.last_reason is Reason.ERROR
    assert message in record.detail


def test_an_image_without_python_says_so(cluster: Cluster, tmp_path: Path) -> None:
    write_layout(tmp_path / "empty", [pack_layer([entry("marker", b"alone")])])
    submit(cluster, tmp_path / "empty", tmp_path / "code", retries={"errors": 0})
    cluster.assign("job-1", "i-1")
    cluster.start_agent("i-1")
    record = cluster.wait_state("job-1", JobState.FAILED)
    assert "image: python3 cannot be started in it: No such file or directory" in record.detail


def test_a_machine_without_user_namespaces_says_so_and_blames_no_disk(tmp_path: Path) -> None:
    """Given a kernel at its limit of namespaces, when a container is made, then the error says so."""
    container = Container(str(tmp_path), [], str(tmp_path), [], "/", {}, [], ["python3"]).enter_command()
    limit = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
    command = ["unshare", "--user", "--map-root-user", "sh", "-c", limit, "sh", *container]
    environment = {**os.environ, ERROR_FILE_VARIABLE: str(tmp_path / "error.json")}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    message = "image: this machine makes no container: the kernel gives no namespaces, ENOSPC"
    assert ended.returncode == 1 and ended.stdout == f"everspot: {message}\n", ended.stderr
    assert json.loads((tmp_path / "error.json").read_text())["message"]["message"] == message


def test_several_processes_in_an_image_are_started_by_its_own_torchrun() -> None:
    spec = JobSpec(name="toy", entrypoint=["main.py", "--fast"], code="src", image="my-image", processes=4)
    words = command_for(spec, "a-debugger")  # which belongs to the machine's Python
    assert words[:5] == ["python3", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=4"]
    assert words[-2:] == ["main.py", "--fast"]


def test_layers_lie_above_each_other_and_nothing_outside(tmp_path: Path) -> None:
    """Given whiteouts, links and entries that lead out, when layers are unpacked, then only their tree is written."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("untouched")
    lower = [
        entry("etc", kind=tarfile.DIRTYPE, mode=0o555),
        entry("etc/gone", b"1"),
        entry("opaque/old", b"1"),
        entry("usr/lib/libc.so", b"library", mode=0o4755),
        entry("lib", kind=tarfile.SYMTYPE, link="/usr/lib"),
        entry("escape", kind=tarfile.SYMTYPE, link=str(outside)),
        entry("up", kind=tarfile.SYMTYPE, link="../../../../outside"),
        entry("null", kind=tarfile.CHRTYPE),
    ]
    upper = [
        entry("etc/.wh.gone"),
        entry("opaque/new", b"2"),
        entry("opaque/.wh..wh..opq"),
        entry("lib/extra.so", b"by a link"),
        entry("same", kind=tarfile.LNKTYPE, link="lib/libc.so"),
        entry("escape/file", b"harm"),
        entry("up/file", b"harm"),
        entry("../../outside/file", b"harm"),
        entry("/absolute", b"inside"),
    ]
    write_layout(tmp_path / "layout", [pack_layer(lower), pack_layer(upper)], ["A=1=2", "B="])
    image = lay_image(tmp_path / "layout", tmp_path / "trees", CLOCK)
    root = image.root
    assert image.environment == {"A": "1=2", "B": ""}
    assert (outside / "file").read_text() == "untouched" and [path.name for path in outside.iterdir()] == ["file"]
    assert not (root / "etc/gone").exists() and (root / "etc").stat().st_mode & 0o777 == 0o755
    assert sorted(path.name for path in (root / "opaque").iterdir()) == ["new"]
    assert (root / "usr/lib/extra.so").read_text() == "by a link" and (root / "same").read_text() == "library"
    assert (root / "usr/lib/libc.so").stat().st_mode & 0o7777 == 0o755
    assert (root / "usr/lib/libc.so").stat().st_mtime == 1_000_000_000
    assert (root / "absolute").read_text() == "inside" and not (root / "null").exists()
    assert all((root / name).exists() for name in ("proc", "sys", "dev", "tmp", "etc/resolv.conf", "etc/hosts"))


def spoil_blob(layout: Path) -> None:
    largest = max((layout / "blobs/sha256").iterdir(), key=lambda path: path.stat().st_size)
    data = pack_layer([entry("marker", b"harm" * 9000)])
    largest.write_bytes(data)


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (spoil_blob, "has other bytes than its digest says"),
        (lambda layout: (layout / "index.json").unlink(), r"layout has no index\.json .*podman save --format oci-dir"),
        (lambda layout: (layout / "index.json").write_text('{"manifests": []}'), "0 images for .* in layout, not one"),
        (lambda layout: (layout / "index.json").write_text('{"manifests": [{"digest": "md5:1"}]}'), "no SHA-256"),
    ],
)
def test_what_is_no_sound_image_is_refused_and_leaves_no_tree(tmp_path: Path, spoil: Any, problem: str) -> None:
    write_layout(tmp_path / "layout", [pack_layer([entry("marker", b"x" * 9000)])])
    spoil(tmp_path / "layout")
    with pytest.raises(NotReady, match=problem):
        lay_image(tmp_path / "layout", tmp_path / "trees", CLOCK)
    assert not [path for path in (tmp_path / "trees").glob("*") if path.suffix != ".lock" and path.name.count(".") == 0]


def test_an_image_for_another_processor_is_refused(tmp_path: Path) -> None:
    write_layout(tmp_path / "layout", [pack_layer([])], architecture="riscv64")
    with pytest.raises(NotReady, match="0 images for "):
        lay_image(tmp_path / "layout", tmp_path / "trees", CLOCK)


def test_an_image_with_layers_of_zstd_is_refused_by_name(tmp_path: Path) -> None:
    frame = bytes.fromhex("28b52ffd2000010000")  # an empty frame of RFC 8878
    write_layout(tmp_path / "layout", [pack_layer([]), frame], compression="zstd")
    with pytest.raises(NotReady, match="2 layers compressed with zstd: build it with gzip, for example `docker"):
        lay_image(tmp_path / "layout", tmp_path / "trees", CLOCK)


def test_few_trees_stay_and_none_that_a_job_uses_is_removed(tmp_path: Path) -> None:
    images = []
    for number in range(6):
        layout = tmp_path / f"layout-{number}"
        write_layout(layout, [pack_layer([entry("marker", b"%d" % number)])])
        images.append(lay_image(layout, tmp_path / "trees", CLOCK))
        os.utime(images[-1].root, (number, number))
        if number:  # the job of the first image goes on
            images[-1].tree.close()
    images[0].tree.close()
    markers = {(path / "marker").read_text() for path in (tmp_path / "trees").iterdir() if path.is_dir()}
    assert markers == {"0", "3", "4", "5"}


def test_jobs_with_the_same_image_use_its_tree_at_the_same_time(tmp_path: Path) -> None:
    """Given a job that uses an image, when another job has the same one, then it does not wait for the first one's
    end."""
    write_layout(tmp_path / "layout", [pack_layer([entry("marker", b"shared")])])
    first = lay_image(tmp_path / "layout", tmp_path / "trees", CLOCK)
    roots: list[Path] = []
    layout, trees = tmp_path / "layout", tmp_path / "trees"
    other = threading.Thread(target=lambda: roots.append(lay_image(layout, trees, CLOCK).root), daemon=True)
    other.start()
    other.join(60)
    assert roots == [first.root]
