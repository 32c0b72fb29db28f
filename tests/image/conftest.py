"""The baked image that the tests of this folder boot, and whether it can be had here."""

import os
import sys
from pathlib import Path
from typing import NoReturn

import pytest
from everspot_local.image.bake import bake, has_dependencies
from everspot_local.image.inputs import Base
from everspot_local.image.kernel import KernelUnavailable, fetch, find_suite
from everspot_local.machines import contained, namespaces, vm

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".everspot" / "image"
REQUIRED = "EVERSPOT_IMAGE_TESTS"
"""`required`: that the image cannot be had is a failure. `.ci/run` says so where machines can have namespaces."""

for folder in (Path(__file__).parent, ROOT / "tests" / "e2e"):  # what tests of several files share
    sys.path.insert(0, str(folder))


def unavailable(reason: str) -> NoReturn:
    """Skip what needs the image, or fail where it is required."""
    if os.environ.get(REQUIRED) == "required":
        pytest.fail(f"the image is not tested: {reason}")
    pytest.skip(f"the image is not tested: {reason}")


def bake_image(cloud: str) -> Path:
    """Return the folder of the image of this checkout for a cloud."""
    if reason := namespaces.why_not():
        unavailable(reason)
    if not has_dependencies(ROOT, CACHE, Base()):
        unavailable("its dependencies are not there, which take minutes: `make image` bakes it")
    return bake(ROOT, CACHE, cloud, Base(), print)


@pytest.fixture(scope="session")
def image() -> Path:
    """The image for AWS."""
    return bake_image("aws")


@pytest.fixture(scope="session")
def google_image() -> Path:
    """The image for Google Cloud."""
    return bake_image("gcp")


@pytest.fixture(scope="session")
def kernel(image: Path) -> vm.Kernel:
    """The kernel of the image's distribution."""
    if reason := vm.why_not():
        pytest.skip(f"no machine can be emulated here: {reason}")
    try:
        return fetch(find_suite(contained.read_layers(image)), CACHE / "kernels", contained.STATE)
    except KernelUnavailable as error:
        pytest.skip(f"no machine can be emulated here: {error}")
