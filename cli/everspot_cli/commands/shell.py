"""`everspot exec` and `everspot forward`: into the instance of a running job, by the cloud's own remote access."""

import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Sequence
from typing import Annotated, TypeVar

import typer
from everspot_clouds.base import CloudError, Handover, RemoteAccess
from everspot_core.jobs.records import JobRecord, JobState

from everspot_cli.commands.options import JobId, current_session
from everspot_cli.errors import CliError, Exit
from everspot_cli.job_lookup import find_job, read_record
from everspot_cli.session import Session

_T = TypeVar("_T")
WORK, USER, PROGRAMS = "/var/lib/everspot/work", "everspot", "/opt/everspot/bin"
"""The folder of the jobs' working directories on the image, their user, and the folder of its programs."""


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
    """Run a command beside a running job: on its instance, in its folder, as its user.

    The cluster needs the setting `sessionManager` or `iapSsh`, by its cloud. The exit code is that of the
    cloud's tool.
    """
    session = current_session(context, False)
    remote_access, record = _remote_access(session), _running_record(session, job_id)
    line = inside(record.job_id, command or ["bash"])
    raise typer.Exit(_start(session, _call_cloud(lambda: remote_access.enter(str(record.owner), line))))


def forward(
    context: typer.Context,
    job_id: JobId,
    port: Annotated[int, typer.Argument(metavar="PORT", min=1, max=65535, help="On the job's instance.")],
    local: Annotated[
        int | None,
        typer.Option("--local", metavar="PORT", min=1, max=65535, help="On this machine. Default: the same."),
    ] = None,
) -> None:
    """Forward a port of a running job's instance, such as TensorBoard's, to this machine.

    The cluster needs the setting `sessionManager` or `iapSsh`, by its cloud.
    """
    session = current_session(context, False)
    remote_access, record = _remote_access(session), _running_record(session, job_id)
    raise typer.Exit(
        _start(session, _call_cloud(lambda: remote_access.forward(str(record.owner), port, local or port)))
    )


def inside(job_id: str, command: Sequence[str]) -> str:
    """Return the command line for the cloud's shell: it runs as the job's user, in the job's working directory."""
    folder = f"{WORK}/{job_id}"  # or another one, while something of an earlier attempt still uses it
    change_folder = f'cd "$(ls -d {folder}/ {folder}~*/ 2>/dev/null | tail -n 1)"'
    whole = f"{change_folder} && export PATH={PROGRAMS}:$PATH && exec {shlex.join(command)}"
    return f"sudo -n -u {USER} -- /bin/bash -c {shlex.quote(whole)}"


def _remote_access(session: Session) -> RemoteAccess:
    return _call_cloud(lambda: session.cloud.remote_access(session.manifest))


def _call_cloud(call: Callable[[], _T]) -> _T:
    """Call the cloud. Its errors become errors for the user."""
    try:
        return call()
    except CloudError as error:
        raise CliError(str(error), hint=error.fix) from None


def _running_record(session: Session, id_prefix: str) -> JobRecord:
    submission = find_job(session, id_prefix)
    record = read_record(session, submission.job_id)
    if record is None or record.state is not JobState.RUNNING or record.owner is None:
        state = record.state.value if record is not None else JobState.PENDING.value
        raise CliError(f"{submission.job_id} does not run now: it is {state}")
    return record


def _start(session: Session, handover: Handover) -> int:
    """Run the cloud's own program. Returns its exit code."""
    for program, words in handover.needs:
        if shutil.which(program) is None:
            raise CliError(f"{words} is not installed", Exit.UNAVAILABLE, hint=handover.install)
    program = str(shutil.which(handover.command[0]))
    code = subprocess.run([program, *handover.command[1:]], check=False, env=dict(os.environ)).returncode  # noqa: S603
    if code and code in (handover.failure_codes or (code,)):
        session.errors.print(f"hint: {handover.denied}", style="dim", soft_wrap=True)
    return code if code >= 0 else 128 - code
