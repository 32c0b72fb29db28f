"""On a GPU, copies of a checkpoint overlap the next step: they are exact, and go into locked memory."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from everspot_train.checkpoint.memory import SharedMemory
from everspot_train.checkpoint.saver import Saver
from everspot_train.trainer.feeds import as_feed
from everspot_train.trainer.state import TrainState
from torch.utils.data import DataLoader, TensorDataset
from trainer_overlap import PLAIN
from trainer_overlap_runs import check
from trainer_post import Post
from trainer_state import save

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU with CUDA"),
]


@pytest.mark.parametrize("habit", [*PLAIN, "clamp", "clamp_data", "merge", "swap"])
def test_a_run_on_a_gpu_resumes_exactly(habit: str, post: Callable[..., Post]) -> None:
    record, messages = check(post, habit)
    assert any(line["overlaps"] for line in record)
    assert "is discarded" not in messages or habit not in PLAIN


def test_copies_from_a_gpu_are_exact_while_it_computes(tmp_path: Path) -> None:
    device = torch.device("cuda", 0)
    formats = (torch.float32, torch.bfloat16, torch.int64, torch.bool)
    tensors = {str(dtype): torch.randn(1 << 20, device=device).to(dtype) for dtype in formats}
    tensors["image"] = torch.randn(64, 64, 3, 3, device=device).to(memory_format=torch.channels_last)
    expected = {path: tensor.clone().cpu() for path, tensor in tensors.items()}
    memory = SharedMemory([tmp_path], "memory", device)
    saver = Saver(memory, device=device)
    entries = saver.plan(tensors).entries
    assert memory.reserve(0).is_pinned()
    weight = torch.randn(4096, 4096, device=device)
    saver.copy(tensors.keys())
    for _ in range(50):
        weight @ weight
    assert saver.finish(lambda stall: None) is None
    for tensor in tensors.values():
        tensor.zero_()
    for path, tensor in expected.items():
        [chunk] = entries[path].chunks
        stored = memory.reserve(0)[chunk.at :][: tensor.nbytes].view(tensor.dtype)
        assert torch.equal(stored.as_strided(tensor.shape, tensor.stride()), tensor), path


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_on_a_default_device_is_read(workers: int) -> None:
    data = TensorDataset(torch.arange(8))
    with torch.device("cuda"):
        generator = torch.Generator("cuda").manual_seed(1)
        feed = as_feed(DataLoader(data, 2, shuffle=True, num_workers=workers, generator=generator))
        assert sorted(int(x) for (batch,) in feed.open_epoch() for x in batch) == list(range(8))


def test_a_tensor_that_a_kernel_changes_during_the_copy_is_detected_or_was_copied_before(tmp_path: Path) -> None:
    device = torch.device("cuda", 0)
    tensors = {"first": torch.randn(64 << 20, device=device), "second": torch.ones(64 << 20, device=device)}
    memory = SharedMemory([tmp_path], "memory", device)
    saver = Saver(memory, device=device)
    [chunk] = saver.plan(tensors).entries["second"].chunks
    saver.copy(tensors.keys())
    tensors["second"].data.fill_(7)
    changed = saver.finish(lambda stall: None)
    stored = memory.reserve(0)[chunk.at :][: tensors["second"].nbytes].view(torch.float32)
    assert changed == "second" or stored.eq(1).all()


def test_an_object_that_keeps_loaded_tensors_has_them_on_the_gpu(tmp_path: Path) -> None:
    device = torch.device("cuda", 0)

    class Statistics:
        def __init__(self, mean: torch.Tensor | None) -> None:
            self.mean = mean

        def state_dict(self) -> dict[str, torch.Tensor | None]:
            return {"mean": self.mean}

        def load_state_dict(self, state: dict[str, torch.Tensor | None]) -> None:
            self.mean = state["mean"]

    saved, loaded = TrainState(device), TrainState(device)
    statistics = Statistics(None)
    saved.shared["statistics"], loaded.shared["statistics"] = Statistics(torch.ones(2, device=device)), statistics
    save(saved, tmp_path)
    loaded.load(tmp_path, 0)
    assert statistics.mean is not None and statistics.mean.device == device
