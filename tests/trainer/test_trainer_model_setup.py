"""The effects of `Run.prepare` on a model: its memory format, its names, and its arithmetic over several ranks."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from everspot_core.jobs.records import Reason
from everspot_train.rundir import RunDir, StopRequest
from everspot_train.trainer import BatchOrder, Run, RunStopped, TensorLoader
from torch import nn
from trainer_post import Post

pytestmark = pytest.mark.torch

X = torch.randn(64, 8, generator=torch.Generator().manual_seed(1))


class Block(nn.Module):
    """A block with everything that a checkpoint names: weights, dropout, a buffer that is not persistent."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.inner, self.outer = nn.LayerNorm(8), nn.Linear(8, 64), nn.Linear(64, 8)
        self.dropout = nn.Dropout(0.1)
        self.register_buffer("calls", torch.zeros(()), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.dropout(self.outer(torch.relu(self.inner(self.norm(x)))))


class Stack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Linear(8, 1)
        self.blocks[1].norm.weight.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        result: torch.Tensor = self.head(x)
        return result


def train(steps: int, stop_at: int | None = None, **options: Any) -> dict[str, torch.Tensor]:
    torch.set_num_threads(1)
    with Run.open(seed=1, precision="fp32") as run:
        model = run.prepare(Stack(), **options)
        optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01)
        run.track(model=model, optimizer=optimizer, loader=TensorLoader((X,), BatchOrder(64, 8, seed=2)))
        for (x,) in run.batches(steps):
            with torch.no_grad():
                for block in model.blocks:
                    getattr(block, "_checkpoint_wrapped_module", block).calls.add_(1)
            run.step(model(x).square().mean())
            if run.steps_done == stop_at:
                rundir = RunDir.from_environment()
                assert rundir is not None
                rundir.write(StopRequest(reason=Reason.NOTICE))
        return {name: value.clone() for name, value in model.state_dict().items()}


OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "recomputed": {"activation_checkpointing": True},
    "compiled": {"compile": "aot_eager"},
    "both": {"activation_checkpointing": Block, "compile": "aot_eager"},
    "channels last": {"channels_last": True},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_no_option_changes_what_is_learnt_or_how_it_is_named(name: str) -> None:
    plain, other = train(6), train(6, **OPTIONS[name])
    assert list(other) == list(plain)
    for key, value in plain.items():
        torch.testing.assert_close(other[key], value, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("before", "after"), list(pairwise([*OPTIONS, "plain"])))
def test_a_checkpoint_made_with_one_option_goes_on_with_another(
    before: str, after: str, post: Callable[..., Post], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train(6)
    monkeypatch.setenv("EVERSPOT_RUN_DIR", str(post(1).root))
    with pytest.raises(RunStopped):
        train(6, stop_at=3, **OPTIONS[before])
    second = post(2)
    monkeypatch.setenv("EVERSPOT_RUN_DIR", str(second.root))
    weights = train(6, **OPTIONS[after])
    assert second.status.resumed_from == 3
    for key, value in whole.items():
        torch.testing.assert_close(weights[key], value, rtol=1e-4, atol=1e-6)


def test_buffers_and_frozen_parameters_go_on_under_a_wrapper(
    post: Callable[..., Post], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, options in enumerate([{}, {"activation_checkpointing": True}, {}], 1):
        monkeypatch.setenv("EVERSPOT_RUN_DIR", str(post(number).root))
        with Run.open(seed=1, precision="fp32") as run:
            net = Stack()
            if number > 1:
                net.blocks[1].norm.weight.requires_grad_(True)  # the checkpoint knows better
            model = run.prepare(net, **options)
            inner = [getattr(block, "_checkpoint_wrapped_module", block) for block in net.blocks]
            optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
            run.track(model=model, optimizer=optimizer, loader=TensorLoader((X,), BatchOrder(64, 8, seed=2)))
            for (x,) in run.batches(number):
                inner[0].calls.add_(1)
                run.step(model(x).square().mean())
            assert inner[0].calls == number
            assert not inner[1].norm.weight.requires_grad


def saved_bytes(model: nn.Module) -> int:
    """Bytes of activations that a forward pass keeps for the backward pass."""
    sizes: dict[int, int] = {}
    parameters = {parameter.data_ptr() for parameter in model.parameters()}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.data_ptr() not in parameters:
            sizes[tensor.data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model(torch.randn(256, 8)).sum().backward()
    return sum(sizes.values())


def test_recomputed_activations_are_not_kept() -> None:
    with Run.open(precision="fp32") as run:
        assert saved_bytes(run.prepare(Stack(), activation_checkpointing=True)) < 0.2 * saved_bytes(Stack())


def wrapped(model: nn.Module) -> list[str]:
    return [name for name, module in model.named_modules() if hasattr(module, "_checkpoint_wrapped_module")]


def test_blocks_are_those_that_a_model_repeats_or_those_of_a_class() -> None:
    plain = nn.Sequential(nn.Linear(8, 8), nn.Sequential(Block(), Block()), nn.Sequential(nn.ReLU(), nn.ReLU()))
    with Run.open(precision="fp32") as run:
        assert wrapped(run.prepare(plain, activation_checkpointing=True)) == ["1.0", "1.1"]
        sequential = nn.Sequential(nn.Linear(8, 8), *(nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(2)))
        assert wrapped(run.prepare(sequential, activation_checkpointing=True)) == ["1", "2"]
        with pytest.raises(ValueError, match=r"Linear repeats no block in a ModuleList or Sequential; give the class"):
            run.prepare(nn.Linear(8, 8), activation_checkpointing=True)
        with pytest.raises(ValueError, match=r"Stack has no module of class Conv2d, GRU; give the class"):
            run.prepare(Stack(), activation_checkpointing=(nn.Conv2d, nn.GRU))
        normed = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)) for _ in range(2)))
        names = list(normed.state_dict())
        with pytest.raises(ValueError, match=r"block 0 holds a BatchNorm1d, whose running averages would count every"):
            run.prepare(normed, activation_checkpointing=True)
        tracked = [nn.Sequential(nn.Linear(8, 8), nn.InstanceNorm1d(8, track_running_stats=True)) for _ in range(2)]
        with pytest.raises(ValueError, match=r"block 0 holds a InstanceNorm1d, whose running averages would count"):
            run.prepare(nn.Sequential(*tracked), activation_checkpointing=True)
        assert [n for n, _ in normed.named_parameters()] == names[:4] + names[7:11], "refused before it is changed"
        with pytest.raises(ValueError, match="'zero' is not a valid Parallel"):
            run.prepare(Stack(), parallel="zero")


def test_a_compiled_model_is_the_same_object_and_is_compiled_by_the_backend_that_is_named() -> None:
    graphs = []

    def count_graphs(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
        graphs.append(graph)
        return graph.forward

    torch._dynamo.register_backend(count_graphs, name="counted")
    net = Stack()
    with Run.open(precision="fp32") as run:
        model = run.prepare(net, compile="counted")
        model(X)
    assert model is net and graphs


def test_inductor_is_the_backend_unless_another_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = []

    def count_graphs(graph: torch.fx.GraphModule, inputs: list[torch.Tensor], **_: object) -> Callable[..., Any]:
        graphs.append(graph)
        return graph.forward

    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx", count_graphs)
    with Run.open(precision="fp32") as run:
        run.prepare(nn.Linear(8, 8), compile=True)(X)
    assert graphs


@pytest.mark.nightly  # its compiler of C++ takes half a minute
def test_what_inductor_compiles_computes_the_same() -> None:
    with Run.open(precision="fp32") as run:
        net = nn.Sequential(nn.Linear(8, 8), nn.GELU())
        expected = net(X)
        torch.testing.assert_close(run.prepare(net, compile=True)(X), expected)


RANKS = """
import os
import torch
from pathlib import Path
from torch import nn
from everspot_train.trainer import BatchOrder, Run, TensorLoader

torch.set_num_threads(1)
parallel, accumulation, batch = os.environ["PARALLEL"], int(os.environ["ACCUMULATION"]), int(os.environ["BATCH"])
x = torch.randn(96, 8, generator=torch.Generator().manual_seed(1))
torch.manual_seed(5)
blocks = [nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8)) for _ in range(2)]
net = nn.Sequential(nn.Linear(8, 8), nn.Sequential(*blocks), nn.Linear(8, 1))
with Run.open(precision="fp32", accumulation=accumulation, clip_norm=0.5) as run:
    model = run.prepare(net, parallel=parallel, activation_checkpointing=os.environ["RECOMPUTE"] == "yes")
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    run.track(model=model, optimizer=optimizer, loader=TensorLoader((x,), BatchOrder(96, batch, seed=2)))
    for (samples,) in run.batches(epochs=2):
        target = samples.sum(1, keepdim=True)
        run.step((model(samples) - target).square().mean())
    sharded = any(hasattr(p, "full_tensor") for p in model.parameters())
    weights = {n: p.full_tensor() if sharded else p.detach() for n, p in net.state_dict().items()}
    if run.rank == 0:
        torch.save({"weights": weights, "steps": run.steps_done, "sharded": sharded}, os.environ["LOSSES"])
"""


@pytest.mark.parametrize(
    ("ranks", "parallel", "batch", "accumulation", "recompute"),
    [
        (1, "ddp", 6, 4, "no"),
        (1, "fsdp2", 24, 1, "no"),
        (2, "ddp", 12, 1, "no"),
        (2, "ddp", 3, 4, "yes"),
        (2, "fsdp2", 12, 1, "no"),
        (2, "fsdp2", 3, 4, "no"),
        (2, "fsdp2", 3, 4, "yes"),
    ],
)
def test_accumulation_equals_the_large_batch_on_any_number_of_ranks(
    ranks: int, parallel: str, batch: int, accumulation: int, recompute: str, post: Callable[..., Post], tmp_path: Path
) -> None:
    script = tmp_path / "ranks.py"
    script.write_text(RANKS)
    alone = {"EVERSPOT_RUN_DIR": "", "script": script}
    post(1).run_ranks(tmp_path / "large", 1, PARALLEL="ddp", BATCH=24, ACCUMULATION=1, RECOMPUTE="no", **alone)
    settings = {"PARALLEL": parallel, "BATCH": batch, "ACCUMULATION": accumulation, "RECOMPUTE": recompute}
    post(2).run_ranks(tmp_path / "small", ranks, **settings, **alone)
    large, small = (torch.load(tmp_path / name, weights_only=True) for name in ("large", "small"))
    assert (large["steps"], small["steps"]) == (8, 8)
    assert small["sharded"] == (parallel == "fsdp2" and ranks > 1)
    for name, value in large["weights"].items():
        torch.testing.assert_close(small["weights"][name], value, rtol=1e-4, atol=1e-5)


SCALED = """
import os
import torch
from pathlib import Path
from torch import nn
from everspot_train.trainer import BatchOrder, Run, TensorLoader

torch.set_num_threads(1)
x = torch.randn(96, 8, generator=torch.Generator().manual_seed(1))
torch.manual_seed(5)
net = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 1))
with Run.open(precision="fp16", accumulation=2) as run:
    model = run.prepare(net, parallel=os.environ["PARALLEL"])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-7)
    run.track(model=model, optimizer=optimizer, loader=TensorLoader((x,), BatchOrder(96, 4, seed=2)))
    skipped = []
    for (samples,) in run.batches(epochs=4):
        before = [getattr(p, "_local_tensor", p).clone() for p in model.parameters()]
        with run.autocast():
            loss = 1e4 * (model(samples) - samples.sum(1, keepdim=True)).square().mean()
        if run.step(loss):
            after = [getattr(p, "_local_tensor", p) for p in model.parameters()]
            if all(torch.equal(old, new) for old, new in zip(before, after)):
                skipped.append(run.steps_done)
    Path(f"{os.environ['LOSSES']}.{run.rank}").write_text(str(skipped))
"""


def test_the_scaler_leaves_out_the_same_steps_on_every_rank_sharded_or_not(
    post: Callable[..., Post], tmp_path: Path
) -> None:
    """A rank that steps while another one leaves the step out would have other weights from then on."""
    script = tmp_path / "scaled.py"
    script.write_text(SCALED)
    for number, parallel in enumerate(["ddp", "fsdp2"], 1):
        environment = {"EVERSPOT_RUN_DIR": "", "PARALLEL": parallel}
        post(number).run_ranks(tmp_path / parallel, 2, script=script, **environment)
    skipped = {(tmp_path / f"{parallel}.{rank}").read_text() for parallel in ("ddp", "fsdp2") for rank in (0, 1)}
    assert len(skipped) == 1 and skipped.pop().startswith("[1, 2")
