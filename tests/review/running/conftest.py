"""A project, an engine and a forge; the latter two are doubles, which tests fill."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for the helpers in this folder

from desk import HERE, PROJECT, Desk
from forge_double import Double


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    engine, programs = tmp_path / "engine", tmp_path / "bin"
    for folder in (engine, programs):
        folder.mkdir()
    program = programs / "pulumi"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {HERE / "engine_double.py"} "$@"\n')
    program.chmod(0o755)
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("GITHUB_", "PULUMI_", "AWS_"))}
    path = f"{programs}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**plain, "PATH": path, "ENGINE_DOUBLE": str(engine), "PULUMI_HOME": str(tmp_path / "none")}
    project = Desk(tmp_path / "tree", engine, env)
    project.write("Pulumi.yaml", PROJECT)
    for name in ("dev", "prod"):
        project.write(f"stacks/Pulumi.{name}.yaml", "config:\n  everspot:cluster: {cloud: aws}\n")
    project.write("stacks/Pulumi.zaccount.yaml", "config:\n  everspot:account: {cloud: aws}\n")
    project.write("stacks/__main__.py", "")
    project.git("init", "-q", "-b", "main")
    project.commit("base")
    (engine / "stacks.json").write_text(
        json.dumps([{"name": "dev", "resourceCount": 3}, {"name": "prod", "resourceCount": 0}])
    )
    return project


@pytest.fixture
def hub(desk: Desk) -> Iterator[Double]:
    """A forge with one pull request, 7, whose end is what the project's HEAD is when the variables are made."""
    with Double.serve(desk.env) as server:
        yield server
