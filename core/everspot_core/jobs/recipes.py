"""The names of the built-in recipes and their parameters. The training image holds their code."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self

from pydantic import Field, PlainValidator, ValidationError, model_validator

from everspot_core.documents import Frozen
from everspot_core.validation.field_types import Flag
from everspot_core.validation.model_errors import translate_errors
from everspot_core.validation.problems import Problem, shown

AUTO = "auto"
"""The batch size that the recipe finds itself: the largest whose training step fits the device's memory."""


def _parse_batch_size(value: Any) -> Any:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if value != AUTO and not (whole and value >= 1):
        raise ValueError(f"has to be a whole number from 1, or auto, not {shown(value)}")
    return value


BatchSize = Annotated[int | Literal["auto"], PlainValidator(_parse_batch_size)]


class RecipeParameters(Frozen):
    """Parameters that every recipe has. `batch_size`, `global_batch` and `accumulation` decide how batches make up an
    optimizer step."""

    data: str
    epochs: float = Field(default=3, gt=0, le=10_000, description="Passes over the training data; may be a fraction.")
    batch_size: BatchSize
    global_batch: int | None = Field(
        default=None, ge=1, description="With batch_size auto: samples per optimizer step of all processes."
    )
    accumulation: int = Field(default=1, ge=1, description="Batches per optimizer step.")
    dropout: float = Field(default=0.0, ge=0, lt=1)
    compile: Flag = Field(default=False, description="Compile the network with torch.compile.")
    seed: int = Field(default=0, ge=0)
    limit_train: int | None = Field(default=None, ge=1, description="Use this many training samples only.")

    @model_validator(mode="after")
    def _check_batches(self) -> Self:
        """Check that the parameters decide the global batch once."""
        if self.batch_size == AUTO and self.global_batch is None:
            raise ValueError("batch_size: auto needs global_batch, the samples per optimizer step of all processes")
        if self.batch_size != AUTO and self.global_batch is not None:
            raise ValueError("global_batch goes with batch_size: auto; else it is batch_size times accumulation")
        if self.batch_size == AUTO and self.accumulation != 1:
            raise ValueError("accumulation follows from global_batch where batch_size is auto: give one of them")
        return self


class ImageClassification(RecipeParameters):
    """Parameters of the recipe `image-classification`. The defaults reach 89 to 90 % on Fashion-MNIST."""

    data: str = Field(default="fashion-mnist", description="fashion-mnist (in EVERSPOT_DATA), synthetic, or a folder.")
    batch_size: BatchSize = Field(
        default=64, description="Images per batch and process; auto: as many as fit the memory."
    )
    learning_rate: float = Field(default=0.3, gt=0, description="Highest rate of the one-cycle schedule.")
    momentum: float = Field(default=0.9, ge=0, lt=1)
    weight_decay: float = Field(default=5e-4, ge=0)
    label_smoothing: float = Field(default=0.05, ge=0, lt=1)
    flip: Flag = Field(default=False, description="Mirror half of the training images; pays from a few epochs on.")
    width: int = Field(default=8, ge=1, le=256, description="Channels behind the stem; doubled by each stage.")
    stages: int = Field(default=2, ge=1, le=3)
    clip: float | None = Field(default=None, gt=0, description="Largest norm of the gradient.")


class Parallel(StrEnum):
    """How several processes share a model: `ddp` gives each the whole model, `fsdp2` gives each a shard of every
    parameter, its gradient and its optimizer state (torch's `fully_shard`)."""

    DDP = "ddp"
    FSDP2 = "fsdp2"


class LanguageModel(RecipeParameters):
    """Parameters of the recipe `language-model`. The defaults fit a small processor."""

    data: str = Field(default="python-docs", description="python-docs, a text file, or a folder of .txt files.")
    batch_size: BatchSize = Field(
        default=32, description="Sequences per batch and process; auto: as many as fit the memory."
    )
    context: int = Field(default=64, ge=8, le=65_536, description="Bytes that are seen of a sequence.")
    width: int = Field(default=64, ge=8, le=16_384, description="Of the embeddings; a multiple of heads.")
    layers: int = Field(default=2, ge=1, le=1000)
    heads: int = Field(default=4, ge=1, le=1000)
    learning_rate: float = Field(default=2e-3, gt=0, description="Highest rate of the one-cycle schedule.")
    weight_decay: float = Field(default=0.1, ge=0, description="Of matrices.")
    clip: float | None = Field(default=1.0, gt=0, description="Largest norm of the gradient.")
    parallel: Parallel = Field(default=Parallel.DDP, description="How several processes share the model.")
    activation_checkpointing: Flag = Field(default=False, description="Recompute the blocks' activations.")

    @model_validator(mode="after")
    def _check_heads(self) -> Self:
        if self.width % self.heads:
            raise ValueError(f"width ({self.width}) has to be a multiple of heads ({self.heads})")
        return self


RECIPES: Mapping[str, type[RecipeParameters]] = MappingProxyType(
    {"image-classification": ImageClassification, "language-model": LanguageModel}
)
"""The recipes of every image."""


METRICS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "image-classification": frozenset({"loss", "skipped_steps", "test_accuracy"}),
        "language-model": frozenset({"loss", "skipped_steps", "test_loss"}),
    }
)
"""The metrics that the jobs of each recipe report."""


def find_parameters(recipe: str) -> type[RecipeParameters] | None:
    """Return the model of a recipe's parameters, by its name with hyphens or underscores; None if there is no such
    recipe."""
    return RECIPES.get(recipe.replace("_", "-"))


def find_metrics(recipe: str) -> frozenset[str] | None:
    """Return the metrics that a recipe reports, by its name with hyphens or underscores; None if it does not exist."""
    return METRICS.get(recipe.replace("_", "-"))


def parameter_faults(recipe: str, values: Mapping[str, Any]) -> list[Problem]:
    """Return problems of a recipe's parameters, by name; none for an unknown recipe."""
    kind = find_parameters(recipe)
    if kind is None:
        return []
    try:
        kind.model_validate(dict(values))
    except ValidationError as error:
        return translate_errors(error, kind)
    return []
