"""Runs a workflow file with act, in host mode: the steps are processes of this machine, and nothing is downloaded.

`actions/checkout` and the two of artifacts are stand-ins of this folder; the forge is a double. What it does not show:
triggers, permissions and environments, which only a forge decides.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from desk import Desk
from forge_double import RUN, TOKEN, Double

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
ACT = Path(sys.executable).parent / "act"


@dataclass(frozen=True)
class Acted:
    """A run that has ended. `code`: 0 if all of its jobs succeeded; `log`: what it printed; `summary`: of its steps."""

    code: int
    log: str


def shipped(desk: Desk) -> None:
    """Put the workflows into the project, as a user has them."""
    shutil.copytree(ROOT / ".github", desk.root / ".github", dirs_exist_ok=True)
    path = desk.root / ".github/workflows/apply.yml"
    path.write_text(re.sub(r"^  queue: max\b.*\n", "", path.read_text(), flags=re.M))  # of May 2026; act refuses it


def act(desk: Desk, hub: Double, workflow: str, event: str, payload: dict[str, Any], **env: str) -> Acted:
    """Run one workflow. `env`: more variables for its steps."""
    here = desk.engine.parent
    (here / "event.json").write_text(json.dumps(payload))
    stand_ins = [
        f"--local-repository=actions/{name}@v4={HERE / 'stand_ins' / name}"
        for name in ("checkout", "upload-artifact", "download-artifact")
    ]
    variables = {
        "GITHUB_API_URL": hub.url, "GITHUB_REPOSITORY": "boss/fleets", "GITHUB_RUN_ID": str(RUN),
        "CLONE_FROM": str(desk.root), "ARTIFACTS": str(here / "artifacts"), "EVERSPOT_VENV": sys.prefix,
        **env,
    }  # fmt: skip
    command = [
        str(ACT), event, "-e", str(here / "event.json"), "-W", f".github/workflows/{workflow}.yml", *stand_ins,
        "-P", "ubuntu-latest=-self-hosted", "-s", f"GITHUB_TOKEN={TOKEN}",
        "--var", f"EVERSPOT_STATE={desk.env.get('PULUMI_BACKEND_URL', 'file:///nowhere')}",
        *(option for name, value in variables.items() for option in ("--env", f"{name}={value}")),
    ]  # fmt: skip
    own = {**desk.env, "HOME": str(here / "home"), "XDG_CACHE_HOME": str(here / "cache")}
    for name in ("GITHUB_TOKEN", "GITHUB_API_URL", "GITHUB_REPOSITORY"):
        own.pop(name, None)
    done = subprocess.run(command, cwd=desk.root, env=own, capture_output=True, text=True, check=False, timeout=600)
    return Acted(done.returncode, done.stdout + done.stderr)


def of_pull(hub: Double, desk: Desk, source: str = "boss/fleets") -> dict[str, Any]:
    """A pull request's event: from the project's HEAD into its branch main."""
    pull = hub.pull(7)
    pull["head"] = {"sha": desk.git("rev-parse", "HEAD"), "ref": "more", "repo": {"full_name": source}}
    pull["base"] = {"sha": desk.git("rev-parse", "main"), "ref": "main", "repo": {"full_name": "boss/fleets"}}
    hub.head = pull["head"]["sha"]
    return {"pull_request": pull, "number": 7, "repository": {"full_name": "boss/fleets"}, "action": "synchronize"}


assert os.access(ACT, os.X_OK), "act is a dependency of the group dev: make setup"
