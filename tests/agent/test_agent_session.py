"""One attempt of an agent, on a folder store, with a manual clock."""

import os
from datetime import timedelta
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest
from agent_helpers import FAST, eventually
from everspot_clouds.base import Identity
from everspot_core.capacity.catalogue import InstanceType
from everspot_core.cluster.manifest import Manifest
from everspot_core.costs.pool_history import USUAL_HOURS
from everspot_core.jobs import lease as transitions
from everspot_core.jobs.job import JobSpec, JobSubmission, Resources
from everspot_core.jobs.profile import PROFILE_FOLDER, Profile, ProfileRequest, ProfileState
from everspot_core.jobs.records import EventKind, JobState, Market, Progress, Reason
from everspot_store import DigestMismatch, ManualClock, Store, StoreDenied, StoreUnavailable
from everspot_store.backend import Moved, Uploaded
from everspot_store.folder import FolderBackend
from everspot_train.agent.actions import JobKey, StopDemand
from everspot_train.agent.artifacts.assess import ProgramEnd
from everspot_train.agent.endings import Ending
from everspot_train.agent.folder import FolderCheckpoints
from everspot_train.agent.hardware import Hardware
from everspot_train.agent.process import JobLaunch, LocalLauncher
from everspot_train.agent.profiles import LOOK_EVERY
from everspot_train.agent.session import OUTPUT_TIME, JobSession, renewal_interval
from everspot_train.agent.starter import Starter, Surroundings
from everspot_train.agent.utilization.counters import JobCounters
from everspot_train.agent.world import LeaseView
from everspot_train.rundir import (
    CheckpointRequest,
    LeaseFile,
    ProfileOrder,
    ProfileReport,
    RunContext,
    RunDir,
    Status,
    StopRequest,
    TrainingPhase,
)

CLOCK = ManualClock()
FINISHED = Ending(Reason.FINISHED, 0, 10, 10)
KILLED = Ending(Reason.NOTICE, -9, 9, 5)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    for name in ("control", "data"):
        (tmp_path / name).mkdir()
    return Store.open(f"file://{tmp_path}/control", f"file://{tmp_path}/data", clock=CLOCK)


@pytest.fixture
def session(store: Store, tmp_path: Path) -> JobSession:
    spec = JobSpec(name="toy", recipe="image_classification")
    submission = store.submit(JobSubmission(job_id="job-1", spec=spec, submitted_at=CLOCK.now()))
    store.records.create("job-1", transitions.assign(None, "job-1", "i-1", CLOCK.now()))
    lease = store.acquire("job-1", 1, "i-1", ttl=FAST.lease_ttl)
    assert lease is not None
    session = JobSession(store, CLOCK, lease, submission, tmp_path / "run", FAST)
    session.prepare(
        RunContext(
            job_id="job-1",
            epoch=1,
            instance_id="i-1",
            cloud="folder",
            control_url=store.control.url,
            submission=submission,
            scratch_dir=str(tmp_path / "run" / "scratch"),
        )
    )
    return session


def test_the_lease_is_renewed_while_the_rest_of_the_logs_is_written(
    store: Store, session: JobSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    (session.run_dir.path / "output.log").write_bytes(b"x" * (6 << 20))
    monkeypatch.setattr("everspot_train.agent.logs.CHUNK_BYTES", 1 << 20)
    append, views = store.logs.append, []

    def slowly(job_id: str, epoch: int, seq: int, data: bytes) -> None:
        append(job_id, epoch, seq, data)
        CLOCK.advance(renewal_interval(FAST))
        session.renew_if_due()  # as the agent's helper thread does
        views.append(session.lease_view())

    monkeypatch.setattr(store.logs, "append", slowly)
    assert session.conclude(FINISHED, None)

    assert views == [LeaseView.VALID] * 6
    assert not session.renew_if_due()
    document = store.records.get("job-1")
    assert document is not None and document.value.state is JobState.SUCCEEDED


def test_a_stall_is_told_and_shown_until_a_step_is_made(store: Store, session: JobSession) -> None:
    session.run_dir.write(Status(phase=TrainingPhase.TRAINING, step=10))
    session.stalled(10, 75.0, restart=False)
    CLOCK.advance(renewal_interval(FAST))

    assert session.renew_if_due()
    assert session.record.progress.stalled_seconds == pytest.approx(75 + renewal_interval(FAST).total_seconds())
    session.ship()
    (stall,) = [event for event in store.events("job-1") if event.kind is EventKind.STALLED]
    assert stall.data == {"step": 10, "seconds": 75.0, "restarted": False}

    session.run_dir.write(Status(phase=TrainingPhase.TRAINING, step=11))
    CLOCK.advance(renewal_interval(FAST))
    assert session.renew_if_due()
    assert session.record.progress.stalled_seconds is None


def test_that_nothing_is_kept_is_shown_and_logged_until_something_is(store: Store, session: JobSession) -> None:
    session.emit(EventKind.NOT_CHECKPOINTED, intervals=3, seconds=900.0, reason="a file is being written")
    CLOCK.advance(renewal_interval(FAST))
    assert session.renew_if_due()
    assert session.record.progress.unkept_seconds == 900
    line = "everspot: warning: nothing was kept for 900 s: a file is being written\n"
    assert (session.run_dir.path / "output.log").read_text() == line

    session.emit(EventKind.CHECKPOINTED, files=1, bytes=1, seconds=0.1, trigger="interval")
    CLOCK.advance(renewal_interval(FAST))
    assert session.renew_if_due()
    assert session.record.progress.unkept_seconds is None


@pytest.mark.parametrize(
    ("ending", "step", "durable"), [(FINISHED, 10, 10), (Ending(Reason.NOTICE, 0, 9, 9), 9, 9), (KILLED, 9, 5)]
)
def test_the_release_tells_the_last_step_and_the_newest_checkpoint(
    store: Store, session: JobSession, ending: Ending, step: int, durable: int
) -> None:
    session.run_dir.write(Status(phase=TrainingPhase.TRAINING, step=2, total_steps=10))
    CLOCK.advance(renewal_interval(FAST))
    assert session.renew_if_due()
    session.run_dir.write(Status(phase=TrainingPhase.TRAINING, step=step, total_steps=10, durable_step=durable))
    assert session.conclude(ending, None)
    document = store.records.get("job-1")
    assert document is not None
    progress = document.value.progress
    assert (progress.step, progress.total_steps, progress.durable_step) == (step, 10, durable)


def test_an_error_about_a_file_whose_name_is_not_utf_8_is_recorded(store: Store, session: JobSession) -> None:
    message = "not an image: " + os.fsdecode(b"caf\xe9.png")
    session.run_dir.write(Status(phase=TrainingPhase.FAILED, step=5, message=message))
    assert session.conclude(Ending(Reason.ERROR, 1, 5, None, message=message, traceback=message), None)
    document = store.records.get("job-1")
    assert document is not None and document.value.last_reason is Reason.ERROR
    assert document.value.detail.startswith("not an image: caf\\udce9.png")
    assert [event.data["message"] for event in store.events("job-1") if event.kind is EventKind.ERROR] == [
        "not an image: caf\\udce9.png"
    ]


@pytest.mark.parametrize("phase", [TrainingPhase.STARTING, TrainingPhase.RESTORING])
def test_while_a_program_starts_its_newest_checkpoint_is_what_is_done(
    store: Store, session: JobSession, phase: TrainingPhase
) -> None:
    session.run_dir.write(Status(phase=TrainingPhase.TRAINING, step=9, total_steps=10, durable_step=5))
    CLOCK.advance(renewal_interval(FAST))
    assert session.renew_if_due()
    session.run_dir.write(Status(phase=phase))  # started again
    assert session.conclude(Ending(Reason.NOTICE, None, 0, None), None)
    document = store.records.get("job-1")
    assert document is not None
    assert document.value.progress == Progress(step=5, total_steps=10, durable_step=5)


class Holding:
    """A program that holds so much memory."""

    gib: float | None = 2.0

    def cpu_seconds(self) -> float | None:
        return None

    def counters(self) -> JobCounters:
        return JobCounters()

    def limit_hit(self) -> float | None:
        return None

    def memory_gib(self) -> float | None:
        return self.gib

    def exit_code(self) -> int | None:
        return None

    def terminate(self, *, final: bool = False) -> None: ...

    def kill(self) -> None: ...


def test_the_peak_memory_is_reported_with_each_renewal(session: JobSession) -> None:
    def renew() -> tuple[float | None, float | None, bool | None]:
        CLOCK.advance(renewal_interval(FAST))
        assert session.renew_if_due()
        progress = session.record.progress
        return progress.memory_gib, progress.gpu_memory_gib, progress.mixed

    assert renew() == (None, None, None)
    program = Holding()
    session.started(program)
    assert renew() == (2.0, None, None)  # of one that says nothing itself
    program.gib = 1.0
    session.run_dir.write(Status(phase=TrainingPhase.TRAINING, step=1, gpu_memory_gib=11.25, mixed=True))
    assert renew() == (2.0, 11.25, True)
    program.gib = 3.0
    session.run_dir.write(Status(phase=TrainingPhase.TRAINING, step=2, gpu_memory_gib=9.0, mixed=True))
    assert renew() == (3.0, 11.25, True)
    program.gib = None
    session.run_dir.write(Status(phase=TrainingPhase.STARTING))  # started again
    assert renew() == (3.0, 11.25, True)


@pytest.mark.parametrize(
    ("error", "reason", "errors"),
    [
        (StoreDenied("403"), Reason.DENIED, 0),
        (FileNotFoundError("code/x"), Reason.MISSING, 1),
        (DigestMismatch("code/x", "a", "b"), Reason.MISSING, 1),
        (OSError(28, "No space left on device"), Reason.MACHINE, 0),
    ],
)
def test_code_that_cannot_be_had_is_a_reason_of_its_own_with_a_back_off(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, reason: Reason, errors: int
) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").touch()
    spec = JobSpec(name="toy", entrypoint=["train.py"], code=".")
    store.submit(JobSubmission(job_id="job-2", spec=spec, submitted_at=CLOCK.now()), tmp_path / "code")
    waits = []

    def refuse(*_: object) -> None:
        raise error

    monkeypatch.setattr(store, "fetch_code", refuse)
    starter = a_starter(store, tmp_path)
    for _ in range(3):
        old = store.records.get("job-2")
        new = transitions.assign(old.value if old else None, "job-2", "i-1", CLOCK.now())
        assert (store.records.replace("job-2", old, new) if old else store.records.create("job-2", new)) is not None
        session = starter.take(JobKey("job-2", new.epoch))
        assert session is not None
        starter.start(session)
        assert session.unstarted is not None
        assert session.conclude(session.unstarted, None)
        record = store.records.get("job-2")
        assert record is not None
        if not record.value.state.final:
            assert record.value.not_before is not None
            waits.append(record.value.not_before - record.value.changed_at)

    assert (record.value.last_reason, record.value.errors) == (reason, 3 * errors)
    assert record.value.state is (JobState.FAILED if errors else JobState.PENDING)
    assert str(error.args[-1] if errors == 0 else "could not be started") in record.value.detail
    assert waits == [timedelta(seconds=10) * 2**attempt for attempt in range(len(waits))]


@pytest.mark.parametrize(("used_gib", "lowered"), [(17.0, True), (12.0, False), (None, False)])
def test_a_job_that_moved_to_a_smaller_gpu_is_started_in_mixed_precision(
    store: Store, tmp_path: Path, used_gib: float | None, lowered: bool
) -> None:
    """Given a job that used so much in fp32, when it starts on 16 GiB, then it is lowered, with an event."""
    spec = JobSpec(
        name="j", recipe="image-classification", mixed_on_failover=True, resources=Resources(gpus=1, gpu_memory_gib=24)
    )
    store.submit(JobSubmission(job_id="job-3", spec=spec, submitted_at=CLOCK.now()))
    record = transitions.assign(None, "job-3", "i-1", CLOCK.now())
    progress = Progress(step=9, gpu_memory_gib=used_gib, mixed=False)
    store.records.create("job-3", record.model_copy(update={"progress": progress}))
    starter = a_starter(store, tmp_path, InstanceType(name="tiny", vcpus=2, memory_gib=8, gpus=1, gpu_memory_gib=16))
    session = starter.take(JobKey("job-3", record.epoch))
    assert session is not None

    starter.start(session)
    session.kill()
    context = RunDir(session.run_dir.path).read(RunContext)
    session.conclude(Ending(Reason.NOTICE, None, None, None), None)

    assert context is not None and context.mixed is lowered
    changes = [event.data for event in store.events("job-3") if event.kind is EventKind.PRECISION_CHANGED]
    expected = {"before": "fp32", "after": "mixed", "used_gib": used_gib, "gpu_memory_gib": 16.0}
    assert changes == ([expected] if lowered else [])


def a_starter(store: Store, home: Path, kind: InstanceType | None = None) -> Starter:
    """A starter without a program to launch. `kind`: a type of the cluster's own, which its instance is of."""
    own = [kind] if kind is not None else []
    manifest = Manifest(
        cluster="test", cloud="folder", control_url=store.control.url, data_url=store.data.url, limits=FAST,
        instance_types=own,
    )  # fmt: skip
    name = kind.name if kind is not None else "m5.large"
    identity = Identity(instance_id="i-1", instance_type=name, zone="us-east-1a", market=Market.SPOT)
    return Starter(
        store=store,
        manifest=manifest,
        identity=identity,
        hardware=Hardware(vcpus=2, memory_gib=8),
        processes=LocalLauncher(home / "runs", adopt=False),
        surroundings=Surroundings(home, {}),
        clock=CLOCK,
    )


@pytest.mark.parametrize(("assigned_hours", "hours"), [(7.5, 7.5), (None, USUAL_HOURS[Market.SPOT])])
def test_the_program_knows_the_notice_and_how_often_its_pool_is_interrupted(
    store: Store, tmp_path: Path, assigned_hours: float | None, hours: float
) -> None:
    submission = JobSubmission(job_id="job-4", spec=JobSpec(name="j", recipe="x"), submitted_at=CLOCK.now())
    store.submit(submission)
    store.records.create("job-4", transitions.assign(None, "job-4", "i-1", CLOCK.now()))
    starter = a_starter(store, tmp_path)
    session = starter.take(JobKey("job-4", 1))
    assert session is not None
    starter.start(session, hours_between_interruptions=assigned_hours)
    session.kill()
    context = RunDir(session.run_dir.path).read(RunContext)
    session.conclude(Ending(Reason.NOTICE, None, None, None), None)
    assert context is not None and context.hours_between_interruptions == hours
    reserve = FAST.notice_poll + FAST.stop_margin
    assert (context.notice, context.notice_reserve) == (timedelta(minutes=2), reserve)


@pytest.mark.parametrize("given_up", [False, True])
def test_a_lease_that_ran_out_is_renewed_as_long_as_nobody_else_has_the_job(
    store: Store, session: JobSession, given_up: bool
) -> None:
    CLOCK.advance(FAST.lease_ttl)
    assert session.lease_view() is LeaseView.SUSPENDED
    with pytest.raises(StoreUnavailable):
        session.conclude(FINISHED, None)
    old = store.records.get("job-1")
    assert old is not None
    if given_up:
        assert store.records.replace("job-1", old, transitions.expire(old.value, CLOCK.now())) is not None
    assert session.renew_if_due()
    assert session.lease_view() is LeaseView.VALID
    now = store.records.get("job-1")
    assert now is not None
    assert (now.value.state, now.value.epoch, now.value.preemptions) == (JobState.RUNNING, 1, 0)
    session.ship()
    assert [e.data["reclaimed"] for e in store.events("job-1")] == ([True] if given_up else [])


def test_a_lease_that_ran_out_is_lost_once_there_is_a_successor(store: Store, session: JobSession) -> None:
    CLOCK.advance(FAST.lease_ttl)
    old = store.records.get("job-1")
    assert old is not None
    lost = transitions.expire(old.value, CLOCK.now())
    successor = transitions.assign(lost, "job-1", "i-2", CLOCK.now())
    assert store.records.replace("job-1", old, successor) is not None
    assert not session.renew_if_due()
    assert session.lease_view() is LeaseView.LOST
    lease_file = session.run_dir.read(LeaseFile)
    assert lease_file is not None and lease_file.lost
    assert not session.conclude(FINISHED, None)
    assert store.events("job-1") == []


def test_a_disk_that_takes_no_more_files_does_not_end_the_agent(session: JobSession) -> None:
    for kind in (LeaseFile, StopRequest, CheckpointRequest):
        path = session.run_dir.file_path(kind)
        path.unlink(missing_ok=True)
        path.mkdir()  # nothing can be put in its place
    CLOCK.advance(renewal_interval(FAST))

    assert session.renew_if_due()
    session.ask_for_checkpoint(1)
    session.ask_to_stop(StopDemand(Reason.DRAIN, "drain", CLOCK.now(), None, None, timedelta(), timedelta()))

    assert session.lease_view() is LeaseView.VALID
    assert session.conclude(FINISHED, None)


def test_a_final_report_in_the_same_tick_of_the_kernels_clock_is_read(session: JobSession) -> None:
    path = session.run_dir.file_path(Status)
    session.run_dir.write(Status(phase=TrainingPhase.TRAINING, step=10))
    os.utime(path, ns=(0, 0))
    before = session.status()
    assert before is not None and before.phase is TrainingPhase.TRAINING

    session.run_dir.write(Status(phase=TrainingPhase.FENCED, step=10))
    os.utime(path, ns=(0, 0))
    after = session.status()
    assert after is not None and after.phase is TrainingPhase.FENCED


@pytest.fixture
def ended(store: Store, session: JobSession, tmp_path: Path) -> FolderCheckpoints:
    """The folder of checkpoints of a program that has saved and ended."""
    checkpoints = store.checkpoints("job-1", 1, guard=session.owns)
    folder = FolderCheckpoints(
        checkpoints, tmp_path / "checkpoints", tmp_path / "scratch", None, 2, session.emit, CLOCK
    )
    session.artifacts.put_back(folder)
    process = LocalLauncher(tmp_path, adopt=False).launch(JobLaunch(["true"], session.run_dir.path, tmp_path, {}))
    session.started(process)
    eventually("it has ended", lambda: session.exit_code() is not None)
    (folder.folder / "model.pt").write_text("weights")
    return folder


def test_a_profile_is_ordered_once_the_program_is_started(store: Store, session: JobSession, tmp_path: Path) -> None:
    """Given a request before the program's start, when the log is shipped, then the order waits for the start."""
    now = CLOCK.now()
    store.profile_requests.put("job-1", ProfileRequest(id="0a1b2c3d", epoch=1, at=now, valid_until=now))
    store.following.renew("job-1")
    session.ship()
    assert session.run_dir.read(ProfileOrder) is None
    session.started(LocalLauncher(tmp_path, adopt=False).launch(JobLaunch(["true"], tmp_path / "run", tmp_path, {})))
    session.ship()
    assert session.run_dir.read(ProfileOrder) == ProfileOrder(id="0a1b2c3d")
    eventually("it has ended", lambda: session.exit_code() is not None)


def count_checkpoints(store: Store) -> int:
    head = store.checkpoints("job-1").head()
    return len(head.checkpoints) if head is not None else 0


def test_a_profile_that_cannot_be_uploaded_does_not_stop_the_checkpoints(
    store: Store, session: JobSession, ended: FolderCheckpoints, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a store that takes no trace, when a program has recorded a profile, then its folder is published."""
    for name in ("create", "upload", "upload_view"):
        write = getattr(FolderBackend, name)

        def refuse(backend: FolderBackend, key: str, *arguments: Any, write: Any = write) -> Any:
            if "/outputs/" in key:
                raise StoreUnavailable("503")
            return write(backend, key, *arguments)

        monkeypatch.setattr(FolderBackend, name, refuse)
    session.artifacts.outputs = tmp_path / "outputs"
    (tmp_path / "outputs" / PROFILE_FOLDER).mkdir(parents=True)
    (tmp_path / "outputs" / PROFILE_FOLDER / "trace.json").write_text("{}")
    now = CLOCK.now()
    store.profile_requests.put("job-1", ProfileRequest(id="0a1b2c3d", epoch=1, at=now, valid_until=now))
    store.following.renew("job-1")
    session.ship()
    session.run_dir.write(ProfileReport(profile=Profile(id="0a1b2c3d", state=ProfileState.DONE, trace="trace.json")))
    failures = 0
    for _ in range(60):
        CLOCK.advance(timedelta(seconds=1))
        session.renew_if_due()
        try:
            session.keep_folder()
        except StoreUnavailable:
            failures += 1
    assert count_checkpoints(store) == 1
    assert 0 < failures <= 60 / LOOK_EVERY.total_seconds()


@pytest.mark.parametrize("renewed", [True, False])
def test_the_last_checkpoint_waits_for_the_renewal_of_the_lease(
    store: Store, session: JobSession, ended: FolderCheckpoints, monkeypatch: pytest.MonkeyPatch, renewed: bool
) -> None:
    keep = ended.keep_last

    def late(end: ProgramEnd) -> None:
        CLOCK.advance(FAST.lease_ttl)  # the machine stood still, or the store did
        keep(end)

    monkeypatch.setattr(ended, "keep_last", late)
    with pytest.raises(StoreUnavailable):
        session.conclude(FINISHED, None)
    assert count_checkpoints(store) == 0
    monkeypatch.undo()
    if not renewed:  # the store takes everything but the checkpoint
        monkeypatch.setattr(ended, "keep_last", lambda _: (_ for _ in ()).throw(StoreUnavailable("503")))
        assert session.renew_if_due()
        with pytest.raises(StoreUnavailable):
            session.conclude(FINISHED, None)
        CLOCK.advance(FAST.orphan_limit)
    assert session.renew_if_due()
    assert session.conclude(FINISHED, None)
    assert count_checkpoints(store) == (1 if renewed else 0)
    document = store.records.get("job-1")
    assert document is not None and document.value.state is JobState.SUCCEEDED


@pytest.mark.parametrize("noticed", [False, True])
def test_the_deletion_of_old_parts_ends_when_the_program_is_asked_to_stop(
    store: Store, session: JobSession, ended: FolderCheckpoints, monkeypatch: pytest.MonkeyPatch, noticed: bool
) -> None:
    """Given a folder with superseded checkpoints, when a notice arrives while they are deleted, then the deletion ends,
    so that the program's last checkpoint begins at once. Without a notice the deletion goes on to the end."""
    delete, deleted = store.data.delete, list[str]()
    end = CLOCK.monotonic() + timedelta(days=1)
    stop = StopDemand(Reason.NOTICE, "imds", CLOCK.now(), None, end, end, end)

    def note(key: str) -> bool:
        deleted.append(key)
        if noticed:
            session.ask_to_stop(stop)
        return delete(key)

    monkeypatch.setattr(store.data, "delete", note)
    for step in (1, 2, 3):
        for number in range(10):
            (ended.folder / f"step-{step}" / f"{number}.pt").parent.mkdir(exist_ok=True)
            (ended.folder / f"step-{step}" / f"{number}.pt").write_text(f"{step} {number}")
        if step > 1:
            rmtree(ended.folder / f"step-{step - 1}")
        for _ in range(70):
            CLOCK.advance(timedelta(seconds=1))
            session.renew_if_due()
            session.keep_folder()
    assert len(deleted) == (1 if noticed else 11)
    (ended.folder / "step-3" / "10.pt").write_text("last")
    assert session.conclude(FINISHED, stop if noticed else None)
    assert count_checkpoints(store) == 2
    assert len(deleted) == (1 if noticed else 22)


@pytest.mark.parametrize("failures", [3, 10_000])
def test_outputs_are_uploaded_again_to_a_store_that_did_not_answer(
    store: Store,
    session: JobSession,
    ended: FolderCheckpoints,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    failures: int,
) -> None:
    session.artifacts.outputs = tmp_path / "outputs"
    session.artifacts.outputs.mkdir()
    (tmp_path / "outputs" / "result.csv").write_text("1,2")
    upload, calls = store.data.upload, []

    def failing(key: str, path: Path, moved: Any = None) -> None:
        if "/outputs/" in key:
            calls.append(key)
            session.renew_if_due()  # as the agent's helper thread does
            if len(calls) <= failures:
                raise StoreUnavailable("503")
        upload(key, path)

    monkeypatch.setattr(store.data, "upload", failing)
    assert session.conclude(FINISHED, None)
    outputs = [output.path for output in store.outputs("job-1").list()]
    skipped = [event.data for event in store.events("job-1") if event.kind is EventKind.SKIPPED]
    if failures == 3:
        assert (outputs, skipped) == (["result.csv"], [])
    else:
        assert outputs == [] and skipped[0]["reason"] == "the store did not answer"
        assert len(calls) <= FAST.orphan_limit / timedelta(seconds=15) + 1


def test_outputs_are_uploaded_as_long_as_they_arrive(
    store: Store, session: JobSession, ended: FolderCheckpoints, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs = session.artifacts.outputs = tmp_path / "outputs"
    outputs.mkdir()
    for number in range(5):
        (outputs / f"{number}.json").write_text("{}")
    upload = store.data.upload

    def slowly(key: str, path: Path, moved: Moved | None = None) -> Uploaded:
        if "/outputs/" in key:
            CLOCK.advance(OUTPUT_TIME / 2)
            session.renew_if_due()  # as the agent's helper thread does
        return upload(key, path, moved)

    monkeypatch.setattr(store.data, "upload", slowly)
    assert session.conclude(FINISHED, None)
    document = store.records.get("job-1")
    assert document is not None and document.value.state is JobState.SUCCEEDED
    assert len(store.outputs("job-1").list()) == 5


@pytest.mark.parametrize(
    ("error", "reason"), [(StoreUnavailable("503"), Reason.MACHINE), (StoreDenied("403"), Reason.DENIED)]
)
def test_a_job_without_its_outputs_has_not_succeeded(
    store: Store,
    session: JobSession,
    ended: FolderCheckpoints,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    reason: Reason,
) -> None:
    outputs = session.artifacts.outputs = tmp_path / "outputs"
    outputs.mkdir()
    for name in ("a", "b"):
        (outputs / name).write_text(name)
    upload = store.data.upload

    def refuse(key: str, path: Path, moved: Moved | None = None) -> Uploaded:
        session.renew_if_due()  # as the agent's helper thread does
        if key.endswith("/outputs/000001/b"):
            raise error
        return upload(key, path, moved)

    monkeypatch.setattr(store.data, "upload", refuse)
    assert session.conclude(FINISHED, None)
    document = store.records.get("job-1")
    assert document is not None
    record = document.value
    assert (record.state, record.last_reason, record.unstarted) == (JobState.PENDING, reason, ["i-1"])
    assert record.incomplete_ends == 1
    assert "1 of its outputs are not uploaded: b (the store" in record.detail
    events = {event.kind: event.data for event in store.events("job-1")}
    assert EventKind.FINISHED not in events and events[EventKind.SKIPPED]["paths"] == ["b"]
    assert [output.path for output in store.outputs("job-1").list()] == ["a"]


@pytest.mark.parametrize(("steps", "failed_loads"), [((), 1), ((7,), 1), ((7, 8), 0)])
def test_a_program_that_made_steps_and_failed_has_loaded_its_checkpoint(
    store: Store, session: JobSession, tmp_path: Path, steps: tuple[int, ...], failed_loads: int
) -> None:
    """Given a program that begins with a checkpoint, when it fails after it has reported steps of its own and before it
    has saved, then the next attempt does not skip the checkpoint."""
    checkpoints = store.checkpoints("job-1", 1, guard=session.owns)
    checkpoints.fence()
    (tmp_path / "weights").write_text("weights")
    for step in (1, 2):
        checkpoints.publish(step, {f"epoch-{step}.ckpt": tmp_path / "weights"}, {"kind": "folder"})
    folder = FolderCheckpoints(
        checkpoints, tmp_path / "checkpoints", tmp_path / "scratch", None, 2, session.emit, CLOCK
    )
    session.artifacts.put_back(folder)
    assert session.artifacts.restored
    lines = "".join(f"echo EVERSPOT step={step};" for step in steps)
    launch = JobLaunch(["sh", "-c", f"{lines} exit 1"], session.run_dir.path, tmp_path, {})
    session.started(LocalLauncher(tmp_path, adopt=False).launch(launch))
    eventually("it has ended", lambda: session.exit_code() is not None)
    assert session.conclude(Ending(Reason.ERROR, 1, None, None), None)
    head = store.checkpoints("job-1").head()
    assert head is not None and head.checkpoints[0].failed_loads == failed_loads
