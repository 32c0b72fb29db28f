"""`make review-demo`: all of its checks, on a real forge, and the explanation of its substitutes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from everspot_local.demo.review.tree import Tree
from everspot_local.demo.review.walk import ACTIONS
from everspot_local.demo.world import DemoError

ROOT = Path(__file__).resolve().parents[2]
USED = {"checkout", "upload-artifact", "download-artifact"}


@pytest.mark.nightly
@pytest.mark.timeout(2400)
def test_every_promise_is_kept_and_nothing_is_left_running(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "everspot_local.demo.review", "--json", "--out", str(tmp_path / "out")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=2300)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["kept"] and len(answer["promises"]) >= 19
    assert [each["name"] for each in answer["promises"] if not each["holds"]] == []


def test_every_action_of_the_workflows_has_a_stand_in_that_says_so() -> None:
    """The workflows of an environment; CI's run on the real forge alone."""
    used: set[str] = set()
    for path in (ROOT / "cli/everspot_cli/project/workflows").glob("*.yml"):
        for job in yaml.safe_load(path.read_text())["jobs"].values():
            used |= {step["uses"] for step in job["steps"] if "uses" in step}
    assert used == {f"actions/{name}@v4" for name in USED}
    assert {folder.name for folder in ACTIONS.iterdir()} == USED
    for name in USED:
        assert (ACTIONS / name / "action.yml").read_text().startswith(f"# Stands in for actions/{name}, which")


def test_an_edit_of_settings_that_finds_nothing_or_too_much_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "stacks").mkdir()
    (tmp_path / "stacks/Pulumi.dev.yaml").write_text("target: 1\ntarget: 1\n")
    for pattern, times in (("target: 2", 0), ("target: 1", 2)):
        with pytest.raises(DemoError, match=f"stands {times} times"):
            Tree(tmp_path).edit("dev", pattern, "x")
