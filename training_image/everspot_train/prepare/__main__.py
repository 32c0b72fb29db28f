"""Prepares a job's data, packages and secrets, then becomes its program: `python -m everspot_train.prepare COMMAND…`.

It runs as the job's first process. So a stop, a lost lease or the end of the agent ends a long download like any
program, and its output is in the job's log. It writes a failure into the file in which the agent expects a program's
exception.

If the job has secrets, it stays the first process and removes them from the log and from the exception.
"""

import contextlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from everspot_core.clock import Clock
from everspot_core.jobs.image_reference import parse_registry_image
from everspot_store import Store, SystemClock

from everspot_train.masking import NAMES_VARIABLE, masked, secret_forms
from everspot_train.prepare.data import lay_datasets
from everspot_train.prepare.enter import Container
from everspot_train.prepare.errors import NotReady
from everspot_train.prepare.image import lay_image
from everspot_train.prepare.inputs import lay_inputs
from everspot_train.prepare.oci_layout import fetched_layout
from everspot_train.prepare.packages import lay_packages
from everspot_train.prepare.scrub import run_scrubbed
from everspot_train.prepare.secrets import SECRETS_VARIABLE, read_secrets
from everspot_train.rundir import Ready, RunContext, RunDir
from everspot_train.shard_cache.traffic import DATA_FOLDER
from everspot_train.worker import ERROR_FILE_VARIABLE, record

BASH = ("/bin/bash", "-euo", "pipefail", "-c")


def main(command: list[str]) -> int:
    """Prepare, then run the command. Returns only if the program's output is scrubbed or the preparation failed."""
    rundir = RunDir.from_environment()
    context = rundir.read(RunContext) if rundir else None
    if rundir is None or context is None or context.cache_dir is None:
        sys.exit("everspot: no run directory: this is started by the agent")
    environment, cache = dict(os.environ), Path(context.cache_dir)
    submission = context.submission
    secrets: dict[str, str] = {}
    try:
        store = Store.open(context.control_url, context.data_url, clock=SystemClock.from_environment())
        home = Path(context.scratch_dir).parent
        data_folder = home / DATA_FOLDER
        environment |= lay_datasets(store, submission, cache, data_folder)
        environment |= lay_inputs(store, submission, home / "inputs")
        environment |= lay_packages(store, submission, cache, environment)
        secrets_url = environment.pop(SECRETS_VARIABLE, None)
        secrets = read_secrets(submission.spec.secrets, context.cloud, context.region, secrets_url)
        run_setup(submission.spec.setup, {**environment, **secrets}, list(secrets.values()))
        if submission.spec.image is not None:
            command = contain(context, command, rundir.path, data_folder, store.clock)
        rundir.write(Ready(at=store.clock.now(), since=store.clock.monotonic().total_seconds()))
    except Exception as error:
        message = str(error) if isinstance(error, NotReady) else f"{type(error).__name__}: {error}"
        message = str(masked(message, list(secrets.values())))
        sys.stdout.write(f"everspot: {message}\n")
        record(message, "")
        return 1
    sys.stdout.flush()
    values = list(secrets.values())
    environment |= {**secrets, NAMES_VARIABLE: ",".join(secrets)}
    if not secret_forms(values):
        os.execvpe(command[0], command, environment)  # noqa: S606  the job's own program
    try:
        return run_scrubbed(command, environment, values)
    finally:
        _mask_error(os.environ.get(ERROR_FILE_VARIABLE), values)


def contain(context: RunContext, command: list[str], run_dir: Path, data_folder: Path, clock: Clock) -> list[str]:
    """Unpack the job's image, which the agent has fetched from a registry or which is one of the datasets in
    `data_folder`, and return the command that runs the program in it."""
    spec, cache = context.submission.spec, Path(str(context.cache_dir))
    origin = parse_registry_image(spec.image)
    digest = origin.digest if origin is not None else None
    layout = fetched_layout(cache, origin) if origin else data_folder / str(spec.image).partition("@")[0]
    image = lay_image(layout, cache / "images", clock, digest)
    directory, temporary = Path.cwd(), os.environ["TMPDIR"]
    folders = [str(run_dir), str(directory), temporary, str(cache)]
    folders += [context.memory_dir] if context.memory_dir is not None else []
    container = Container(
        root=str(image.root),
        folders=folders,
        temporary=temporary,
        files=[f"/{name}" for name in image.machine_files],
        directory=str(directory),
        environment=image.environment,
        own_variables=list(spec.env),
        command=command,
        devices=context.devices,
    )
    return container.enter_command()


def _mask_error(name: str | None, secrets: list[str]) -> None:
    """Remove the secrets from the exception file, which torch or the program itself may have written. If that fails,
    delete the file."""
    if name is None or not (path := Path(name)).is_file():
        return
    try:
        try:
            text = json.dumps(masked(json.loads(path.read_bytes()), secrets))
        except ValueError:
            text = str(masked(path.read_bytes().decode(errors="replace"), secrets))
        clean = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        clean.write_text(text)
        clean.replace(path)
    except (OSError, RecursionError):
        with contextlib.suppress(OSError):
            path.unlink()


def run_setup(commands: Sequence[str], environment: Mapping[str, str], secrets: Sequence[str]) -> None:
    """Run each command in the current folder. Its output goes to the job's log, without the secrets.

    Raises:
        NotReady: if a command fails.
    """
    for command in commands:
        sys.stdout.write(f"everspot: setup: {command}\n")
        sys.stdout.flush()
        code = run_scrubbed([*BASH, command], dict(environment), secrets)
        if code:
            raise NotReady(f"setup: `{command}` exited with {code}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
