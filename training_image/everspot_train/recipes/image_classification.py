"""Recipe: a small ResNet on small grey images, by default Fashion-MNIST.

An agent runs it for jobs with `recipe: image-classification`. By hand it takes parameters as `name=value`:

    EVERSPOT_DATA=… python -m everspot_train.recipes.image_classification epochs=1 seed=3
"""

import logging
from collections.abc import Sequence

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from everspot_train.recipes.batches import TrialStep, choose_batch_size
from everspot_train.recipes.command import run_recipe
from everspot_train.recipes.images import Images, load_images
from everspot_train.recipes.parameters import ImageClassification
from everspot_train.recipes.progress import ProgressLog, leave, whole_state
from everspot_train.recipes.schedules import one_cycle
from everspot_train.trainer import BatchOrder, Run, TensorLoader

log = logging.getLogger("everspot.recipe")

_TEST_BATCH = 500


class Block(nn.Module):
    """Two 3 x 3 convolutions with a shortcut."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.first_norm = nn.BatchNorm2d(outside)
        self.second = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.second_norm = nn.BatchNorm2d(outside)
        self.around: nn.Module = nn.Identity()
        if stride != 1 or inside != outside:
            self.around = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the block's output, half as high and wide if the stride is 2."""
        y = torch.relu(self.first_norm(self.first(x)))
        return torch.relu(self.second_norm(self.second(y)) + self.around(x))


class ResNet(nn.Module):
    """A stem that halves the image, then one block per stage, each halving it again and doubling the channels.

    Halving in the stem already costs a little accuracy and saves three quarters of the arithmetic.

    Args:
        classes: the number of classes.
        width: the channels after the stem.
        stages: the number of blocks.
        dropout: the fraction of features left out before the last layer while training.
    """

    def __init__(self, classes: int, width: int, stages: int, dropout: float) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(1, width, 3, 2, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
        for stage in range(stages):
            layers.append(Block(width << stage, width << (stage + 1), 2))
        self.features = nn.Sequential(*layers)
        self.dropout = nn.Dropout(dropout)
        self.answer = nn.Linear(width << stages, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return logits for images of shape (n, 1, height, width)."""
        logits: torch.Tensor = self.answer(self.dropout(self.features(x).mean((2, 3))))
        return logits


def train(p: ImageClassification) -> float:
    """Train with the parameters, under an agent if there is one. Returns the accuracy on the test images, 0 to 1.

    Raises:
        BadDataset: if the images cannot be loaded.
        BadParameters: if the processes cannot share the global batch evenly.
        TrainerError: if the run fails.
    """
    with Run.open(seed=p.seed, accumulation=p.accumulation, clip_norm=p.clip) as run:
        images = load_images(p.data, p.limit_train)
        layout = layout_for(run.device)
        batch_size = choose_batch_size(p, run, lambda: make_trial(p, images, run))
        net = ResNet(images.classes, p.width, p.stages, p.dropout)
        model = run.prepare(net, channels_last=True, compile=p.compile)
        order = BatchOrder(len(images.x), batch_size, seed=p.seed)
        total = run.steps_for(p.epochs, order)
        optimizer = make_optimizer(model, p)
        scheduler = one_cycle(optimizer, p.learning_rate, total)
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
            leave(whole_state(net), {"test_accuracy": accuracy, "steps": run.steps_done, "parameters": p.model_dump()})
        return accuracy


def make_trial(p: ImageClassification, images: Images, run: Run) -> TrialStep:
    """Make the step for memory measurements, with a separate network and separate images."""
    layout = layout_for(run.device)
    net = run.prepare_alone(ResNet(images.classes, p.width, p.stages, p.dropout), channels_last=True)

    def loss(model: torch.nn.Module, batch_size: int) -> torch.Tensor:
        x = torch.rand(batch_size, *images.x.shape[1:], device=run.device).contiguous(memory_format=layout)
        return cross_entropy(model(x), torch.zeros(batch_size, dtype=torch.long, device=run.device))

    return TrialStep(run, net, make_optimizer(net, p), loss)


def make_optimizer(model: torch.nn.Module, p: ImageClassification) -> torch.optim.Optimizer:
    """Return SGD with momentum."""
    return torch.optim.SGD(
        model.parameters(),
        lr=p.learning_rate,
        momentum=p.momentum,
        nesterov=p.momentum > 0,
        weight_decay=p.weight_decay,
    )


def layout_for(device: torch.device) -> torch.memory_format:
    """Return the memory layout of images: channels last on GPUs, because tensor cores need it.

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
        """Return images as inputs of the net."""
        return ((x.float() - self.mean) / self.deviation).contiguous(memory_format=self._layout)


def evaluate(net: torch.nn.Module, images: Images, scale: Scale, run: Run) -> float:
    """Return the fraction of the test images that the net classifies correctly."""
    net.eval()
    right = 0
    with torch.inference_mode(), run.autocast():
        for x, y in zip(torch.split(images.test_x, _TEST_BATCH), torch.split(images.test_y, _TEST_BATCH), strict=True):
            right += int((net(scale(x.to(run.device))).argmax(1).cpu() == y).sum())
    net.train()
    return right / len(images.test_y)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the recipe. Return 0, 2 for bad parameters or data, or 1 if the run failed."""
    return run_recipe(ImageClassification, train, arguments)


if __name__ == "__main__":
    raise SystemExit(main())
