"""Recipe: a small GPT on bytes of text, by default the documentation that comes with Python.

An agent runs it for jobs with `recipe: language-model`. By hand it takes parameters as `name=value`:

    python -m everspot_train.recipes.language_model epochs=1 layers=2
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from everspot_train.recipes.batches import TrialStep, choose_batch_size
from everspot_train.recipes.command import run_recipe
from everspot_train.recipes.gpt import BYTES, Gpt
from everspot_train.recipes.images import BadDataset
from everspot_train.recipes.parameters import LanguageModel
from everspot_train.recipes.progress import ProgressLog, leave, whole_state
from everspot_train.recipes.schedules import one_cycle
from everspot_train.trainer import BatchOrder, Run, TensorLoader

log = logging.getLogger("everspot.recipe")

_TEST_BATCH = 64


PYTHON_DOCS = "python-docs"
_TEST_SHARE = 10  # one of this many sequences is for the test


@dataclass(frozen=True)
class Sequences:
    """Sequences of `context + 1` bytes, uint8, (n, context + 1). Every byte but the first is a target."""

    train: torch.Tensor
    test: torch.Tensor


def train(p: LanguageModel) -> float:
    """Train with the parameters, under an agent if there is one. Returns the loss on the test text, nats per byte.

    Raises:
        BadDataset: if the text cannot be loaded.
        BadParameters: if the processes cannot share the global batch evenly.
        TrainerError: if the run fails.
    """
    with Run.open(seed=p.seed, accumulation=p.accumulation, clip_norm=p.clip) as run:
        sequences = load_sequences(p.data, p.context, p.limit_train)
        batch_size = choose_batch_size(p, run, lambda: make_trial(p, run))
        net = make_network(p)
        model = run.prepare(
            net, compile=p.compile, activation_checkpointing=p.activation_checkpointing, parallel=p.parallel
        )
        order = BatchOrder(len(sequences.train), batch_size, seed=p.seed)
        total = run.steps_for(p.epochs, order)
        optimizer = make_optimizer(model, p)
        scheduler = one_cycle(optimizer, p.learning_rate, total)
        loader = TensorLoader((sequences.train,), order)
        run.track(model=model, optimizer=optimizer, scheduler=scheduler, loader=loader)
        progress = ProgressLog(total, batch_size * run.accumulation_for(batch_size) * run.world_size)
        for (text,) in run.batches(epochs=p.epochs):
            with run.autocast():
                loss = next_byte_loss(model, text.to(run.device).long())
            if run.step(loss):
                progress.step(run)
        test_loss = evaluate(net, sequences.test, run)
        run.log(test_loss=test_loss)
        weights = whole_state(net)  # all ranks call it, because each has a shard of sharded weights
        if run.rank == 0:
            log.info("step %d of %d: test loss %.4f nats per byte", run.steps_done, total, test_loss)
            leave(weights, {"test_loss": test_loss, "steps": run.steps_done, "parameters": p.model_dump()})
        return test_loss


def make_network(p: LanguageModel) -> Gpt:
    """Return the network with these parameters, not yet prepared by the run."""
    return Gpt(p.context, p.width, p.layers, p.heads, p.dropout)


def make_optimizer(model: torch.nn.Module, p: LanguageModel) -> torch.optim.Optimizer:
    """Return AdamW with weight decay on matrices, and without it on biases and norms."""
    matrices = [parameter for parameter in model.parameters() if parameter.ndim > 1]
    vectors = [parameter for parameter in model.parameters() if parameter.ndim <= 1]
    groups = [{"params": matrices, "weight_decay": p.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=p.learning_rate, betas=(0.9, 0.95))


def next_byte_loss(model: torch.nn.Module, text: torch.Tensor) -> torch.Tensor:
    """Return the mean loss of the next byte over all positions of sequences of shape (n, context + 1), nats per
    byte."""
    logits = model(text[:, :-1])
    return cross_entropy(logits.reshape(-1, BYTES), text[:, 1:].reshape(-1))


def make_trial(p: LanguageModel, run: Run) -> TrialStep:
    """Make the step for memory measurements, with a separate network, which is not sharded."""
    net = run.prepare_alone(make_network(p), activation_checkpointing=p.activation_checkpointing)

    def loss(model: torch.nn.Module, batch_size: int) -> torch.Tensor:
        return next_byte_loss(model, torch.randint(BYTES, (batch_size, p.context + 1), device=run.device))

    return TrialStep(run, net, make_optimizer(net, p), loss)


def evaluate(net: torch.nn.Module, test: torch.Tensor, run: Run) -> float:
    """Return the loss on the test text, nats per byte. All ranks must call it, because each has a shard of sharded
    weights."""
    net.eval()
    total = 0.0
    with torch.no_grad(), run.autocast():
        for text in torch.split(test, _TEST_BATCH):
            total += float(next_byte_loss(net, text.to(run.device).long())) * len(text)
    net.train()
    return total / len(test)


def load_sequences(data: str, context: int, limit: int | None = None) -> Sequences:
    """Return the sequences of the text that `data` names: `python-docs`, a file, or a folder of .txt files.

    Args:
        context: the bytes of a sequence that the model sees.
        limit: use this many training sequences only.

    Raises:
        BadDataset: if the text does not exist, or is too short.
    """
    text = _read_python_docs() if data == PYTHON_DOCS else _read_files(Path(data))
    count = (len(text) - 1) // context
    if count < 2 * _TEST_SHARE:
        raise BadDataset(f"{data} has {len(text)} bytes, and {2 * _TEST_SHARE * context + 1} are needed")
    values = np.frombuffer(text, np.uint8)
    places = context * np.arange(count)[:, None] + np.arange(context + 1)[None, :]
    sequences = torch.from_numpy(values[places])
    is_test = torch.arange(count) % _TEST_SHARE == _TEST_SHARE - 1
    return Sequences(sequences[~is_test][:limit], sequences[is_test])


def _read_python_docs() -> bytes:
    """Return Python's language reference, which is installed for `help()`, in a fixed order: about 466 kB."""
    try:
        topics = import_module("pydoc_data.topics").topics
    except ImportError as error:
        raise BadDataset(f"this Python comes without its documentation ({error}): give a text file as data") from error
    return "\n".join(topics[name] for name in sorted(topics)).encode()


def _read_files(path: Path) -> bytes:
    files = sorted(path.rglob("*.txt")) if path.is_dir() else [path]
    try:
        return b"\n".join(file.read_bytes() for file in files)
    except OSError as error:
        raise BadDataset(f"data names {PYTHON_DOCS}, a file or a folder of .txt files: {error}") from error


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the recipe. Return 0, 2 for bad parameters or data, or 1 if the run failed."""
    return run_recipe(LanguageModel, train, arguments)


if __name__ == "__main__":
    raise SystemExit(main())
