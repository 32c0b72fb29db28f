"""The checkpoint format: every state round-trips, and an inconsistent manifest is refused."""

import json
from collections import Counter, OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from everspot_train.checkpoint.loader import Loader
from everspot_train.checkpoint.manifest import CheckpointManifest, ManifestError, RankPieces, stream_name
from everspot_train.checkpoint.memory import SharedMemory
from everspot_train.checkpoint.saver import Saver
from everspot_train.checkpoint.tree import UnsupportedValue, decode, encode, unsupported_kind
from everspot_train.trainer.digests import describe
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore
from trainer_setups import Codes, quantize

pytestmark = pytest.mark.torch

DTYPES = [
    torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2,
    torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32, torch.uint64,
    torch.bool, torch.complex64, torch.complex128,
]  # fmt: skip
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.complex_numbers()
KEYS = st.text() | st.integers() | st.booleans()
STATES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(KEYS, inner) | st.sets(st.integers()),
    max_leaves=20,
)


def save_and_load(state: Any, folder: Path) -> Any:
    """Save a state into a folder, and return what is read from it."""
    tensors: dict[str, torch.Tensor] = {}

    def collect(path: str, tensor: torch.Tensor) -> str:
        tensors[path] = tensor
        return path

    tree = encode(state, "piece", collect)
    saver = Saver(SharedMemory([folder], stream_name(0)))
    streams = saver.plan(tensors)
    saver.copy()
    manifest = CheckpointManifest(
        step=1, shared={"piece": tree}, ranks=[RankPieces(pieces={})], tensors=streams.entries, streams=streams.sizes
    )
    (folder / "manifest.json").write_bytes(manifest.to_json())
    loader = Loader(CheckpointManifest.load(folder / "manifest.json"), folder)
    return loader.read(loader.manifest.shared["piece"])


@given(STATES)
def test_plain_values_come_back_with_their_types(state: Any) -> None:
    encoded = json.loads(json.dumps(encode(state, "piece", lambda path, tensor: path)))
    decoded = decode(encoded, lambda path: torch.empty(0))
    assert describe(decoded) == describe(state)
    assert type(decoded) is type(state)


@settings(deadline=None, max_examples=50)
@given(
    st.sampled_from(DTYPES),
    st.lists(st.integers(0, 4), max_size=4),
    st.randoms(use_true_random=False),
)
def test_tensors_come_back_with_their_bits_and_strides(
    tmp_path_factory: pytest.TempPathFactory, dtype: torch.dtype, shape: list[int], dice: Any
) -> None:
    order = list(range(len(shape)))
    dice.shuffle(order)
    plain = (torch.rand(shape) * 3).to(dtype)
    states = [plain, plain.permute(order), plain[..., ::2] if shape else plain, plain.expand(2, *shape)]
    loaded = save_and_load(states, tmp_path_factory.mktemp("state"))
    assert describe(loaded) == describe(states)
    for before, after in zip(states[:3], loaded, strict=False):  # the last one's elements share their memory
        if before.numel():
            lengths = [n for n in range(before.ndim) if before.shape[n] > 1]
            assert [after.stride(n) for n in lengths] == [before.stride(n) for n in lengths]


def test_other_layouts_and_containers_come_back(tmp_path: Path) -> None:
    channels_last = torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last)
    ordered: OrderedDict[str, Any] = OrderedDict(w=torch.ones(2), b=1)
    state = {
        "coo": torch.eye(3).to_sparse(),
        "duplicates": torch.sparse_coo_tensor([[0, 0], [1, 1]], [1.0, 2.0], (3, 3), check_invariants=True),
        "rows": torch.sparse_coo_tensor([[0, 2]], torch.rand(2, 5), (3, 5), check_invariants=True),
        "fp4": torch.randint(256, (4, 2), dtype=torch.uint8).view(torch.float4_e2m1fn_x2),
        "scales": torch.randint(255, (4,), dtype=torch.uint8).view(torch.float8_e8m0fnu),
        "windows": torch.arange(6.0).as_strided((4, 3), (1, 1)),
        "number": torch.tensor(2.5),
        "nothing": torch.empty(0, 3, dtype=torch.bfloat16),
        "last": channels_last,
        "tied": [channels_last, channels_last],
        "parameter": torch.nn.Parameter(torch.ones(2), requires_grad=False),
        "ordered": ordered,
        "counter": Counter("abca"),
        "size": torch.Size([1, 2]),
        "dtype": torch.bfloat16,
        "device": torch.device("cpu"),
        1: {"$odd": 2},
    }
    loaded = save_and_load(state, tmp_path)
    assert describe(loaded) == describe(state)
    assert not loaded["duplicates"].is_coalesced() and loaded["rows"].sparse_dim() == 1
    assert (loaded["fp4"].dtype, loaded["scales"].dtype) == (torch.float4_e2m1fn_x2, torch.float8_e8m0fnu)
    assert loaded["last"].is_contiguous(memory_format=torch.channels_last)
    assert type(loaded["ordered"]) is OrderedDict and type(loaded["counter"]) is Counter
    assert not loaded["parameter"].requires_grad


def test_a_tensor_with_gaps_comes_back_with_them_so_that_its_sum_has_the_same_bits(tmp_path: Path) -> None:
    columns = torch.rand(64, 96, generator=torch.Generator().manual_seed(1))[..., ::2]
    loaded = save_and_load(columns, tmp_path)
    assert loaded.stride() == columns.stride()
    assert torch.equal(loaded.sum(), columns.sum()), "the order of summands depends on the strides"


def test_a_tensor_that_wraps_others_comes_back_with_its_class_and_shares_what_was_shared(tmp_path: Path) -> None:
    levels = torch.linspace(-1, 1, 256)
    first, second = (Codes(*quantize(torch.rand(3, 4), levels), levels, signed) for signed in (True, False))
    loaded = save_and_load({"first": first, "again": first, "second": [second]}, tmp_path)
    copy, other = loaded["first"], loaded["second"][0]
    assert type(copy) is Codes and (copy.signed, other.signed) == (True, False)
    assert torch.equal(copy.codes, first.codes) and torch.equal(copy.scale, first.scale)
    assert describe(loaded) == describe({"first": first, "again": first, "second": [second]})
    assert describe(first) != describe(Codes(first.codes + 1, first.scale, levels, True))
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert {tuple(entry["shape"]) for entry in manifest["tensors"].values()} == {(3, 4), (3,), (256,)}


@pytest.mark.parametrize("name", ["elsewhere:Codes", "trainer_setups:quantize", "builtins:dict", "torch:Tensor"])
def test_a_class_that_is_no_imported_class_of_such_tensors_is_refused(name: str, tmp_path: Path) -> None:
    levels = torch.linspace(-1, 1, 256)
    save_and_load({"w": Codes(*quantize(torch.rand(4), levels), levels, True)}, tmp_path)
    loader = Loader(CheckpointManifest.load(tmp_path / "manifest.json"), tmp_path)
    tree: Any = loader.manifest.shared["piece"]
    tree["w"]["$wrapper"] = name
    with pytest.raises(ManifestError, match="no class of tensors that the program has imported"):
        loader.read(tree)


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")  # deprecated, and still in use
@pytest.mark.filterwarnings("ignore:Sparse CS:UserWarning")  # in beta state for years
@pytest.mark.filterwarnings("ignore:Sparse BS:UserWarning")
def test_quantized_and_compressed_tensors_come_back(tmp_path: Path) -> None:
    values = torch.tensor([[0.5, -1.0], [2.0, 0.0]])
    scales, zeros = torch.tensor([0.1, 0.2], dtype=torch.float64), torch.tensor([0, 3])
    state = {
        "tensor": torch.quantize_per_tensor(values, 0.1, 2, torch.qint8),
        "channel": torch.quantize_per_channel(values, scales, zeros, 0, torch.qint8),
        "embedding": torch.quantize_per_channel(values, scales.float(), torch.tensor([0.5, 1.5]), 0, torch.quint8),
        "csr": values.to_sparse_csr(),
        "csc": values.to_sparse_csc(),
        "bsr": values.to_sparse_bsr((1, 1)),
    }
    loaded = save_and_load(state, tmp_path)
    for name in ("tensor", "channel", "embedding"):
        original, copy = state[name], loaded[name]
        assert (copy.dtype, copy.qscheme()) == (original.dtype, original.qscheme())
        assert torch.equal(copy.int_repr(), original.int_repr())
        assert torch.equal(copy.dequantize(), original.dequantize())
    for name in ("csr", "csc", "bsr"):
        assert loaded[name].layout is state[name].layout
        assert torch.equal(loaded[name].to_dense(), values)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (object(), "builtins.object"),
        ([Path("/")], "pathlib"),
        (lambda: 1, "builtins.function"),
        (torch.empty(2, device="meta"), "a tensor without data"),
        (torch.zeros(2, dtype=torch.uint8).view(torch.uint4), "a tensor of dtype uint4"),  # type: ignore[attr-defined]
        (torch.ones(2).to_mkldnn(), "a tensor of layout _mkldnn"),
        (np.array(["a", "b"], np.dtypes.StringDType()), "numpy.ndarray"),
        (torch.ones(2).as_subclass(type("Packed", (torch.Tensor,), {})), "Packed"),
    ],
)
def test_what_cannot_be_read_back_is_named(value: Any, kind: str) -> None:
    with pytest.raises(UnsupportedValue, match=kind):
        encode({"deep": [value]}, "piece", lambda path, tensor: path)


def test_a_nested_tensor_is_named() -> None:
    """It is made here and not as a parameter: the first one imports torch._dynamo."""
    nested = torch.nested.nested_tensor([torch.ones(2)], layout=torch.jagged)
    with pytest.raises(UnsupportedValue, match="a nested tensor"):
        encode({"deep": [nested]}, "piece", lambda path, tensor: path)


def test_shards_that_wrap_other_tensors_are_refused() -> None:
    levels = torch.linspace(-1, 1, 256)
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    try:
        mesh = init_device_mesh("cpu", (2,))
        shards = DTensor.from_local(torch.rand(3, 4), mesh, [Shard(0)], run_check=False)
        assert unsupported_kind(shards) is None
        shards._local_tensor = Codes(*quantize(torch.rand(3, 4), levels), levels, True)
        with pytest.raises(UnsupportedValue, match=r"piece is a DTensor of trainer_setups\.Codes"):
            encode(shards, "piece", lambda path, tensor: path)
    finally:
        dist.destroy_process_group()


@pytest.mark.filterwarnings("ignore:torch.quantize_per_:UserWarning")
def test_quantized_tensors_of_less_than_a_byte_are_refused() -> None:
    packed = torch.quantize_per_channel(torch.rand(4, 4), torch.ones(4), torch.zeros(4), 0, torch.quint4x2)
    with pytest.raises(UnsupportedValue, match="piece is a tensor of dtype quint4x2"):
        encode(packed, "piece", lambda path, tensor: path)


def test_text_that_is_no_utf8_and_long_integers_come_back(tmp_path: Path) -> None:
    name = b"caf\xe9.jpg".decode(errors="surrogateescape")  # as os.listdir returns a name in Latin-1
    state = {"files": [name], name: {"place": torch.ones(2), "visited": 1 << 20_000, "negative": -(1 << 20_000)}}
    loaded = save_and_load(state, tmp_path)
    assert loaded["files"] == [name] and loaded.keys() == state.keys()
    assert (loaded[name]["visited"], loaded[name]["negative"]) == (1 << 20_000, -(1 << 20_000))
    assert describe(loaded) == describe(state)


def test_numbers_texts_and_arrays_of_numpy_come_back(tmp_path: Path) -> None:
    state: dict[str, Any] = {
        "text": np.str_(""), "bytes": np.bytes_(b""), "name": np.str_("abc"), "number": np.float32(1.5),
        "names": np.array(["a", "bcd"]), "none": np.zeros((0, 3)), "of no length": np.empty((2,), np.dtype("S0")),
        "time": np.datetime64("2026-01-01", "ns"), "big": np.arange(3, dtype=">i4"),
    }  # fmt: skip
    loaded = save_and_load(state, tmp_path)
    for name, value in state.items():
        assert (type(loaded[name]), loaded[name].dtype, loaded[name].shape) == (type(value), value.dtype, value.shape)
        assert np.array_equal(loaded[name], value)


@pytest.mark.parametrize("wrap", [lambda inner: [inner], lambda inner: {1: inner}, lambda inner: (inner,)])
def test_containers_come_back_or_are_refused_however_deep_they_are(wrap: Any, tmp_path: Path) -> None:
    state: Any = 1
    for _ in range(40):
        state = wrap(state)
    assert save_and_load(state, tmp_path) == state
    while True:
        state = wrap(state)
        try:
            encode(state, "piece", lambda path, tensor: path)
        except UnsupportedValue as refusal:
            assert "deeper than a checkpoint can hold" in str(refusal)
            break
        assert repr(save_and_load(state, tmp_path)) == repr(state)


def test_a_container_inside_itself_is_refused() -> None:
    state: list[Any] = []
    state.append(state)
    with pytest.raises(UnsupportedValue, match="inside itself"):
        encode(state, "piece", lambda path, tensor: path)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda m: m["tensors"]["piece/w"]["chunks"][0].update(at=1 << 40), "outside the tensor or its stream"),
        (lambda m: m["tensors"]["piece/w"]["chunks"][0].update(offsets=[1]), "outside the tensor or its stream"),
        (lambda m: m["tensors"]["piece/w"]["chunks"][0].update(sizes=[1]), "do not make up the tensor"),
        (lambda m: m["tensors"]["piece/w"].update(dtype="os"), "torch has no dtype os"),
        (lambda m: m["tensors"]["piece/w"].update(gapped_strides=[2, 1]), "as many strides as dimensions"),
        (lambda m: m["tensors"]["piece/w"]["chunks"].clear(), "do not make up the tensor"),
        (lambda m: m.update(format=3), "later version"),
        (lambda m: m.pop("streams"), "streams"),
    ],
)
def test_a_manifest_that_contradicts_itself_is_refused(tmp_path: Path, change: Any, complaint: str) -> None:
    save_and_load({"w": torch.ones(4)}, tmp_path)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    change(manifest)
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ManifestError, match=complaint):
        CheckpointManifest.load(tmp_path / "manifest.json")


@pytest.mark.parametrize("tree", [{"$call": 1}, {"$tensor": "elsewhere"}, {"$dtype": "load"}, {"$dict": [1]}])
def test_a_tree_that_names_what_is_not_there_is_refused(tmp_path: Path, tree: Any) -> None:
    save_and_load({"w": torch.ones(4)}, tmp_path)
    loader = Loader(CheckpointManifest.load(tmp_path / "manifest.json"), tmp_path)
    with pytest.raises(ManifestError, match="contradicts itself"):
        loader.read(tree)
