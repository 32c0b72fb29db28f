"""The demonstration's world: its own local cloud, its environment, and this repository's stacks."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pulumi import automation

from everspot_local.demo.site import Site

ROOT = Path(__file__).resolve().parents[3]
CONTAINED, EMULATED = "contained", "vm"
MACHINES = ("process", CONTAINED)
"""What an instance is: a tree of processes, or the baked image in namespaces of its own."""
PARALLEL = 64  # most of an update is waiting, and the engine's default goes by the number of cores


class DemoError(RuntimeError):
    """A step of the demonstration failed; the message names it and shows its output."""


@dataclass
class DemoWorld:
    """Folders and environment of one demonstration. `print_line` prints a line."""

    site: Site
    home: Path
    time_scale: float
    print_line: Callable[[str], None]
    env: dict[str, str] = field(default_factory=dict)
    store_url: str = ""
    cluster: str = ""

    @property
    def state_dir(self) -> Path:
        """Return the folder of the local cloud's state and the market's log."""
        return self.home / "local"

    @property
    def market_log(self) -> Path:
        """Return the market's own log, from which the bill can be added up independently."""
        return self.state_dir / "market.jsonl"

    @property
    def project(self) -> Path:
        """Return the copy of the stacks that the engine runs."""
        return self.home / "project"

    # The local cloud -------------------------------------------------------------------------------------------

    def start(self, *options: str) -> None:
        """Start the local cloud and use its environment. `options`: more of `everspot-local up`."""
        scale = f"{self.time_scale:g}"
        self.local("up", "--cloud", self.site.cloud, "--time-scale", scale, "--port", "0", *options)
        self.env = self.local_json("env")
        os.environ.update(self.env)  # the engine is started by this process, and found by PATH

    def bake_image(self) -> list[str]:
        """Bake the training image. Returns the options of `everspot-local up` for instances that boot it."""
        answer = self._run([sys.executable, "-m", "everspot_local.main", "image", "--cloud", self.site.cloud, "--json"])
        return ["--machines", CONTAINED, "--image", json.loads(answer)["image"]]

    def local(self, *arguments: str) -> str:
        """Run `everspot-local` and return what it printed."""
        return self._run([sys.executable, "-m", "everspot_local.main", *arguments, "--state-dir", str(self.state_dir)])

    def local_json(self, *arguments: str) -> Any:
        """Run `everspot-local --json` and return what it answered."""
        return json.loads(self.local(*arguments, "--json"))

    # The product's own doors -----------------------------------------------------------------------------------

    def everspot(self, *arguments: str) -> str:
        """Run the `everspot` command on the demonstration's cluster."""
        return self._run([sys.executable, "-m", "everspot_cli.main", "--store", self.store_url, *arguments])

    def everspot_beside(self, *arguments: str, log: str) -> subprocess.Popen[bytes]:
        """Start the `everspot` command in the background; its output goes into a file of the home folder."""
        command = [sys.executable, "-m", "everspot_cli.main", "--store", self.store_url, *arguments]
        with (self.home / log).open("w") as out:
            return subprocess.Popen(  # noqa: S603
                command, cwd=ROOT, env={**os.environ, **self.env}, stdout=out, stderr=subprocess.STDOUT
            )

    def everspot_json(self, *arguments: str) -> Any:
        """Run the `everspot` command and return its JSON answer."""
        return json.loads(self.everspot("--json", *arguments))

    def stack(self, name: str) -> automation.Stack:
        """Return the stack of this repository's own program, as `pulumi -s NAME` would select it.

        It runs from a copy: creating a stack writes a salt into its settings file, and those are under version control.
        """
        project = self.project
        if not project.exists():
            shutil.copytree(ROOT / "stacks", project / "stacks", ignore=shutil.ignore_patterns("__pycache__"))
            shutil.copy(ROOT / "Pulumi.yaml", project)
            (project / ".venv").symlink_to(sys.prefix)  # its `virtualenv`, which a language host would make otherwise
        stack = automation.create_or_select_stack(
            stack_name=name, work_dir=str(project), opts=automation.LocalWorkspaceOptions(env_vars=self.env)
        )
        if own := self.site.settings.get(name):
            stack.set_all_config({key: automation.ConfigValue(value) for key, value in own.items()})
        return stack

    def up(self, name: str, *, expect_no_changes: bool = False) -> automation.UpResult:
        """Run `pulumi up -s NAME`, and take the store's URL and the cluster's name from its outputs."""
        result = self.stack(name).up(
            on_output=self._engine_log, expect_no_changes=expect_no_changes, parallel=PARALLEL, color="never"
        )
        if "controlUrl" in result.outputs:
            self.store_url = result.outputs["controlUrl"].value
            self.cluster = result.outputs["cluster"].value
        return result

    def destroy(self, name: str) -> None:
        """Run `pulumi destroy -s NAME`."""
        self.stack(name).destroy(on_output=self._engine_log, parallel=PARALLEL, color="never")

    def launched(self) -> list[str]:
        """Return the instances that the scheduler launched for jobs and that have not ended, as the cloud answers."""
        return self.site.launched(self.env)

    def find_machine(self, instance_id: str) -> str:
        """Return the market's machine of an instance."""
        return self.site.find_machine(self.env, instance_id)

    def leftovers(self) -> list[str]:
        """Return the resources of the cluster that the cloud still has, by kind and id."""
        return self.site.leftovers(self.env, self.cluster)

    # ------------------------------------------------------------------------------------------------------------

    def _engine_log(self, line: str) -> None:
        with (self.home / "engine.log").open("a") as log:
            log.write(line.rstrip("\n") + "\n")

    def _run(self, command: list[str]) -> str:
        env = {**os.environ, **self.env}
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode:
            words = " ".join(command[2:])
            raise DemoError(f"`{words}` ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
        return done.stdout
