"""The command line that installs the running `everspot` again, for every kind of installation."""

import json
import subprocess
from pathlib import Path

import pytest
from everspot_cli.installing import own_requirement, requirement

from tests.cli.conftest import everspot

ROOT = Path(__file__).parents[2]
COMMIT = "8a35311" + "0" * 33
FORK = "https://forge.example.com/o/everspot"


@pytest.mark.parametrize(
    ("origin", "line", "local"),
    [
        (None, "everspot[cli]==0.1.0", False),
        ({"url": "file:///a%20b", "dir_info": {"editable": True}}, "everspot[cli] @ file:///a%20b", True),
        ({"url": "file:///tmp/everspot.whl", "archive_info": {}}, "everspot[cli] @ file:///tmp/everspot.whl", True),
        (
            {"url": FORK, "vcs_info": {"vcs": "git", "commit_id": COMMIT, "requested_revision": "main"}},
            f"everspot[cli] @ git+{FORK}@{COMMIT}",
            False,
        ),
        (
            {"url": FORK, "subdirectory": "x", "vcs_info": {"vcs": "git", "commit_id": COMMIT}},
            f"everspot[cli] @ git+{FORK}@{COMMIT}#subdirectory=x",
            False,
        ),
    ],
)
def test_what_was_noted_of_an_installation_installs_the_same_again(origin, line, local):
    noted = requirement("cli", "0.1.0", origin)
    assert (noted.line, noted.local) == (line, local)


def test_a_project_begun_from_a_checkout_is_installed_from_it_and_the_page_says_what_a_runner_needs(tmp_path: Path):
    words = "--cloud aws --account 123456789012 --region us-east-2 --team vision --repository Org/fleets --yes --json"
    done = everspot("init", str(tmp_path), *words.split())
    assert done.code == 0, done.err
    lines = (tmp_path / "requirements.txt").read_text().splitlines()
    assert lines[-1] == f"everspot[cli,components-aws,policy,review] @ {ROOT.as_uri()}"
    assert own_requirement("cli").local
    (publish,) = (step for step in json.loads(done.out)["steps"] if step["title"] == "Publish")
    assert "requirements.txt" in publish["why"] and "git+" in publish["why"]
    (push,) = (line for line in publish["commands"] if "git push" in line)
    guard = push.split("&&")[0]
    assert subprocess.run(["sh", "-c", guard], cwd=tmp_path, capture_output=True, check=False).returncode == 1
    (tmp_path / "requirements.txt").write_text("everspot[cli]==0.1.0\n")
    assert subprocess.run(["sh", "-c", guard], cwd=tmp_path, capture_output=True, check=False).returncode == 0
