"""Precision and steps: the data type of the forward pass, the effect of an overflow, and errors that end the run."""

from typing import Any

import pytest
import torch
from everspot_core.jobs.job import Precision
from everspot_train.trainer import NonFiniteLoss
from everspot_train.trainer.environment import cpu_has_bf16
from everspot_train.trainer.finite_checks import FiniteChecks, _PendingCheck
from everspot_train.trainer.precision import MixedPrecision, resolve
from everspot_train.trainer.stepper import Stepper
from torch import nn

pytestmark = pytest.mark.torch

CPU = torch.device("cpu")


def test_auto_is_bf16_where_the_processor_has_it_and_full_precision_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve(Precision.AUTO, CPU) is (Precision.BF16 if cpu_has_bf16() else Precision.FP32)
    monkeypatch.setattr("everspot_train.trainer.precision.cpu_has_bf16", lambda: False)
    assert resolve(Precision.AUTO, CPU) is Precision.FP32
    assert resolve(Precision.FP16, CPU) is Precision.FP16


@pytest.mark.parametrize(
    ("precision", "dtype"), [("bf16", torch.bfloat16), ("fp16", torch.float16), ("fp32", torch.float32)]
)
def test_the_forward_pass_runs_in_the_chosen_format(precision: str, dtype: torch.dtype) -> None:
    amp = MixedPrecision(Precision(precision), CPU)
    with amp.autocast():
        assert nn.Linear(2, 2)(torch.ones(1, 2)).dtype is dtype
    assert amp.scaler.is_enabled() == (precision == "fp16")


def test_a_scaler_of_another_format_is_left_where_it_was() -> None:
    amp = MixedPrecision(Precision.FP16, CPU)
    amp.load_state_dict(MixedPrecision(Precision.BF16, CPU).state_dict())
    assert amp.scaler.get_scale() == 65536


def test_tf32_casts_nothing_and_lets_torch_multiply_with_fewer_digits() -> None:
    before = torch.get_float32_matmul_precision()
    try:
        amp = MixedPrecision(Precision.TF32, CPU)
        assert torch.get_float32_matmul_precision() == "high"
        with amp.autocast():
            assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype is torch.float32
        assert not amp.scaler.is_enabled()
    finally:
        torch.set_float32_matmul_precision(before)


def test_fp32_is_fp32_in_convolutions_too() -> None:
    """cuDNN's convolutions use TF32 unless they are told not to."""
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    try:
        for precision, matmul, convolution in (("tf32", "high", True), ("fp32", "highest", False)):
            MixedPrecision(Precision(precision), CPU)
            assert (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32) == (matmul, convolution)
        MixedPrecision(Precision.BF16, CPU)
        assert not torch.backends.cudnn.allow_tf32, "16-bit formats leave it to the program"
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]


def one_weight(precision: str, clip: float | None = None) -> tuple[nn.Parameter, Any, Stepper]:
    weight = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    amp = MixedPrecision(Precision(precision), CPU)
    return weight, scheduler, Stepper(amp, optimizer, scheduler, 1, clip)


def test_a_step_that_overflows_fp16_moves_neither_weights_nor_schedule() -> None:
    weight, scheduler, stepper = one_weight("fp16", clip=1.0)
    stepper.take((weight * 1e38).sum(), 0)
    assert (weight.item(), scheduler.get_last_lr()) == (1, [0.1])
    stepper.take(weight.sum(), 1)
    assert (weight.item(), scheduler.get_last_lr()) == (pytest.approx(0.9), [0.05])


def test_an_infinite_loss_under_the_scaler_is_a_step_left_out() -> None:
    weight, scheduler, stepper = one_weight("fp16")
    assert stepper.take((weight * float("inf")).sum(), 0)
    assert (weight.item(), scheduler.get_last_lr(), stepper.finite_checks.last_loss) == (1, [0.1], float("inf"))
    stepper.take(weight.sum(), 1)
    assert (weight.item(), stepper.finite_checks.last_loss) == (pytest.approx(0.9), 1)


class Far:
    """An event of a device that is not done yet."""

    def __init__(self) -> None:
        self.waited = 0

    def query(self) -> bool:
        return self.waited > 0

    def synchronize(self) -> None:
        self.waited += 1


def test_a_number_that_has_not_arrived_is_not_waited_for_until_somebody_has_to_know() -> None:
    finite_checks, far = FiniteChecks(), Far()
    finite_checks._waiting.append(_PendingCheck(4, "loss", torch.tensor(float("nan")), far, judged=True))  # type: ignore[arg-type]
    for step in range(5, 9):
        finite_checks.add(step, "loss", torch.tensor(1.0))
        finite_checks.look()
    assert far.waited == 0
    with pytest.raises(NonFiniteLoss, match="nan at step 4; no checkpoint holds"):
        finite_checks.look(wait=True)
    assert far.waited == 1


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_no_step_asks_the_device_for_a_number_in_front_of_the_optimizer(
    precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    weight, _, stepper = one_weight(precision, clip=1.0)
    stepper.take(weight.sum(), 0)
    calls: list[str] = []
    item = torch.Tensor.item
    monkeypatch.setattr(torch.Tensor, "item", lambda tensor: (calls.append("item"), item(tensor))[1])
    step = stepper._optimizer.step

    def stepped(*arguments: Any, **keywords: Any) -> Any:
        calls.append("step")
        return step(*arguments, **keywords)

    stepper._optimizer.step = stepped  # type: ignore[method-assign]
    stepper.take(weight.sum(), 1)
    # The scaler's own question, whether a gradient overflowed, is all that there is in front of the step.
    assert calls[: calls.index("step")] == (["item"] if precision == "fp16" else [])


def test_overflowing_for_ever_ends_the_run() -> None:
    weight, _, stepper = one_weight("fp16")
    with pytest.raises(NonFiniteLoss, match="64 steps in a row"):
        for step in range(65):
            stepper.take((weight - 1).sqrt().sum(), step)


def test_a_gradient_that_is_infinite_ends_the_run_before_the_weights_take_it() -> None:
    weight, _, stepper = one_weight("fp32", clip=1.0)
    with pytest.raises(NonFiniteLoss, match="norm is inf at step 5"):
        stepper.take((weight - 1).sqrt().sum(), 5)
    assert weight.item() == 1
