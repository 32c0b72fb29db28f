"""Runs a rehearsal: `python -m everspot_train.rehearse < REQUEST`.

The request is one JSON object: `job` (a submission, as text), `code` (its folder, or null), `steps` (or null),
`seconds` (the longest time of one run), and `places` (names, to rehearse only these). Each line on standard output is
one JSON object: `{"doing", "run", "of"}` during the rehearsal, and finally `{"answer"}`.
"""

import contextlib
import json
import logging
import os
import shutil
import signal
import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from everspot_core.jobs.job import JobSubmission

from everspot_train.agent.fitness import CLEANUP_FOLDERS_VARIABLE, MIN_FREE_VARIABLE
from everspot_train.agent.hardware import measure
from everspot_train.rehearse.rehearsal import Job, rehearse, short_root
from everspot_train.rundir import OUTPUT_DIR_VARIABLE, RUN_DIR_VARIABLE

_NOT_INHERITED = (RUN_DIR_VARIABLE, OUTPUT_DIR_VARIABLE, CLEANUP_FOLDERS_VARIABLE, "EVERSPOT_CLOCK", "PYTHONHASHSEED")


def main() -> None:
    """Read the request, rehearse, and print the answer."""
    request = json.load(sys.stdin)
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(130))
    seconds = float(request["seconds"])
    code = Path(request["code"]) if request["code"] else None
    job = Job(
        JobSubmission.read(request["job"]).spec,
        code,
        request["steps"],
        timedelta(seconds=seconds),
        request.get("places"),
    )
    environ = inherited_environment(os.environ)
    root = short_root()
    logging.basicConfig(level=logging.INFO, filename=root / "agent.log", format="%(levelname)s %(name)s: %(message)s")
    try:
        answer = rehearse(job, root, measure(), environ, _print_progress)
        _print({"answer": answer.to_dict()})
    finally:
        if "EVERSPOT_REHEARSAL_KEEP" not in os.environ:
            shutil.rmtree(root, ignore_errors=True)


def inherited_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment that programs inherit: this process's, without the variables of another run."""
    return {name: value for name, value in environ.items() if name not in _NOT_INHERITED} | {MIN_FREE_VARIABLE: "1"}


def _print_progress(doing: str, run: int, total: int) -> None:
    _print({"doing": doing, "run": run, "of": total})


def _print(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.flush()


if __name__ == "__main__":
    main()
