"""Fixtures and pytest hooks of the whole suite: the order of the test files, their scheduling on workers, and
hypothesis profiles without deadlines."""

import compileall
import functools
import gc
import importlib.util
import logging
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("everspot", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=100)
settings.register_profile("nightly", settings.get_profile("everspot"), max_examples=1000)
settings.load_profile("everspot")
"""Properties with slow examples use a fraction of `max_examples`, so the nightly profile runs ten times as many of
them, too."""

TESTS = Path(__file__).parent
WAITING = ("image/test_image_cluster", "e2e/test_e2e_live", "engine/test_engine_cluster", "engine/test_engine_gcp",
           "engine/test_engine_bootstrap", "bridge/", "ui/", "engine/test_engine_review", "engine/test_engine_replace",
           "engine/", "e2e/", "image/",
           "agent/test_agent_loops", "agent/test_agent_frameworks", "agent/test_agent_loop_reports",
           "agent/test_agent_termination", "agent/test_agent_tracking", "agent/test_agent_profile",
           "faults/test_faults_processes", "agent/test_agent_shared_jobs", "agent/test_agent_plain",
           "faults/test_faults_torch", "setup/test_setup_packages", "agent/test_agent_process",
           "agent/test_agent_survival", "agent/test_agent_prepare", "faults/", "agent/", "review/", "setup/",
           "localcloud/")  # fmt: skip
"""Tests that mostly wait for providers, processes and simulated time, the longest first. Two of three workers start
here."""

COMPUTING = ("store/", "localcloud_gcp/", "cli/", "scheduler/", "core/", "simulator/",
             "simulator/test_simulator_everspot_policy", "scheduler/test_scheduler_crowd", "components/",
             "trainer/")  # fmt: skip
"""Tests that only compute, the longest last. Every third worker starts at this end, so a core is never idle while
others wait. A worker runs whole files, so a long file that starts last would delay the end of the run. The longest
matching name applies."""

TOGETHER = ("bridge/", "components/test_components_gcp", "components/")
"""Files with one of these prefixes run on one worker: their session fixtures (a provider, a cloud's SDK) take longer to
set up than most of their tests. The first matching prefix applies."""

SOURCES = ("bench", "cli", "clouds", "components", "core", "localcloud", "policy", "review", "scheduler", "simulator",
           "stacks", "store", "tools", "training_image")  # fmt: skip


MEMORY = Path("/dev/shm")
ROOM = 4 * 2**30
"""Free bytes that the file system in memory needs; the tests' folders take some hundred megabytes of it."""


def pytest_configure(config: pytest.Config) -> None:
    """Compile the packages once and put the tests' folders in memory.

    With PYTHONDONTWRITEBYTECODE, hundreds of child processes would each compile the same modules. A store in a folder
    calls fsync for each write; the suite makes about a hundred thousand of them.
    """
    if not hasattr(config, "workerinput"):
        packages = (path.parent for name in SOURCES for path in (TESTS.parent / name).glob("everspot*/__init__.py"))
        missing = [path.name for path in packages if importlib.util.find_spec(path.name) is None]
        if missing:
            raise pytest.UsageError(f"{', '.join(missing)} cannot be imported in this environment: run `make setup`")
        for folder in SOURCES:
            compileall.compile_dir(TESTS.parent / folder, quiet=2)
        if has_room(MEMORY):
            os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
    gc.disable()  # during collection, where it would take a third of the time


def has_room(place: Path) -> bool:
    """Return whether tests can write to `place` and run programs from it."""
    if not os.access(place, os.W_OK):
        return False
    filesystem = os.statvfs(place)
    return filesystem.f_bavail * filesystem.f_frsize >= ROOM and not filesystem.f_flag & os.ST_NOEXEC


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the tests by the ranks of their files in `WAITING` and `COMPUTING`; equal ranks keep their order."""
    ranks = {TESTS / name: rank for rank, name in enumerate(WAITING, -len(WAITING))}
    ranks |= {TESTS / name: rank for rank, name in enumerate(COMPUTING, 1)}
    cached_ranks: dict[Path, int] = {}

    def rank(item: pytest.Item) -> int:
        if item.path not in cached_ranks:
            names = [item.path.with_suffix(""), item.path.parent]
            cached_ranks[item.path] = next((ranks[name] for name in names if name in ranks), 0)
        return cached_ranks[item.path]

    items.sort(key=rank)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Return a scheduler that gives whole files, or the groups of `TOGETHER`, to the workers; every third worker takes
    them from the end."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return next((names for names in TOGETHER if file.startswith(f"tests/{names}")), file)

        def _assign_work_unit(self, node: Any) -> None:
            if int(node.gateway.id.removeprefix("gw")) % 3 == 1:
                self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
            super()._assign_work_unit(node)

    return Scheduling(config, log)


def pytest_collection_finish() -> None:
    """Make garbage collection rare and cache botocore's service models.

    The collected tests live until the end, so they are frozen. A higher threshold saves a tenth of the run time.
    Loading a service model takes longer than most requests that a test makes with it.
    """
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)
    gc.enable()
    botocore = sys.modules.get("botocore.session")
    if botocore is not None:
        botocore.create_loader = functools.cache(botocore.create_loader)  # type: ignore[attr-defined]


@pytest.fixture(scope="session")
def audit_bill() -> ModuleType:
    """Return `tools/audit_bill.py`, which computes a bill from the local cloud's own log."""
    spec = importlib.util.spec_from_file_location("audit_bill", TESTS.parent / "tools/audit_bill.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def moto_application() -> Any:
    """moto, one for the whole session: names in it have to be unique."""
    from everspot_local.aws.dispatch import Dispatcher  # takes a second, which most tests need not pay
    from moto.moto_server.werkzeug_app import create_backend_app

    return Dispatcher(create_backend_app)


@contextmanager
def served(application: Any) -> Iterator[str]:
    """Serve a WSGI application, and give its URL."""
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").disabled = True
    server = make_server("127.0.0.1", 0, application, threaded=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="session")
def moto_endpoint(moto_application: Any) -> Iterator[str]:
    """The URL of moto's server."""
    with served(moto_application) as url:
        yield url


@pytest.fixture(scope="session")
def busy_endpoint(moto_application: Any) -> Iterator[str]:
    """The URL of the same server with a busy S3, which refuses a few percent of the requests."""
    from everspot_local.aws.s3.disturbed import DisturbedS3
    from everspot_local.market.disturbances import DisturbanceRates, Disturbances

    disturbances = Disturbances(DisturbanceRates(conflict=0.03, slow_down=0.03), seed=7)
    with served(DisturbedS3(moto_application, lambda: disturbances)) as url:
        yield url


@pytest.fixture
def aws(moto_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The standard environment of a process that may use the AWS at `moto_endpoint`, which is returned."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ENDPOINT_URL", moto_endpoint)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    return moto_endpoint


@pytest.fixture
def s3_urls(aws: str, busy_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Control and data bucket in a busy S3, made for this test in another region than the environment's."""
    import boto3  # few tests need it, and it takes its time

    client = boto3.client("s3", region_name="eu-west-1")
    names = [f"everspot-{part}-{uuid4().hex[:12]}" for part in ("control", "data")]
    for name in names:
        client.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    client.close()
    monkeypatch.setenv("AWS_ENDPOINT_URL", busy_endpoint)
    return [f"s3://{name}?region=eu-west-1" for name in names]
