"""Where the tests of this folder have their image from, and whether it can be had here."""

import os
from pathlib import Path
from typing import NoReturn

import pytest

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".everspot" / "image"
REQUIRED = "EVERSPOT_IMAGE_TESTS"
"""`required`: that the image cannot be had is a failure. `.ci/run` says so where machines can have namespaces."""


def unavailable(reason: str) -> NoReturn:
    """Skip what needs the image, or fail where it is required."""
    if os.environ.get(REQUIRED) == "required":
        pytest.fail(f"the image is not tested: {reason}")
    pytest.skip(f"the image is not tested: {reason}")
