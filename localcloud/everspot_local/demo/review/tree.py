"""The repository of the review demonstration: this project's stacks and workflows, in a clone that people edit."""

import base64
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from everspot_local.demo.review.hub import Hub
from everspot_local.demo.world import ROOT, DemoError

IGNORED = ".venv\n__pycache__/\n*.pyc\n"
WHO = ("-c", "user.name=ann", "-c", "user.email=ann@forge.test", "-c", "commit.gpgsign=false")


@dataclass(frozen=True)
class Tree:
    """The clone, at its root."""

    root: Path

    @classmethod
    def create(cls, root: Path, stacks: Sequence[str]) -> "Tree":
        """Create a repository from a folder that holds the project, with the workflows as they are shipped. Only the
        settings of `stacks` are kept."""
        for path in (root / "stacks").glob("Pulumi.*.yaml"):
            if path.name.removeprefix("Pulumi.").removesuffix(".yaml") not in stacks:
                path.unlink()
        # Not CI of this repository, whose tests no environment has.
        shutil.copytree(ROOT / ".github", root / ".github", ignore=shutil.ignore_patterns("ci.yml", "*TEMPLATE*"))
        (root / ".gitignore").write_text(IGNORED)
        tree = cls(root)
        tree.git("init", "-q", "-b", "main")
        return tree

    def git(self, *words: str) -> str:
        """Run git and return its output.

        Raises:
            DemoError: if it fails.
        """
        command = ["git", *WHO, *words]
        done = subprocess.run(command, cwd=self.root, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode:
            raise DemoError(f"git {next(argument for argument in words if argument[0] != '-')}: {done.stderr[-1500:]}")
        return done.stdout.strip()

    def commit(self, message: str) -> str:
        """Commit all changes; returns the revision."""
        self.git("add", "-A")
        self.git("commit", "-q", "-m", message)
        return self.git("rev-parse", "HEAD")

    def edit(self, stack: str, pattern: str, by: str) -> None:
        """Change the one place of a stack's settings that a pattern finds.

        Raises:
            DemoError: if there is not exactly one.
        """
        path = self.root / "stacks" / f"Pulumi.{stack}.yaml"
        text, times = re.subn(pattern, by, path.read_text())
        if times != 1:
            raise DemoError(f"{pattern} stands {times} times in {path}")
        path.write_text(text)

    def push(self, hub: Hub, branch: str) -> str:
        """Push a branch as the user of a token, and wait until the forge knows it; returns its revision."""
        self._run_authenticated(hub, "push", branch)
        revision = self.git("rev-parse", branch)
        hub.wait_for_push(branch, revision)
        return revision

    def fetch(self, hub: Hub, branch: str) -> None:
        """Fetch a branch to FETCH_HEAD."""
        self._run_authenticated(hub, "fetch", branch)

    def _run_authenticated(self, hub: Hub, verb: str, branch: str) -> None:
        """Set git's access to the forge; the token is in no address, which git would print."""
        key = base64.b64encode(f"token:{hub.token}".encode()).decode()
        header = f"http.{hub.url}/.extraheader=Authorization: basic {key}"
        self.git("-c", header, verb, "-q", f"{hub.url}/{hub.repo}.git", branch)
