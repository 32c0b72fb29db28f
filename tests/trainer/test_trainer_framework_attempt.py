"""What an integration of a framework reports, and what it remembers of it."""

import itertools
import os
import subprocess
import tracemalloc
from pathlib import Path

import program_forks
import pytest
import torch
from everspot_core.jobs.early_stop import StopRule
from everspot_train.frameworks.attempt import FrameworkAttempt
from everspot_train.frameworks.stopping import FrameworkStop
from everspot_train.rundir import RunContext, SavedState, StopReport
from trainer_post import JOB, Post

PROMOTED = Path(__file__).parents[1] / "agent" / "programs" / "frameworks" / "promoted.py"


@pytest.fixture
def post(tmp_path: Path) -> Post:
    return Post(tmp_path / "run", tmp_path / "store")


@pytest.mark.torch
def test_metrics_named_anew_at_each_step_cost_bounded_memory(post: Post, tmp_path: Path) -> None:
    attempt = FrameworkAttempt(post.rundir, tmp_path)
    sets = itertools.combinations([f"metric_{number}" for number in range(40)], 12)

    def report(count: int) -> None:
        for step, names in enumerate(itertools.islice(sets, count)):
            attempt.report(step, dict.fromkeys(names, 1.0))

    report(2000)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        report(20_000)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 4_000_000  # remembering all of them takes 16 MB


@pytest.mark.torch
def test_more_names_than_a_job_may_have_are_left_out_with_a_warning(
    post: Post, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    attempt = FrameworkAttempt(post.rundir, tmp_path)
    for step in range(5):
        attempt.report(step, {f"metric_{step * 50 + number}": 1.0 for number in range(50)})
    printed = capfd.readouterr().out
    assert "metric_199=" in printed and "metric_200=" not in printed
    (record,) = caplog.records
    assert "metric_200 and further ones are not reported" in record.getMessage()


@pytest.mark.torch
def test_a_saved_checkpoint_is_named_to_the_agent_relative_to_its_folder(post: Post, tmp_path: Path) -> None:
    attempt = FrameworkAttempt(post.rundir, tmp_path / "checkpoints")
    attempt.note_saved(5)
    assert post.rundir.read(SavedState) is None
    attempt.note_saved(20, tmp_path / "checkpoints" / "everspot" / "step=20.ckpt")
    assert post.rundir.read(SavedState) == SavedState(step=20, path="everspot/step=20.ckpt")


LIGHTNING = """
import torch
from everspot_train.frameworks.lightning import fit
from lightning.pytorch import LightningModule, Trainer

class TwoOptimizers(LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.first, self.second = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)

    def training_step(self, batch, index):
        for optimizer, layer in zip(self.optimizers(), (self.first, self.second)):
            optimizer.zero_grad()
            self.manual_backward(layer(batch).square().mean())
            optimizer.step()

    def configure_optimizers(self):
        return [torch.optim.SGD(layer.parameters(), 0.1) for layer in (self.first, self.second)]

settings = dict(logger=False, enable_progress_bar=False, enable_model_summary=False, accelerator="cpu")
trainer = Trainer(max_epochs=4, **settings)
fit(trainer, TwoOptimizers(), torch.utils.data.DataLoader(torch.randn(12, 2), batch_size=4))
"""


@pytest.mark.torch
@pytest.mark.timeout(600)
def test_steps_of_two_optimizers_count_as_lightning_counts_them(post: Post, tmp_path: Path) -> None:
    """Three batches of two steps each are an epoch. Before one has been counted, no figure is better than a wrong one,
    by which the job's remaining time would be planned."""
    env = os.environ | {
        "EVERSPOT_RUN_DIR": str(post.rundir.path), "EVERSPOT_CHECKPOINT_DIR": str(tmp_path / "checkpoints"),
    }  # fmt: skip

    (tmp_path / "train.py").write_text(LIGHTNING)
    done = subprocess.run(
        [*program_forks.command(), "train.py"],
        env=env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("EVERSPOT ")]
    assert lines, done.stderr
    assert lines[0] == "EVERSPOT step=0"
    assert "EVERSPOT step=6 total_steps=24 steps_per_epoch=6" in lines
    assert lines[-1].startswith("EVERSPOT step=24 total_steps=24")


def promote(post: Post) -> None:
    """Make the run that of a trial that begins from the checkpoint of the run before."""
    context = post.rundir.read(RunContext)
    assert context is not None
    update = {"job_id": f"{JOB}-r1", "retry_of": JOB, "warm_start": True}
    post.rundir.write(context.model_copy(update={"submission": context.submission.model_copy(update=update)}))


def made_steps(post: Post, folder: Path, framework: str, epochs: int, samples: int) -> dict[int, float]:
    """Return the steps that a program makes, with their learning rates."""
    env = os.environ | {
        "EVERSPOT_RUN_DIR": str(post.rundir.path), "EVERSPOT_CHECKPOINT_DIR": str(folder / "checkpoints"),
        "FRAMEWORK": framework, "EPOCHS": str(epochs), "SAMPLES": str(samples),
    }  # fmt: skip
    done = subprocess.run(
        [*program_forks.command(), str(PROMOTED)], env=env, cwd=folder, capture_output=True, text=True, timeout=500,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith("made ")]
    return {int(step): float(rate) for _, step, rate in lines}


@pytest.mark.torch
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("framework", "epochs", "samples", "last_step", "schedule_from"),
    [
        ("transformers", 3, 32, 24, 8), pytest.param("transformers", 1, 96, 24, 8, marks=pytest.mark.nightly),
        ("lightning", 3, 32, 24, 8), ("lightning", 1, 96, 32, 0),
        ("accelerate", 3, 32, 24, 8), ("accelerate", 1, 96, 32, 0),
    ],
)  # fmt: skip
def test_a_promoted_trial_trains_on_with_the_schedule_of_the_larger_run(
    post: Post, tmp_path: Path, framework: str, epochs: int, samples: int, last_step: int, schedule_from: int
) -> None:
    """The smaller run ended, and its checkpoint says so. Where the larger run has as many epochs, of more data,
    Lightning's and Accelerate's epochs begin anew, and the schedule with them."""
    small = made_steps(post, tmp_path, framework, 1, 32)
    assert list(small) == list(range(1, 9))
    promote(post)
    large = made_steps(post, tmp_path, framework, epochs, samples)
    assert list(large) == list(range(9, last_step + 1))
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], 0.1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=24, pct_start=0.25)
    rates = []
    for _ in range(24):
        rates.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    assert list(large.values()) == pytest.approx(rates[schedule_from:], abs=1e-6)
    assert made_steps(post, tmp_path, framework, epochs, samples) == {}  # its own end counts


def test_a_disk_that_takes_no_report_does_not_end_a_loop(post: Post) -> None:
    """Given a run directory that takes no file, when the job's `stop` ends a loop, then the loop ends as usual."""
    post.rundir.file_path(StopReport).mkdir()  # nothing can be put in its place
    stop = FrameworkStop(post.rundir, StopRule(metric="loss", patience=1), lambda flag: flag)
    stop.add(1, 0.5)
    stop.add(2, 0.7)
    assert stop.should_end(2, total_steps=10)
    assert stop.early_stop is not None
