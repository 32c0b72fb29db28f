"""The baked image that the tests of this folder boot, and what it is baked above."""

import sys
from pathlib import Path

import pytest
from everspot_local.image.bake import bake, has_dependencies
from everspot_local.image.inputs import Base
from everspot_local.image.kernel import KernelUnavailable, fetch, find_suite
from everspot_local.machines import contained, namespaces, vm

TESTS = Path(__file__).resolve().parents[1]
for folder in ("image", "e2e", "agent"):  # what tests of several files share
    sys.path.insert(0, str(TESTS / folder))

from image_source import CACHE, ROOT, unavailable  # noqa: E402


@pytest.fixture(scope="session")
def lower_layers() -> None:
    """What an image is baked above."""
    if reason := namespaces.why_not():
        unavailable(reason)
    if not has_dependencies(ROOT, CACHE, Base()):
        unavailable("its dependencies are not there, which take minutes: `make image` bakes it")


@pytest.fixture(scope="session")
def image(lower_layers: None) -> Path:
    """The image of this checkout for AWS."""
    return bake(ROOT, CACHE, "aws", Base(), print)


@pytest.fixture(scope="session")
def google_image(lower_layers: None) -> Path:
    """The image of this checkout for Google Cloud."""
    return bake(ROOT, CACHE, "gcp", Base(), print)


@pytest.fixture(scope="session")
def kernel(image: Path) -> vm.Kernel:
    """The kernel of the image's distribution."""
    if reason := vm.why_not():
        pytest.skip(f"no machine can be emulated here: {reason}")
    try:
        return fetch(find_suite(contained.read_layers(image)), CACHE / "kernels", contained.STATE)
    except KernelUnavailable as error:
        pytest.skip(f"no machine can be emulated here: {error}")
