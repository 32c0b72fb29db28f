"""State that cannot be restored exactly is refused or named: at `track`, in the loop, at a checkpoint, or after a
restore."""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from everspot_core.jobs.records import Reason
from everspot_train.rundir import CheckpointRequest, StopRequest
from everspot_train.trainer import Run, StateMismatch, UnsafeState, UnsupportedState
from everspot_train.trainer.fingerprints import fingerprint
from everspot_train.trainer.loop_state import LoopState
from everspot_train.trainer.module_state import ModuleState
from everspot_train.trainer.state import TrainState
from everspot_train.trainer.verification import differences
from torch import nn
from trainer_habits import MasterCopies, loader, network
from trainer_post import Post
from trainer_state import save

pytestmark = pytest.mark.torch


class Piece:
    """A user's object; `change` is what its load_state_dict makes of a state."""

    def __init__(self, state: Any, change: Callable[[Any], Any] = lambda state: state) -> None:
        self.state, self.change = state, change

    def state_dict(self) -> Any:
        return self.state() if callable(self.state) else self.state

    def load_state_dict(self, state: Any) -> None:
        self.state = self.change(state)


def restored(tmp_path: Path, before: Any, after: Any) -> None:
    saved, fresh = TrainState(), TrainState()
    saved.shared["piece"], fresh.shared["piece"] = before, after
    save(saved, tmp_path)
    fresh.load(tmp_path, 0)


BF16, FP32 = torch.ones(2, dtype=torch.bfloat16), torch.ones(2)


@pytest.mark.parametrize(
    ("state", "change", "complaint"),
    [
        ({"w": FP32}, lambda s: {"w": s["w"].bfloat16()}, r"w was float32\[2\] and is bfloat16\[2\]"),
        ({"w": FP32}, lambda s: {"w": s["w"][None]}, r"w was float32\[2\] and is float32\[1,2\]"),
        ({"w": FP32}, lambda s: {"w": s["w"] + 2**-23}, r"w \(float32\[2\]\) has other values"),
        ({"w": torch.zeros(1)}, lambda s: {"w": -s["w"]}, "w .* has other values"),
        ({"a": 1, "b": 2}, lambda s: {"a": 1}, "b is in the checkpoint and not in the state now"),
        ({"a": 1}, lambda s: {"a": 1, "new": 0}, "new is in the state now and not in the checkpoint"),
        ({"best": {"metric": 0.1}}, lambda s: {"best": {"metric": 0.0}}, "best/metric was 0.1 and is 0.0"),
        ({"w": FP32}, lambda s: {"w": [1.0, 1.0]}, r"w was float32\[2\] and is list"),
        ({"names": ["a", "b"]}, lambda s: {"names": ["a"]}, "names had 2 entries and has 1"),
        ({"epoch": 3}, lambda s: {"epoch": 0}, "epoch was 3 and is 0"),
        ({"epoch": 3}, lambda s: {"epoch": None}, "epoch was 3 and is None"),
    ],
)
def test_an_object_that_does_not_take_its_state_back_is_named_with_the_first_part_that_differs(
    state: Any, change: Callable[[Any], Any], complaint: str, tmp_path: Path
) -> None:
    with pytest.raises(StateMismatch, match=f"piece was not restored exactly: {complaint}.*load_state_dict must"):
        restored(tmp_path, Piece(state), Piece(None, change))


@pytest.mark.parametrize(
    ("state", "change"),
    [
        ({"pair": (1, 2)}, lambda s: {"pair": [1, 2]}),
        ({"count": 3}, lambda s: {"count": 3.0}),
        ({"a": 1, "b": float("nan")}, lambda s: {"b": float("nan"), "a": 1}),
        ({"w": torch.arange(6.0).reshape(2, 3).t()}, lambda s: {"w": s["w"].contiguous()}),
        ({}, lambda s: s),
    ],
)
def test_what_is_the_same_in_another_form_is_no_difference(
    state: Any, change: Callable[[Any], Any], tmp_path: Path
) -> None:
    restored(tmp_path, Piece(state), Piece(None, change))


def test_a_part_that_changes_with_each_call_is_left_out_but_no_other_part(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def state(best: float) -> Callable[[], Any]:
        return lambda: {"at": time.perf_counter(), "best": best}

    restored(tmp_path, Piece(state(1.0)), Piece(None, lambda _: state(1.0)))
    assert "piece: at changes with each call" in caplog.text
    with pytest.raises(StateMismatch, match=r"best was 1\.0 and is 2\.0"):
        restored(tmp_path, Piece(state(1.0)), Piece(None, lambda _: state(2.0)))


def test_a_model_whose_own_loading_is_not_strict_is_found_out(tmp_path: Path) -> None:
    class Lenient(nn.Linear):
        def load_state_dict(self, state: Any, strict: bool = True, assign: bool = False) -> Any:
            return super().load_state_dict({"weight": state["weight"]}, strict=False)

    with pytest.raises(StateMismatch, match=r"bias \(float32\[2\]\) has other values"):
        restored(tmp_path, nn.Linear(2, 2), Lenient(2, 2))


def test_a_model_that_was_cast_in_between_is_found_out(tmp_path: Path) -> None:
    with pytest.raises(StateMismatch, match=r"weight was float32\[2,2\] and is bfloat16\[2,2\]"):
        restored(tmp_path, nn.Linear(2, 2), nn.Linear(2, 2).bfloat16())


def test_state_of_another_number_format_than_its_parameter_comes_back_in_it(tmp_path: Path) -> None:
    def trained(steps: int) -> torch.optim.Optimizer:
        model = nn.Linear(2, 2).bfloat16()
        optimizer = MasterCopies(model.parameters())
        for _ in range(steps):
            model(torch.ones(1, 2, dtype=torch.bfloat16)).sum().backward()
            optimizer.step()
        return optimizer

    before, after = trained(3), trained(0)
    restored(tmp_path, before, after)
    assert {state["master"].dtype for state in after.state.values()} == {torch.float32}
    assert {state["buffers"]["pair"][0].dtype for state in after.state.values()} == {torch.float32}
    assert list(differences(before.state_dict(), after.state_dict())) == []


@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.", "module._orig_mod."])
def test_a_checkpoint_of_an_earlier_version_is_taken_up(prefix: str, tmp_path: Path) -> None:
    """It lacks what the trainer keeps of modules and of its loop, and has the names of wrappers."""
    before, after = TrainState(), TrainState()
    ema = nn.Linear(2, 2)
    before.shared = {"ema": Piece({prefix + name: value for name, value in ema.state_dict().items()})}
    modules = {"ema": nn.Linear(2, 2)}
    after.shared = {**modules, "modules": ModuleState(modules), "run": LoopState()}
    save(before, tmp_path, 7)
    assert after.load(tmp_path, 0) == (7, True)
    assert torch.equal(modules["ema"].weight, ema.weight)


@pytest.mark.parametrize(
    ("value", "other_value"),
    [
        (torch.tensor([1.0, 2.0]), torch.tensor([2.0, 1.0])),
        (torch.arange(2_500_000), torch.arange(2_500_000).flip(0)),
        (torch.zeros(3), -torch.zeros(3)),
        (torch.zeros(3, dtype=torch.uint8), torch.tensor([0, 0, 1], dtype=torch.uint8)),
        (torch.zeros(2, 3), torch.zeros(3, 2)),
        (torch.zeros(2), torch.zeros(2, dtype=torch.int32)),
        ({"a": 1}, {"a": 2}),
        ([torch.ones(1), 2], [torch.ones(1), 3]),
        (torch.zeros(0), torch.zeros(0, 1)),
    ],
)
def test_fingerprints_differ_with_any_bit(value: Any, other_value: Any) -> None:
    assert fingerprint(value) != fingerprint(other_value)


def test_a_fingerprint_depends_on_neither_place_nor_layout() -> None:
    whole = torch.arange(101, dtype=torch.uint8)
    assert fingerprint(whole[1:]) == fingerprint(whole[1:].clone())
    matrix = torch.randn(7, 5)
    assert fingerprint(matrix.t()) == fingerprint(matrix.t().contiguous())


# What `track` refuses


def track(run: Run, model: nn.Module, optimizer: Any, **others: Any) -> None:
    run.track(model=model, optimizer=optimizer, loader=loader(), **others)


def test_parameters_that_no_checkpoint_would_hold_are_refused() -> None:
    model, critic = network(), network()
    masters = [p.detach().clone().requires_grad_() for p in model.parameters()]
    cases: list[tuple[Any, dict[str, Any]]] = [
        (torch.optim.Adam([*model.parameters(), nn.Parameter(torch.ones(3))]), {}),
        (torch.optim.Adam(masters), {"ema": Piece({"steps": 1})}),
        (torch.optim.Adam(model.parameters()), {"second": torch.optim.Adam(critic.parameters())}),
    ]
    for optimizer, others in cases:
        with Run.open() as run, pytest.raises(UnsupportedState, match="belong to nothing that is tracked"):
            track(run, model, optimizer, **others)
    with Run.open() as run:
        track(run, model, torch.optim.Adam(masters), masters=nn.ParameterList(masters))
        track(run, model, torch.optim.Adam(masters), masters=Piece({"masters": masters}))
        track(run, model, cases[2][0], critic=critic, **cases[2][1])


def test_views_that_a_resume_would_separate_are_refused() -> None:
    numbers, values = torch.ones(4, dtype=torch.complex64), torch.arange(12.0)
    separated = [
        ("conjugate", {"numbers": numbers, "conjugate": numbers.conj()}),
        ("second", {"first": values[:8], "second": values[4:]}),
        ("parts", {"numbers": numbers, "parts": [torch.view_as_real(numbers)]}),
        ("square", {"row": values[::5], "square": values.reshape(3, 4)}),
        ("turned", {"square": values.reshape(3, 4), "turned": values.reshape(3, 4).T}),
    ]
    together = [
        {"one": values, "again": values},
        {"one": values, "again": values.view(12)},
        {"first": values[:4], "second": values[4:]},
        {"real": numbers.real, "imaginary": numbers.imag},
        {"even": values[::2], "odd": values[1::2]},
        {"empty": values[:0], "all": values},
        {"graph": torch.eye(3).to_sparse(), "mask": torch.ones(1, 3).expand(4, 3)},
    ]
    model = network()
    optimizer = torch.optim.Adam(model.parameters())
    with Run.open() as run:
        for name, state in separated:
            with pytest.raises(UnsupportedState, match=f"spectrum: .*'{name}.* are different views of the same memory"):
                track(run, model, optimizer, spectrum=Piece(state))
        for state in together:
            track(run, model, optimizer, spectrum=Piece(state))


def test_names_of_the_trainer_and_objects_without_a_state_are_refused() -> None:
    model = network()
    optimizer = torch.optim.Adam(model.parameters())
    with Run.open() as run:
        with pytest.raises(ValueError, match="precision, run is the trainer's own name"):
            own = {"run": Piece(1), "precision": Piece(1)}
            run.track(model=model, optimizer=optimizer, loader=loader(), **own)
        with pytest.raises(TypeError, match="best=float has no state_dict and no load_state_dict"):
            track(run, model, optimizer, best=0.5)


SHARDED = """
import os, sys
import torch
from pathlib import Path
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.optim import ZeroRedundancyOptimizer
from everspot_train.trainer import Run, UnsupportedState, resumable_loader

data = torch.utils.data.TensorDataset(torch.randn(32, 4))
run = Run.open(seed=1, precision="fp32")
model = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 1))
if os.environ["CASE"] == "by hand":
    model = nn.Linear(4, 3 + run.rank)
if os.environ["CASE"] == "fsdp1":
    model[0] = FullyShardedDataParallel(model[0], device_id=torch.device("cpu"), use_orig_params=True)
optimizer = torch.optim.AdamW(model.parameters())
if os.environ["CASE"] == "zero":
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW)
try:
    with run:
        run.track(model=model, optimizer=optimizer, loader=resumable_loader(data, 4, seed=1))
        for (x,) in run.batches(4):
            run.step(model(x).square().mean())
except UnsupportedState as error:
    Path(f"{os.environ['LOSSES']}.{run.rank}").write_text(str(error))
"""


@pytest.mark.parametrize(
    ("case", "complaint"),
    [
        (
            "fsdp1",
            "model: a module of it is sharded between ranks (FullyShardedDataParallel), which cannot be",
        ),
        (
            "zero",
            "optimizer: its state is sharded between ranks (ZeroRedundancyOptimizer), which cannot be",
        ),
        ("by hand", "model: bias is float32[3] on rank 0 and float32[4] on rank 1"),
    ],
)
def test_state_that_is_sharded_without_dtensors_is_refused(
    case: str, complaint: str, post: Callable[..., Post], tmp_path: Path
) -> None:
    script = tmp_path / "sharded.py"
    script.write_text(SHARDED)
    first = post(1)
    first.run_ranks(tmp_path / "said", 2, script=script, CASE=case)
    for rank in (0, 1):
        message = (tmp_path / f"said.{rank}").read_text()
        assert complaint in message
        assert "run.prepare(model)" in message
    assert first.steps_published == []
    assert first.status.phase == "failed"


# What the loop is told


def test_an_optimizer_that_is_stepped_by_hand_and_not_tracked_is_an_error_at_its_second_step() -> None:
    model, critic = network(), network()
    second = torch.optim.Adam(critic.parameters())
    with pytest.raises(UnsupportedState, match=r"\(Adam\) that is not tracked"), Run.open(precision="fp32") as run:
        track(run, model, torch.optim.Adam(model.parameters()), critic=critic)
        for (x,) in run.batches(5):
            critic(x).sum().backward()
            second.step()
            run.step(model(x).sum())
    assert run.steps_done == 1


def test_an_optimizer_that_lives_within_one_step_needs_no_tracking() -> None:
    model = network()
    with Run.open(precision="fp32") as run:
        track(run, model, torch.optim.Adam(model.parameters()))
        for (x,) in run.batches(3):
            probe = nn.Linear(6, 1)
            inner = torch.optim.Adam(probe.parameters())
            for _ in range(3):
                probe(x).sum().backward()
                inner.step()
            run.step(model(x).sum())
    assert run.steps_done == 3


def test_the_lost_momentum_of_an_optimizer_inside_of_another_is_found_out() -> None:
    """As with the usual code of SAM, whose state_dict leaves its base optimizer's state out."""

    class Sharpness(torch.optim.Optimizer):
        def __init__(self, parameters: Any, base: Any, **options: Any) -> None:
            super().__init__(parameters, options)
            self.base = base(self.param_groups, **options)

        def step(self, closure: Any = None) -> None:
            self.base.step()

    model = network()
    with pytest.raises(UnsupportedState, match=r"\(SGD\) that is not tracked"), Run.open(precision="fp32") as run:
        track(run, model, Sharpness(model.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9))
        for (x,) in run.batches(5):
            run.step(model(x).square().mean())


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
@pytest.mark.parametrize("layout", [torch.jagged, torch.strided])
@pytest.mark.parametrize("persistent", [True, False])
def test_a_tensor_that_no_checkpoint_can_hold_is_refused_by_name_before_the_first_step(
    layout: torch.layout, persistent: bool, agent: Callable[[int], Post]
) -> None:
    current = agent(1)
    model = network()
    lengths = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=layout)
    model[0].register_buffer("lengths", lengths, persistent=persistent)
    with (
        pytest.raises(UnsupportedState, match=r"model: '0\.lengths' is a nested tensor, which no checkpoint can hold"),
        Run.open(precision="fp32") as run,
    ):
        track(run, model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert "'0.lengths' is a nested tensor" in current.status.message


def test_a_tensor_that_no_checkpoint_can_hold_and_that_comes_later_is_refused_by_name(
    agent: Callable[[int], Post],
) -> None:
    current = agent(1)
    with (
        pytest.raises(UnsupportedState, match="cache: 'rows/0' is a nested tensor, 'rows/1' is"),
        Run.open(seed=1, precision="fp32") as run,
    ):
        model, cache = network(), Piece({"rows": []})
        track(run, model, torch.optim.SGD(model.parameters(), lr=0.1), cache=cache)
        for (x,) in run.batches(9):
            run.step(model(x).square().mean())
            cache.state = {"rows": [torch.nested.nested_tensor([x[0]], layout=torch.jagged)] * 2}
            current.rundir.write(CheckpointRequest(seq=1))
    assert current.steps_published == []


def test_a_schedule_that_is_not_tracked_is_refused_when_the_loop_begins() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    first, second = (torch.optim.lr_scheduler.StepLR(optimizer, 3) for _ in range(2))
    chain = torch.optim.lr_scheduler.SequentialLR(optimizer, [first, second], milestones=[4])
    with Run.open(precision="fp32") as run:
        track(run, model, optimizer)
        with pytest.raises(UnsupportedState, match="schedule changes optimizer, and is not tracked"):
            next(iter(run.batches(3)))
    for tracked in ({"scheduler": chain}, {"warmup": first}):
        with Run.open(precision="fp32") as run:
            track(run, model, optimizer, **tracked)
            next(iter(run.batches(3)))


# At a checkpoint, and at the end


@pytest.fixture
def agent(post: Callable[..., Post], monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Post]:
    def begin(epoch: int) -> Post:
        current = post(epoch)
        monkeypatch.setenv("EVERSPOT_RUN_DIR", str(current.root))
        return current

    return begin


def test_a_checkpoint_that_could_not_be_read_is_not_published_and_the_one_before_is_taken_up(
    agent: Callable[[int], Post],
) -> None:
    def train(current: Post, bad: bool) -> None:
        with Run.open(seed=1, precision="fp32") as run:
            model = network()
            best = Piece({"metric": 1.0})
            track(run, model, torch.optim.Adam(model.parameters()), best=best)
            for (x,) in run.batches(9):
                run.step(model(x).square().mean())
                if run.steps_done == 3:
                    current.rundir.write(CheckpointRequest(seq=1))
                if run.steps_done == 6 and bad:
                    best.state = {"metric": Path("best")}
                    current.rundir.write(StopRequest(reason=Reason.NOTICE))

    first = agent(1)
    with pytest.raises(UnsafeState, match=r"'best' holds pathlib\.\w+ at 'best/metric'"):
        train(first, bad=True)
    assert first.steps_published == [3]
    assert "'best' holds" in first.status.message
    second = agent(2)
    train(second, bad=False)
    assert second.status.resumed_from == 3
    assert second.steps_published == [9, 3]


def test_a_state_that_could_not_be_read_is_refused_before_the_first_step(agent: Callable[[int], Post]) -> None:
    agent(1)
    with Run.open(seed=1, precision="fp32") as run:
        model = network()
        optimizer = torch.optim.Adam(model.parameters())
        with pytest.raises(UnsafeState, match=r"'best' holds pathlib\.\w+ at 'best/metric'"):
            track(run, model, optimizer, best=Piece({"metric": Path("best")}))


@pytest.mark.parametrize("finishes", [False, True])
def test_a_break_in_the_middle_of_a_step_leaves_a_checkpoint_that_goes_on_there(
    finishes: bool, agent: Callable[[int], Post], monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(lines: list[str], breaks: bool) -> Run:
        with Run.open(seed=1, precision="fp32", accumulation=4) as run:
            model = network()
            track(run, model, torch.optim.Adam(model.parameters(), lr=0.01))
            for number, (x,) in enumerate(run.batches(6)):
                if run.step(model(x).square().mean()):
                    lines.append(f"{run.steps_done} {run.last_loss.hex()}")
                if breaks and number == 4 * 2 + 2:
                    if finishes:
                        run.finish()
                    break
        return run

    monkeypatch.delenv("EVERSPOT_RUN_DIR", raising=False)
    whole: list[str] = []
    train(whole, breaks=False)
    lines: list[str] = []
    first = agent(1)
    train(lines, breaks=True)
    assert (first.status.phase, first.status.complete) == ("finished", finishes)
    assert first.steps_published == [2]
    second = agent(2)
    run = train(lines, breaks=False)
    assert second.status.resumed_from == 2
    assert lines == whole[: 2 if finishes else 6]
    assert run.last_loss.hex() == whole[1 if finishes else -1].split()[1]


def test_a_resumed_program_that_ends_before_its_loop_is_not_complete(agent: Callable[[int], Post]) -> None:
    def begin() -> Run:
        run = Run.open(seed=1, precision="fp32")
        model = network()
        track(run, model, torch.optim.Adam(model.parameters()))
        return run

    first = agent(1)
    with begin() as run:
        for _ in run.batches(9):
            run.step(sum(p.sum() for p in run.state.shared["model"].parameters()))  # type: ignore[attr-defined]
            if run.steps_done == 4:
                break
    assert (first.status.complete, first.steps_published) == (False, [4])
    second = agent(2)
    with begin() as run:
        assert run.restore() == 4
    assert second.status.complete is False


def test_a_program_that_catches_the_stop_is_stopped_all_the_same(agent: Callable[[int], Post]) -> None:
    first = agent(1)
    with Run.open(seed=1, precision="fp32") as run:
        model = network()
        track(run, model, torch.optim.Adam(model.parameters()))
        with contextlib.suppress(SystemExit):
            for (x,) in run.batches(9):
                run.step(model(x).square().mean())
                if run.steps_done == 4:
                    first.rundir.write(StopRequest(reason=Reason.NOTICE))
    assert (first.status.phase, first.steps_published) == ("stopped", [4])


def test_a_notice_in_the_code_after_the_loop_loses_neither_loss_nor_metrics(agent: Callable[[int], Post]) -> None:
    def train(dies: bool) -> float:
        with Run.open(seed=1, precision="fp32") as run:
            model = network()
            track(run, model, torch.optim.Adam(model.parameters()))
            for (x,) in run.batches(6):
                run.step(model(x).square().mean())
                run.log(inside=float(run.steps_done))
            loss = run.last_loss
            if dies:
                raise KeyboardInterrupt
            run.log(final_loss=loss)
        return loss

    first, second = agent(1), None
    with contextlib.suppress(KeyboardInterrupt):
        train(dies=True)
    assert first.steps_published == [6]
    second = agent(2)
    loss = train(dies=False)
    assert second.status.resumed_from == 6
    assert second.status.metrics == {"loss": loss, "final_loss": loss, "inside": 6.0}


def test_a_metric_that_ends_as_nan_has_no_last_value_in_this_attempt_and_the_next(agent: Callable[[int], Post]) -> None:
    """A stage behind it must not be let through by what the model was before it diverged."""

    def train(dies: bool) -> None:
        with Run.open(seed=1, precision="fp32") as run:
            model = network()
            track(run, model, torch.optim.Adam(model.parameters()))
            for (x,) in run.batches(3):
                run.step(model(x).square().mean())
                run.log(accuracy=float("nan") if run.steps_done == 3 else 0.9, other=0.5)
            if dies:
                raise KeyboardInterrupt

    first = agent(1)
    with contextlib.suppress(KeyboardInterrupt):
        train(dies=True)
    assert first.status.metrics.keys() == {"loss", "other"}
    second = agent(2)
    train(dies=False)
    assert second.status.metrics.keys() == {"loss", "other"}


def test_code_after_the_loop_is_in_the_final_checkpoint_and_runs_on_what_was_before_it(
    agent: Callable[[int], Post],
) -> None:
    def train() -> tuple[torch.Tensor, torch.Tensor]:
        with Run.open(seed=1, precision="fp32") as run:
            model = nn.Linear(6, 1)
            track(run, model, torch.optim.SGD(model.parameters(), lr=0.1))
            for (x,) in run.batches(4):
                run.step(model(x).square().mean())
            before = model.weight.detach().clone()
            with torch.no_grad():
                model.weight.mul_(0.5)  # twice would be wrong
        return before, model.weight.detach().clone()

    first = agent(1)
    before, after = train()
    assert first.steps_published == [4, 4]
    second = agent(2)  # the machine dies before anybody knows that the program has ended
    assert all(torch.equal(a, b) for a, b in zip(train(), (before, after), strict=True))
    assert second.steps_published == [4, 4]


PER_RANK = """
import os
import numpy as np
import torch
from pathlib import Path
from torch import nn
from everspot_core.jobs.records import Reason
from everspot_train.rundir import RunDir, StopRequest
from everspot_train.trainer import Run, resumable_loader

class Noise:
    def __init__(self, seed):
        self.rng, self.drawn = np.random.default_rng(seed), 0
    def draw(self):
        self.drawn += 1
        return float(self.rng.normal())
    def state_dict(self):
        return {"state": self.rng.bit_generator.state, "drawn": self.drawn}
    def load_state_dict(self, state):
        self.rng.bit_generator.state, self.drawn = state["state"], state["drawn"]

data = torch.utils.data.TensorDataset(torch.randn(64, 4, generator=torch.Generator().manual_seed(1)))
with Run.open(seed=1, precision="fp32") as run:
    model = run.prepare(nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 1)))
    aside = run.prepare(nn.Linear(4, 4))  # wrapped like the model
    local = nn.BatchNorm1d(4)  # never synchronised: other statistics on each rank
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    noise = Noise(run.rank)
    run.track(model=model, optimizer=optimizer, loader=resumable_loader(data, 4, seed=1),
              noise=noise, local=local, aside=aside)
    for (x,) in run.batches(10):
        run.step(model(local(x) * noise.draw()).square().mean())
        with Path(f"{os.environ['LOSSES']}.{run.rank}").open("a") as file:
            file.write(f"{run.steps_done} {run.last_loss.hex()}\\n")
        if run.steps_done == int(os.environ.get("STOP_AT", 0)) and run.rank == 0:
            RunDir.from_environment().write(StopRequest(reason=Reason.NOTICE))
    local.eval()
    with Path(f"{os.environ['LOSSES']}.{run.rank}").open("a") as file:
        file.write(f"{local.running_mean.tolist()} {noise.drawn}\\n")
"""


def test_tracked_state_that_differs_between_ranks_is_each_rank_s_own(post: Callable[..., Post], tmp_path: Path) -> None:
    script = tmp_path / "ranks.py"
    script.write_text(PER_RANK)
    whole = Post(root=tmp_path / "whole", store_root=tmp_path / "other")
    whole.run_ranks(tmp_path / "whole-losses", 2, script=script)
    first, second = post(1), post(2)
    first.run_ranks(tmp_path / "losses", 2, script=script, STOP_AT=4)
    assert (first.status.phase, first.status.durable_step) == ("stopped", 4)
    second.run_ranks(tmp_path / "losses", 2, script=script)
    assert second.status.resumed_from == 4
    ends = []
    for rank in (0, 1):
        lines = (tmp_path / f"losses.{rank}").read_text().splitlines()
        assert lines == (tmp_path / f"whole-losses.{rank}").read_text().splitlines()
        ends.append(lines[-1])
    assert ends[0] != ends[1]
    third = post(3)  # one rank takes up what two have left
    third.run(tmp_path / "alone", script=script, STOP_AT=0)
    assert third.status.resumed_from == 10
