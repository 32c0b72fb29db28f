"""Loops in many styles: each function trains on a `Run` and returns the values that must be equal in the end.

A stop comes by `stop(step)` after a step, as an agent's notice does. Nothing of a loop outlives its function.
"""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from everspot_train.trainer import Run, resumable_loader
from torch import nn
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn, update_bn
from torchdata.stateful_dataloader import StatefulDataLoader

TOTAL = 12
Stop = Callable[[int], None]
Outcome = tuple[list[str], dict[str, Any]]


def data() -> torch.utils.data.TensorDataset:
    generator = torch.Generator().manual_seed(5)
    return torch.utils.data.TensorDataset(torch.randn(40, 6, generator=generator))


def loader() -> Any:
    return resumable_loader(data(), 4, seed=2)


def network(*extra: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), *extra, nn.Linear(8, 1))


def note(run: Run, lines: list[str]) -> None:
    lines.append(f"{run.steps_done} {run.last_loss.hex()}")


def plain(lines: list[str], stop: Stop) -> dict[str, Any]:
    """The loop of the guide, with a metric after the loop."""
    with Run.open(seed=1, precision="fp32", accumulation=2) as run:
        model = run.prepare(network())
        optimizer = torch.optim.AdamW(model.parameters())
        run.track(model=model, optimizer=optimizer, loader=loader())
        for (x,) in run.batches(TOTAL):
            if run.step(model(x).square().mean()):
                note(run, lines)
                stop(run.steps_done)
    return model.state_dict()


class MasterCopies(torch.optim.Optimizer):
    """SGD with momentum for bf16 weights, whose state holds the weights in fp32."""

    def __init__(self, parameters: Any, lr: float = 0.01) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["master"] = p.detach().float().clone()
                    state["buffers"] = {"momentum": torch.zeros_like(state["master"]), "pair": (p.float(), 1)}
                state["buffers"]["momentum"].mul_(0.9).add_(p.grad.float())
                state["master"].sub_(state["buffers"]["momentum"], alpha=group["lr"])
                p.copy_(state["master"])


def master_copies(lines: list[str], stop: Stop) -> dict[str, Any]:
    with Run.open(seed=1, precision="fp32") as run:
        model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1)).bfloat16()
        optimizer = MasterCopies(model.parameters())
        run.track(model=model, optimizer=optimizer, loader=loader())
        for (x,) in run.batches(TOTAL):
            run.step(model(x.bfloat16()).float().square().mean())
            note(run, lines)
            stop(run.steps_done)
    return model.state_dict() | {"masters": [s["master"] for s in optimizer.state.values()]}


def averaged(lines: list[str], stop: Stop) -> dict[str, Any]:
    """EMA and SWA, and code after the loop: `update_bn`, and the average copied into the model."""
    with Run.open(seed=1, precision="fp32") as run:
        model = network()
        ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
        swa = AveragedModel(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, TOTAL)
        slow = SWALR(optimizer, swa_lr=0.01)
        run.track(model=model, optimizer=optimizer, loader=loader(), schedule=schedule, slow=slow, ema=ema, swa=swa)
        for (x,) in run.batches(TOTAL):
            run.step(model(x).square().mean())
            ema.update_parameters(model)
            if run.steps_done > 6:
                swa.update_parameters(model)
                slow.step()
            else:
                schedule.step()
            note(run, lines)
            stop(run.steps_done)
        update_bn(data().tensors[0].split(4), swa)
        model.load_state_dict(ema.module.state_dict())
    return {**model.state_dict(), **{f"swa {name}": value for name, value in swa.state_dict().items()}}


def adversarial(lines: list[str], stop: Stop) -> dict[str, Any]:
    """Two models; the second's optimizer is stepped by hand every third step, on gradients accumulated until then."""
    with Run.open(seed=1, precision="fp32") as run:
        model, critic = nn.Linear(6, 6), network()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        second = torch.optim.RMSprop(critic.parameters(), lr=0.01)
        run.track(model=model, optimizer=optimizer, loader=loader(), critic=critic, second=second)
        for (x,) in run.batches(TOTAL):
            loss = critic(x).mean() - critic(model(x).detach()).mean()
            loss.backward()
            if (run.steps_done + 1) % 3 == 0:
                second.step()
                second.zero_grad()
            for p in critic.parameters():
                p.requires_grad_(False)
            run.step(-critic(model(x)).mean())
            for p in critic.parameters():
                p.requires_grad_(True)
            note(run, lines)
            stop(run.steps_done)
    return model.state_dict() | {f"critic {n}": v for n, v in critic.state_dict().items()}


class Cached(nn.Module):
    """Non-persistent buffers: a running mean, and a cache that grows."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(8), persistent=False)
        self.register_buffer("cache", torch.zeros(0, 8), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mean.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
        self.cache = torch.cat([self.cache, x.detach()[:1]])
        return x - self.mean + 0.01 * self.cache.sum(0)


def buffers(lines: list[str], stop: Stop) -> dict[str, Any]:
    with Run.open(seed=1, precision="fp32") as run:
        model = network(Cached())
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        run.track(model=model, optimizer=optimizer, loader=loader())
        for (x,) in run.batches(TOTAL):
            run.step(model(x).square().mean())
            note(run, lines)
            stop(run.steps_done)
    return model.state_dict()


def unfrozen(lines: list[str], stop: Stop) -> dict[str, Any]:
    """The first layer is frozen until a step, and then its normalisation is: found only by the number of the step."""
    with Run.open(seed=1, precision="fp32") as run:
        model = network()
        model[0].requires_grad_(False)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        run.track(model=model, optimizer=optimizer, loader=loader())
        run.restore()
        model.train()
        for (x,) in run.batches(TOTAL):
            if run.steps_done == 3:
                model[0].requires_grad_(True)
                model[1].eval()
            run.step(model(x).square().mean())
            note(run, lines)
            stop(run.steps_done)
    return model.state_dict()


def groups(lines: list[str], stop: Stop) -> dict[str, Any]:
    """A parameter group that is added at a step. `run.resume_step` tells a resumed loop that it was."""
    with Run.open(seed=1, precision="fp32") as run:
        model = network()
        optimizer = torch.optim.AdamW(model[-1].parameters(), lr=0.01)

        def unfreeze() -> None:
            optimizer.add_param_group({"params": list(model[0].parameters()), "lr": 0.001})

        if run.resume_step > 3:
            unfreeze()
        run.track(model=model, optimizer=optimizer, loader=loader())
        for (x,) in run.batches(TOTAL):
            if run.steps_done == 3:
                unfreeze()
            run.step(model(x).square().mean())
            note(run, lines)
            stop(run.steps_done)
    return model.state_dict()


def compiled(lines: list[str], stop: Stop) -> dict[str, Any]:
    """A compiled model, and a compiled teacher that follows it."""
    with Run.open(seed=1, precision="fp32") as run:
        inner = network()
        model: Any = torch.compile(run.prepare(inner), backend="eager")
        teacher: Any = torch.compile(copy.deepcopy(inner), backend="eager")
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        run.track(model=model, optimizer=optimizer, loader=loader(), teacher=teacher)
        for (x,) in run.batches(TOTAL):
            with torch.no_grad():
                target = teacher(x)
            run.step((model(x) - target - 1).square().mean())
            with torch.no_grad():
                for old, new in zip(teacher.parameters(), model.parameters(), strict=True):
                    old.lerp_(new, 0.1)
            note(run, lines)
            stop(run.steps_done)
    return inner.state_dict() | {f"teacher {n}": v for n, v in teacher.state_dict().items()}


class Lookahead(torch.optim.Optimizer):
    """Wraps another optimizer, as several libraries do: its state is inside of the outer one's."""

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        super().__init__([p for g in inner.param_groups for p in g["params"]], {})
        self.inner, self.count = inner, 0

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        self.inner.step()
        self.count += 1
        for group in self.inner.param_groups:
            for p in group["params"]:
                slow = self.state[p].setdefault("slow", p.detach().clone())
                if self.count % 3 == 0:
                    p.copy_(slow.lerp_(p, 0.5))

    def state_dict(self) -> dict[str, Any]:
        return {"outer": super().state_dict(), "inner": self.inner.state_dict(), "count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state["outer"])
        self.inner.load_state_dict(state["inner"])
        self.count = state["count"]


def wrapped_optimizer(lines: list[str], stop: Stop) -> dict[str, Any]:
    with Run.open(seed=1, precision="fp32") as run:
        model = network()
        optimizer = Lookahead(torch.optim.AdamW(model.parameters(), lr=0.01))
        run.track(model=model, optimizer=optimizer, loader=loader())
        for (x,) in run.batches(TOTAL):
            run.step(model(x).square().mean())
            note(run, lines)
            stop(run.steps_done)
    return model.state_dict()


class Best:
    """A class of the user's own: the best metric and the weights that had it, with a time that cannot be restored."""

    def __init__(self) -> None:
        self.metric, self.weights, self.ticks = 0, {}, 0

    def look(self, model: nn.Module, loss: float) -> None:
        if not self.weights or loss < self.metric:
            self.metric = loss
            self.weights = {name: value.clone() for name, value in model.state_dict().items()}

    def state_dict(self) -> dict[str, Any]:
        self.ticks += 1
        return {"metric": self.metric, "weights": self.weights, "seconds": float(self.ticks)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.metric, self.weights = state["metric"], dict(state["weights"])


def best(lines: list[str], stop: Stop) -> dict[str, Any]:
    """Early stopping by `run.finish`, and the best weights put back after the loop."""
    with Run.open(seed=1, precision="fp32") as run:
        model = network()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
        best_weights = Best()
        run.track(model=model, optimizer=optimizer, loader=loader(), best=best_weights)
        for (x,) in run.batches(10_000):
            run.step(model(x).square().mean())
            best_weights.look(model, run.last_loss)
            note(run, lines)
            if run.steps_done == TOTAL:
                run.finish()
            stop(run.steps_done)
        model.load_state_dict(best_weights.weights)
    return model.state_dict()


def by_hand(lines: list[str], stop: Stop) -> dict[str, Any]:
    """fp32 master copies that are the optimizer's parameters, and a temperature of no module."""
    with Run.open(seed=1, precision="fp32") as run:
        model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1)).bfloat16()
        temperature = nn.Parameter(torch.ones(1))
        masters = nn.ParameterList([p.detach().float().clone() for p in model.parameters()])
        optimizer = torch.optim.Adam([*masters, temperature], lr=0.01)
        run.track(
            model=model,
            optimizer=optimizer,
            loader=loader(),
            masters=masters,
            temperature=nn.ParameterList([temperature]),
        )
        run.restore()
        for (x,) in run.batches(TOTAL):
            for p in model.parameters():
                p.grad = None
            output = model(x.bfloat16()).float() * temperature
            with torch.no_grad():
                copies = list(model.parameters())
            grads = torch.autograd.grad(output.square().mean(), copies, retain_graph=True)
            pull = sum((m * g.float()).sum() for m, g in zip(masters, grads, strict=True))
            run.step(pull + output.detach().square().mean() * 0 + temperature.square().sum())
            with torch.no_grad():
                for p, m in zip(model.parameters(), masters, strict=True):
                    p.copy_(m)
            note(run, lines)
            stop(run.steps_done)
    return {**model.state_dict(), "temperature": temperature.detach()}


class Texts(torch.optim.SGD):
    """An optimizer with text, numbers and lists in its state."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        super().step(closure)
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                state["norms"] = [*state.get("norms", []), p.grad.norm().item()][-3:]
                state["sign"] = {"name": "up" if p.sum() > 0 else "down", "names": {"a", str(len(state["norms"]))}}
                p.mul_(1 - 1e-3 * sum(state["norms"]))


def cyclic(lines: list[str], stop: Stop) -> dict[str, Any]:
    """A schedule whose `load_state_dict` takes its argument apart, and buffers that a forward pass registers."""
    with Run.open(seed=1, precision="fp32") as run:
        model = network()
        optimizer = Texts(model.parameters(), lr=0.1, momentum=0.9)
        schedule = torch.optim.lr_scheduler.CyclicLR(optimizer, 0.01, 0.2, 3, scale_fn=half, scale_mode="iterations")
        run.track(model=model, optimizer=optimizer, loader=loader(), scheduler=schedule)
        for (x,) in run.batches(TOTAL):
            if not hasattr(model[0], "scale"):
                model[0].register_buffer("scale", x.std(), persistent=False)
            model[0].scale.mul_(0.9).add_(0.1 * x.std())
            run.step(model(x / model[0].scale).square().mean())
            note(run, lines)
            stop(run.steps_done)
    return {**model.state_dict(), "signs": [state["sign"]["name"] for state in optimizer.state.values()]}


def two_loaders(lines: list[str], stop: Stop) -> dict[str, Any]:
    """A second loader with a state, read by hand: its iterator is made after `run.restore()`."""
    with Run.open(seed=1, precision="fp32") as run:
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        own = torch.Generator().manual_seed(4)
        second = StatefulDataLoader(data(), batch_size=8, shuffle=True, generator=own)
        run.track(model=model, optimizer=optimizer, loader=loader(), second=second)
        run.restore()
        others = endless(second)
        for (x,) in run.batches(TOTAL):
            (other,) = next(others)
            run.step(model(torch.cat([x, other])).square().mean())
            note(run, lines)
            stop(run.steps_done)
    return model.state_dict()


def by_epochs(lines: list[str], stop: Stop) -> dict[str, Any]:
    """A loop for each epoch, and an evaluation behind each that draws from the global generators."""
    with Run.open(seed=1, precision="fp32") as run:
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        batches = torch.utils.data.DataLoader(data(), 10, shuffle=True)
        run.track(model=model, optimizer=optimizer, loader=batches)
        for end in range(len(batches), TOTAL + 1, len(batches)):
            for (x,) in run.batches(end):
                run.step(model(x).square().mean())
                note(run, lines)
                stop(run.steps_done)
            if run.steps_done == end:
                run.log(val=sum(float(x.sum()) for (x,) in torch.utils.data.DataLoader(data(), 8, shuffle=True)))
    return model.state_dict()


def endless(batches: Any) -> Iterator[Any]:
    while True:
        yield from batches


def half(iteration: float) -> float:
    return float(0.9**iteration)


LOOPS: dict[str, Callable[[list[str], Stop], dict[str, Any]]] = {
    loop.__name__: loop
    for loop in (
        plain, master_copies, averaged, adversarial, buffers, unfrozen, groups, compiled, wrapped_optimizer, best,
        by_hand, cyclic, two_loaders, by_epochs,
    )
}  # fmt: skip
