"""The names of the built-in recipes and their parameters. The training image holds their code."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from pydantic import Field, ValidationError

from everspot_core.documents import Frozen
from everspot_core.faults import faults
from everspot_core.field_types import Flag
from everspot_core.problems import Problem


class ImageClassification(Frozen):
    """Parameters of the recipe `image-classification`. The defaults reach 89 to 90 % on Fashion-MNIST."""

    data: str = Field(default="fashion-mnist", description="fashion-mnist (in EVERSPOT_DATA), synthetic, or a folder.")
    epochs: float = Field(default=3, gt=0, le=10_000, description="Passes over the training images; may be a fraction.")
    batch_size: int = Field(default=64, ge=1, description="Images per batch and process.")
    learning_rate: float = Field(default=0.3, gt=0, description="Highest rate of the one-cycle schedule.")
    momentum: float = Field(default=0.9, ge=0, lt=1)
    weight_decay: float = Field(default=5e-4, ge=0)
    label_smoothing: float = Field(default=0.05, ge=0, lt=1)
    dropout: float = Field(default=0.0, ge=0, lt=1)
    flip: Flag = Field(default=False, description="Mirror half of the training images; pays from a few epochs on.")
    width: int = Field(default=8, ge=1, le=256, description="Channels behind the stem; doubled by each stage.")
    stages: int = Field(default=2, ge=1, le=3)
    accumulation: int = Field(default=1, ge=1, description="Batches per optimizer step.")
    clip: float | None = Field(default=None, gt=0, description="Largest norm of the gradient.")
    seed: int = Field(default=0, ge=0)
    limit_train: int | None = Field(default=None, ge=1, description="Use this many training images only.")


RECIPES: Mapping[str, type[Frozen]] = MappingProxyType({"image-classification": ImageClassification})
"""The recipes of every image."""


METRICS: Mapping[str, frozenset[str]] = MappingProxyType({"image-classification": frozenset({"loss", "test_accuracy"})})
"""The metrics that the jobs of each recipe report."""


def find_parameters(recipe: str) -> type[Frozen] | None:
    """The model of a recipe's parameters, by its name with hyphens or underscores; None if there is no such recipe."""
    return RECIPES.get(recipe.replace("_", "-"))


def find_metrics(recipe: str) -> frozenset[str] | None:
    """Return the metrics that a recipe reports, by its name with hyphens or underscores; None if it does not exist."""
    return METRICS.get(recipe.replace("_", "-"))


def parameter_faults(recipe: str, values: Mapping[str, Any]) -> list[Problem]:
    """Problems of a recipe's parameters, by name; none for an unknown recipe."""
    kind = find_parameters(recipe)
    if kind is None:
        return []
    try:
        kind.model_validate(dict(values))
    except ValidationError as error:
        return faults(error, kind)
    return []
