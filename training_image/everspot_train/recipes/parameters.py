"""Reads the parameters of a recipe. One error reports all problems. This module does not import torch."""

from collections.abc import Mapping
from typing import Any, TypeVar

from everspot_core.counting import counted
from everspot_core.documents import Frozen
from everspot_core.jobs.recipes import ImageClassification, LanguageModel
from everspot_core.validation.model_errors import translate_errors
from everspot_core.validation.problems import SHOWN_AT_MOST
from pydantic import ValidationError

__all__ = ["BadParameters", "ImageClassification", "LanguageModel", "read_parameters"]

ParametersT = TypeVar("ParametersT", bound=Frozen)


class BadParameters(Exception):
    """One or more parameters are wrong. The message names all of them."""


def read_parameters(kind: type[ParametersT], values: Mapping[str, Any]) -> ParametersT:
    """Parse `values` as parameters of this kind.

    Raises:
        BadParameters: naming every field that is unknown or has a bad value.
    """
    try:
        return kind.model_validate(dict(values))
    except ValidationError as error:
        wrong = translate_errors(error, kind)
        summary = "; ".join(str(problem) for problem in wrong[:SHOWN_AT_MOST])
        raise BadParameters(f"{counted(len(wrong), 'wrong parameter')}: {summary}") from error
