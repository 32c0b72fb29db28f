"""The hook that checks commit messages, run by git itself."""

import subprocess
import sys
from pathlib import Path

import pytest

HOOK = Path(__file__).parents[2] / "tools" / "commit_subject.py"
AUTHOR = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with the hook, as pre-commit installs it."""
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    hook = tmp_path / ".git" / "hooks" / "commit-msg"
    hook.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{HOOK}" "$1"\n')
    hook.chmod(0o755)
    return tmp_path


@pytest.mark.parametrize(
    ("message", "error"),
    [
        ("store: retry a write that was throttled", ""),
        ("test(components): shrinking a group keeps idle instances\n\nBecause it lost one.", ""),
        ("cli/ui: " + "x" * 64, ""),
        ('Revert "store: retry a write that was throttled, whatever the length of this line may be"', ""),
        ("cli/ui: " + "x" * 65, "73 characters; at most 72"),
        ("A test sees that a group may be made smaller", "must be `area: what changes`"),
        ("store:no space", "must be `area: what changes`"),
        ("store: retry\nand more", "the second line must be empty"),
    ],
)
def test_git_refuses_a_subject_that_says_no_area_or_is_too_long(repository: Path, message: str, error: str) -> None:
    done = subprocess.run(
        ["git", *AUTHOR, "commit", "-q", "--allow-empty", "-m", message],
        cwd=repository, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert (done.returncode == 0) is (error == ""), done.stderr
    assert error in done.stderr
