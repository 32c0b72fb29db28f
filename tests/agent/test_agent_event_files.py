"""Event files of TensorBoard that a program writes are in the store while it runs, with pictures and histograms."""

import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from agent_helpers import Cluster
from everspot_cli.tensorboard.program_files import ProgramFiles
from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_core.jobs.records import JobState
from everspot_store import Chunk, ManualClock, Store
from everspot_train.agent.actions import JobKey
from everspot_train.agent.steps import event_shipper
from everspot_train.agent.steps.event_shipper import SHIP_EVERY, EventFileShipper
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

PROGRAM = """
import numpy as np
from torch.utils.tensorboard import SummaryWriter
with SummaryWriter("runs/first") as writer:
    for step in range(3):
        writer.add_scalar("loss", 1 / (step + 1), step)
        writer.add_histogram("weights", np.arange(100.0), step)
        writer.add_image("sample", np.zeros((3, 8, 8), np.uint8), step)
"""


def read(folder: Path, store: Store, job: str = "job-1") -> ProgramFiles:
    files = ProgramFiles(folder)
    files.add(store.event_files.read(job))
    return files


def accumulate(folder: Path) -> EventAccumulator:
    sizes = {"tensors": 0, "scalars": 0, "histograms": 0, "images": 0}
    return EventAccumulator(str(folder), size_guidance=sizes).Reload()


@pytest.mark.torch
def test_pictures_and_histograms_of_a_real_summary_writer_are_shown(cluster: Cluster, tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "main.py").write_text(PROGRAM)
    spec = JobSpec(name="toy", entrypoint=["main.py"], code=str(code))
    cluster.store.submit(JobSubmission(job_id="job-1", spec=spec, submitted_at=cluster.clock.now()), code)
    cluster.assign("job-1", "i-1")
    cluster.start_agent("i-1")
    record = cluster.wait_state("job-1", JobState.SUCCEEDED, JobState.FAILED)
    assert record.state is JobState.SUCCEEDED, cluster.printed()
    assert read(tmp_path / "logs", cluster.store).count == 1
    shown = accumulate(tmp_path / "logs" / "program" / "attempt-1" / "runs" / "first")
    assert [event.step for event in shown.Scalars("loss")] == [0, 1, 2]
    assert [event.step for event in shown.Histograms("weights")] == [0, 1, 2]
    assert [(event.step, event.width, event.height) for event in shown.Images("sample")] == [
        (n, 8, 8) for n in range(3)
    ]


@pytest.fixture
def shipped(cluster: Cluster, tmp_path: Path) -> Any:
    """A shipper whose minutes the test makes, its clock, and its notes."""
    clock, notes, root = ManualClock(cluster.clock.now()), list[str](), tmp_path / "work"
    root.mkdir()
    return EventFileShipper(cluster.store, JobKey("job-1", 2), root, clock, notes.append), clock, notes


def test_a_file_grows_in_the_store_while_the_program_runs(cluster: Cluster, tmp_path: Path, shipped: Any) -> None:
    shipper, clock, _ = shipped
    path = tmp_path / "work" / "lightning_logs" / "events.out.tfevents.1"
    path.parent.mkdir()
    path.write_bytes(b"first ")
    copy = tmp_path / "logs" / "program" / "attempt-2" / "lightning_logs" / path.name

    def look(**options: bool) -> str:
        shipper.ship(**options)
        read(tmp_path / "logs", cluster.store)
        return copy.read_text() if copy.exists() else ""

    assert look() == "", "it is not due yet"
    clock.advance(SHIP_EVERY)
    assert look() == "first "
    with path.open("ab") as file:
        file.write(b"second")
    clock.advance(SHIP_EVERY - timedelta(seconds=1))
    assert look() == "first "
    assert look(last=True) == "first second"
    path.write_bytes(b"anew")
    assert look(last=True) == "anew"


def test_nothing_is_read_through_a_link_and_a_job_has_a_limit(
    cluster: Cluster, tmp_path: Path, shipped: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipper, _, notes = shipped
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "events.tfevents").write_bytes(b"secret")
    work = tmp_path / "work"
    (work / "link.tfevents").symlink_to(secret / "events.tfevents")
    (work / "runs").symlink_to(secret)
    os.mkfifo(work / "pipe.tfevents")
    links = [(work / name, 6) for name in ("link.tfevents", "runs/events.tfevents", "pipe.tfevents")]
    monkeypatch.setattr(event_shipper, "find_event_files", lambda _: links)  # as if the links came a moment later
    shipper.ship(last=True)
    assert list(cluster.store.event_files.read("job-1")) == []
    monkeypatch.undo()
    monkeypatch.setattr(event_shipper, "MOST_PER_ATTEMPT", 10)
    (work / "a.tfevents").write_bytes(b"1234567")
    (work / "b.tfevents").write_bytes(b"1234567")
    for _ in range(3):
        shipper.ship(last=True)
    assert len(list(cluster.store.event_files.read("job-1"))) == 1
    assert len(notes) == 1 and "are not copied any further" in notes[0]


@pytest.mark.parametrize(
    "header",
    [
        {"path": "../out.tfevents", "offset": 0, "attempt": 1},
        {"path": "/tmp/out.tfevents", "offset": 0, "attempt": 1},
        {"path": "a/../../out.tfevents", "offset": 0, "attempt": 1},
        {"path": ".bashrc", "offset": 0, "attempt": 1},
        {"path": "a.tfevents", "offset": -1, "attempt": 1},
        {"path": "a.tfevents"},
        ["a.tfevents"],
    ],
)
def test_a_piece_that_leads_elsewhere_is_left_out(tmp_path: Path, header: object) -> None:
    files = ProgramFiles(tmp_path / "logs" / "job-1")
    files.add([Chunk(1, 0, json.dumps(header).encode() + b"\nbytes")])
    assert files.count == 0
    assert list(tmp_path.rglob("*.tfevents")) == []
