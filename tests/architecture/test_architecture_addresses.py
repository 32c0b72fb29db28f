"""No package that users deploy names the local cloud's address, and no file names a machine's own folders."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DEPLOYED = [
    "core",
    "simulator",
    "store",
    "clouds",
    "components",
    "scheduler",
    "training_image",
    "cli",
    "review",
    "stacks",
    "Pulumi.yaml",
]
PAGE = ROOT / "cli/everspot_cli/ui/loopback.py"
"""The web UI is served on the loopback address only, which one of its files names."""
LOCAL_ADDRESS = re.compile(r"127\.0\.0\.1|localhost(?!Profile)|0\.0\.0\.0:|\[::1\]|/_market")
"""`localhostProfile` is a field of Kubernetes, a file of the node."""


def tracked(*places: str) -> list[Path]:
    """Files under version control, and new ones that would be, below the places."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *places],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    return [ROOT / name for name in listing if (ROOT / name).is_file()]


def text(path: Path) -> str:
    return path.read_text(errors="ignore")


def test_only_the_local_cloud_knows_its_address() -> None:
    files = [path for path in tracked(*DEPLOYED) if path != PAGE]
    addresses = [f"{p.relative_to(ROOT)}: {m.group()}" for p in files for m in LOCAL_ADDRESS.finditer(text(p))]
    assert addresses == []


@pytest.mark.parametrize("planted", ["endpoint = 'http://127.0.0.1:5000'", "http://localhost/x", "/_market/interrupt"])
def test_a_planted_address_is_found(planted: str) -> None:
    assert LOCAL_ADDRESS.search(planted)


def test_the_deployed_rooms_are_there() -> None:
    assert len(tracked(*DEPLOYED)) > 20
