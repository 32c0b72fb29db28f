"""Provides the outputs of the jobs in `after`, each in a folder with that job's name."""

import errno
import os
import shutil
import sys
from pathlib import Path

from everspot_core.counting import counted, size
from everspot_core.jobs.job import JobSubmission
from everspot_store import Store, UnsafeArchive

from everspot_train.prepare.errors import NotReady

INPUTS_VARIABLE = "EVERSPOT_INPUTS"
_SPARE = 1 << 30  # bytes that stay free
_NOTHING_TO_CONTINUE = (
    "everspot: warning: continue_from gives outputs, not checkpoints, and that run left nothing in outputs/: this run "
    "begins from scratch\n"
)


def lay_inputs(store: Store, submission: JobSubmission, folder: Path) -> dict[str, str]:
    """Fetch the outputs of the jobs in `after` into `folder`.

    Returns the environment variable with the folder; empty for a job without `after`. A job without outputs gets an
    empty folder.

    Raises:
        NotReady: if this machine has no room for them, or a path cannot be written.
        StoreError: if the store fails.
    """
    if not submission.after:
        return {}
    shutil.rmtree(folder, ignore_errors=True)  # start again after a restart of the agent
    for earlier in submission.after:
        target, outputs = folder / earlier.name, store.outputs(earlier.job_id)
        target.mkdir(parents=True)
        files = outputs.list()
        if earlier.reused and not files:
            raise NotReady(f"outputs of {earlier.name} are gone: {earlier.job_id} had computed them; submit it again")
        total = sum(output.size for output in files)
        description = f"{size(total)} in {counted(len(files), 'file')}"
        sys.stdout.write(f"everspot: outputs of {earlier.name} ({earlier.job_id}), {description}\n")
        if not files and submission.spec.continue_from is not None and earlier.name == submission.spec.name:
            sys.stdout.write(_NOTHING_TO_CONTINUE)
        sys.stdout.flush()
        if total + _SPARE > shutil.disk_usage(folder).free:
            # The agent recognizes the system's message, and blames the machine and not the job.
            raise NotReady(f"outputs of {earlier.name}: {description}: {os.strerror(errno.ENOSPC)}")
        for output in files:
            try:
                outputs.fetch(output, target)
            except (UnsafeArchive, OSError) as error:
                raise NotReady(f"outputs of {earlier.name}: {output.path} cannot be fetched: {error}") from error
    return {INPUTS_VARIABLE: str(folder)}
