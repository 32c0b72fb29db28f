"""The search for the largest batch that fits: the sizes that it tries, and an unchanged global batch."""

import pytest
import torch
from everspot_core.jobs.lower_precision import HEADROOM
from everspot_train.trainer import BatchOrder, Run, TensorLoader, TrainerError
from everspot_train.trainer import batch_fit as fit
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.torch


class Linear:
    """A device on which a step takes a constant and a part in proportion to the batch."""

    def __init__(self, constant: float, each: float, limit: float) -> None:
        self.constant, self.each, self.limit_gib = constant, each, limit
        self.tries: list[int] = []

    def peak_gib(self, batch_size: int) -> float | None:
        self.tries.append(batch_size)
        peak = self.constant + self.each * batch_size
        return peak if peak <= self.limit_gib else None


@pytest.mark.parametrize(
    ("whole", "ranks", "sizes"),
    [(1, 1, [1]), (12, 1, [1, 2, 3, 4, 6, 12]), (12, 4, [1, 3]), (64, 2, [1, 2, 4, 8, 16, 32]), (7, 1, [1, 7])],
)
def test_sizes_divide_the_global_batch(whole: int, ranks: int, sizes: list[int]) -> None:
    assert fit.batch_sizes(whole, ranks) == sizes


@pytest.mark.parametrize(("whole", "ranks"), [(3, 2), (1, 2)])
def test_a_global_batch_that_the_ranks_cannot_share_is_refused(whole: int, ranks: int) -> None:
    with pytest.raises(ValueError, match=f"a global batch of {whole} samples cannot be shared evenly by {ranks}"):
        fit.batch_sizes(whole, ranks)


@given(
    whole=st.integers(1, 5000),
    constant=st.floats(0, 10),
    each=st.floats(0.001, 1),
    limit=st.floats(0.1, 40),
)
def test_the_answer_is_the_largest_that_fits_with_headroom(
    whole: int, constant: float, each: float, limit: float
) -> None:
    sizes, device = fit.batch_sizes(whole, 1), Linear(constant, each, limit)
    fitting = [size for size in sizes if (constant + each * size) * HEADROOM <= limit]
    assert fit.largest_fitting(sizes, device) == (max(fitting) if fitting else None)
    # At most one size is tried of which nothing was known that it is too large.
    too_large = [size for size in device.tries if constant + each * size > limit]
    assert len(too_large) <= 1 and len(device.tries) == len(set(device.tries))
    assert all(size in sizes[:2] for size in too_large)


def use_memory(batch_size: int) -> None:
    """Hold a MiB for each sample."""
    torch.ones(batch_size, 2**18).sum().item()
    torch.rand(1)


def test_the_peak_of_a_step_is_measured_on_this_processor() -> None:
    measure = fit.DeviceMeasure(torch.device("cpu"), 1, use_memory)
    small, large, small_again = (measure.peak_gib(size) for size in (1, 400, 1))
    assert small is not None and large is not None and small_again is not None
    assert 0.3 < large - small < 0.6
    assert small_again < large - 0.2, "each step has a peak of its own"
    assert measure.limit_gib > large


def test_accumulation_keeps_the_global_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    now = fit.DeviceMeasure(torch.device("cpu"), 1, use_memory).peak_gib(1)
    assert now is not None
    torch.manual_seed(1)
    expected, _ = torch.rand(2), torch.manual_seed(1)
    with Run.open(precision="fp32") as run:
        assert (run.fit_batch_size(480, use_memory), run.accumulation_for(480)) == (480, 1)
        # Room for half a GiB more than now, a tenth of all of it to be spared: 240 MiB fit, and 480 do not.
        monkeypatch.setattr(fit, "_processor_limit_gib", lambda: (now + 0.35) * HEADROOM)
        size = run.fit_batch_size(480, use_memory)
        assert 120 <= size < 480
        assert size * run.accumulation_for(size) == 480
        assert torch.equal(torch.rand(2), expected), "what the trial steps draw does not count"
        monkeypatch.setattr(fit, "_processor_limit_gib", lambda: now / 2)
        with pytest.raises(TrainerError, match=r"a step with 1 samples does not fit .* GiB of memory"):
            run.fit_batch_size(480, use_memory)


def test_the_gradients_of_several_ranks_count_twice() -> None:
    """DistributedDataParallel holds them once more, which the trial step of one rank does not."""
    peak_of_one, peak_of_two = (
        fit.DeviceMeasure(torch.device("cpu"), ranks, use_memory, lambda: 8 * fit.GIB).peak_gib(1) for ranks in (1, 2)
    )
    assert peak_of_one is not None and peak_of_two is not None
    assert peak_of_two - peak_of_one > 7


@pytest.mark.parametrize("fitted", [True, False])
@pytest.mark.parametrize(("length", "global_batch"), [(100, 48), (1000, 128), (20, 32)])
def test_a_step_has_the_same_samples_whatever_batch_size_fits(
    monkeypatch: pytest.MonkeyPatch, fitted: bool, length: int, global_batch: int
) -> None:
    def steps(size: int) -> list[frozenset[tuple[int, int]]]:
        """The samples of each step of three epochs, with their epochs."""
        monkeypatch.setattr(fit, "largest_fitting", lambda sizes, measure: size)
        step_samples, loss = list[frozenset[tuple[int, int]]](), torch.zeros(1, requires_grad=True)
        with Run.open(accumulation=global_batch // size, precision="fp32") as run:
            if fitted:
                assert run.fit_batch_size(global_batch, use_memory) == size
            loader = TensorLoader((torch.arange(length),), BatchOrder(length, size, seed=3))
            model = torch.nn.Linear(1, 1)
            run.track(model=model, optimizer=torch.optim.SGD(model.parameters(), 0.1), loader=loader)
            total, samples = run.steps_for(3, loader), set[tuple[int, int]]()
            for (batch,) in run.batches(total):
                samples |= {(run.epoch, int(number)) for number in batch}
                if run.step(model(torch.zeros(1, 1)).sum() + loss.sum()):
                    step_samples.append(frozenset(samples))
                    samples.clear()
        assert len(step_samples) == total
        return step_samples

    sizes = [size for size in (4, 16) if global_batch % size == 0]
    several = [steps(size) for size in sizes]
    assert (several[0] == several[1]) is (fitted and length >= global_batch)
