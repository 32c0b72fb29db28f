"""An agent whose main thread waits for a job's files: its health checks, and a machine that is taken meanwhile."""

import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from agent_helpers import FAST, eventually
from everspot_clouds.base import Identity
from everspot_clouds.folder import FolderMetadata
from everspot_core.capacity.market import Market
from everspot_core.cluster.manifest import Manifest
from everspot_core.jobs import lease as transitions
from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_core.jobs.records import Assignment, EventKind, JobRecord, JobState, Order, Reason
from everspot_store import ManualClock, Store
from everspot_store.bucket import Bucket
from everspot_store.folder import FolderBackend
from everspot_train.agent.agent import Agent
from everspot_train.agent.fitness import Fitness
from everspot_train.agent.hardware import Hardware
from everspot_train.agent.health import Health, health_at
from everspot_train.agent.heartbeat import Heartbeat
from everspot_train.agent.own_log import OwnLog
from everspot_train.agent.process import LocalLauncher
from everspot_train.agent.starter import Starter, Surroundings
from everspot_train.agent.watch import NoticeWatcher

LIMITS = FAST.model_copy(update={"orphan_limit": timedelta(seconds=30)})
OUTPUTS = 3
SAVE = "pathlib.Path('checkpoints', 'model.ckpt').write_text('weights')\n"


class SlowBackend(FolderBackend):
    """A folder whose transfers take 20 s each.

    Attributes:
        agent: whose health is checked after each of them.
        on_upload: called with the key of each file that has arrived.
    """

    agent: Agent
    watch: NoticeWatcher
    on_upload: Callable[[str], None] | None = None
    clock: ManualClock
    health: Health
    store: Store
    checks: list[tuple[bool, int]]

    def upload(self, key: str, path: Path, moved: Any = None) -> Any:
        uploaded = super().upload(key, path, moved)
        if self.on_upload is not None:
            self.on_upload(key)
        self._wait()
        return uploaded

    def download(self, key: str, path: Path, moved: Any = None) -> Any:
        digest = super().download(key, path, moved)
        self._wait()
        return digest

    def _wait(self) -> None:
        self.spend(timedelta(seconds=20))
        self.checks.append((self.health.healthy(), status(self.health)))

    def spend(self, duration: timedelta) -> None:
        for _ in range(duration // timedelta(seconds=2)):
            self.clock.advance(timedelta(seconds=2))
            self.agent.beats()  # as the helper thread does

    def record(self) -> JobRecord:
        document = self.store.records.get("job-1")
        assert document is not None
        return document.value


def status(health: Health) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{health.port}/healthz", timeout=5) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


@pytest.fixture
def slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[SlowBackend]:
    """The data bucket of an agent that is assigned a job with outputs, and has not looked yet. The parameter is added
    to the job's program."""
    clock = ManualClock()
    for name in ("control", "data", "code"):
        (tmp_path / name).mkdir()
    backend = SlowBackend(tmp_path / "data", clock)
    control_url, data_url = f"file://{tmp_path}/control", f"file://{tmp_path}/data"
    store = Store(Bucket.open(control_url, clock=clock), Bucket(data_url, backend, clock), clock)
    manifest = Manifest(cluster="test", cloud="folder", control_url=control_url, data_url=data_url, limits=LIMITS)
    manifest_file = tmp_path / "manifest.json"
    manifest_file.write_bytes(manifest.to_json())
    identity = Identity(instance_id="i-1", instance_type="local", zone="local", market=Market.SPOT)
    hardware = Hardware(vcpus=2, memory_gib=8)
    program = f"import pathlib\nfor i in range({OUTPUTS}): pathlib.Path('outputs', str(i)).write_text(str(i))\n"
    (tmp_path / "code" / "main.py").write_text(
        "import pathlib; pathlib.Path('outputs').mkdir(exist_ok=True)\n" + program + getattr(request, "param", "")
    )
    spec = JobSpec(name="toy", entrypoint=["main.py"], code=str(tmp_path / "code"))
    submitting = Store.open(control_url, data_url, clock=clock)
    submitting.submit(JobSubmission(job_id="job-1", spec=spec, submitted_at=clock.now()), tmp_path / "code")
    store.records.create("job-1", transitions.assign(None, "job-1", "i-1", clock.now()))
    store.assignments.put("i-1", Assignment(instance_id="i-1", changed_at=clock.now(), job_id="job-1", epoch=1))
    watch = NoticeWatcher(store, FolderMetadata(manifest_file, identity), "i-1", clock)
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    backend.agent = Agent(
        manifest=manifest,
        starter=Starter(
            store=store,
            manifest=manifest,
            identity=identity,
            hardware=hardware,
            processes=LocalLauncher(tmp_path / "home" / "runs", adopt=False),
            surroundings=Surroundings(tmp_path / "home", environment),
            clock=clock,
        ),
        watch=watch,
        heartbeat=Heartbeat(store, manifest, identity, hardware, watch.store_contact, clock, agent_version="1"),
        fitness=Fitness(None, hardware, tmp_path, environment, clock),
        own_log=OwnLog(),
        clock=clock,
    )
    backend.clock, backend.checks, backend.watch = clock, [], watch
    monkeypatch.setenv("EVERSPOT_HEALTH", "127.0.0.1:0")
    health = health_at(9495, lambda: backend.agent.alive_at, LIMITS.orphan_limit, clock)
    assert health is not None
    backend.health = health
    backend.store = store
    watch.poll_assignment()
    yield backend
    backend.agent._alone.abandon()
    health.close()


def test_an_agent_that_transfers_files_is_healthy_and_one_that_hangs_is_not(slow: SlowBackend, tmp_path: Path) -> None:
    """Given transfers of 20 s each and a limit of 30 s, when a job's outputs are uploaded, then no check fails. Once
    the main loop stands still, checks fail, although other threads go on transferring files."""

    def ended() -> bool:
        slow.agent.step()
        slow.clock.advance(timedelta(milliseconds=100))
        return slow.record().state is JobState.SUCCEEDED

    eventually("the job is finished", ended)
    assert [output.path for output in slow.store.outputs("job-1").list()] == [str(each) for each in range(OUTPUTS)]
    assert len(slow.checks) > OUTPUTS
    assert set(slow.checks) == {(True, 200)}
    slow.clock.advance(LIMITS.orphan_limit)
    slow.store.data.upload("another-thread", tmp_path / "manifest.json")
    assert slow.checks[-1] == (False, 503)


@pytest.mark.parametrize(
    ("slow", "place"), [("", "/outputs/"), (SAVE, "/checkpoints/")], indirect=["slow"], ids=["outputs", "folder"]
)
@pytest.mark.parametrize("by", [Reason.NOTICE, Reason.SHUTDOWN])
@pytest.mark.parametrize("seconds", [30, 600])
def test_a_finished_job_whose_files_are_not_uploaded_in_time_is_interrupted(
    slow: SlowBackend, place: str, by: Reason, seconds: int
) -> None:
    """Given a job that has finished and uploads its files, when the machine is taken, then the job has succeeded only
    if there is time for all of them. Otherwise it is given back before the machine's end."""
    time_left = timedelta(seconds=seconds)
    is_late, keys = seconds == 30, list[str]()

    def take_machine(key: str) -> None:
        if place not in key:
            return
        slow.on_upload = None
        if by is Reason.SHUTDOWN:
            slow.agent.shut_down(time_left)
        else:
            stop = {"order": Order.STOP, "reason": by, "cordoned": True, "deadline": slow.clock.now() + time_left}
            assignment = Assignment(instance_id="i-1", changed_at=slow.clock.now(), job_id="job-1", epoch=1, **stop)
            slow.store.assignments.put("i-1", assignment)
            slow.watch.poll_assignment()
        # The agent has to learn of it before time goes on: a transfer of another thread may pass the deadline.
        eventually("the agent knows", slow.agent._alone._find_stop)
        if is_late:
            slow.spend(time_left - timedelta(seconds=2))
            eventually("the job is given back", lambda: not slow.record().state.owned)
        keys.append(key)

    def is_over() -> bool:
        slow.agent.step()
        slow.clock.advance(timedelta(milliseconds=100))
        return slow.agent._alone.session is None and not slow.record().state.owned

    slow.on_upload = take_machine
    eventually("the job is over", is_over)
    eventually("the upload has ended", lambda: keys)
    record, kinds = slow.record(), [event.kind for event in slow.store.events("job-1")]
    if is_late:
        assert (record.state, record.last_reason) == (JobState.PENDING, by)
        assert EventKind.FINISHED not in kinds
        assert [kind for kind in kinds if kind in (EventKind.STOP_DEMANDED, EventKind.INTERRUPTED)] == [
            EventKind.STOP_DEMANDED,
            EventKind.INTERRUPTED,
        ]
    else:
        assert (record.state, record.last_reason) == (JobState.SUCCEEDED, Reason.FINISHED)
        assert len(slow.store.outputs("job-1").list()) == OUTPUTS
        assert not {EventKind.STOP_DEMANDED, EventKind.SKIPPED} & set(kinds)
