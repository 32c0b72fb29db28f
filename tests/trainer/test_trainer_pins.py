"""Invariants that the first attempt fixes: later attempts train with the same values, or do not train."""

import pytest
import torch
from everspot_core.jobs.job import Precision
from everspot_train.trainer.errors import StateMismatch
from everspot_train.trainer.precision import resolve
from everspot_train.trainer.run_invariants import RunInvariants

pytestmark = pytest.mark.torch

CPU = torch.device("cpu")
BEGUN = {"precision": "fp16", "world_size": 4, "accumulation": 2, "global_batch": 64}


@pytest.mark.parametrize(
    ("info", "requested", "batch_size", "world_size", "expected"),
    [
        ({}, 3, 8, 1, 3),  # the first attempt is free
        (BEGUN, 2, 8, 4, 2),  # nothing changed
        (BEGUN, 2, 8, 1, 8),  # fewer processes
        (BEGUN, 2, 8, 8, 1),  # more of them
        (BEGUN, 2, 32, 1, 2),  # the program has made up for it by itself
        (BEGUN, 2, None, 1, 8),  # nobody knows the batch: it is the same
        (BEGUN | {"global_batch": None}, 2, 8, 2, 4),
        ({"precision": "fp16", "world_size": 4}, 2, 8, 1, 2),  # of a release that did not say
    ],
)
def test_the_global_batch_stays_what_it_was(
    info: dict[str, object], requested: int, batch_size: int | None, world_size: int, expected: int
) -> None:
    assert RunInvariants(info).accumulation(requested, batch_size, world_size) == expected


@pytest.mark.parametrize(("batch_size", "world_size"), [(8, 3), (128, 1), (None, 16)])
def test_a_global_batch_that_cannot_be_is_refused(batch_size: int | None, world_size: int) -> None:
    with pytest.raises(StateMismatch, match="per optimizer step"):
        RunInvariants(BEGUN).accumulation(2, batch_size, world_size)


def test_auto_stays_what_it_was_and_another_format_is_refused() -> None:
    assert RunInvariants({}).precision(Precision.AUTO, CPU) is resolve(Precision.AUTO, CPU)
    assert RunInvariants(BEGUN).precision(Precision.AUTO, CPU) is Precision.FP16
    assert RunInvariants(BEGUN).precision(Precision.FP16, CPU) is Precision.FP16
    with pytest.raises(StateMismatch, match="begun with precision fp16, and bf16"):
        RunInvariants(BEGUN).precision(Precision.BF16, CPU)


@pytest.mark.parametrize(
    ("pinned", "lowered", "expected"),
    [
        (None, False, Precision.FP32),  # the first attempt of a job that allows the change begins exactly
        (None, True, resolve(Precision.AUTO, CPU)),  # it changed before it had a checkpoint
        ("fp32", False, Precision.FP32),
        ("fp32", True, resolve(Precision.AUTO, CPU)),
        ("fp16", True, Precision.FP16),  # once mixed, it stays what it is
        ("bf16", False, Precision.BF16),
    ],
)
def test_a_job_that_allows_it_changes_to_mixed_precision_after_a_failover(
    pinned: str | None, lowered: bool, expected: Precision
) -> None:
    pins = RunInvariants({"precision": pinned} if pinned else {})
    assert pins.precision(Precision.AUTO, CPU, lowered=lowered) is expected


def test_a_program_that_names_a_format_is_not_lowered() -> None:
    assert RunInvariants({}).precision(Precision.TF32, CPU, lowered=True) is Precision.TF32
    with pytest.raises(StateMismatch, match="begun with precision fp32, and bf16"):
        RunInvariants({"precision": "fp32"}).precision(Precision.BF16, CPU, lowered=True)
