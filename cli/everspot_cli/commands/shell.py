"""`everspot exec` and `everspot forward`: into the instance of a running job, through Session Manager."""

import json as jsonlib
import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from typing import Annotated

import typer
from everspot_core.manifest import Cloud
from everspot_core.records import JobRecord, JobState

from everspot_cli.commands.options import JobId, session_of
from everspot_cli.errors import CliError, Exit
from everspot_cli.finding import find_job, record_of
from everspot_cli.session import Session

RUNS, USER, PROGRAMS = "/var/lib/everspot/runs", "everspot", "/opt/everspot/bin"
"""Where the image's agent keeps its runs, whose they are, and where its programs are."""
_COMMAND, _PORT = "AWS-StartInteractiveCommand", "AWS-StartPortForwardingSession"
_PLUGIN = "session-manager-plugin"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("exec", context_settings={"ignore_unknown_options": True})(run)
    app.command("forward")(forward)


def run(
    context: typer.Context,
    job_id: JobId,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[-- COMMAND]", help="What to run. Default: a shell.")
    ] = None,
) -> None:
    """Run a command beside a running job: on its instance, in its folder, as its user. Needs Session Manager.

    The exit code is the AWS CLI's.
    """
    session = session_of(context, False)
    record = _running(session, job_id)
    parameters = {"command": [inside(record.job_id, record.epoch, command or ["bash"])]}
    raise typer.Exit(_start(session, record, _COMMAND, parameters))


def forward(
    context: typer.Context,
    job_id: JobId,
    port: Annotated[int, typer.Argument(metavar="PORT", min=1, max=65535, help="On the job's instance.")],
    local: Annotated[
        int | None,
        typer.Option("--local", metavar="PORT", min=1, max=65535, help="On this machine. Default: the same."),
    ] = None,
) -> None:
    """Make a port of a running job's instance, such as TensorBoard's, one of this machine. Needs Session Manager."""
    session = session_of(context, False)
    record = _running(session, job_id)
    parameters = {"portNumber": [str(port)], "localPortNumber": [str(local or port)]}
    raise typer.Exit(_start(session, record, _PORT, parameters))


def inside(job_id: str, epoch: int, command: Sequence[str]) -> str:
    """The command line that Session Manager's user runs: as the job's user, in the folder of the job's code."""
    folder = f"{RUNS}/{job_id}-{epoch:06d}"
    there = f'cd "$(ls -d {folder}*/ | tail -n 1)" && if [ -d code ]; then cd code; fi'
    whole = f"{there} && export PATH={PROGRAMS}:$PATH && exec {shlex.join(command)}"
    return f"sudo -n -u {USER} -- /bin/bash -c {shlex.quote(whole)}"


def _running(session: Session, given: str) -> JobRecord:
    if session.manifest.cloud is not Cloud.AWS:
        raise CliError(f"Session Manager is AWS's; this cluster is on {session.manifest.cloud.value}")
    submission = find_job(session, given)
    record = record_of(session, submission.job_id)
    if record is None or record.state is not JobState.RUNNING or record.owner is None:
        state = record.state.value if record is not None else JobState.PENDING.value
        raise CliError(f"{submission.job_id} does not run now: it is {state}")
    return record


def _start(session: Session, record: JobRecord, document: str, parameters: dict[str, list[str]]) -> int:
    """Hand over to the AWS CLI, which knows the plugin's ways; its exit code."""
    program = shutil.which("aws")
    if program is None or shutil.which(_PLUGIN) is None:
        missing = "the AWS CLI" if program is None else f"the {_PLUGIN}"
        raise CliError(
            f"{missing} is not installed", Exit.UNAVAILABLE,
            hint="Session Manager needs both: AWS Systems Manager User Guide, Install the Session Manager plugin",
        )  # fmt: skip
    arguments = ["ssm", "start-session", "--target", str(record.owner), "--document-name", document]
    region = ["--region", session.manifest.region] if session.manifest.region else []
    command = [program, *arguments, "--parameters", jsonlib.dumps(parameters), *region]
    code = subprocess.run(command, check=False, env=dict(os.environ)).returncode  # noqa: S603
    if code:
        fix = "is `sessionManager: true` set for the cluster, and may you call ssm:StartSession?"
        session.errors.print(f"hint: {fix}", style="dim", markup=False, soft_wrap=True)
    return code if code >= 0 else 128 - code
