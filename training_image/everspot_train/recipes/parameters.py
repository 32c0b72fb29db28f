"""Parameters of a recipe, and one readable error for all that are wrong with them. torch is not imported here."""

from collections.abc import Mapping
from typing import Any, TypeVar

from everspot_core.documents import Frozen
from pydantic import Field, ValidationError

ParametersT = TypeVar("ParametersT", bound=Frozen)


class BadParameters(Exception):
    """One or more parameters are wrong; the message names every one."""


class ImageClassification(Frozen):
    """Parameters of the recipe `image_classification`. The defaults reach 89 to 90 % on Fashion-MNIST."""

    data: str = Field(default="fashion-mnist", description="fashion-mnist (in EVERSPOT_DATA), synthetic, or a folder.")
    epochs: float = Field(default=3, gt=0, le=10_000, description="Passes over the training images; may be a fraction.")
    batch_size: int = Field(default=64, ge=1, description="Images per batch and process.")
    learning_rate: float = Field(default=0.3, gt=0, description="Highest rate of the one-cycle schedule.")
    momentum: float = Field(default=0.9, ge=0, lt=1)
    weight_decay: float = Field(default=5e-4, ge=0)
    label_smoothing: float = Field(default=0.05, ge=0, lt=1)
    dropout: float = Field(default=0.0, ge=0, lt=1)
    flip: bool = Field(default=False, description="Mirror half of the training images; pays from a few epochs on.")
    width: int = Field(default=8, ge=1, le=256, description="Channels behind the stem; doubled by each stage.")
    stages: int = Field(default=2, ge=1, le=3)
    accumulation: int = Field(default=1, ge=1, description="Batches per optimizer step.")
    clip: float | None = Field(default=None, gt=0, description="Largest norm of the gradient.")
    seed: int = Field(default=0, ge=0)
    limit_train: int | None = Field(default=None, ge=1, description="Use this many training images only.")


def read_parameters(kind: type[ParametersT], given: Mapping[str, Any]) -> ParametersT:
    """`given` as parameters of this kind.

    Raises:
        BadParameters: naming every field that is unknown or has a bad value.
    """
    try:
        return kind.model_validate(dict(given))
    except ValidationError as error:
        wrong = [f"{'.'.join(map(str, e['loc']))}: {e['msg']} (given: {e['input']!r})" for e in error.errors()]
        known = ", ".join(kind.model_fields)
        raise BadParameters(f"{len(wrong)} wrong: " + "; ".join(wrong) + f". Known: {known}") from error
