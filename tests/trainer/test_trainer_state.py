"""The state in a checkpoint: generators, tracked objects, and no data that would run code."""

import itertools
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from everspot_train.checkpoint.manifest import MANIFEST, CheckpointManifest, TensorEntry, stream_name
from everspot_train.checkpoint.memory import SharedMemory
from everspot_train.checkpoint.saver import Saver
from everspot_train.checkpoint.sharding import Sharding
from everspot_train.trainer import StateMismatch, UnsafeState
from everspot_train.trainer.model_setup import checkpoint_activations
from everspot_train.trainer.module_state import ModuleState
from everspot_train.trainer.randomness import GlobalRandomness, seed_everything
from everspot_train.trainer.state import TrainState
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel
from trainer_state import save

pytestmark = pytest.mark.torch

CPU = torch.device("cpu")


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
    with pytest.raises(UnsafeState, match=r"'schedule' holds pathlib\.\w+ at 'schedule/value':"):
        save(state, tmp_path)


def test_a_number_and_its_conjugate_in_the_same_memory_come_back_as_two(tmp_path: Path) -> None:
    numbers = torch.tensor([1 + 2j, 3 - 4j])
    value = [numbers, numbers.conj(), numbers.imag, numbers.conj().imag]
    save_state, load_state = TrainState(), TrainState()
    loaded = Holds(None)
    save_state.shared["spectrum"], load_state.shared["spectrum"] = Holds(value), loaded
    save(save_state, tmp_path)
    load_state.load(tmp_path, 0)
    assert [part.tolist() for part in loaded.value] == [part.tolist() for part in value]


def test_numbers_and_arrays_of_numpy_come_back(tmp_path: Path) -> None:
    model = nn.Linear(2, 1)
    value: dict[str, Any] = {
        "rate": np.float64(0.1),
        "steps": np.int32(3),
        "is_done": np.bool_(True),
        "mean": np.arange(6, dtype=np.float32).reshape(2, 3).T,
        "scalar": np.array(2.5),
        "empty": np.zeros((0, 2)),
        "names": np.array(["a", "bc"]),
        "since": np.array(["2020-01-01"], dtype="datetime64[D]"),
    }
    rate = np.logspace(-4, -2, 5)[2]
    save_state, load_state = TrainState(), TrainState()
    loaded = Holds(None)
    save_state.shared |= {"buffer": Holds(value), "optimizer": torch.optim.AdamW(model.parameters(), lr=rate)}
    optimizer = torch.optim.AdamW(model.parameters())
    load_state.shared |= {"buffer": loaded, "optimizer": optimizer}
    save(save_state, tmp_path)
    load_state.load(tmp_path, 0)
    for name, expected in value.items():
        assert (type(loaded.value[name]), loaded.value[name].dtype) == (type(expected), expected.dtype)
        assert np.array_equal(loaded.value[name], expected)
    loaded.value["mean"] += 1
    assert optimizer.param_groups[0]["lr"] == rate


@pytest.mark.parametrize("value", [np.array([object()]), np.zeros(1, dtype=[("x", "f4")])])
def test_objects_in_an_array_are_refused(value: Any, tmp_path: Path) -> None:
    state = TrainState()
    state.shared["buffer"] = Holds(value)
    with pytest.raises(UnsafeState, match=r"'buffer' holds numpy.ndarray at 'buffer/value'"):
        save(state, tmp_path)


def with_blocks(compiled: bool) -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))
    if compiled:
        model[1] = torch.compile(model[1], backend="eager")
    return model


@pytest.mark.parametrize("is_earlier_version", [False, True])
@pytest.mark.parametrize(("before", "after"), [(True, False), (False, True), (True, True)])
def test_the_names_in_a_checkpoint_do_not_depend_on_which_blocks_are_compiled(
    before: bool, after: bool, is_earlier_version: bool, tmp_path: Path
) -> None:
    first, second = with_blocks(before), with_blocks(after)
    next(buffer for name, buffer in first.named_buffers() if name.endswith("running_mean")).fill_(3)
    save_state, load_state = TrainState(), TrainState()
    stored: Any = first
    if is_earlier_version:  # it stored the names as they were
        stored = Holds(None)
        stored.state_dict = first.state_dict
    save_state.shared |= {"model": stored}
    load_state.shared |= {"model": second}
    save(save_state, tmp_path)
    assert load_state.load(tmp_path, 0) == (1, True)
    pairs = zip(first.state_dict().values(), second.state_dict().values(), strict=True)
    assert all(torch.equal(saved, loaded) for saved, loaded in pairs)
    if not is_earlier_version:
        manifest = CheckpointManifest.load(tmp_path / MANIFEST)
        assert not [path for path in manifest.tensors if "_orig_mod" in path]


def test_random_numbers_of_all_gpus_of_a_process_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    devices = [torch.Generator().manual_seed(number) for number in range(3)]  # they stand for those of GPUs
    present = 1

    def index(device: Any) -> int:
        return device if isinstance(device, int) else present

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(devices))
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device="cuda": devices[index(device)].get_state())
    monkeypatch.setattr(
        torch.cuda, "set_rng_state", lambda state, device="cuda": devices[index(device)].set_state(state)
    )
    monkeypatch.setattr(torch.cuda, "get_rng_state_all", lambda: [device.get_state() for device in devices])
    state = GlobalRandomness().state_dict()
    expected = [torch.rand(2, generator=device).tolist() for device in devices]
    GlobalRandomness().load_state_dict(state)
    assert [torch.rand(2, generator=device).tolist() for device in devices] == expected
    del devices[2], state["cuda_devices"]  # fewer devices, and a checkpoint of an earlier version
    GlobalRandomness().load_state_dict(state)
    assert torch.rand(2, generator=devices[1]).tolist() == expected[1]


def test_a_shard_is_read_into_the_memory_of_its_parameter() -> None:
    """With the CPU offload of FSDP2 the mesh is one of GPUs, and the shards are in main memory."""
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        shard = DTensor.from_local(torch.zeros(4, 2), mesh, [Shard(0)], run_check=False)
        parameter = nn.Parameter(shard)
        mesh._device_type = "meta"
        entry = TensorEntry(dtype="float32", shape=(4, 2), chunks=[], placements=["S(0)"])
        own = Sharding("optimizer", torch.optim.AdamW([parameter]), {}, parameter).template(
            "optimizer/state/0/x", entry
        )
        other = Sharding("other", Holds(None), {}, parameter).template("other/value", entry)
        assert [part._local_tensor.device.type for part in (own, other)] == ["cpu", "cpu"]
    finally:
        torch.distributed.destroy_process_group()


class Graph(nn.Module):
    """Layers of a graph's network: a sparse adjacency, and masks that `expand` has made."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Linear(3, 3)
        self.register_buffer("adjacency", torch.eye(3).to_sparse())
        self.register_buffer("mask", torch.ones(1, 3).expand(4, 3))
        self.register_buffer("bias", torch.zeros(1, 3).expand(4, 3), persistent=False)


def test_sparse_and_expanded_buffers_of_a_module_come_back(tmp_path: Path) -> None:
    saved, loaded = Graph(), Graph()
    saved.mask, saved.bias, saved.adjacency = saved.mask * 2, saved.bias + 3, saved.adjacency * 4
    for module, target in ((saved, None), (loaded, tmp_path)):
        state = TrainState()
        state.shared |= {"model": module, "modules": ModuleState({"model": module})}
        assert state.size(1) >= 3 * 4 * 4
        if target is None:
            save(state, tmp_path)
        else:
            state.load(target, 0)
    assert all(torch.equal(getattr(loaded, name), getattr(saved, name)) for name in ("mask", "bias"))
    assert torch.equal(loaded.adjacency.to_dense(), saved.adjacency.to_dense())


@pytest.mark.parametrize("recomputed", [False, True])
def test_frozen_layers_come_first_in_a_stream_so_that_their_segments_stay_the_same(
    recomputed: bool, tmp_path: Path
) -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.Sequential(nn.Linear(2, 64), nn.Tanh()), nn.Linear(64, 2))
    model[1].requires_grad_(False)
    if recomputed:
        checkpoint_activations(model, nn.Sequential)
    state = TrainState()
    state.shared["model"] = model
    save(state, tmp_path)
    entries = CheckpointManifest.load(tmp_path / MANIFEST).tensors
    places = sorted(entries, key=lambda path: entries[path].chunks[0].at)
    assert set(places[:2]) == {"model/1.0.weight", "model/1.0.bias"}


def test_a_checkpoint_without_a_tracked_piece_is_refused_by_name(tmp_path: Path) -> None:
    save(TrainState(), tmp_path)
    state = TrainState()
    state.shared["ema"] = Holds(1)
    with pytest.raises(StateMismatch, match="'ema'"):
        state.load(tmp_path, 0)
    state.shared = {"model": nn.Linear(2, 2)}
    with pytest.raises(StateMismatch, match="the checkpoint has no 'model'"):
        state.load(tmp_path, 0)


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    saved, other = TrainState(), TrainState()
    saved.shared["model"], other.shared["model"] = nn.Linear(2, 2), nn.Linear(3, 2)
    save(saved, tmp_path)
    with pytest.raises(StateMismatch, match="size mismatch"):
        other.load(tmp_path, 0)


@pytest.mark.parametrize(
    "change", [lambda m: m.append(nn.Linear(2, 2)), lambda m: m.register_buffer("s", torch.ones(1))]
)
def test_a_layer_that_was_added_later_is_refused_with_what_to_do(change: Callable[[Any], Any], tmp_path: Path) -> None:
    saved, fresh = TrainState(), TrainState()
    saved.shared["model"], fresh.shared["model"] = nn.Sequential(nn.Linear(2, 2)), nn.Sequential(nn.Linear(2, 2))
    change(saved.shared["model"])
    save(saved, tmp_path)
    with pytest.raises(StateMismatch, match=r"add them before run\.track when run\.resume_step is past it"):
        fresh.load(tmp_path, 0)
    change(fresh.shared["model"])
    fresh.load(tmp_path, 0)


class Versioned(nn.Module):
    """A module that refuses a state without its version, as torchvision's MNASNet does."""

    _version = 2

    def __init__(self, mean: float = 0) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3)
        self.norm.running_mean += mean

    def _load_from_state_dict(self, state: Any, prefix: str, metadata: Any, *others: Any) -> None:
        if metadata.get("version") != 2:
            raise ValueError(f"version should be 2 instead of {metadata.get('version')}")
        super()._load_from_state_dict(state, prefix, metadata, *others)


def test_a_module_that_differs_between_ranks_keeps_the_versions_of_its_state(tmp_path: Path) -> None:
    meeting, boards = threading.Barrier(2), [[None, None], [None, None]]

    def save_rank(rank: int) -> None:
        calls = itertools.count()

        def gather(value: Any) -> list[Any]:
            board = boards[next(calls) % 2]
            board[rank] = value
            meeting.wait(60)
            values = list(board)
            meeting.wait(60)
            return values

        state = TrainState()
        state.shared["model"] = Versioned(mean=rank)
        saver = Saver(SharedMemory([tmp_path], stream_name(rank)), rank, gather)
        state.save(tmp_path, 1, rank, saver, gather)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(save_rank, (0, 1)))
    for rank in (0, 1):
        state, module = TrainState(), Versioned(mean=7)
        state.shared["model"] = module
        state.load(tmp_path, rank)
        assert module.norm.running_mean.tolist() == [rank] * 3


def test_a_state_under_the_names_of_a_wrapper_keeps_its_versions(tmp_path: Path) -> None:
    saved, loaded = TrainState(), TrainState()
    module = Versioned(mean=7)
    wrapper = nn.Module()
    wrapper.module = Versioned(mean=3)
    saved.shared["model"], loaded.shared["model"] = wrapper, module
    save(saved, tmp_path)
    loaded.load(tmp_path, 0)
    assert module.norm.running_mean.tolist() == [3] * 3


class Wrapped(nn.Module):
    """A module in another one, under the names that earlier versions stored of a module that DDP wraps."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module


@pytest.fixture
def lone_rank() -> Iterator[None]:
    """A process group of this process alone."""
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def alone(module: nn.Module) -> nn.Module:
    return module


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (DistributedDataParallel, alone),
        (alone, DistributedDataParallel),
        (Wrapped, alone),
        (Wrapped, DistributedDataParallel),
    ],
)
def test_an_average_of_a_parallel_model_resumes_on_another_number_of_ranks(
    before: Callable[[nn.Module], nn.Module],
    after: Callable[[nn.Module], nn.Module],
    lone_rank: None,
    tmp_path: Path,
) -> None:
    averages = [AveragedModel(wrap(Versioned(mean=mean))) for wrap, mean in ((before, 5), (after, 0))]
    averages[0].n_averaged += 3
    next(averages[0].parameters()).requires_grad_(False)
    averages[0].module.eval()
    for average, act in zip(averages, (save, lambda state, folder: state.load(folder, 0)), strict=True):
        state, modules = TrainState(), ModuleState({"average": average})
        state.shared |= {"average": average, "modules": modules}
        act(state, tmp_path)
    modules.apply_pending()
    assert int(averages[1].n_averaged) == 3
    buffers = dict(averages[1].named_buffers())
    assert [b.tolist() for n, b in buffers.items() if n.endswith("running_mean")] == [[5.0] * 3]
    if before is not Wrapped:
        assert [p.requires_grad for p in averages[1].parameters()] == [False, True]
        assert (averages[1].training, averages[1].module.training) == (True, False)


def test_a_checkpoint_that_would_run_code_is_not_read(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "ran",))

    torch.save({"format": 1, "step": 1, "pieces": {"x": Evil()}}, tmp_path / "state.pt")
    with pytest.raises(Exception, match="Weights only"):
        TrainState().load(tmp_path, 0)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(("before", "after"), [(False, True), (True, False), (True, True)])
def test_gradients_that_a_checkpoint_holds_are_sharded_as_their_parameters_are_now(
    before: bool, after: bool, lone_rank: None, tmp_path: Path
) -> None:
    models = [nn.Sequential(nn.Linear(2, 2)) for _ in range(2)]
    for model, sharded in zip(models, (before, after), strict=True):
        if sharded:
            fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
    models[0](torch.ones(1, 2)).sum().backward()
    for model, act in zip(models, (save, lambda state, folder: state.load(folder, 0)), strict=True):
        state, modules = TrainState(), ModuleState({"model": model})
        state.shared |= {"model": model, "modules": modules}
        act(state, tmp_path)
    modules.apply_pending()
    gradients = [parameter.grad for parameter in models[1].parameters()]
    assert [isinstance(gradient, DTensor) for gradient in gradients] == [after, after]
    assert [gradient.full_tensor().tolist() if after else gradient.tolist() for gradient in gradients] == [
        [[1, 1], [1, 1]],
        [1, 1],
    ]
    models[1](torch.ones(1, 2)).sum().backward()


def test_what_torch_says_of_a_wrong_shape_is_one_sentence(tmp_path: Path) -> None:
    state = TrainState()
    state.shared["model"] = nn.Linear(2, 2)
    save(state, tmp_path)
    state.shared["model"] = nn.Linear(2, 2, bias=False)
    with pytest.raises(StateMismatch, match=r'Unexpected key\(s\) in state_dict: "bias"\. If the loop adds') as refusal:
        state.load(tmp_path, 0)
    assert "\n" not in str(refusal.value)
