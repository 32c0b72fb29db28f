import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / "tools"


@pytest.fixture
def checkout(tmp_path):
    """A checkout without anything that set-up makes."""
    folder = tmp_path / "checkout"
    shutil.copytree(TOOLS, folder / "tools")
    shutil.copy(TOOLS.parent / "pyproject.toml", folder)
    (folder / "localcloud").mkdir()
    shutil.copy(TOOLS.parent / "localcloud/pyproject.toml", folder / "localcloud")
    return folder


@pytest.fixture
def run_setup(checkout):
    """Runs a piece of set-up in a process of its own and returns what it says."""

    def run(code, **env):
        program = f"import sys; sys.path.insert(0, {str(checkout / 'tools/setup')!r})\n{code}"
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=checkout,
            env={"HOME": os.environ["HOME"], **env},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        return done.stdout + done.stderr

    return run
