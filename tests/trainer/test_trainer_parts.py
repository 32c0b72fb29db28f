"""The parts of the trainer, each by its own door: precision, state, publishing, reporting."""

import json
import random
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from everspot_core.job import Precision
from everspot_store import Checkpoints, ManualClock, StoreUnavailable, SystemClock
from everspot_store.testing import FaultScript, MemoryBackend, faulty_store
from everspot_train.rundir import RunContext
from everspot_train.trainer import NonFiniteLoss, Run, StateMismatch, TrainerError, UnsafeState
from everspot_train.trainer import __all__ as public
from everspot_train.trainer.deadlines import gives_way
from everspot_train.trainer.doubts import Doubts, _Doubt
from everspot_train.trainer.environment import cpu_has_bf16, process_age
from everspot_train.trainer.precision import MixedPrecision, resolve
from everspot_train.trainer.publisher import Publisher, Snapshot
from everspot_train.trainer.randomness import GlobalRandomness, seed_everything
from everspot_train.trainer.reporter import Reporter
from everspot_train.trainer.state import TrainState
from everspot_train.trainer.stepper import Stepper
from torch import nn
from trainer_post import JOB, Post

pytestmark = pytest.mark.torch

CPU = torch.device("cpu")


def test_the_public_names_are_sorted_and_complete() -> None:
    assert public == sorted(public)


# Precision and steps


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
    assert (weight.item(), scheduler.get_last_lr(), stepper.doubts.known_loss) == (1, [0.1], float("inf"))
    stepper.take(weight.sum(), 1)
    assert (weight.item(), stepper.doubts.known_loss) == (pytest.approx(0.9), 1)


class Far:
    """An event of a device that is not done yet."""

    def __init__(self) -> None:
        self.waited = 0

    def query(self) -> bool:
        return self.waited > 0

    def synchronize(self) -> None:
        self.waited += 1


def test_a_number_that_has_not_arrived_is_not_waited_for_until_somebody_has_to_know() -> None:
    doubts, far = Doubts(), Far()
    doubts._waiting.append(_Doubt(4, "loss", torch.tensor(float("nan")), far, judged=True))  # type: ignore[arg-type]
    for step in range(5, 9):
        doubts.add(step, "loss", torch.tensor(1.0))
        doubts.look()
    assert far.waited == 0
    with pytest.raises(NonFiniteLoss, match="nan at step 4; no checkpoint holds"):
        doubts.look(wait=True)
    assert far.waited == 1


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_no_step_asks_the_device_for_a_number_in_front_of_the_optimizer(
    precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    weight, _, stepper = one_weight(precision, clip=1.0)
    stepper.take(weight.sum(), 0)
    asked: list[str] = []
    item = torch.Tensor.item
    monkeypatch.setattr(torch.Tensor, "item", lambda tensor: (asked.append("item"), item(tensor))[1])
    step = stepper._optimizer.step

    def stepped(*arguments: Any, **named: Any) -> Any:
        asked.append("step")
        return step(*arguments, **named)

    stepper._optimizer.step = stepped  # type: ignore[method-assign]
    stepper.take(weight.sum(), 1)
    # The scaler's own question, whether a gradient overflowed, is all that there is in front of the step.
    assert asked[: asked.index("step")] == (["item"] if precision == "fp16" else [])


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


# State


def test_every_global_generator_is_put_back() -> None:
    def draw() -> tuple[float, ...]:
        return random.random(), random.gauss(0, 1), np.random.normal(), np.random.rand(), torch.rand(1).item()

    seed_everything(4)
    draw()
    state = GlobalRandomness().state_dict()
    first = draw()
    GlobalRandomness().load_state_dict(state)
    assert draw() == first
    seed_everything(4, rank=1)
    draw()
    assert draw() != first


class Holds:
    def __init__(self, value: Any) -> None:
        self.value = value

    def state_dict(self) -> Any:
        return {"value": self.value}

    def load_state_dict(self, state: Any) -> None:
        self.value = state["value"]


def test_state_that_could_not_be_read_back_safely_is_refused_when_it_is_written(tmp_path: Path) -> None:
    state = TrainState()
    state.shared |= {"schedule": Holds(Path("/")), "other": Holds(1)}
    with pytest.raises(UnsafeState, match=r"'schedule' holds pathlib\.\w+:"):
        state.save(tmp_path, 1, 0)


def test_a_checkpoint_without_a_tracked_piece_is_refused_by_name(tmp_path: Path) -> None:
    TrainState().save(tmp_path, 1, 0)
    state = TrainState()
    state.shared["ema"] = Holds(1)
    with pytest.raises(StateMismatch, match="'ema'"):
        state.load(tmp_path, 0)
    state.shared = {"model": nn.Linear(2, 2)}
    with pytest.raises(StateMismatch, match=r"model\.pt"):
        state.load(tmp_path, 0)


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    saved, other = TrainState(), TrainState()
    saved.shared["model"], other.shared["model"] = nn.Linear(2, 2), nn.Linear(3, 2)
    saved.save(tmp_path, 1, 0)
    with pytest.raises(StateMismatch, match="size mismatch"):
        other.load(tmp_path, 0)


def test_a_checkpoint_that_would_run_code_is_not_read(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "ran",))

    TrainState().save(tmp_path, 1, 0)
    torch.save({"format": 1, "step": 1, "pieces": {"x": Evil()}}, tmp_path / "state.pt")
    with pytest.raises(Exception, match="Weights only"):
        TrainState().load(tmp_path, 0)
    assert not (tmp_path / "ran").exists()


# Publishing and reporting


class Flaky(Checkpoints):
    """Out of reach for a while."""

    down = 0

    def publish(self, *arguments: Any, **named: Any) -> Any:
        if self.down > 0:
            self.down -= 1
            raise StoreUnavailable("away")
        return super().publish(*arguments, **named)


@pytest.fixture
def publisher(post: Callable[..., Post], tmp_path: Path) -> Callable[[int], tuple[Publisher, ManualClock]]:
    def make(down: int) -> tuple[Publisher, ManualClock]:
        store, clock = post(1).store, ManualClock()
        flaky = Flaky(store.heads, store.data, clock, JOB, 1, None)
        flaky.down = down
        return Publisher(flaky, 2, clock, lambda published, snapshot: None), clock

    return make


def snapshot(folder: Path, step: int, size: int = 1) -> Snapshot:
    (folder / str(step)).mkdir()
    (folder / str(step) / "a.pt").write_bytes(bytes(size))
    return Snapshot(step, folder / str(step), "notice", timedelta(0))


def test_on_a_stop_an_unreachable_store_is_tried_until_the_deadline(
    publisher: Callable[[int], tuple[Publisher, ManualClock]], tmp_path: Path
) -> None:
    ours, clock = publisher(20)
    ours.publish(snapshot(tmp_path, 3), deadline=timedelta(seconds=30))
    assert ours.durable_step == 3
    assert len(clock.slept) == 20
    ours.close()


def test_at_an_interval_an_unreachable_store_is_a_warning(
    publisher: Callable[[int], tuple[Publisher, ManualClock]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ours, clock = publisher(1)
    ours.start(snapshot(tmp_path, 3))
    ours.settle()
    assert ours.durable_step is None
    assert "training goes on" in caplog.text
    ours.start(snapshot(tmp_path, 4))
    ours.settle()
    assert ours.durable_step == 4
    assert clock.slept == []
    ours.close()


@pytest.mark.parametrize(("deadline", "slept"), [(timedelta(seconds=10), 9), (None, 5)])
def test_tries_are_bounded(
    publisher: Callable[[int], tuple[Publisher, ManualClock]], tmp_path: Path, deadline: timedelta | None, slept: int
) -> None:
    ours, clock = publisher(1000)
    with pytest.raises(StoreUnavailable):
        ours.publish(snapshot(tmp_path, 3), deadline)
    assert len(clock.slept) == slept
    ours.close()


@pytest.mark.parametrize(
    ("left", "fresh", "rate", "seconds", "cancelled"),
    [
        (900, 1800, 100, 25, True),  # both would take 27 s, the newer one alone 18
        (200, 1800, 100, 25, False),  # both are durable in time
        (900, 1800, 100, 20, False),  # the newer one is not, with something to spare: the older one is what can be had
        (1800, 1800, 100, 1, True),  # nothing has arrived that could be lost
        (None, 1800, None, 1, True),
        (900, 1800, None, 100, False),  # nobody knows how fast it is
    ],
)
def test_an_upload_gives_way_where_only_the_newer_one_alone_meets_the_deadline(
    left: int | None, fresh: int, rate: float | None, seconds: float, cancelled: bool
) -> None:
    assert gives_way(left, fresh, rate, seconds) is cancelled


class Slow(MemoryBackend):
    """Takes a second for each MB of a file, and stands still in the middle of `stuck` until `go`, or its cancelling."""

    def __init__(self, clock: ManualClock, stuck: str) -> None:
        super().__init__()
        self._clock, self._stuck = clock, stuck
        self.half_way, self.go = threading.Event(), threading.Event()

    def upload(self, key: str, path: Path, moved: Any = None) -> Any:
        size = path.stat().st_size
        for half in range(2):
            moved(size // 2)
            self._clock.advance(timedelta(seconds=size / 2e6))
            if self._stuck in key and not half:
                self.half_way.set()
                while not self.go.wait(0.01):
                    moved(0)
        return super().upload(key, path)


@pytest.mark.parametrize(("notice", "durable", "kept"), [(25, 4, [4]), (40, 4, [4, 3]), (20, 4, [4, 3])])
def test_a_notice_does_not_wait_for_an_upload_that_would_cost_the_newest_step(
    tmp_path: Path, notice: int, durable: int, kept: list[int]
) -> None:
    """An upload of 18 s is half done. With 25 s left it is cancelled; with 40 s, or too few for the newer one anyhow,
    it is finished first."""
    clock = ManualClock()
    data = Slow(clock, stuck="000000000003")
    store = faulty_store(MemoryBackend(), data, clock, FaultScript())
    ours = Publisher(store.checkpoints(JOB, 1), 2, clock, lambda published, snapshot: None)
    old, new = snapshot(tmp_path, 3, 18_000_000), snapshot(tmp_path, 4, 18_000_000)
    ours.start(old)
    assert data.half_way.wait(20)
    began = clock.monotonic()
    if kept == [4, 3]:
        data.go.set()
    ours.publish(new, began + timedelta(seconds=notice))
    assert ours.durable_step == durable
    head = store.checkpoints(JOB).head()
    assert head is not None and [checkpoint.step for checkpoint in head.checkpoints] == kept
    assert (clock.monotonic() - began).total_seconds() == pytest.approx(18 if kept == [4] else 27, abs=1)
    assert not old.directory.exists()
    ours.close()


def test_metrics_that_are_no_numbers_break_neither_status_nor_history(post: Callable[..., Post]) -> None:
    first = post(1)
    context = first.rundir.read(RunContext)
    reporter = Reporter(first.rundir, first.store, context, SystemClock())
    reporter.log(7, {"good": 1.5, "bad": float("nan")})
    reporter.update(step=7)
    reporter.close()
    again = Reporter(first.rundir, first.store, context, SystemClock())  # a second process under the same epoch
    again.log(8, {"good": 2.5})
    again.close()
    chunks = [json.loads(line) for chunk in first.store.read_metrics(JOB) for line in chunk.data.splitlines()]
    assert [line["metrics"] for line in chunks] == [{"good": 1.5, "bad": None}, {"good": 2.5}]


# The run


def test_a_loop_that_tracks_nothing_is_told_what_is_missing() -> None:
    with pytest.raises(TrainerError, match=r"run\.track"), Run.open() as run:
        next(iter(run.batches(1)))


@pytest.mark.parametrize("wrong", [{"accumulation": 0}, {"clip_norm": 0.0}, {"precision": "fp8"}])
def test_settings_without_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        Run.open(**wrong)


def test_the_age_of_this_process_is_known() -> None:
    assert 0 < process_age() < 24 * 3600
