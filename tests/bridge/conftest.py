import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import boto3
import grpc
import pytest
from everspot_local.bridge import providers, wire
from everspot_local.bridge.resources import ProviderResources
from everspot_local.bridge.sdk import Sdk
from everspot_local.bridge.upstream import Upstream
from pulumi.runtime.proto import provider_pb2 as pb
from pulumi.runtime.proto import provider_pb2_grpc

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / ".everspot" / "toolchain"
PLUGIN = TOOLS / "plugins" / "pulumi-resource-aws"
NOTES = {"aws": "provider", "gcp": "provider-gcp"}  # as set-up leaves them: which plugin was taken
REGION = "us-east-1"
VARIABLES = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
KEYS = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
STOP_SECONDS = 20
CLOUD = """
import pathlib, sys
from everspot_local.cloud import LocalCloud
from everspot_local.options import Options
with LocalCloud(Options(pathlib.Path(sys.argv[1]), boot_command=None)) as cloud:
    print(cloud.endpoint, flush=True)
    sys.stdin.read()
"""
COMMAND_SECONDS = 240


@pytest.fixture(scope="session", autouse=True)
def bridge_is_in_place():
    """Where the official plugin can be had there is no bridge."""
    if (TOOLS / "provider").read_text() == "official":
        pytest.skip("set-up took the official plugin: there is no bridge here")


@pytest.fixture(scope="session")
def before():
    """The bridge's inside, by the provider's name, before the real upstream provider (not configured: names and
    validation need no cloud)."""
    resources_by_name = {}

    def opened(name):
        if name not in resources_by_name:
            if (TOOLS / NOTES[name]).read_text() == "official":
                pytest.skip(f"set-up took the official plugin for {name}: there is no bridge before it")
            table = providers.table(name)
            resources_by_name[name] = ProviderResources(
                Upstream(TOOLS / "bin" / table.binary, TOOLS / "stubs"), Sdk(table.sdk), table
            )
        return resources_by_name[name]

    yield opened
    for resources in resources_by_name.values():
        resources.upstream.stop()


@pytest.fixture(scope="session")
def resources(before):
    return before("aws")


@pytest.fixture(scope="session")
def endpoint(tmp_path_factory):
    """The local cloud, whose instances run nothing, in a process of its own. The account can have fleets."""
    server = subprocess.Popen(
        [sys.executable, "-c", CLOUD, str(tmp_path_factory.mktemp("cloud"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    url = server.stdout.readline().strip()
    for name in ("ec2fleet", "spot"):
        client(url, "iam").create_service_linked_role(AWSServiceName=f"{name}.amazonaws.com")
    yield url
    server.communicate(timeout=STOP_SECONDS)


def client(endpoint, service):
    """Return a client that reads the cloud's state without Pulumi."""
    return boto3.client(service, endpoint_url=endpoint, region_name=REGION, **KEYS)


class Door:
    """The plugin as the engine starts it, asked as the engine asks, without the engine's seconds."""

    def __init__(self, endpoint, log, clock=""):
        env = {
            **os.environ,
            "EVERSPOT_CLOCK": clock,
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_REGION": REGION,
            **VARIABLES,
            "EVERSPOT_BRIDGE_LOG": str(log),
        }
        self.endpoint = endpoint
        self.process = subprocess.Popen([PLUGIN], env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.channel = grpc.insecure_channel(f"127.0.0.1:{self.process.stdout.readline().strip()}")
        self.stub = provider_pb2_grpc.ResourceProviderStub(self.channel)
        args = {"region": REGION, "s3UsePathStyle": "true", "skipCredentialsValidation": "true"}
        self.stub.Configure(pb.ConfigureRequest(args=wire.dump(args)))

    def close(self):
        self.channel.close()
        self.process.terminate()
        self.process.wait(STOP_SECONDS)
        self.process.stdout.close()

    def client(self, service):
        return client(self.endpoint, service)

    @staticmethod
    def urn(token, name):
        return f"urn:pulumi:test::bridge::{token}::{name}"

    def check(self, token, inputs, olds=None, name="it"):
        """Return the checked inputs and {property: why it is refused}."""
        request = pb.CheckRequest(
            urn=self.urn(token, name), news=wire.dump(inputs), olds=wire.dump(olds or {}), randomSeed=os.urandom(8)
        )
        answer = self.stub.Check(request)
        return wire.load(answer.inputs), {f.property: f.reason for f in answer.failures}

    def create(self, token, inputs, name="it", timeout=0):
        """Check and create; return the id, the inputs and the outputs."""
        news, failures = self.check(token, inputs, name=name)
        assert not failures
        request = pb.CreateRequest(urn=self.urn(token, name), properties=wire.dump(news), timeout=timeout)
        answer = self.stub.Create(request)
        return answer.id, news, wire.load(answer.properties)

    def invoke(self, token, args):
        """Call a function; return its answer."""
        return wire.load(getattr(self.stub.Invoke(pb.InvokeRequest(tok=token, args=wire.dump(args))), "return"))

    def diff(self, token, id_, olds, news):
        return self.stub.Diff(
            pb.DiffRequest(urn=self.urn(token, "it"), id=id_, olds=wire.dump(olds), news=wire.dump(news))
        )

    def update(self, token, id_, olds, news):
        request = pb.UpdateRequest(urn=self.urn(token, "it"), id=id_, olds=wire.dump(olds), news=wire.dump(news))
        return wire.load(self.stub.Update(request).properties)

    def read(self, token, id_, outputs=None, inputs=None):
        """Return the id (empty: it is gone), the inputs and the outputs."""
        request = pb.ReadRequest(
            urn=self.urn(token, "it"), id=id_, properties=wire.dump(outputs or {}), inputs=wire.dump(inputs or {})
        )
        answer = self.stub.Read(request)
        return answer.id, wire.load(answer.inputs), wire.load(answer.properties)

    def delete(self, token, id_, outputs, timeout=0):
        self.stub.Delete(
            pb.DeleteRequest(urn=self.urn(token, "it"), id=id_, properties=wire.dump(outputs), timeout=timeout)
        )


@pytest.fixture(scope="session")
def door(endpoint, tmp_path_factory):
    door = Door(endpoint, tmp_path_factory.mktemp("door") / "bridge.log")
    yield door
    door.close()


@pytest.fixture
def fast_door(endpoint, tmp_path):
    """A door whose market time runs 120 times as fast as real time."""
    door = Door(endpoint, tmp_path / "bridge.log", clock="120@1767225600")
    yield door
    door.close()


@dataclass
class Stack:
    """One stack of a program given as text, driven by the real engine's command."""

    folder: Path
    endpoint: str
    own: dict[str, str]

    @property
    def environment(self):
        path = os.pathsep.join(map(str, (ROOT / ".venv" / "bin", TOOLS / "bin", TOOLS / "plugins", os.environ["PATH"])))
        return {
            **os.environ,
            "PATH": path,
            "PULUMI_BACKEND_URL": f"file://{self.folder}",
            "PULUMI_HOME": str(self.folder / "home"),
            "PULUMI_CONFIG_PASSPHRASE": "x",
            "PULUMI_SKIP_UPDATE_CHECK": "1",
            "EVERSPOT_BRIDGE_LOG": str(self.folder / "bridge.log"),
            **self.own,
        }

    def write(self, program):
        first = "import gc\ngc.disable()\nimport json, pulumi, pulumi_aws as aws"
        (self.folder / "__main__.py").write_text(f"{first}\n{program}")

    def start(self, *words):
        """The command, running; both its streams as one text."""
        return subprocess.Popen(
            ["pulumi", *words, "--non-interactive", "--color", "never"],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *words, fails=False):
        done = subprocess.run(
            ["pulumi", *words, "--non-interactive"],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        text = done.stdout + done.stderr
        assert (done.returncode != 0) == fails, text
        return text

    def up(self, program, *words, fails=False):
        self.write(program)
        return self.run("up", "--yes", "--skip-preview", *words, fails=fails)

    def preview(self, program, *words):
        """Return {name: (operation, detailed diff)} of what would change."""
        self.write(program)
        steps = json.loads(self.run("preview", "--json", *words))["steps"]
        operations = {}
        for step in steps:
            name, op = step["urn"].split("::")[-1], step["op"]
            if op not in ("same", "read", "refresh"):  # a replacement is several steps, and one of them has the diff
                operations[name] = (op, step.get("detailedDiff") or operations.get(name, ("", {}))[1])
        return operations

    def outputs(self):
        return json.loads(self.run("stack", "output", "--json", "--show-secrets"))

    def state(self):
        resources = json.loads(self.run("stack", "export"))["deployment"].get("resources", [])
        return {r["urn"].split("::")[-1]: r for r in resources}

    def resources(self):
        """Return what there is of the cloud's own."""
        return {name: r for name, r in self.state().items() if r["type"].startswith("aws:")}

    def client(self, service):
        return client(self.endpoint, service)


def opened(folder, endpoint, own):
    """A stack in a folder and with an environment of its own."""
    (folder / "Pulumi.yaml").write_text("name: bridge\nruntime: python\n")
    stack = Stack(folder, endpoint, own)
    stack.run("stack", "init", "test")
    return stack
