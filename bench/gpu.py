"""`gpu.…`: what only a GPU shows: the stall of a checkpoint whose copies overlap the next step, and number formats.

`gpu.stall_ratio` is the rise of a step's time by a checkpoint of 1, 5 and 20 GB, against copying as many bytes from the
GPU into locked memory. `gpu.speedup.…` is the time of a training step in strict fp32 over that in another format, for
ResNet-50 (channels_last) and a GPT of 124 million parameters. Without a GPU each line says so.
"""

import json
import statistics
import time
from collections.abc import Callable
from typing import Any

from bench._state import ROUNDS, print_ratio, shared_memory

STALL, SPEEDUP = "gpu.stall_ratio", "gpu.speedup"
MODELS, FORMATS = ("resnet50", "gpt124m"), ("tf32", "bf16")
SIZES_GB = (1, 5, 20)
_TENSORS = 200
_WARMUP_STEPS, _STEPS = 5, 20


def main() -> int:
    """Print the figures. Returns 0 if every one is within its limit, or there is no GPU."""
    import torch

    if not torch.cuda.is_available():
        names = [f"{STALL}.{size}gb" for size in SIZES_GB]
        names += [f"{SPEEDUP}.{model}.{number_format}" for model in MODELS for number_format in FORMATS]
        for name in names:
            print(json.dumps({"name": name, "value": None, "limit": None, "unit": "ratio", "note": "no GPU"}))
        return 0
    device = torch.device("cuda", 0)
    stalls = [measure_stall(size, device) for size in SIZES_GB]
    for model in MODELS:
        seconds = {f: measure_step(model, f, device) for f in ("fp32", *FORMATS)}
        for number_format in FORMATS:
            note = f"{seconds['fp32'] * 1000:.1f} ms a step in strict fp32, {seconds[number_format] * 1000:.1f} ms here"
            ratio = seconds["fp32"] / seconds[number_format]
            print_ratio(f"{SPEEDUP}.{model}.{number_format}", [ratio], None, note)
    return int(not all(stalls))


def measure_stall(size_gb: float, device: Any) -> bool:
    """Measure steps with and without a checkpoint of a state of this size."""
    import torch
    from everspot_train.checkpoint.memory import SharedMemory
    from everspot_train.checkpoint.saver import Saver

    count = int(size_gb * 1e9 / 4 / _TENSORS)
    state = {f"{number}": torch.randn(count, device=device) for number in range(_TENSORS)}
    locked = torch.empty(count, pin_memory=device.type == "cuda")
    work = torch.randn(4096, 4096, device=device)

    def copy_all() -> None:
        for tensor in state.values():
            locked.copy_(tensor, non_blocking=True)

    with shared_memory() as folder:
        memory = SharedMemory([folder], "memory", device)
        saver = Saver(memory, device=device)
        saver.plan(state)
        copy_seconds = statistics.median(_seconds(copy_all, device) for _ in range(ROUNDS))
        product_seconds = _seconds(lambda: work @ work, device)
        products = max(1, int(2 * copy_seconds / product_seconds))  # a step of twice the time of the copies

        def step(*, checkpointed: bool) -> None:
            if checkpointed:
                saver.plan(state)
                saver.copy(state.keys())
            for _ in range(products):
                work @ work
            saver.finish(lambda stall: None)
            work @ work  # the optimizer's step

        step(checkpointed=True)
        stalls = []
        for _ in range(ROUNDS):
            plain = _seconds(lambda: step(checkpointed=False), device)
            stalls.append((_seconds(lambda: step(checkpointed=True), device) - plain) / copy_seconds)
        memory.close()
    note = f"rise of a step by a checkpoint ÷ {copy_seconds:.3f} s for copying {size_gb} GB into locked memory"
    return print_ratio(f"{STALL}.{size_gb}gb", stalls, 0.1, note)


def measure_step(model: str, number_format: str, device: Any, *, batch: int = 32) -> float:
    """Return the seconds of a training step in a number format."""
    import torch
    from everspot_core.jobs.job import Precision
    from everspot_train.trainer.precision import MixedPrecision

    amp = MixedPrecision(Precision(number_format), device)
    network, inputs = make_gpt(batch) if model == "gpt124m" else make_resnet(batch)
    network, inputs = network.to(device), inputs.to(device)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4)

    def step() -> None:
        with amp.autocast():
            loss = network(inputs).float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    for _ in range(_WARMUP_STEPS):
        step()
    return statistics.median(_seconds(step, device) for _ in range(_STEPS))


def make_gpt(batch: int, *, layers: int = 12, vocabulary: int = 50304) -> tuple[Any, Any]:
    """Return a GPT of the shape of GPT-2's smallest, which shares weights of embedding and answer; and its inputs."""
    import torch
    from everspot_train.recipes.gpt import Gpt

    gpt = Gpt(context=1024, width=768, layers=layers, heads=12, dropout=0.0)
    gpt.bytes = torch.nn.Embedding(vocabulary, 768)
    gpt.answer = torch.nn.Linear(768, vocabulary, bias=False)
    gpt.answer.weight = gpt.bytes.weight
    return gpt, torch.randint(0, vocabulary, (max(1, batch // 4), 1024))


def make_resnet(batch: int, *, blocks: tuple[int, ...] = (3, 4, 6, 3)) -> tuple[Any, Any]:
    """Return ResNet-50 in channels_last format, and its inputs."""
    import torch
    from torch import nn

    class Bottleneck(nn.Module):
        def __init__(self, inputs: int, width: int, stride: int) -> None:
            super().__init__()
            self.main = nn.Sequential(
                *_convolution(inputs, width, 1, 1), nn.ReLU(),
                *_convolution(width, width, 3, stride), nn.ReLU(),
                *_convolution(width, 4 * width, 1, 1),
            )  # fmt: skip
            changes = stride > 1 or inputs != 4 * width
            self.shortcut = nn.Sequential(*_convolution(inputs, 4 * width, 1, stride)) if changes else nn.Identity()

        def forward(self, x: Any) -> Any:
            return torch.relu(self.main(x) + self.shortcut(x))

    layers: list[nn.Module] = [*_convolution(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for number, count in enumerate(blocks):
        for block in range(count):
            width = 64 << number
            layers.append(Bottleneck(inputs, width, 2 if number and not block else 1))
            inputs = 4 * width
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000)]
    network = nn.Sequential(*layers).to(memory_format=torch.channels_last)
    return network, torch.randn(batch, 3, 224, 224).to(memory_format=torch.channels_last)


def _convolution(inputs: int, outputs: int, size: int, stride: int) -> tuple[Any, Any]:
    from torch import nn

    return nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False), nn.BatchNorm2d(outputs)


def _seconds(action: Callable[[], Any], device: Any) -> float:
    import torch

    if device.type == "cuda":
        torch.cuda.synchronize(device)
    began = time.perf_counter()
    action()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - began


if __name__ == "__main__":
    raise SystemExit(main())
