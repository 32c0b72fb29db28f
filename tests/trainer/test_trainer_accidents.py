"""A job's losses and weights are bitwise identical under any faults of its processes and its storage.

The ordinary suite has 28 accidents, seven in each of four jobs: kills of ranks and of the writer, a notice, storage
that fails or is slow, full disk and shared memory. The nightly tests have 1,008 more. Agents are killed in
`tests/faults/test_faults_random_kills.py`.
"""

from pathlib import Path

import pytest
import torch
from trainer_accidents import ACCIDENTS as KINDS
from trainer_accidents import Story, run_with_accidents
from trainer_post import read_losses
from trainer_sharded import __file__ as SHARDED

pytestmark = pytest.mark.torch

ACCIDENTS = 7
"""For each job and seed."""
NIGHTLY_SEEDS = range(2, 38)


@pytest.fixture(scope="module", params=["one process", "large state", "two ranks", "shards"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


SETTINGS: dict[str, dict[str, object]] = {
    "one process": {"PAUSE": 0.05},
    "large state": {"PAUSE": 0.05, "BALLAST": 150 << 20},
    "two ranks": {"PAUSE": 0.05, "ranks": 2},
    "shards": {"PAUSE": 0.05, "ranks": 2, "script": Path(SHARDED)},
}


@pytest.fixture(scope="module")
def reference(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The losses of the same job without accidents."""
    folder = tmp_path_factory.mktemp("reference")
    story = run_with_accidents(folder, 0, 0, **SETTINGS[kind])  # type: ignore[arg-type]
    assert len(story.attempts) == 1
    return story.attempts[0] / "losses"


def check(story: Story, reference: Path) -> None:
    """Each attempt resumed from the newest checkpoint, and every loss is that of the reference.

    A writer may publish for half a second after its trainer was killed, so an attempt may resume from a later step.
    """
    assert story.struck.total() == ACCIDENTS and story.struck.keys() == KINDS.keys(), story.struck
    expected = read_losses(Path(f"{reference}.0"))
    records = [Path(f"{root}/losses.0") for root in story.attempts]
    losses = read_losses(*(record for record in records if record.exists()))
    assert set(losses) == set(expected)
    assert all((resumed or 0) >= (published or 0) for published, resumed in story.resumed), story.resumed
    weights = [torch.load(f"{losses}.weights") for losses in (reference, story.attempts[-1] / "losses")]
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(value, weights[1][name]) for name, value in weights[0].items())


@pytest.mark.parametrize("seed", [1])
def test_accidents_change_no_bit(kind: str, reference: Path, tmp_path: Path, seed: int) -> None:
    story = run_with_accidents(tmp_path, seed, ACCIDENTS, **SETTINGS[kind])  # type: ignore[arg-type]
    check(story, reference)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", NIGHTLY_SEEDS)
def test_a_thousand_accidents_change_no_bit(kind: str, reference: Path, tmp_path: Path, seed: int) -> None:
    story = run_with_accidents(tmp_path, seed, ACCIDENTS, **SETTINGS[kind])  # type: ignore[arg-type]
    check(story, reference)


def test_the_suite_has_as_many_accidents_as_it_claims() -> None:
    assert len(SETTINGS) * ACCIDENTS >= 25
    assert len(SETTINGS) * ACCIDENTS * len(NIGHTLY_SEEDS) >= 1000
