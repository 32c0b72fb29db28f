"""`everspot shell`: the arguments of the AWS CLI, and the messages where a shell is not possible."""

import json
import shlex
import subprocess
from pathlib import Path

import pytest
from everspot_cli.commands.shell import inside
from everspot_core.cluster.manifest import Manifest

WORK = "/var/lib/everspot/work"


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of PATH; `aws` in it notes what it was called with, and ends with what a file says."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("aws", "session-manager-plugin", "kubectl"):
        (folder / name).write_text(
            f'#!/bin/sh\nprintf "%s\\0" "$@" > {tmp_path}/called\nexit $(/bin/cat {tmp_path}/code)\n'
        )
        (folder / name).chmod(0o755)
    (tmp_path / "code").write_text("0")
    monkeypatch.setenv("PATH", str(folder))
    return tmp_path


@pytest.fixture
def running(world):
    world.store.write_manifest(
        Manifest.model_validate({**world.store.manifest().model_dump(), "cloud": "aws", "region": "eu-west-1"})
    )
    world.submit("mine", 0)
    world.assign("mine", "i-spot1", 10)
    world.start("mine", 20)
    return world


def called(tools: Path) -> list[str]:
    return (tools / "called").read_text().split("\0")[:-1]


def test_a_command_runs_on_the_job_s_instance_as_its_user(running, tools):
    assert running.run("exec", "mine", "--", "nvidia-smi", "-q", "a b").code == 0
    words = called(tools)
    assert words[:6] == [
        "ssm",
        "start-session",
        "--target",
        "i-spot1",
        "--document-name",
        "AWS-StartInteractiveCommand",
    ]
    assert words[-2:] == ["--region", "eu-west-1"]
    (line,) = json.loads(words[words.index("--parameters") + 1])["command"]
    sudo = shlex.split(line)
    assert sudo[:6] == ["sudo", "-n", "-u", "everspot", "--", "/bin/bash"]
    assert sudo[-1].endswith("exec nvidia-smi -q 'a b'")
    assert f"{WORK}/mine" in sudo[-1]


def test_what_runs_inside_finds_the_job_s_code_and_keeps_words_apart(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "here").write_text("")
    line = inside("mine", ["ls", "-1", "."]).replace("/var/lib/everspot/work", str(tmp_path))
    shell = shlex.split(line)[5:]
    assert subprocess.run(shell, capture_output=True, text=True, check=True).stdout == "here\n"
    evil = inside("mine", ["echo", "$(touch /tmp/evil); 'x"]).replace("/var/lib/everspot/work", str(tmp_path))
    out = subprocess.run(shlex.split(evil)[5:], capture_output=True, text=True, check=True).stdout
    assert out == "$(touch /tmp/evil); 'x\n"


def test_a_port_of_the_instance_becomes_one_of_this_machine(running, tools):
    assert running.run("forward", "mine", "6006", "--local", "16006").code == 0
    words = called(tools)
    assert "AWS-StartPortForwardingSession" in words
    assert json.loads(words[words.index("--parameters") + 1]) == {"portNumber": ["6006"], "localPortNumber": ["16006"]}


def test_the_exit_code_is_passed_on_with_what_may_be_wrong(running, tools):
    (tools / "code").write_text("254")
    answer = running.run("exec", "mine")
    assert answer.code == 254
    assert "sessionManager: true" in answer.err


@pytest.mark.parametrize(("code", "hinted"), [(1, True), (3, False)])
def test_a_command_that_fails_by_itself_leaves_no_doubt_of_the_access(running, tools, code, hinted):
    fields = {**running.store.manifest().model_dump(), "cloud": "kubernetes"}
    running.store.write_manifest(Manifest.model_validate(fields))
    (tools / "code").write_text(str(code))
    answer = running.run("exec", "mine", "--", "false")
    assert (answer.code, "may you create pods/exec" in answer.err) == (code, hinted)


def test_a_program_that_a_signal_ended_has_the_code_that_a_shell_gives_it(running, tools):
    (tools / "bin/aws").write_text("#!/bin/sh\nkill -TERM $$\n")
    assert running.run("exec", "mine", "true").code == 128 + 15


@pytest.mark.parametrize(("present", "missing"), [((), "the AWS CLI is"), (("aws",), "the session-manager-plugin is")])
def test_what_is_not_installed_is_named(running, tools, present, missing):
    for name in {"aws", "session-manager-plugin"} - set(present):
        (tools / "bin" / name).unlink()
    answer = running.run("exec", "mine")
    assert answer.code == 4
    assert f"{missing} not installed" in answer.err


def test_a_job_that_does_not_run_has_no_instance(running, tools):
    running.submit("waits", 30)
    answer = running.run("exec", "waits")
    assert answer.code == 1
    assert "waits does not run now: it is PENDING" in answer.err
    assert not (tools / "called").exists()


def test_json_for_the_command_inside_is_not_asked_of_everspot(running, tools):
    running.submit("waits", 30)
    assert "error: waits does not run now" in running.run("exec", "waits", "--", "nvtop", "--json").err
    assert json.loads(running.run("--json", "exec", "waits", "--", "nvtop").err)["exit_code"] == 1


def test_a_cluster_on_a_folder_has_no_session_manager(world):
    assert "this cluster is on a folder" in world.run("forward", "x", "6006").err
