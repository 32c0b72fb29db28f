"""One ownership in the agent's hands, on a folder store, by a clock that is turned by hand."""

import os
from datetime import timedelta
from pathlib import Path

import pytest
from agent_kit import FAST
from everspot_core import lease as transitions
from everspot_core.job import JobSpec, JobSubmission
from everspot_core.records import JobState, Reason
from everspot_store import ManualClock, Store
from everspot_train.agent.decide import LeaseView, Stop
from everspot_train.agent.endings import Ending
from everspot_train.agent.session import Session
from everspot_train.rundir import CheckpointRequest, LeaseFile, Phase, RunContext, Status, StopRequest

CLOCK = ManualClock()
FINISHED = Ending(Reason.FINISHED, 0, 10, 10)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    for name in ("control", "data"):
        (tmp_path / name).mkdir()
    return Store.open(f"file://{tmp_path}/control", f"file://{tmp_path}/data", clock=CLOCK)


@pytest.fixture
def session(store: Store, tmp_path: Path) -> Session:
    spec = JobSpec(name="toy", recipe="image_classification")
    submission = store.submit(JobSubmission(job_id="job-1", spec=spec, submitted_at=CLOCK.now()))
    store.records.create("job-1", transitions.assign(None, "job-1", "i-1", CLOCK.now()))
    lease = store.acquire("job-1", 1, "i-1", ttl=FAST.lease_ttl)
    assert lease is not None
    session = Session(store, CLOCK, lease, submission, tmp_path / "run", FAST)
    session.prepare(
        RunContext(
            job_id="job-1",
            epoch=1,
            instance_id="i-1",
            control_url=store.control.url,
            submission=submission,
            scratch_dir=str(tmp_path / "run" / "scratch"),
        )
    )
    return session


def test_the_lease_is_renewed_while_the_rest_of_the_logs_is_written(
    store: Store, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    (session.run_dir.path / "output.log").write_bytes(b"x" * (6 << 20))
    append, views = store.append_log, []

    def slowly(job_id: str, epoch: int, seq: int, data: bytes) -> None:
        append(job_id, epoch, seq, data)
        CLOCK.advance(timedelta(seconds=6))
        session.renew_if_due()  # as the agent's helper thread does
        views.append(session.lease_view())

    monkeypatch.setattr(store, "append_log", slowly)
    assert session.conclude(FINISHED, None)

    assert views == [LeaseView.VALID] * 6
    assert not session.renew_if_due()
    found = store.records.get("job-1")
    assert found is not None and found.value.state is JobState.SUCCEEDED


def test_a_disk_that_takes_no_more_files_does_not_end_the_agent(session: Session) -> None:
    for kind in (LeaseFile, StopRequest, CheckpointRequest):
        path = session.run_dir.path_of(kind)
        path.unlink(missing_ok=True)
        path.mkdir()  # nothing can be put in its place
    CLOCK.advance(FAST.beat_every)

    assert session.renew_if_due()
    session.ask_for_checkpoint(1)
    session.ask_to_stop(Stop(Reason.DRAIN, "drain", CLOCK.now(), None, None, timedelta(), timedelta()))

    assert session.lease_view() is LeaseView.VALID
    assert session.conclude(FINISHED, None)


def test_a_last_word_in_the_same_tick_of_the_kernels_clock_is_heard(session: Session) -> None:
    path = session.run_dir.path_of(Status)
    session.run_dir.write(Status(phase=Phase.TRAINING, step=10))
    os.utime(path, ns=(0, 0))
    before = session.status()
    assert before is not None and before.phase is Phase.TRAINING

    session.run_dir.write(Status(phase=Phase.FENCED, step=10))
    os.utime(path, ns=(0, 0))
    after = session.status()
    assert after is not None and after.phase is Phase.FENCED
