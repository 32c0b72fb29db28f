"""The real engine, the real provider behind the bridge, a local cloud of its own, and one cluster for all tests."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
from everspot.aws import deployers
from pulumi import automation

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Rig:
    """A copy of this repository's stacks, the settings of which a test may change, upon a local cloud."""

    project: Path
    env: dict[str, str]
    outputs: dict[str, Any] = field(default_factory=dict)
    asked: dict[str, set[str]] = field(default_factory=lambda: {"preview": set(), "deploy": set()})

    @contextmanager
    def noted(self, kind: str) -> Iterator[None]:
        """Remember what AWS is asked meanwhile, in `asked`: nobody but the engine asks it then."""
        book = self.project / "local" / "calls.jsonl"
        before = book.stat().st_size
        try:
            yield
        finally:
            with book.open("rb") as calls:
                calls.seek(before)
                self.asked[kind] |= {c["action"] for line in calls for c in json.loads(line)["checked"]}

    def unlisted(self) -> set[str]:
        """What the engine asked so far that a deployer is not said to need."""
        deploy = deployers.PREVIEW | deployers.DEPLOY | deployers.ACCOUNT
        return (self.asked["preview"] - deployers.PREVIEW) | (self.asked["deploy"] - deploy)

    def stack(self, name: str = "local") -> automation.Stack:
        return automation.create_or_select_stack(
            stack_name=name, work_dir=str(self.project), opts=automation.LocalWorkspaceOptions(env_vars=self.env)
        )

    def settings(self, name: str, value: str, stack: str = "local") -> None:
        """Set one setting of the cluster by its path."""
        self.stack(stack).set_config(f"everspot:cluster.{name}", automation.ConfigValue(value), path=True)

    def up(self, stack: str = "local", **options: Any) -> automation.UpResult:
        with self.noted("deploy"):
            result = self.stack(stack).up(parallel=64, color="never", **options)
        self.outputs = {key: output.value for key, output in result.outputs.items()}
        return result

    def destroy(self, stack: str = "local") -> None:
        with self.noted("deploy"):
            self.stack(stack).destroy(parallel=64, color="never")

    def changes(self, stack: str = "local", **options: Any) -> dict[str, str]:
        """What a preview would do, by resource name; what stays the same is left out."""
        events: list[automation.EngineEvent] = []
        with self.noted("preview"):
            self.stack(stack).preview(color="never", on_event=events.append, **options)
        steps = [event.resource_pre_event.metadata for event in events if event.resource_pre_event]
        return {step.urn.rsplit("::", 1)[1]: str(step.op.value) for step in steps if step.op.value != "same"}

    def client(self, service: str) -> Any:
        return boto3.client(
            service,
            endpoint_url=self.env["AWS_ENDPOINT_URL"],
            region_name=self.env["AWS_REGION"],
            aws_access_key_id="test",
            aws_secret_access_key="test",
        )

    def fleet(self, market: str = "spot") -> dict[str, Any]:
        """The fleet of one market, `spot` or `onDemand`, as EC2 describes it."""
        (found,) = self.client("ec2").describe_fleets(FleetIds=[self.outputs[f"{market}FleetId"]])["Fleets"]
        return dict(found)

    def total(self, market: str) -> int:
        """The target of one market's fleet, in units."""
        return int(self.fleet(market)["TargetCapacitySpecification"]["TotalTargetCapacity"])

    def agents(self) -> dict[str, str]:
        """State by instance id of every agent that was ever launched."""
        mine = [{"Name": "tag:everspot:role", "Values": ["agent"]}]
        reservations = self.client("ec2").describe_instances(Filters=mine)["Reservations"]
        return {i["InstanceId"]: i["State"]["Name"] for r in reservations for i in r["Instances"]}

    def wait(self, check: Callable[[], bool]) -> None:
        """Until the market, which runs in its own time, has come as far. Bounded."""
        for _ in range(240):
            if check():
                return
            time.sleep(0.25)
        raise AssertionError("the local cloud did not come that far")


@pytest.fixture(scope="session")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """A local cloud whose instances run nothing, with the account stack and the local cluster upon it."""
    home = tmp_path_factory.mktemp("engine")
    shutil.copytree(ROOT / "stacks", home / "stacks", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "Pulumi.yaml", home)
    standing_only(home / "stacks" / "Pulumi.local.yaml")
    state = ["--state-dir", str(home / "local")]
    local(["up", "--no-processes", "--port", "0", *state])
    try:
        env = json.loads(local(["env", "--json", *state]))
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PATH", env["PATH"])  # where the Automation API looks for the engine
            made = Rig(home, {**env, "PYTHONWARNINGS": "ignore"})
            made.up("account")
            made.up()
            yield made
    finally:
        local(["down", *state])


def standing_only(settings: Path) -> None:
    """Five standing instances, whatever the demonstration has: what these tests change begins with them."""
    declared = yaml.safe_load(settings.read_text())
    capacity = declared["config"]["everspot:cluster"]["capacity"]
    capacity.pop("elastic", None)
    capacity["standing"] = {"target": 5, "onDemandBase": 1}
    settings.write_text(yaml.safe_dump(declared, sort_keys=False))


def local(arguments: list[str]) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "everspot_local.main", *arguments],
        cwd=ROOT,
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
    kept = {path: path.read_text() for path in (rig.project / "stacks").glob("Pulumi.*.yaml")}

    def restore() -> None:
        for path, text in kept.items():
            path.write_text(text)

    yield restore
    restore()
