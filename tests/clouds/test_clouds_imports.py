"""The modules that a part of a cloud imports: the agent boots with the metadata reader alone."""

import subprocess
import sys
from pathlib import Path

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


LOCK = Path(__file__).parents[2] / "training_image/bake/lock.txt"
LOCKED = """
import importlib, pkgutil, re, sys
from importlib.metadata import packages_distributions

def normalized(name): return re.sub(r"[-_.]+", "-", name).lower()

locked = {"everspot", *(line.partition("==")[0] for line in open(sys.argv[1]) if line[0].isalnum())}
left_out = {module for module, names in packages_distributions().items() if not locked & set(map(normalized, names))}

class LeftOut:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in left_out:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, LeftOut())
for package in map(importlib.import_module, ("everspot_clouds", "everspot_scheduler")):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            print(f"{module.name}:{error.name}")
"""


def test_the_image_has_what_every_adapter_and_the_scheduler_import() -> None:
    """Only the rules over programs look for credentials in texts, and they run where people deploy."""
    command = [sys.executable, "-c", LOCKED, str(LOCK)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    assert answer.stdout.split() == ["everspot_clouds.plain_credentials:detect_secrets"], answer.stderr
