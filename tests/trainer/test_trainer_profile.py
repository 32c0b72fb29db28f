"""A profile of a running loop: steps are recorded at an order, and no step computes anything else for it."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from everspot_core.jobs.profile import Profile, ProfileState
from everspot_train import step_profiler
from everspot_train.rundir import ProfileOrder, ProfileReport, RunDir
from everspot_train.step_profiler import LoopTimes, StepProfiler
from torch import nn
from trainer_post import Post, read_losses

pytestmark = pytest.mark.torch
ORDER = ProfileOrder(id="0a1b2c3d", steps=6)


def read_profile(rundir: RunDir) -> Profile:
    report = rundir.read(ProfileReport)
    assert report is not None and report.profile is not None
    return report.profile


def test_a_profile_names_operations_and_data_and_changes_no_loss(
    post: Callable[..., Post], undisturbed: Path, tmp_path: Path
) -> None:
    profiled = post()
    profiled.rundir.write(ORDER)
    profiled.run(tmp_path / "losses", EVERSPOT_OUTPUT_DIR=tmp_path / "outputs", WORKERS=2)
    assert read_losses(tmp_path / "losses.0") == read_losses(Path(f"{undisturbed}.0"))
    profile = read_profile(profiled.rundir)
    assert (profile.id, profile.state, profile.steps, profile.first_step) == (ORDER.id, ProfileState.DONE, 6, 7)
    operations = {operation.name: operation for operation in profile.operations}
    assert operations["aten::addmm"].calls == 6 * 2 * 2  # two layers, and two batches a step
    assert "Optimizer.step#AdamW.step" in operations
    assert sum(profile.share(operation) for operation in profile.operations) == pytest.approx(1, abs=0.01)
    assert profile.gpu_seconds is None and profile.step_seconds > 0 and profile.plain_step_seconds > 0
    assert profile.data is not None and profile.data.loader == "DataLoader" and profile.data.workers == 2
    assert profile.data.wait_seconds > 0 and 0 < profile.data_wait_share <= 1
    trace = tmp_path / "outputs" / "profile" / profile.trace
    assert [path.name for path in trace.parent.iterdir()] == ["steps-7-12-0a1b2c3d.trace.json.gz"]
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    assert sum(event["name"] == "aten::addmm" for event in events) == 24
    assert trace.stat().st_size == profile.trace_bytes


def test_an_interrupted_profile_ends_cleanly_and_the_resumed_losses_are_the_same(
    post: Callable[..., Post], undisturbed: Path, tmp_path: Path
) -> None:
    first = post()
    first.rundir.write(ProfileOrder(id=ORDER.id, steps=30))
    first.run(tmp_path / "losses", STOP_AT=17, EVERSPOT_OUTPUT_DIR=tmp_path / "outputs")
    assert first.status.phase == "stopped" and first.status.durable_step == 17
    profile = read_profile(first.rundir)
    assert (profile.state, profile.message) == ("cut-off", "training ended before 30 steps were recorded")
    second = post(2)
    second.run(tmp_path / "rest")
    whole = read_losses(tmp_path / "losses.0", tmp_path / "rest.0")
    assert whole == read_losses(Path(f"{undisturbed}.0"))


def test_a_loop_that_ends_within_a_profile_reports_the_steps_that_it_made(
    post: Callable[..., Post], tmp_path: Path
) -> None:
    short = post()
    short.rundir.write(ProfileOrder(id=ORDER.id, steps=200))
    short.run(tmp_path / "losses", EVERSPOT_OUTPUT_DIR=tmp_path / "outputs")
    profile = read_profile(short.rundir)
    assert (profile.state, profile.first_step, profile.steps) == (ProfileState.DONE, 7, 34)


def test_of_two_ranks_the_first_is_profiled(post: Callable[..., Post], tmp_path: Path) -> None:
    pair = post()
    pair.rundir.write(ORDER)
    pair.run_ranks(tmp_path / "losses", 2, EVERSPOT_OUTPUT_DIR=tmp_path / "outputs")
    profile = read_profile(pair.rundir)
    assert (profile.state, profile.steps, profile.ranks) == (ProfileState.DONE, 6, 2)


class Loop:
    """Steps of a small model with a profiler between them, in this process."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder.mkdir()
        monkeypatch.setenv("EVERSPOT_OUTPUT_DIR", str(folder / "outputs"))
        self.rundir = RunDir(folder)
        self.step, self.seconds = 0, 0.0
        self.model = nn.Linear(4, 4)
        self.profiler = StepProfiler(self.rundir, times=lambda: LoopTimes(self.seconds))

    def go(self, steps: int, seconds: float = 1.0) -> None:
        for _ in range(steps):
            self.model(torch.ones(2, 4)).sum().backward()
            self.step, self.seconds = self.step + 1, self.seconds + seconds
            self.profiler.between_steps(self.step)


@pytest.fixture
def loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Loop:
    return Loop(tmp_path / "run", monkeypatch)


def test_without_an_order_a_program_says_only_that_it_can_be_profiled(loop: Loop) -> None:
    loop.go(3)
    assert loop.rundir.read(ProfileReport) == ProfileReport()


def test_one_order_is_carried_out_once_and_the_next_one_too(loop: Loop) -> None:
    loop.rundir.write(ORDER)
    loop.go(30)
    loop.profiler.close()
    assert read_profile(loop.rundir).first_step == 8  # looked at behind step 1; five plain steps, one to warm up
    loop.rundir.write(ProfileOrder(id="ffffffff", steps=2))
    loop.go(30)
    loop.profiler.close()
    second = read_profile(loop.rundir)
    assert (second.id, second.steps, second.step_seconds, second.plain_step_seconds) == ("ffffffff", 2, 1.0, 1.0)


def test_one_slow_step_beside_the_recording_changes_no_figure_of_its_cost(loop: Loop) -> None:
    """Given a step of a minute among those before, one among the recorded and one behind, then the medians count."""
    loop.rundir.write(ProfileOrder(id=ORDER.id, steps=5))
    loop.go(2)  # finds the order, and a first step without the profiler
    loop.go(1, seconds=60.0)
    loop.go(4)  # three more, and one to warm up
    loop.go(4, seconds=1.25)
    loop.go(1, seconds=60.0)
    loop.go(1, seconds=60.0)
    loop.go(6)
    loop.profiler.close()
    profile = read_profile(loop.rundir)
    assert (profile.steps, profile.median_step_seconds) == (5, 1.25)
    assert (profile.plain_steps, profile.plain_step_seconds, profile.slowdown) == (10, 1.0, 0.25)
    assert profile.profiler_seconds == pytest.approx(5 * 0.25 + profile.stopped_seconds)


def test_an_order_that_is_taken_back_in_time_is_not_carried_out(loop: Loop) -> None:
    loop.rundir.write(ORDER)
    loop.go(3)
    loop.rundir.remove(ProfileOrder)
    loop.go(30)
    assert loop.rundir.read(ProfileReport) == ProfileReport()


def test_slow_steps_end_the_recording_early(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_profiler, "LONGEST_RECORDING", 3.0)
    loop.rundir.write(ProfileOrder(id=ORDER.id, steps=100))
    loop.go(20)
    loop.profiler.close()
    assert read_profile(loop.rundir).steps == 3


def test_a_trace_that_is_too_large_is_left_out_with_the_reason(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_profiler, "MOST_TRACE_BYTES", 100)
    loop.rundir.write(ORDER)
    loop.go(20)
    loop.profiler.close()
    profile = read_profile(loop.rundir)
    assert profile.state is ProfileState.DONE and profile.operations
    assert profile.trace == "" and "profile fewer steps" in profile.trace_note
    assert list((loop.rundir.path / "outputs" / "profile").iterdir()) == []


def test_a_program_that_profiles_itself_keeps_its_profiler_and_goes_on(loop: Loop) -> None:
    loop.rundir.write(ORDER)
    with torch.profiler.profile() as own:
        loop.go(30)
        loop.profiler.close()
    assert read_profile(loop.rundir).state is ProfileState.FAILED
    assert any(event.key == "aten::addmm" for event in own.key_averages())


def test_a_profiler_of_the_program_that_begins_meanwhile_ends_the_recording(tmp_path: Path) -> None:
    rundir = RunDir(tmp_path)
    rundir.write(ProfileOrder(id=ORDER.id, steps=20))
    profiler = StepProfiler(rundir)
    layer, own = nn.Linear(4, 4), None
    for step in range(1, 40):
        if step == 20:
            own = torch.profiler.profile(
                activities=[torch.profiler.ProfilerActivity.CPU],
                schedule=torch.profiler.schedule(wait=1, warmup=1, active=3, repeat=1),
            )
            own.start()
        layer(torch.randn(2, 4)).sum().backward()
        if own is not None:
            own.step()
        profiler.between_steps(step)
    profiler.close()
    profile = read_profile(rundir)
    assert profile.state is ProfileState.FAILED and "the program began a profiler of its own" in profile.message
    assert own is not None and any(event.name == "aten::addmm" for event in own.events())
