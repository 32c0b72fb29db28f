"""The first hour by the real engine: a cluster in a project that is there, and the local stack's first job."""

import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import everspot

# tests/cli/test_cli_init.py declares a cluster that was added to a project, without an engine; the demo, which CI runs,
# submits jobs to the local stack.
pytestmark = [pytest.mark.engine, pytest.mark.nightly, pytest.mark.timeout(1200)]
PROJECT = f"name: shop\nruntime: {{name: python, options: {{virtualenv: '{sys.prefix}'}}}}\nmain: infra/\n"
PROGRAM = 'import pulumi\nimport pulumi_aws\n\npulumi_aws.s3.Bucket("catalogue")\npulumi.export("shop", "open")\n'
ROOT = Path(__file__).resolve().parents[2]
SETTINGS = """config:
  aws:region: us-east-2
  aws:s3UsePathStyle: "true"
  aws:skipCredentialsValidation: "true"
"""


def test_a_cluster_added_to_a_project_is_previewed_beside_what_the_project_has(
    tmp_path: Path, on_local_cloud: Callable[..., Any]
) -> None:
    infra = tmp_path / "infra"
    infra.mkdir()
    (tmp_path / "Pulumi.yaml").write_text(PROJECT)
    (tmp_path / "Pulumi.dev.yaml").write_text(SETTINGS)
    (infra / "__main__.py").write_text(PROGRAM)
    added = everspot(
        "init", str(tmp_path), "--add", "--cloud", "aws", "--region", "us-east-2", "--team", "vision", "--yes", "--json"
    )
    assert added.code == 0, added.err
    (line,) = [step for step in added.json["steps"] if "import training_cluster" in step]
    assert str(infra / "__main__.py") in line
    (infra / "__main__.py").write_text(PROGRAM + line.partition(": ")[2] + "\n")
    with on_local_cloud(tmp_path, "aws", "--region", "us-east-2") as rig:
        missing = rig.refused("dev")
        assert "there is no image yet: the parameter /everspot/image/dev cannot be read" in missing
        assert "packer build -var region=REGION" in missing
        image = rig.client("ec2").describe_images(Owners=["self", "amazon"])["Images"][0]["ImageId"]
        rig.client("ssm").put_parameter(Name="/everspot/image/dev", Value=image, Type="String")
        preview = rig.preview("dev")
    assert preview.changes["catalogue"] == preview.changes["everspot-dev"] == "create"
    assert set(preview.changes.values()) == {"create"}
    assert "an hour" in preview.output
    assert not list((tmp_path / "stacks").glob("*")), "the project keeps its own form"


def test_the_local_stacks_first_job_runs_on_a_spot_instance(
    tmp_path: Path, on_local_cloud: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(ROOT / "stacks", tmp_path / "stacks", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "Pulumi.yaml", tmp_path)
    (tmp_path / ".venv").symlink_to(sys.prefix)
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "main.py").write_text("print(1)\n")
    job = folder / "job.yaml"
    job.write_text("name: first\nentrypoint: [main.py]\ncode: .\nresources: {vcpus: 1, memory_gib: 2}\n")
    with on_local_cloud(tmp_path, "aws", "--time-scale=12", processes=True) as rig:
        rig.up("account")
        rig.up("local")
        for name, value in rig.env.items():
            if name.startswith(("AWS_", "EVERSPOT_")):
                monkeypatch.setenv(name, value)

        def run(*words: str) -> Any:
            answer = everspot("--store", rig.outputs["controlUrl"], "--json", *words)
            assert answer.code == 0, answer.err
            return answer.json

        submitted = run("submit", str(job))
        end, done = time.monotonic() + 600, run("job", submitted["job_id"])
        while done["state"] not in ("SUCCEEDED", "FAILED") and time.monotonic() < end:
            time.sleep(1)
            done = run("job", submitted["job_id"])
        assert done["state"] == "SUCCEEDED", done
        (assigned,) = [event for event in done["events"] if event["kind"] == "assigned"]
        answer = rig.client("ec2").describe_instances(InstanceIds=[assigned["instance_id"]])
        assert answer["Reservations"][0]["Instances"][0]["InstanceLifecycle"] == "spot"
