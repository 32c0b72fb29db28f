"""The real engine, the real providers behind the bridge, and a local cloud for each test file."""

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
from everspot_clouds.aws import deployers
from pulumi import automation

ROOT = Path(__file__).resolve().parents[2]
HURRY = ("--time-scale=120", "--delay=remembered=100h")
"""The provider waits in the cloud's time, for example five minutes for a deleted fleet. Ended resources stay described
for as long as any test runs."""
sys.path.insert(0, str(Path(__file__).parent))  # for the helpers of several test files

from engine_plugins import Plugins  # noqa: E402


@dataclass(frozen=True)
class Run:
    """The output of a run of the engine, and its operations by resource name, without unchanged resources."""

    output: str
    changes: dict[str, str]


@dataclass
class Rig:
    """A copy of this repository's stacks, whose settings a test may change, on a local cloud.

    The engine's command is called as users call it, once for each operation: the Automation API reads version,
    selection, history and outputs around every run, which takes as long as half of a run.
    """

    project: Path
    env: dict[str, str]
    engine: automation.PulumiCommand
    plugins: Plugins
    stacks: set[str] = field(default_factory=set)
    outputs: dict[str, Any] = field(default_factory=dict)
    requested_actions: dict[str, set[str]] = field(default_factory=lambda: {"preview": set(), "deploy": set()})

    @contextmanager
    def noted(self, kind: str) -> Iterator[None]:
        """Record the actions that the engine requests meanwhile, in `requested_actions`."""
        book = self.project / "local" / "calls.jsonl"
        before = book.stat().st_size
        try:
            yield
        finally:
            with book.open("rb") as calls:
                calls.seek(before)
                self.requested_actions[kind] |= {c["action"] for line in calls for c in json.loads(line)["checked"]}

    def unlisted(self, lists: Any = deployers) -> set[str]:
        """Return requested actions that are not in a deployer's lists. `lists`: of the cloud, AWS's by default."""
        deploy = lists.PREVIEW | lists.DEPLOY | lists.ACCOUNT
        return (self.requested_actions["preview"] - lists.PREVIEW) | (self.requested_actions["deploy"] - deploy)

    def pulumi(self, *arguments: str, stack: str) -> str:
        """Return the output of an engine command on a stack, which is created if missing.

        Raises:
            CommandError: if it fails; with all of its output.
        """
        if stack not in self.stacks:
            self.engine.run(["stack", "init", stack], str(self.project), self.env)
            self.stacks.add(stack)
        env = self.plugins.attached(self.env)
        return self.engine.run([*arguments, "--stack", stack], str(self.project), env).stdout

    def declared(self, stack: str = "local") -> dict[str, Any]:
        """Return the settings of a stack's cluster."""
        content = yaml.safe_load((self.project / "stacks" / f"Pulumi.{stack}.yaml").read_text())
        return dict(content["config"]["everspot:cluster"])

    def settings(self, name: str, value: Any, stack: str = "local") -> None:
        """Set one setting of the cluster by its path, for example `capacity.standing.target`; a text is YAML, and None
        takes the setting out."""
        file = self.project / "stacks" / f"Pulumi.{stack}.yaml"
        content = yaml.safe_load(file.read_text())
        *path, last = name.split(".")
        section = content["config"]["everspot:cluster"]
        for step in path:
            section = section.setdefault(step, {})
        section[last] = yaml.safe_load(value) if isinstance(value, str) else value
        if value is None:
            del section[last]
        file.write_text(yaml.safe_dump(content, sort_keys=False))

    def up(self, stack: str = "local", *options: str) -> Run:
        """Deploy, without a preview unless it is among the options; `outputs` are the stack's then."""
        first = () if "--yes" in options else ("--yes", "--skip-preview")
        with self.noted("deploy"):
            output, events = self._watched("up", *first, "--parallel=64", *options, stack=stack)
        ends = [event["resOutputsEvent"]["metadata"] for event in events if "resOutputsEvent" in event]
        *_, self.outputs = [end["new"]["outputs"] for end in ends if end["type"] == "pulumi:pulumi:Stack"]
        return Run(output, _changes(events))

    def destroy(self, stack: str = "local") -> None:
        with self.noted("deploy"):
            self.pulumi("destroy", "--yes", "--skip-preview", "--parallel=64", "--color=never", stack=stack)

    def preview(self, stack: str = "local") -> Run:
        with self.noted("preview"):
            output, events = self._watched("preview", stack=stack)
        return Run(output, _changes(events))

    def refused(self, stack: str = "local") -> str:
        """Return the error of a refused preview, for the author of the settings."""
        with pytest.raises(automation.CommandError) as refused:
            self.preview(stack)
        assert "Traceback" not in str(refused.value)
        return str(refused.value)

    def _watched(self, *arguments: str, stack: str) -> tuple[str, list[dict[str, Any]]]:
        log = self.project / "events.jsonl"
        log.unlink(missing_ok=True)
        output = self.pulumi(*arguments, "--color=never", f"--event-log={log}", stack=stack)
        return output, [json.loads(line) for line in log.read_text().splitlines()]

    def client(self, service: str) -> Any:
        return boto3.client(
            service,
            endpoint_url=self.env["AWS_ENDPOINT_URL"],
            region_name=self.env["AWS_REGION"],
            aws_access_key_id="test",
            aws_secret_access_key="test",
        )

    def add_service_roles(self) -> None:
        """Make the roles of EC2 Fleet and Spot, which a cluster needs of the account stack."""
        for service in ("ec2fleet", "spot"):
            self.client("iam").create_service_linked_role(AWSServiceName=f"{service}.amazonaws.com")

    def market(self, action: str, **fields: Any) -> None:
        """Do something to the local cloud's market, by its own door."""
        url = f"{self.env['AWS_ENDPOINT_URL']}/_market/{action}"
        with urllib.request.urlopen(urllib.request.Request(url, data=json.dumps(fields).encode())):
            pass

    def fleet(self, market: str = "spot") -> dict[str, Any]:
        """The fleet of one market, `spot` or `onDemand`, as EC2 describes it."""
        (fleet,) = self.client("ec2").describe_fleets(FleetIds=[self.outputs[f"{market}FleetId"]])["Fleets"]
        return dict(fleet)

    def total(self, market: str) -> int:
        """The target of one market's fleet, in units."""
        return int(self.fleet(market)["TargetCapacitySpecification"]["TotalTargetCapacity"])

    def agents(self) -> dict[str, str]:
        """State by instance id of every agent that was ever launched."""
        agent_filter = [{"Name": "tag:everspot:role", "Values": ["agent"]}]
        reservations = self.client("ec2").describe_instances(Filters=agent_filter)["Reservations"]
        return {i["InstanceId"]: i["State"]["Name"] for r in reservations for i in r["Instances"]}

    def wait(self, check: Callable[[], bool]) -> None:
        """Until the market, which runs in its own time, has come as far. Bounded."""
        for _ in range(240):
            if check():
                return
            time.sleep(0.25)
        raise AssertionError("the local cloud did not come that far")


def _changes(events: list[dict[str, Any]]) -> dict[str, str]:
    steps = [event["resourcePreEvent"]["metadata"] for event in events if "resourcePreEvent" in event]
    return {step["urn"].rsplit("::", 1)[1]: step["op"] for step in steps if step["op"] != "same"}


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """Return a local cloud whose instances run nothing, and the stacks, all of them down."""
    home = copied(tmp_path_factory.mktemp("engine"))
    standing_only(home / "stacks" / "Pulumi.local.yaml")
    with running(home, "aws") as running_rig:
        yield running_rig


@pytest.fixture(scope="module")
def google(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """The same with Google's local cloud, which holds service accounts to what they are granted."""
    with running(copied(tmp_path_factory.mktemp("engine-gcp")), "gcp") as running_rig:
        yield running_rig


def copied(home: Path) -> Path:
    shutil.copytree(ROOT / "stacks", home / "stacks", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "Pulumi.yaml", home)
    (home / ".venv").symlink_to(sys.prefix)  # its `virtualenv`, which a language host would make otherwise
    return home


@contextmanager
def running(home: Path, cloud: str, *options: str, processes: bool = False) -> Iterator[Rig]:
    """Run a local cloud for a project. `processes`: whether its instances run the agent and the scheduler."""
    state = ["--state-dir", str(home / "local")]
    bare = () if processes else ("--no-processes",)
    begin = ["up", "--cloud", cloud, *bare, "--port", "0", *HURRY, *options, *state]
    local(begin, folder=home)  # a project with price tables decides what the cloud offers
    plugins = Plugins(cloud)
    try:
        env = json.loads(local(["env", "--json", *state]))
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PATH", env["PATH"])  # where the engine lies
            watched = {"PYTHONWARNINGS": "ignore", "PULUMI_DEBUG_COMMANDS": "true"}  # the latter for --event-log
            yield Rig(home, {**env, **watched}, automation.PulumiCommand(), plugins)
    finally:
        plugins.close()
        local(["down", *state])


@pytest.fixture(scope="session")
def on_local_cloud() -> Callable[..., Any]:
    """Run a local cloud for a project of one's own."""
    return running


def standing_only(settings: Path) -> None:
    """Five standing instances, whatever the demonstration has: what these tests change begins with them."""
    declared = yaml.safe_load(settings.read_text())
    capacity = declared["config"]["everspot:cluster"]["capacity"]
    capacity.pop("elastic", None)
    capacity["standing"] = {"target": 5, "onDemandBase": 1}
    settings.write_text(yaml.safe_dump(declared, sort_keys=False))


def local(arguments: list[str], folder: Path = ROOT) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "everspot_local.main", *arguments],
        cwd=folder,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def restored(rig: Rig) -> Iterator[Callable[[], None]]:
    """Puts the settings back after a test that changed them."""
    original = {path: path.read_text() for path in (rig.project / "stacks").glob("Pulumi.*.yaml")}

    def restore() -> None:
        for path, text in original.items():
            path.write_text(text)

    yield restore
    restore()
