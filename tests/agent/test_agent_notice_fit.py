"""What a notice costs a program whose folder of checkpoints takes longer to upload than the notice leaves."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from everspot_core.jobs.records import EventKind
from everspot_store import Checkpoints, ManualClock
from everspot_train.agent.notice_fit import FolderNoticeFit
from folder_helpers import Place, write

EVERY = timedelta(seconds=5)


class Judge:
    """The judge of one program's uploads, and the events that it wrote."""

    def __init__(self, scale: float = 1) -> None:
        self.events: list[dict[str, Any]] = []
        clock = ManualClock(scale=scale)
        self.fit = FolderNoticeFit(timedelta(seconds=120), timedelta(seconds=7), self._emit, clock)

    def _emit(self, kind: EventKind, **data: Any) -> None:
        assert kind is EventKind.CHECKPOINT_INTERVAL
        self.events.append(data)

    def upload(self, seconds: float, gap: float = 600, size_bytes: int = 40 * 10**9) -> None:
        self.fit.note_upload(timedelta(seconds=seconds), size_bytes, timedelta(seconds=gap))


def test_an_upload_within_the_notice_is_no_news() -> None:
    judge = Judge()
    judge.upload(113)
    assert judge.events == []


def test_an_upload_that_is_too_long_is_told_once_and_again_when_it_fits() -> None:
    judge = Judge()
    for seconds in (200, 210, 30, 40, 200):
        judge.upload(seconds)
    first, second, _ = judge.events
    assert first == {
        "cause": "chosen",
        "reason": "the program saved after 10m",
        "notice": "a checkpoint of 40 GB takes 200 s to be durable, longer than a notice of 120 s leaves: an "
        "interruption costs up to 13.3 min of work",
    }
    assert "notice" not in second


def test_where_the_clouds_time_runs_faster_its_own_times_are_reported() -> None:
    judge = Judge(scale=4)
    judge.upload(50, gap=150)
    assert judge.events[0]["reason"] == "the program saved after 10m"
    assert "takes 200 s to be durable" in judge.events[0]["notice"]


def test_a_folder_that_is_uploaded_slowly_has_the_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(tmp_path)
    keeper = place.keeper(1, EVERY, notice=timedelta(seconds=120))
    keeper.restore()
    publish = Checkpoints.publish

    def publish_slowly(self: Checkpoints, *arguments: Any, **options: Any) -> Any:
        place.clock.advance(timedelta(seconds=300))
        return publish(self, *arguments, **options)

    write(keeper, "model.ckpt", "state", rename=True)
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "publish", publish_slowly)
        place.look(keeper, 25)
    (event,) = place.list_events(EventKind.CHECKPOINT_INTERVAL)
    assert event["notice"].startswith("a checkpoint of 5 B takes 300 s to be durable, longer than a notice of 120 s")
