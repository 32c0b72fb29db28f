"""The job that is rehearsed: a job's file or a script, as it runs on this machine instead of in a cluster."""

import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from everspot_core.jobs.job import Budget, CheckpointPolicy, JobSpec, Retries
from everspot_core.validation.problems import Problem
from everspot_store import UnsafeArchive, code

from everspot_cli.commands.submit.ignore_file import NAME as IGNORE_FILE
from everspot_cli.commands.submit.ignore_file import ignored_in
from everspot_cli.errors import CliError, Exit, list_problems
from everspot_cli.specs import Overrides, read_spec

DATA_VARIABLE = "EVERSPOT_DATA"
MOST_PROCESSES = 16


@dataclass(frozen=True)
class RehearsedJob:
    """A job as it is rehearsed on this machine.

    Attributes:
        spec: the job without the settings that only a cluster has.
        folder: its code; None for a recipe.
        notes: how this machine differs from the cluster.
    """

    spec: JobSpec
    folder: Path | None
    notes: list[str] = field(default_factory=list)


def read_job(file: Path, overrides: Overrides, arguments: Sequence[str], processes: int | None) -> RehearsedJob:
    """Read a job's file, or take a script as a job.

    Raises:
        CliError: with every fault of the job, of the options, and of what this machine lacks for it.
    """
    try:
        spec = _of_script(file, overrides) if file.suffix == ".py" else read_spec(file, overrides)
    except CliError as error:
        code = Exit.NOT_FOUND if error.code is Exit.NOT_FOUND else Exit.USAGE
        raise CliError(str(error), code, hint=error.hint, problems=error.problems) from None
    problems = _problems(spec, arguments, processes)
    if problems:
        raise CliError(f"{file} cannot be rehearsed here", Exit.USAGE, problems=list_problems(problems))
    entrypoint = [*spec.entrypoint, *arguments] if spec.entrypoint is not None else None
    changed: dict[str, Any] = {
        "entrypoint": entrypoint,
        "code": None if spec.code is None else ".",
        "resources": spec.resources.model_copy(update={"gpus": _gpus(spec, processes)}),
        "processes": spec.processes if processes is None else processes,
        "checkpoint": CheckpointPolicy(every="5s", keep=spec.checkpoint.keep),
        "retries": Retries(errors=0),
        "budget": Budget(),
        "datasets": [],
        "secrets": {},
        "requirements": None,
        **dict.fromkeys(("deadline", "start_after", "window", "every", "skip_if")),
        **{name: [] for name in ("stream", "after", "clouds", "clusters")},
    }
    folder = Path(spec.code) if spec.code is not None else None
    return RehearsedJob(spec.model_copy(update=changed), folder, _notes(spec))


def _of_script(file: Path, overrides: Overrides) -> JobSpec:
    """Return the job of a single script: all of its folder is the code."""
    if not file.is_file():
        raise CliError(f"there is no file {file}", Exit.NOT_FOUND)
    name = re.sub(r"[^a-z0-9]+", "-", file.stem.lower()).strip("-")[:40] or "script"
    text = f"name: {name}\nentrypoint: [{_quote(file.name)}]\ncode: {_quote(str(file.resolve().parent))}\n"
    with tempfile.TemporaryDirectory(prefix="everspot-rehearsal-") as scratch:
        path = Path(scratch, f"{name}.yaml")
        path.write_text(text)
        return read_spec(path, overrides)


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _problems(spec: JobSpec, arguments: Sequence[str], processes: int | None) -> list[Problem]:
    problems = []
    if processes is not None and not 1 <= processes <= MOST_PROCESSES:
        problems.append(Problem("--processes", f"has to lie between 1 and {MOST_PROCESSES}"))
    if spec.recipe is not None and arguments:
        problems.append(Problem("arguments", "a recipe takes --set parameters.NAME=VALUE"))
    data = os.environ.get(DATA_VARIABLE)
    for dataset in spec.datasets:
        name = dataset.partition("@")[0]
        if data is None or not Path(data, name).exists():
            where = f"{data} has no {name}" if data else f"{DATA_VARIABLE} is not set"
            problems.append(
                Problem("datasets", f"{where}: set {DATA_VARIABLE} to a folder on this machine with {name}/")
            )
    return problems


def _gpus(spec: JobSpec, processes: int | None) -> int:
    """Return the number of GPUs that the program may see here: one for each process, if `processes` are chosen for the
    rehearsal."""
    return spec.resources.gpus if processes is None else processes


def _notes(spec: JobSpec) -> list[str]:
    notes = []
    if spec.requirements is not None:
        notes.append("requirements are not installed: the packages of this Python are used")
    missing = [name for name in spec.secrets if name not in os.environ]
    if missing:
        notes.append(f"the secrets {', '.join(missing)} are not set here: the program runs without them")
    if spec.stream:
        notes.append(f"{', '.join(spec.stream)} is read from {DATA_VARIABLE}, not streamed through a cache")
    if spec.after:
        notes.append("the outputs of earlier jobs (after) are not there")
    return notes


@contextmanager
def staged_code(folder: Path | None) -> Iterator[tuple[Path | None, str | None]]:
    """Lay out the code as a job gets it, in a temporary folder. Yields that folder and the code's digest.

    Raises:
        CliError: if it cannot be packed.
    """
    if folder is None:
        yield None, None
        return
    with tempfile.TemporaryDirectory(prefix="everspot-rehearsal-") as scratch:
        archive, laid = Path(scratch, "code.tar.gz"), Path(scratch, "code")
        try:
            digest = code.pack(folder, archive, ignored_in(folder))
            code.unpack(archive, laid)
        except (UnsafeArchive, OSError) as error:
            hint = f"{folder}/{IGNORE_FILE} leaves files out"
            raise CliError(f"the code cannot be packed: {error}", Exit.USAGE, hint=hint) from None
        yield laid, digest
