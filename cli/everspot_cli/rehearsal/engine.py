"""The process that rehearses: it imports torch and runs an agent, which the command itself does not."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from everspot_core.jobs.job import JobSpec, JobSubmission

from everspot_cli.errors import CliError, Exit, need

_END_SECONDS = 30.0


def check_machine() -> None:
    """Check that this machine can rehearse.

    Raises:
        CliError: with the sentence that says what to install.
    """
    try:
        need("everspot rehearse", "image")
    except CliError as error:
        raise CliError(str(error), Exit.UNAVAILABLE) from None
    if not sys.platform.startswith("linux"):
        hint = "run it in a Linux container or virtual machine"
        raise CliError("everspot rehearse needs Linux, as the cluster's agents do", Exit.UNAVAILABLE, hint=hint)


def run_rehearsal(
    spec: JobSpec, folder: Path | None, steps: int | None, seconds: float, show: Callable[[str, int, int], None]
) -> dict[str, Any]:
    """Rehearse, and return the answer. `show`: gets what is done, the number of the run, and the number of runs.

    Raises:
        CliError: if the process ends without an answer.
    """
    submission = JobSubmission(job_id="rehearsal", spec=spec, submitted_at=datetime.now(UTC))
    request = {"job": submission.to_json().decode(), "code": str(folder) if folder else None}
    command = [sys.executable, "-m", "everspot_train.rehearse"]
    with subprocess.Popen(  # noqa: S603  our own program
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ), text=True
    ) as process:
        try:
            return _follow(process, json.dumps({**request, "steps": steps, "seconds": seconds}), show)
        except BaseException:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
            raise


def _follow(process: "subprocess.Popen[str]", request: str, show: Callable[[str, int, int], None]) -> dict[str, Any]:
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None  # noqa: S101
    for send in (lambda: process.stdin.write(request), process.stdin.close):
        with suppress(BrokenPipeError):  # the process ended before it read its request, which is reported below
            send()
    for line in process.stdout:
        message = json.loads(line)
        if "answer" in message:
            answer: dict[str, Any] = message["answer"]
            return answer
        show(message["doing"], message["run"], message["of"])
    errors = process.stderr.read().strip().splitlines()
    raise CliError(f"the rehearsal ended without an answer: {errors[-1] if errors else 'it said nothing'}")
