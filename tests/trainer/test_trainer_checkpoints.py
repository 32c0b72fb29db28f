"""When checkpoints are taken, which one is read if one is damaged, and the behaviour of a process that lost its job."""

import json
import shutil
import signal
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import torch
import trainer_loop
from everspot_core.jobs.records import EventKind, Reason
from everspot_store import StoreUnavailable
from everspot_train.rundir import StopRequest, TrainingPhase
from everspot_train.trainer import NonFiniteLoss, RunFenced, RunStopped
from trainer_loop import Settings
from trainer_post import JOB, Post, freeze, read_losses, wait_for

pytestmark = pytest.mark.torch


@pytest.fixture
def train(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """Trains the test loop in this process, for a post."""

    def run(post: Post, **settings: object) -> None:
        monkeypatch.setenv("EVERSPOT_RUN_DIR", str(post.root))
        trainer_loop.train(Settings(losses=tmp_path / f"losses-{post.epoch}", **settings))  # type: ignore[arg-type]

    return run


def published(post: Post) -> list[tuple[int, str]]:
    events = [event for event in post.store.events(JOB) if event.kind is EventKind.CHECKPOINTED]
    return [(event.data["step"], event.data["trigger"]) for event in events]


def test_a_finished_run_says_so_with_its_last_step_durable_and_its_history_written(
    post: Callable[..., Post], train: Callable[..., None]
) -> None:
    first = post(1)
    train(first)
    status = first.status
    assert (status.phase, status.step, status.total_steps, status.durable_step) == (TrainingPhase.FINISHED, 40, 40, 40)
    assert published(first) == [(40, "final")]
    [training] = [event for event in first.store.events(JOB) if event.kind is EventKind.TRAINING]
    assert (training.data["from_step"], training.data["restored"]) == (0, False)
    assert training.writer == "trainer-i-1"
    [stepped] = [event for event in first.store.events(JOB) if event.kind is EventKind.STEPPED]
    assert stepped.data["step"] == 1
    assert 0 < stepped.data["seconds"] < 60 and 0 < stepped.data["next_seconds"] < 60
    info = first.store.heads.get(JOB).value.checkpoints[0].info
    assert info["torch"] == torch.__version__
    assert {"cpu", "threads", "precision", "world_size"} <= set(info)
    assert not list((first.root / "scratch").glob("snapshot-*"))


def test_a_request_for_a_checkpoint_is_met_while_training_goes_on(
    post: Callable[..., Post], train: Callable[..., None]
) -> None:
    first = post(1)
    train(first, checkpoint_at=9)
    assert published(first) == [(9, "rebalance"), (40, "final")]
    assert first.steps_published == [40, 9]


def test_checkpoints_at_an_interval_come_no_faster_than_an_object_may_be_rewritten(
    post: Callable[..., Post], train: Callable[..., None]
) -> None:
    first = post(1, checkpoint={"steps": 3})
    begun = time.monotonic()
    train(first, pause=0.2)
    took = time.monotonic() - begun
    *intervals, last = published(first)
    assert last[1] == "final" and {trigger for _, trigger in intervals} == {"interval"}
    # Once in five seconds, of which a step takes a fifth of one at least; three steps would have been due.
    assert 1 <= len(intervals) <= took / 5
    assert 3 < intervals[0][0] <= 30
    metrics = [json.loads(line) for chunk in first.store.read_metrics(JOB) for line in chunk.data.splitlines()]
    assert all("loss" in line["metrics"] for line in metrics)
    # Of what the run itself noted, the last fifteen seconds: however fast this machine is, at most five a second.
    noted = [(datetime.fromisoformat(line["at"]), line["step"]) for line in metrics]
    now, step = noted[-1]
    since, before = next(n for n in noted if now - n[0] <= timedelta(seconds=15))
    rate = (step - before) / (now - since).total_seconds()
    assert first.status.steps_per_second == pytest.approx(rate, rel=0.1) and rate <= 5.1


def test_only_as_many_checkpoints_stay_as_the_policy_keeps(
    post: Callable[..., Post], train: Callable[..., None], stopped: Path, tmp_path: Path
) -> None:
    first = post(1)
    train(first, checkpoint_at=5)
    shutil.copytree(stopped / "store", tmp_path / "other")
    second = Post(root=tmp_path / "second", store_root=tmp_path / "other", epoch=2)
    train(second, checkpoint_at=20)
    assert second.steps_published == [40, 20]
    parts = (tmp_path / "other/data/jobs" / JOB / "checkpoints").rglob("manifest.json")
    assert {path.parent.name for path in parts} == {f"{step:012d}" for step in (20, 40)}


def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(
    post: Callable[..., Post], train: Callable[..., None], undisturbed: Path, tmp_path: Path
) -> None:
    with pytest.raises(RunStopped):
        train(post(1), checkpoint_at=9, stop_at=17)
    [part] = (tmp_path / "store/data").rglob("000000000017/stream-00000-000")
    content = bytearray(part.read_bytes())
    content[len(content) // 2] ^= 1
    part.write_bytes(content)
    second = post(2)
    train(second)
    assert second.status.resumed_from == 9
    assert read_losses(tmp_path / "losses-2") == read_losses(Path(f"{undisturbed}.0"))[9:]


def test_a_loss_that_is_no_number_ends_the_run_before_the_weights_take_it(
    post: Callable[..., Post], train: Callable[..., None]
) -> None:
    first = post(1)
    with pytest.raises(NonFiniteLoss, match="nan at step 6"):
        train(first, poison_at=6, precision="fp32")
    assert first.status.phase is TrainingPhase.FAILED
    assert "nan at step 6" in first.status.message
    assert first.steps_published == []


def test_a_run_that_cannot_reach_the_store_says_that_this_is_no_error_of_its_own(
    post: Callable[..., Post], train: Callable[..., None]
) -> None:
    first = post(1)
    heads = first.store_root / "control" / "heads"
    heads.write_text("a file in the place of the folder: nothing can be written below it")
    with pytest.raises(StoreUnavailable):
        train(first)
    assert (first.status.phase, first.status.cut_off) == (TrainingPhase.FAILED, True)

    heads.unlink()
    second = post(2)
    with pytest.raises(NonFiniteLoss):
        train(second, poison_at=6, precision="fp32")
    assert (second.status.phase, second.status.cut_off) == (TrainingPhase.FAILED, False)


def test_a_run_whose_lease_is_over_publishes_nothing(post: Callable[..., Post], train: Callable[..., None]) -> None:
    first = post(1)
    first.hold(-1, lost=True)
    with pytest.raises(RunFenced):
        train(first)
    assert first.status.phase is TrainingPhase.FENCED
    assert first.steps_published == []


def test_a_run_whose_lease_cannot_be_renewed_trains_on_and_publishes_once_it_is(
    post: Callable[..., Post], tmp_path: Path
) -> None:
    first = post(1)
    process = first.start(tmp_path / "first", SUSPEND_AT=3, CHECKPOINT_AT=5)
    wait_for(lambda: first.status.step == 40, first)
    assert (first.steps_published, process.poll()) == ([], None)
    first.hold(3600)
    assert process.wait(timeout=120) == 0
    assert first.status.phase is TrainingPhase.FINISHED
    assert first.steps_published == [40]


def test_a_run_that_finds_a_later_owner_leaves_at_once(post: Callable[..., Post], train: Callable[..., None]) -> None:
    later = post(2)
    later.store.checkpoints(JOB, 2).fence()
    first = post(1)
    with pytest.raises(RunFenced):
        train(first)
    assert first.status.phase is TrainingPhase.FENCED
    assert first.status.step == 0


def test_an_owner_that_was_suspended_past_its_lease_publishes_nothing_and_takes_nothing_away(
    post: Callable[..., Post], train: Callable[..., None], tmp_path: Path
) -> None:
    first = post(1)
    process = first.start(tmp_path / "first", CHECKPOINT_AT=5, PAUSE=0.3)
    wait_for(lambda: first.status.durable_step == 5, first)
    freeze(process, first)
    first.hold(-1)  # nobody renews for it
    second = post(2)
    train(second, checkpoint_at=20)
    before = everything(tmp_path / "store")
    process.send_signal(signal.SIGCONT)
    slept_at = first.status.step
    wait_for(lambda: first.status.step > slept_at, first)  # it trains on, since it knows no better
    assert everything(tmp_path / "store") == before
    first.hold(-1, lost=True)  # its agent has asked
    assert process.wait(timeout=120) == 0
    assert first.status.phase is TrainingPhase.FENCED
    assert everything(tmp_path / "store") == before
    assert second.steps_published == [40, 20]


def test_a_process_that_believes_in_its_lease_is_still_fenced_by_its_successor(
    post: Callable[..., Post], train: Callable[..., None], tmp_path: Path
) -> None:
    first = post(1)
    process = first.start(tmp_path / "first", STOP_AT=12, PAUSE=0.3)
    wait_for(lambda: first.status.step >= 1, first)
    freeze(process, first)  # however slow this machine is, it publishes nothing before its successor
    second = post(2)
    with pytest.raises(RunStopped):
        train(second, stop_at=3)
    process.send_signal(signal.SIGCONT)
    assert process.wait(timeout=120) == 0
    assert first.status.phase is TrainingPhase.FENCED
    assert second.steps_published == [3]


def test_another_number_of_threads_at_the_resume_is_a_warning(
    post: Callable[..., Post], train: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(RunStopped):
        train(post(1), stop_at=4)
    second = post(2)
    head = second.store.heads.get(JOB)
    checkpoint = head.value.checkpoints[0]
    changed = checkpoint.model_copy(update={"info": checkpoint.info | {"threads": 64}})
    second.store.heads.put(JOB, head.value.model_copy(update={"checkpoints": [changed]}))
    train(second)
    assert "threads was 64 and is 1 now" in caplog.text
    assert second.status.phase is TrainingPhase.FINISHED


def test_a_stop_before_the_first_step_needs_no_checkpoint(
    post: Callable[..., Post], train: Callable[..., None]
) -> None:
    first = post(1)
    first.rundir.write(StopRequest(reason=Reason.DRAIN))
    with pytest.raises(RunStopped):
        train(first)
    assert (first.status.phase, first.status.step, first.status.durable_step) == (TrainingPhase.STOPPED, 0, None)


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file() and stable(path)}


def stable(path: Path) -> bool:
    return not any(part in ("metrics", "events", ".everspot-store") for part in path.parts)
