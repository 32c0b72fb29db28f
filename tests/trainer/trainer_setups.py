"""Loops with the optimizers, models and schedules of widespread training code, in the style of `trainer_habits`.

Some optimizers are written here as their libraries write them, whose real ones need a GPU or a package of their own.
"""

from collections.abc import Callable
from typing import Any

import torch
from everspot_train.trainer import Run
from torch import nn
from torch.nn.utils import parametrizations
from torch.optim import lr_scheduler
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from trainer_habits import TOTAL, Stop, loader, network, note

WORDS = 16
MakeOptimizer = Callable[[nn.Module], torch.optim.Optimizer]


def train_with(make_optimizer: MakeOptimizer, lines: list[str], stop: Stop) -> dict[str, Any]:
    with Run.open(seed=1, precision="fp32") as run:
        model = nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 6))
        optimizer = make_optimizer(model)
        run.track(model=model, optimizer=optimizer, loader=loader())
        for (x,) in run.batches(TOTAL):
            run.step((model(x) - x).square().mean())
            note(run, lines)
            stop(run.steps_done)
    return model.state_dict()


def words_of(x: torch.Tensor) -> torch.Tensor:
    return (x.abs() * 8).long().clamp(max=WORDS - 1)


def quantize(values: torch.Tensor, levels: torch.Tensor, block: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a byte for each value, and the largest value of each block."""
    blocks = nn.functional.pad(values.flatten(), (0, -values.numel() % block)).view(-1, block)
    scale = blocks.abs().amax(1).clamp(min=1e-12)
    codes = torch.bucketize(blocks / scale[:, None], levels).clamp(max=255).to(torch.uint8)
    return codes.flatten()[: values.numel()].view(values.shape), scale


def dequantize(codes: torch.Tensor, scale: torch.Tensor, levels: torch.Tensor, block: int = 4) -> torch.Tensor:
    values = levels[codes.long()]
    return values * scale.repeat_interleave(block)[: values.numel()].view(values.shape)


class EightBit(torch.optim.Optimizer):
    """Momentum of 8 bits, as bitsandbytes keeps it: bytes, scales of blocks, and a map of codes that all parameters
    share; beside it a tensor with gaps between its elements."""

    def __init__(self, parameters: Any, lr: float = 0.01) -> None:
        super().__init__(parameters, {"lr": lr})
        self.levels = torch.linspace(-1, 1, 256)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["step"], state["qmap1"] = torch.tensor(0.0), self.levels
                    state["state1"], state["absmax1"] = quantize(torch.zeros_like(p), self.levels)
                    state["halves"] = torch.zeros(2, *p.shape)[..., ::2]
                state["step"] += 1
                momentum = dequantize(state["state1"], state["absmax1"], state["qmap1"]) * 0.9 + p.grad
                state["halves"].add_(momentum[..., ::2].abs())
                p.sub_(momentum, alpha=group["lr"] / (1 + state["halves"].mean().item()))
                state["state1"], state["absmax1"] = quantize(momentum, self.levels)


class Codes(torch.Tensor):
    """A tensor that wraps bytes and scales, as the states of torchao's optimizers do."""

    @staticmethod
    def __new__(cls, codes: torch.Tensor, scale: torch.Tensor, levels: torch.Tensor, signed: bool) -> "Codes":
        wrapper: Codes = torch.Tensor._make_wrapper_subclass(cls, codes.shape)  # type: ignore[attr-defined]
        return wrapper

    def __init__(self, codes: torch.Tensor, scale: torch.Tensor, levels: torch.Tensor, signed: bool) -> None:
        self.codes, self.scale, self.levels, self.signed = codes, scale, levels, signed

    def __tensor_flatten__(self) -> tuple[list[str], list[Any]]:
        return ["codes", "scale", "levels"], [self.signed, self.dtype]

    @classmethod
    def __tensor_unflatten__(cls, parts: dict[str, torch.Tensor], context: list[Any], *_: Any) -> "Codes":
        return cls(parts["codes"], parts["scale"], parts["levels"], context[0])

    def __repr__(self) -> str:  # type: ignore[override]
        return f"Codes({tuple(self.shape)})"

    def dequantize(self) -> torch.Tensor:
        return dequantize(self.codes, self.scale, self.levels)

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function in (torch.ops.aten.detach.default, torch.ops.aten._to_copy.default):
            parts = [getattr(args[0], name).clone() for name in ("codes", "scale", "levels")]
            return cls(*parts, args[0].signed)  # type: ignore[call-arg]
        raise NotImplementedError(f"{function} on Codes")


class WrappedStates(torch.optim.Optimizer):
    """Momentum in tensors of a class of its own."""

    def __init__(self, parameters: Any, lr: float = 0.01) -> None:
        super().__init__(parameters, {"lr": lr})
        self.levels = torch.linspace(-1, 1, 256)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["momentum"] = Codes(*quantize(torch.zeros_like(p), self.levels), self.levels, True)
                momentum = state["momentum"].dequantize() * 0.9 + p.grad
                p.sub_(momentum, alpha=group["lr"])
                state["momentum"].codes, state["momentum"].scale = quantize(momentum, self.levels)


class Preconditioned(torch.optim.Optimizer):
    """Nested state as Shampoo has: numbers as keys, lists with None, tuples with texts, sizes and dtypes."""

    def __init__(self, parameters: Any, lr: float = 0.01) -> None:
        super().__init__(parameters, {"lr": lr, "grafting": {"kind": "rms", "beta": 0.9}, "blocks": (4, 4)})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["factors"] = {dimension: [torch.eye(size), None] for dimension, size in enumerate(p.shape)}
                    state["graft"] = (torch.zeros_like(p), {"order": p.ndim, "dtype": p.dtype, "size": p.shape})
                    state[0] = torch.zeros(())
                state[0] += 1
                direction = p.grad
                for dimension, factors in state["factors"].items():
                    flat = p.grad.movedim(dimension, 0).reshape(p.shape[dimension], -1)
                    factors[0].mul_(0.9).add_(flat @ flat.T)
                    if int(state[0]) % 3 == 0:
                        factors[1] = torch.linalg.inv(factors[0] + torch.eye(len(factors[0])))
                    if factors[1] is not None:
                        turned = direction.movedim(dimension, 0)
                        solved = factors[1] @ turned.reshape(len(turned), -1)
                        direction = solved.view(turned.shape).movedim(0, dimension)
                state["graft"][0].mul_(group["grafting"]["beta"]).add_(direction)
                p.sub_(state["graft"][0], alpha=group["lr"])


class ScheduleFree(torch.optim.Optimizer):
    """The weights are an average of what is trained, which is in the state. Numbers and a mode are in the groups."""

    def __init__(self, parameters: Any, lr: float = 0.05) -> None:
        super().__init__(parameters, {"lr": lr, "k": 0, "lr_max": -1.0, "weight_sum": 0.0, "train_mode": True})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            group["k"] += 1
            group["lr_max"] = max(group["lr"] * min(1, group["k"] / 5), group["lr_max"])
            group["weight_sum"] += group["lr_max"] ** 2
            for p in group["params"]:
                trained = self.state[p].setdefault("z", p.clone())
                p.lerp_(trained, group["lr_max"] ** 2 / group["weight_sum"])
                p.sub_(p.grad, alpha=0.1 * group["lr"])
                trained.sub_(p.grad, alpha=group["lr"])


class Both(torch.optim.Optimizer):
    """Two optimizers as one, as torchtitan's OptimizersContainer."""

    def __init__(self, *optimizers: torch.optim.Optimizer) -> None:
        self.optimizers = optimizers
        super().__init__([p for o in optimizers for group in o.param_groups for p in group["params"]], {})

    def step(self, closure: Any = None) -> None:
        for optimizer in self.optimizers:
            optimizer.step()

    def state_dict(self) -> dict[str, Any]:
        return {str(number): optimizer.state_dict() for number, optimizer in enumerate(self.optimizers)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for number, optimizer in enumerate(self.optimizers):
            optimizer.load_state_dict(state[str(number)])


def muon(model: nn.Module) -> torch.optim.Optimizer:
    matrices = [p for p in model.parameters() if p.ndim == 2]
    others = [p for p in model.parameters() if p.ndim != 2]
    return Both(torch.optim.Muon(matrices, lr=0.02), torch.optim.AdamW(others, lr=0.01))


OPTIMIZERS: dict[str, MakeOptimizer] = {
    "eight bits": lambda model: EightBit(model.parameters()),
    "wrapped states": lambda model: WrappedStates(model.parameters()),
    "nested state": lambda model: Preconditioned(model.parameters()),
    "schedule-free": lambda model: ScheduleFree(model.parameters()),
    "muon": muon,
    "a rate that is a tensor": lambda model: torch.optim.AdamW(
        model.parameters(), lr=torch.tensor(0.01), amsgrad=True, foreach=False
    ),
}
MORE_OPTIMIZERS: dict[str, MakeOptimizer] = {
    "fused": lambda model: torch.optim.AdamW(model.parameters(), fused=True),
    "foreach": lambda model: torch.optim.AdamW(model.parameters(), foreach=True),
    "centered": lambda model: torch.optim.RMSprop(model.parameters(), momentum=0.9, centered=True),
    "nesterov": lambda model: torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, nesterov=True),
} | {
    name: lambda model, name=name: getattr(torch.optim, name)(model.parameters())  # type: ignore[misc]
    for name in ("Adadelta", "Adafactor", "Adagrad", "Adamax", "ASGD", "NAdam", "RAdam", "Rprop")
}


class LanguageModel(nn.Module):
    """An embedding that is also the head, and a compiled block, and weights that are normalized."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 8)
        compiled = torch.compile(nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Dropout(0.1)), backend="eager")
        normalized = parametrizations.weight_norm(nn.Linear(8, 8))
        self.blocks = nn.ModuleList([compiled, normalized, parametrizations.spectral_norm(nn.Linear(8, 8))])
        self.head = nn.Linear(8, WORDS, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(words)
        for block in self.blocks:
            hidden = hidden + block(hidden)
        scores: torch.Tensor = self.head(hidden)
        return scores


def tied(lines: list[str], stop: Stop) -> dict[str, Any]:
    """bf16, accumulation, clipping, an average of the weights, two parameter groups, and a sequence of schedules."""
    with Run.open(seed=1, precision="bf16", accumulation=2, clip_norm=1.0) as run:
        model = LanguageModel()
        compiled: Any = torch.compile(model, backend="eager")
        average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
        groups = [
            {"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": 0.1},
            {"params": [p for p in model.parameters() if p.ndim <= 1], "weight_decay": 0.0},
        ]
        optimizer = torch.optim.AdamW(groups, lr=0.01)
        warm_up = lr_scheduler.LinearLR(optimizer, 0.1, total_iters=3)
        schedule = lr_scheduler.SequentialLR(
            optimizer, [warm_up, lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 4)], [3]
        )
        run.track(model=compiled, optimizer=optimizer, loader=loader(), scheduler=schedule, average=average)
        for (x,) in run.batches(TOTAL):
            words = words_of(x)
            with run.autocast():
                loss = nn.functional.cross_entropy(compiled(words).flatten(0, 1), words.roll(1, 1).flatten())
            if run.step(loss):
                average.update_parameters(model)
                note(run, lines)
                stop(run.steps_done)
    assert model.head.weight is model.embedding.weight
    return {**model.state_dict(), **{f"average {name}": value for name, value in average.state_dict().items()}}


def closures(lines: list[str], stop: Stop) -> dict[str, Any]:
    """A second model that LBFGS trains with closures, and its history."""
    with Run.open(seed=1, precision="fp32") as run:
        model, target = network(), nn.Linear(6, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        second = torch.optim.LBFGS(target.parameters(), lr=0.1, max_iter=3, history_size=4)
        run.track(model=model, optimizer=optimizer, loader=loader(), target=target, second=second)
        for (x,) in run.batches(TOTAL):

            def closure(x: torch.Tensor = x) -> torch.Tensor:
                second.zero_grad()
                loss = (target(x) - x.sum(1, keepdim=True)).square().mean()
                loss.backward()
                return loss

            second.step(closure)
            run.step((model(x) - target(x).detach()).square().mean())
            note(run, lines)
            stop(run.steps_done)
    return {**model.state_dict(), **{f"target {name}": value for name, value in target.state_dict().items()}}


def sparse(lines: list[str], stop: Stop) -> dict[str, Any]:
    """An embedding with sparse gradients, and its own optimizer."""
    with Run.open(seed=1, precision="fp32") as run:
        model = nn.Sequential(nn.Embedding(WORDS, 4, sparse=True), nn.Flatten(), nn.Linear(24, 1))
        optimizer = Both(torch.optim.SparseAdam(model[0].parameters()), torch.optim.Adam(model[2].parameters()))
        run.track(model=model, optimizer=optimizer, loader=loader())
        for (x,) in run.batches(TOTAL):
            run.step(model(words_of(x)).square().mean())
            note(run, lines)
            stop(run.steps_done)
    return model.state_dict()


def own_scaler(lines: list[str], stop: Stop) -> dict[str, Any]:
    """A second model in fp16 with a scaler of its own, and a schedule that needs a metric."""
    with Run.open(seed=1, precision="fp32") as run:
        model, teacher = network(), nn.Linear(6, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        second = torch.optim.Adam(teacher.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**17, growth_interval=3)
        plateau = lr_scheduler.ReduceLROnPlateau(second, patience=1)
        tracked = {"teacher": teacher, "second": second, "scaler": scaler, "plateau": plateau}
        run.track(model=model, optimizer=optimizer, loader=loader(), **tracked)
        for (x,) in run.batches(TOTAL):
            with torch.autocast("cpu", torch.float16):
                loss = teacher(x).square().mean()
            scaler.scale(loss).backward()
            scaler.step(second)
            scaler.update()
            second.zero_grad()
            plateau.step(loss.detach())
            run.step((model(x) - teacher(x).detach()).square().mean())
            note(run, lines)
            stop(run.steps_done)
    assert scaler.get_scale() != 2.0**17
    return {**model.state_dict(), **{f"teacher {name}": value for name, value in teacher.state_dict().items()}}


Loop = Callable[[list[str], Stop], dict[str, Any]]


def loop_with(make_optimizer: MakeOptimizer) -> Loop:
    return lambda lines, stop: train_with(make_optimizer, lines, stop)


LOOPS: dict[str, Loop] = {loop.__name__: loop for loop in (tied, closures, sparse, own_scaler)} | {
    name: loop_with(make_optimizer) for name, make_optimizer in OPTIMIZERS.items()
}
NIGHTLY_LOOPS: dict[str, Loop] = {name: loop_with(make_optimizer) for name, make_optimizer in MORE_OPTIMIZERS.items()}
