"""Models, wrappers and optimizers of PyTorch and of other libraries resume bit by bit, sharded or not."""

from pathlib import Path

import pytest
import torch
from trainer_post import Post

pytestmark = pytest.mark.torch

SCRIPT = Path(__file__).with_name("trainer_programs.py")
STOP = 7


@pytest.mark.parametrize(
    ("program", "ranks", "precision"),
    [
        ("optimizers", 1, "fp32"),
        ("transformers", 2, "fp32"),
        ("wrapped", 1, "fp16"),
        pytest.param("wrapped", 2, "bf16", marks=pytest.mark.nightly),
    ],
)
def test_a_program_that_a_notice_interrupts_ends_as_the_undisturbed_one(
    program: str, ranks: int, precision: str, tmp_path: Path
) -> None:
    settings = {"PROGRAM": program, "PRECISION": precision, "HF_HUB_OFFLINE": 1}
    undisturbed = Post(root=tmp_path / "undisturbed", store_root=tmp_path / "other")
    undisturbed.run_ranks(tmp_path / "expected", ranks, script=SCRIPT, **settings)
    first = Post(root=tmp_path / "first", store_root=tmp_path / "store")
    first.run_ranks(tmp_path / "resumed", ranks, script=SCRIPT, STOP_AT=STOP, **settings)
    assert (first.status.phase, first.status.durable_step) == ("stopped", STOP)
    second = Post(root=tmp_path / "second", store_root=tmp_path / "store", epoch=2)
    second.run_ranks(tmp_path / "resumed", ranks, script=SCRIPT, **settings)
    assert (second.status.phase, second.status.resumed_from) == ("finished", STOP)
    for rank in range(ranks):
        expected, resumed = ((tmp_path / f"{name}.{rank}").read_text() for name in ("expected", "resumed"))
        assert resumed == expected
    weights, resumed_weights = (torch.load(tmp_path / f"{name}.weights") for name in ("expected", "resumed"))
    for expected_state, state in zip(weights, resumed_weights, strict=True):
        assert expected_state.keys() == state.keys()
        assert all(torch.equal(value, state[name]) for name, value in expected_state.items())
