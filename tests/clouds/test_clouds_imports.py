"""The modules that a part of a cloud imports: the agent boots with the metadata reader alone."""

import subprocess
import sys

import pytest

READER = """
import sys
before = set(sys.modules)
from everspot_clouds.registry import provider
class Clock: pass
provider("CLOUD").metadata(Clock(), {}.get)
for name in sorted({name.partition(".")[0] for name in set(sys.modules) - before}):
    print(name)
"""
PLANTED = READER.replace("class Clock", "import everspot_clouds.CLOUD.cloud\nclass Clock")


def loaded(program: str) -> set[str]:
    """The packages that a fresh interpreter has loaded besides the standard library and the product's own."""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return {name for name in result.stdout.split() if not name.startswith("everspot_")} - sys.stdlib_module_names


@pytest.mark.parametrize("cloud", ["aws", "gcp", "kubernetes"])
def test_reading_the_metadata_loads_the_standard_library_and_nothing_else(cloud: str) -> None:
    assert loaded(READER.replace("CLOUD", cloud)) == set()


@pytest.mark.parametrize(
    ("cloud", "heavy"), [("aws", "boto3"), ("aws", "pydantic"), ("gcp", "google"), ("kubernetes", "kubernetes")]
)
def test_a_heavy_import_is_found(cloud: str, heavy: str) -> None:
    assert heavy in loaded(PLANTED.replace("CLOUD", cloud))


def test_a_pulumi_program_needs_no_client_of_a_cloud() -> None:
    program = "import sys\nimport everspot\nprint(*sorted({name.partition('.')[0] for name in sys.modules}))"
    assert loaded(program) & {"boto3", "botocore", "requests", "everspot_scheduler"} == set()
