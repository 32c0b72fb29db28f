"""Recipe: a small ResNet on small grey images, by default Fashion-MNIST.

An agent runs it for jobs with `recipe: image-classification`. By hand it takes parameters as `name=value`:

    EVERSPOT_DATA=… python -m everspot_train.recipes.image_classification epochs=1 seed=3
"""

import json
import logging
import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from everspot_train.recipes.batches import choose_batch_size
from everspot_train.recipes.images import BadDataset, Images, load_images
from everspot_train.recipes.parameters import BadParameters, ImageClassification, read_parameters
from everspot_train.recipes.progress import ProgressLog, leave
from everspot_train.recipes.resnet import ResNet
from everspot_train.rundir import RunContext, RunDir, Status, TrainingPhase
from everspot_train.trainer import BatchOrder, Run, TensorLoader, TrainerError

log = logging.getLogger("everspot.recipe")

_TEST_BATCH = 500


def train(p: ImageClassification) -> float:
    """Train with the parameters, under an agent if there is one. Returns the accuracy on the test images, 0 to 1.

    Raises:
        BadDataset: if the images cannot be had.
        TrainerError: if the run cannot go on.
    """
    with Run.open(seed=p.seed, accumulation=p.accumulation, clip_norm=p.clip) as run:
        images = load_images(p.data, p.limit_train)
        layout = layout_for(run.device)
        batch_size = choose_batch_size(p, run, lambda: TrialStep(p, images, run))
        net = ResNet(images.classes, p.width, p.stages, p.dropout)
        model = run.prepare(net, channels_last=True, compile=p.compile)
        order = BatchOrder(len(images.x), batch_size, seed=p.seed)
        total = run.steps_for(p.epochs, order)
        optimizer, scheduler = schedule(model, p, total)
        loader = TensorLoader((images.x, images.y), order)
        run.track(model=model, optimizer=optimizer, scheduler=scheduler, loader=loader)
        scale = Scale(images, layout)
        samples = batch_size * run.accumulation_for(batch_size) * run.world_size
        progress = ProgressLog(total, samples)
        for x, y in run.batches(epochs=p.epochs):
            x, y = scale(x.to(run.device)), y.to(run.device)
            if p.flip:
                mirrored = torch.rand(len(x), 1, 1, 1, device=x.device) < 0.5
                x = torch.where(mirrored, x.flip(3), x)
            with run.autocast():
                loss = cross_entropy(model(x), y, label_smoothing=p.label_smoothing)
            if run.step(loss):
                progress.step(run)
        accuracy = evaluate(net, images, scale, run)
        run.log(test_accuracy=accuracy)
        if run.rank == 0:
            log.info("step %d of %d: test accuracy %.4f", run.steps_done, total, accuracy)
            leave(net, {"test_accuracy": accuracy, "steps": run.steps_done, "parameters": p.model_dump()})
        return accuracy


class TrialStep:
    """A training step on a network and images of its own, of which a batch's memory is measured."""

    def __init__(self, p: ImageClassification, images: Images, run: Run) -> None:
        layout = layout_for(run.device)
        self._run, self._shape = run, images.x.shape[1:]
        self._net = ResNet(images.classes, p.width, p.stages, p.dropout).to(run.device).to(memory_format=layout)
        self._optimizer, _ = schedule(self._net, p, total=1)

    def __call__(self, batch_size: int) -> None:
        """Make one step with so many images."""
        x = torch.rand(batch_size, *self._shape, device=self._run.device)
        y = torch.zeros(batch_size, dtype=torch.long, device=self._run.device)
        with self._run.autocast():
            loss = cross_entropy(self._net(x), y)
        loss.backward()
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)


def schedule(
    model: torch.nn.Module, p: ImageClassification, total: int
) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
    """SGD with momentum, and a one-cycle schedule of its rate over all steps."""
    optimizer = torch.optim.SGD(
        model.parameters(),
        lr=p.learning_rate,
        momentum=p.momentum,
        nesterov=p.momentum > 0,
        weight_decay=p.weight_decay,
    )
    rise = 0.3 if total == 4 else 0.25  # torch divides by the length of the rise, which would be 0 for a quarter of 4
    return optimizer, torch.optim.lr_scheduler.OneCycleLR(
        optimizer, p.learning_rate, total_steps=total, pct_start=rise, div_factor=10, final_div_factor=100
    )


def layout_for(device: torch.device) -> torch.memory_format:
    """The memory layout of images: channels last on GPUs, because tensor cores need it.

    On a processor it would save a few percent. But there oneDNN writes beyond its buffers in the backward pass of a
    convolution of stride 2 with fewer than 8 channels, with AVX2 and one thread (seen with torch 2.15: "double free or
    corruption"), and the process dies.
    """
    return torch.channels_last if device.type == "cuda" else torch.contiguous_format


class Scale:
    """Normalises bytes by mean and deviation of the training images, in the net's memory layout."""

    def __init__(self, images: Images, layout: torch.memory_format) -> None:
        self._layout = layout
        sample = images.x[:: max(1, len(images.x) // 5000)].float()
        self.mean, self.deviation = float(sample.mean()), float(sample.std())

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Images as input of the net."""
        return ((x.float() - self.mean) / self.deviation).contiguous(memory_format=self._layout)


def evaluate(net: torch.nn.Module, images: Images, scale: Scale, run: Run) -> float:
    """The fraction of the test images that the net classifies correctly."""
    net.eval()
    right = 0
    with torch.inference_mode(), run.autocast():
        for x, y in zip(torch.split(images.test_x, _TEST_BATCH), torch.split(images.test_y, _TEST_BATCH), strict=True):
            right += int((net(scale(x.to(run.device))).argmax(1).cpu() == y).sum())
    net.train()
    return right / len(images.test_y)


def parse_arguments(arguments: Sequence[str]) -> dict[str, Any]:
    """`name=value` words as parameters; values are read as JSON where they are JSON, as text otherwise.

    Raises:
        BadParameters: if a word has no `=`.
    """
    parameters: dict[str, Any] = {}
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if not equals:
            raise BadParameters(f"{argument!r} is not name=value")
        try:
            parameters[name] = json.loads(value)
        except json.JSONDecodeError:
            parameters[name] = value
    return parameters


def parameters_of_job() -> dict[str, Any]:
    """The parameters of this process's job; none without an agent."""
    rundir = RunDir.from_environment()
    context = rundir.read(RunContext) if rundir else None
    return dict(context.submission.spec.parameters) if context else {}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the recipe; 0, or 2 for bad parameters or data, or 1 if the run could not go on."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    words = sys.argv[1:] if arguments is None else arguments
    try:
        train(read_parameters(ImageClassification, parameters_of_job() | parse_arguments(words)))
    except BadParameters as error:
        log.error("%s", error)
        if rundir := RunDir.from_environment():  # the run was not even opened, so nobody has told the agent why
            rundir.write(Status(phase=TrainingPhase.FAILED, message=str(error)))
        return 2
    except BadDataset as error:
        log.error("%s", error)
        return 2
    except TrainerError as error:
        log.error("%s", error)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
