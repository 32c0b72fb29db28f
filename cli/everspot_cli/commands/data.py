"""`everspot data` and `everspot pull`: what goes into jobs, and what comes out of them."""

from pathlib import Path
from typing import Annotated, Any

import typer
from everspot_core.counting import counted, first_few, size
from everspot_store import DatasetFile, UnsafeArchive
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from everspot_cli.commands.options import Json, current_session
from everspot_cli.errors import CliError, Exit
from everspot_cli.job_lookup import find_job, read_record
from everspot_cli.session import Session
from everspot_cli.tables import sheet

_NAMED = 5  # outputs that a message names


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("data")(data)
    app.command("pull")(pull)


def data(
    context: typer.Context,
    action: Annotated[str, typer.Argument(metavar="[list|put]", help="list: the datasets; put: upload one.")] = "list",
    folder: Annotated[Path | None, typer.Argument(metavar="DIR", help="With put: the folder with its files.")] = None,
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="With put: the dataset's name.")] = None,
    json: Json = False,
) -> None:
    """List the cluster's datasets, or upload a folder as a dataset. Files that are already stored are not sent
    again."""
    session = current_session(context, json)
    if action == "put" and folder is not None and name is not None:
        _put(session, folder, name)
    elif action == "list" and folder is None:
        _list(session)
    else:
        raise CliError("write `everspot data` or `everspot data put DIR NAME`", Exit.USAGE)


def pull(
    context: typer.Context,
    job: Annotated[str, typer.Argument(metavar="JOB", help="A job, or the beginning of its id.")],
    path: Annotated[str, typer.Argument(metavar="[PATH]", help="A file or folder of the outputs. Default: all.")] = "",
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="Where to put it. Default: here.")] = Path(),
    json: Json = False,
) -> None:
    """Download the files of a job's folder `outputs/`: the newest version of each, from all its attempts."""
    session = current_session(context, json)
    job_id = find_job(session, job).job_id
    outputs = session.store.outputs(job_id)
    selected = outputs.list(path.strip("/"))
    if not selected:
        raise _no_outputs_error(session, job_id, path)
    target = to / job_id
    with _progress(session) as progress:
        task = progress.add_task(counted(len(selected), "file"), total=sum(output.size for output in selected))
        failed = []  # such as a path that was a folder in one attempt and a file in a later one
        for output in selected:
            try:
                outputs.fetch(output, target)
            except (OSError, UnsafeArchive) as error:
                failed.append({"field": output.path, "problem": str(error)})
            progress.advance(task, output.size)
    names = {problem["field"] for problem in failed}
    selected = [output for output in selected if output.path not in names]
    if session.json:
        files = [{"path": o.path, "bytes": o.size, "attempt": o.epoch} for o in selected]
        session.answer({"job_id": job_id, "folder": str(target), "files": files})
    else:
        summary = f"{counted(len(selected), 'file')}, {size(sum(output.size for output in selected))}"
        session.console.print(f"{summary}, in {target}", soft_wrap=True)
    if failed:
        raise CliError(f"{counted(len(failed), 'output')} cannot be written below {target}", problems=failed)


def _no_outputs_error(session: Session, job: str, path: str) -> CliError:
    """Return the error that says why there is nothing to pull: not yet, not at all, or not of this name."""
    if path:
        others = [output.path for output in session.store.outputs(job).list()]
        names = first_few(others, _NAMED, remainder_phrase=", and {} more")
        hint = f"its outputs are {names}" if others else "it has no outputs"
        return CliError(f"{job} has no {path} among the outputs", Exit.NOT_FOUND, hint=hint)
    record = read_record(session, job)
    if record is not None and record.state.final:
        hint = "what a program writes into its folder outputs/ is kept; `everspot logs` has what it printed"
        return CliError(f"{job} has ended and left nothing in its folder outputs/", Exit.NOT_FOUND, hint=hint)
    hint = f"its folder outputs/ is kept when an attempt has ended: everspot job {job} --wait"
    return CliError(f"{job} has not ended, and has no outputs yet", Exit.NOT_FOUND, hint=hint)


def _put(session: Session, folder: Path, name: str) -> None:
    sent: list[int] = []

    def count_file(file: DatasetFile, new: bool) -> None:
        if new:
            sent.append(file.size)
        progress.advance(task, 1)

    with _progress(session) as progress:
        task = progress.add_task(f"uploading {folder}", total=None)
        try:
            dataset = session.store.datasets.put(name, folder, on_file=count_file)
        except (ValueError, NotADirectoryError, UnsafeArchive) as error:
            raise CliError(str(error)) from None
    if session.json:
        answer = {"dataset": dataset.id, "files": len(dataset.files), "bytes": dataset.size, "sent_bytes": sum(sent)}
        session.answer(answer)
    else:
        new = size(sum(sent)) if sent else "nothing"
        words = (
            f"{dataset.id}: {counted(len(dataset.files), 'file')}, {size(dataset.size)}, of which {new} was sent now"
        )
        session.console.print(words, soft_wrap=True)
        hint = f"In a job file: `datasets: [{name}]`; the program finds it in EVERSPOT_DATA/{name}"
        session.console.print(hint, soft_wrap=True)


def _list(session: Session) -> None:
    datasets = session.store.datasets.versions()
    if session.json:
        session.answer([_row(dataset) for dataset in datasets])
        return
    if not datasets:
        session.console.print("No datasets. `everspot data put DIR NAME` uploads one.")
        return
    table = sheet(["DATASET", "VERSION", "FILES", "SIZE", "PUT"], text_columns=2)
    for dataset in datasets:
        when = f"{dataset.created_at:%Y-%m-%d %H:%M}"
        table.add_row(dataset.name, dataset.digest[:12], f"{len(dataset.files):,}", size(dataset.size), when)
    session.console.print(table)


def _row(dataset: Any) -> dict[str, Any]:
    return {
        "name": dataset.name, "digest": dataset.digest, "files": len(dataset.files), "bytes": dataset.size,
        "put_at": dataset.created_at,
    }  # fmt: skip


def _progress(session: Session) -> Progress:
    return Progress(
        TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn(), console=session.errors,
        transient=True, disable=session.json,
    )  # fmt: skip
