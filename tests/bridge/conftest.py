import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import boto3
import pytest
from everspot_local.bridge.resources import Resources
from everspot_local.bridge.sdk import Sdk
from everspot_local.bridge.upstream import Upstream

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / ".everspot" / "toolchain"
START_SECONDS = 60
COMMAND_SECONDS = 240


@pytest.fixture(scope="session")
def resources():
    """The bridge's inside, before the real upstream provider (not configured: names and validation need no cloud)."""
    upstream = Upstream(TOOLS / "bin" / "terraform-provider-aws", TOOLS / "stubs")
    yield Resources(upstream, Sdk())
    upstream.stop()


@pytest.fixture(scope="session")
def endpoint():
    """Plain moto in a process of its own."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    for _ in range(START_SECONDS * 5):
        try:
            urllib.request.urlopen(f"{url}/moto-api/", timeout=2).close()
            break
        except OSError:
            time.sleep(0.2)
    yield url
    server.terminate()
    server.wait(10)


@dataclass
class Stack:
    """One stack of a program given as text, driven by the real engine's command."""

    folder: Path
    endpoint: str

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
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "EVERSPOT_BRIDGE_LOG": str(self.folder / "bridge.log"),
        }

    def write(self, program):
        (self.folder / "__main__.py").write_text(f"import json, pulumi, pulumi_aws as aws\n{program}")

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

    def preview(self, program):
        """Return {name: (operation, detailed diff)} of what would change."""
        self.write(program)
        steps = json.loads(self.run("preview", "--json"))["steps"]
        found = {}
        for step in steps:
            name, op = step["urn"].split("::")[-1], step["op"]
            if op not in ("same", "read"):  # a replacement is several steps, of which one has the diff
                found[name] = (op, step.get("detailedDiff") or found.get(name, ("", {}))[1])
        return found

    def outputs(self):
        return json.loads(self.run("stack", "output", "--json", "--show-secrets"))

    def state(self):
        found = json.loads(self.run("stack", "export"))["deployment"].get("resources", [])
        return {r["urn"].split("::")[-1]: r for r in found}

    def client(self, service):
        return boto3.client(
            service,
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id="test",
            aws_secret_access_key="test",
        )


@pytest.fixture
def stack(tmp_path, endpoint):
    (tmp_path / "Pulumi.yaml").write_text("name: bridge\nruntime: python\n")
    made = Stack(tmp_path, endpoint)
    made.run("stack", "init", "test")
    made.run("config", "set", "aws:s3UsePathStyle", "true")
    made.run("config", "set", "--path", "aws:defaultTags.tags.Project", "everspot")
    return made
