"""The facts that a runner gives to the job that runs in it: the pull request, the revisions, the file of the
summary."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from everspot_review.errors import ReviewError


@dataclass(frozen=True)
class PullEvent:
    """The pull request of a run, as it was when the run began. `fork`: whether its branch is in another repository,
    whose runs may not write."""

    number: int
    head: str
    base: str
    fork: bool

    @classmethod
    def read(cls, variables: Mapping[str, str] = os.environ) -> "PullEvent":
        """Return the pull request of GITHUB_EVENT_PATH.

        Raises:
            ReviewError: if this run is about none.
        """
        path = variables.get("GITHUB_EVENT_PATH", "")
        try:
            event: Any = json.loads(Path(path).read_text(encoding="utf-8")) if path else {}
            pull = event["pull_request"]
            source = (pull["head"].get("repo") or {}).get("full_name", "")
            own = event["repository"]["full_name"]
            return cls(int(pull["number"]), str(pull["head"]["sha"]), str(pull["base"]["ref"]), source != own)
        except (OSError, ValueError, KeyError, TypeError):
            raise ReviewError(
                "which pull request is meant is not known: no GITHUB_EVENT_PATH with one; name it with --number and "
                "--head"
            ) from None


def pushed_branch() -> str:
    """Return the branch whose push started this run; empty outside of a runner, or if the push was not to a branch."""
    before, head, name = os.environ.get("GITHUB_REF", "").partition("refs/heads/")
    return name if head and not before else ""


def run_link() -> str:
    """Return the address of this run's page; empty outside of a runner."""
    server, repository, run = (os.environ.get(f"GITHUB_{name}", "") for name in ("SERVER_URL", "REPOSITORY", "RUN_ID"))
    return f"{server}/{repository}/actions/runs/{run}" if server and repository and run else ""


def summarize(text: str) -> None:
    """Add a text to the run's summary, where there is one."""
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if path:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(text.rstrip("\n") + "\n")
