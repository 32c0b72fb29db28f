"""Only `run.step` makes steps; a loop that makes steps otherwise gets an error immediately."""

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
from everspot_train.trainer import BatchOrder, Run, TensorLoader, TrainerError
from torch import nn

pytestmark = pytest.mark.torch


def tracked(run: Run, optimizer: Callable[..., Any] = torch.optim.SGD, **others: Any) -> tuple[nn.Module, Any]:
    model = nn.Linear(3, 1)
    program_optimizer = optimizer(model.parameters(), lr=0.1)
    run.track(
        model=model, optimizer=program_optimizer, loader=TensorLoader((torch.ones(16, 3),), BatchOrder(16, 4)), **others
    )
    return model, program_optimizer


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW, torch.optim.Adagrad])
def test_an_optimizer_stepped_by_hand_is_an_error_at_its_first_step(optimizer: Callable[..., Any]) -> None:
    batches = 0
    with pytest.raises(TrainerError, match=r"stepped by hand.*run\.step\(loss\)"), Run.open(precision="fp32") as run:
        model, program_optimizer = tracked(run, optimizer)
        for (x,) in run.batches(10):
            batches += 1
            model(x).sum().backward()
            program_optimizer.step()
    assert batches == 1


def test_a_scaler_of_the_loop_that_steps_the_optimizer_is_noticed_too() -> None:
    with pytest.raises(TrainerError, match="stepped by hand"), Run.open(precision="fp32") as run:
        model, program_optimizer = tracked(run)
        scaler = torch.amp.GradScaler("cpu")
        for (x,) in run.batches(10):
            scaler.scale(model(x).sum()).backward()
            scaler.step(program_optimizer)
            scaler.update()


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_second_optimizer_may_be_stepped_by_hand(precision: str) -> None:
    with Run.open(precision=precision) as run:
        critic = nn.Linear(3, 1)
        second = torch.optim.SGD(critic.parameters(), lr=0.1)
        model, _ = tracked(run, critic=critic, second=second)
        for (x,) in run.batches(3):
            second.zero_grad()
            critic(x).sum().backward()
            second.step()
            run.step(model(x).sum())
        assert run.steps_done == 3


def test_before_and_after_the_loop_the_optimizer_is_the_program_s_own() -> None:
    with Run.open(precision="fp32") as run:
        model, program_optimizer = tracked(run, torch.optim.AdamW)
        program_optimizer.step()  # as programs do that want the optimizer's state before it is loaded
        for (x,) in run.batches(3):
            run.step(model(x).sum())
        model(x).sum().backward()
        program_optimizer.step()
        assert run.steps_done == 3


def test_a_loop_that_never_steps_is_warned_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), Run.open(precision="fp32") as run:
        tracked(run)
        for number, _ in enumerate(run.batches(10)):
            if number == 250:
                break
    [record] = [r for r in caplog.records if "run.step" in r.getMessage()]
    assert "nothing is checkpointed" in record.getMessage()


def test_a_schedule_that_needs_a_metric_is_refused_with_the_line_that_works() -> None:
    with Run.open(precision="fp32") as run:
        model = nn.Linear(3, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loader = TensorLoader((torch.ones(16, 3),), BatchOrder(16, 4))
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
        with pytest.raises(TypeError, match=r"ReduceLROnPlateau needs metrics.*run\.track\(…, plateau=scheduler\)"):
            run.track(model=model, optimizer=optimizer, loader=loader, scheduler=plateau)
        run.track(model=model, optimizer=optimizer, loader=loader, plateau=plateau)
        for (x,) in run.batches(4):
            run.step(model(x).square().sum())
            plateau.step(1.0)
    assert plateau.get_last_lr()[0] < 0.1


def test_an_optimizer_that_needs_a_closure_is_refused_and_may_be_tracked_beside_another() -> None:
    with Run.open(precision="fp32") as run:
        model, head = nn.Linear(3, 1), nn.Linear(3, 1)
        first, second = torch.optim.SGD(model.parameters(), lr=0.1), torch.optim.LBFGS(head.parameters(), max_iter=2)
        schedule = torch.optim.lr_scheduler.ConstantLR(first)
        loader = TensorLoader((torch.ones(16, 3),), BatchOrder(16, 4))
        with pytest.raises(TypeError, match=r"LBFGS needs closure at each step.*run\.track\(…, second=optimizer\)"):
            run.track(model=head, optimizer=second, loader=loader)
        run.track(model=model, optimizer=first, loader=loader, scheduler=schedule, head=head, second=second)
        for (x,) in run.batches(4):

            def closure(x: torch.Tensor = x) -> torch.Tensor:
                second.zero_grad()
                loss = head(x).square().sum()
                loss.backward()
                return loss

            second.step(closure)
            run.step(model(x).square().sum())
    assert run.steps_done == 4
