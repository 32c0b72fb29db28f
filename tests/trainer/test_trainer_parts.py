"""The trainer's public interface: its names, and errors for invalid settings."""

from typing import Any

import pytest
from everspot_train.trainer import Run, TrainerError
from everspot_train.trainer import __all__ as public
from everspot_train.trainer.environment import process_age

pytestmark = pytest.mark.torch


def test_the_public_names_are_sorted_and_complete() -> None:
    assert public == sorted(public)


def test_a_loop_that_tracks_nothing_is_told_what_is_missing() -> None:
    with pytest.raises(TrainerError, match=r"run\.track"), Run.open() as run:
        next(iter(run.batches(1)))


@pytest.mark.parametrize("wrong", [{"accumulation": 0}, {"clip_norm": 0.0}, {"precision": "fp8"}])
def test_settings_without_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        Run.open(**wrong)


def test_the_age_of_this_process_is_known() -> None:
    assert 0 < process_age() < 24 * 3600
