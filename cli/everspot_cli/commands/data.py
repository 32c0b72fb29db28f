"""`everspot data` and `everspot pull`: what goes into jobs, and what comes out of them."""

from pathlib import Path
from typing import Annotated, Any

import typer
from everspot_core.counting import counted, size
from everspot_store import DatasetFile, UnsafeArchive
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from everspot_cli.commands.options import Json, current_session
from everspot_cli.errors import CliError, Exit
from everspot_cli.job_lookup import find_job
from everspot_cli.job_outputs import fetch_outputs, list_outputs
from everspot_cli.session import Session
from everspot_cli.tables import empty_table


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
    selected = list_outputs(session, job_id, path)
    with _progress(session) as progress:
        task = progress.add_task(counted(len(selected), "file"), total=sum(output.size for output in selected))
        fetched = fetch_outputs(session, job_id, selected, to, lambda output: progress.advance(task, output.size))
    if session.json:
        files = [{"path": o.path, "bytes": o.size, "attempt": o.epoch} for o in fetched.outputs]
        session.answer({"job_id": job_id, "folder": str(fetched.folder), "files": files})
    else:
        summary = f"{counted(len(fetched.outputs), 'file')}, {size(sum(output.size for output in fetched.outputs))}"
        session.console.print(f"{summary}, in {fetched.folder}", soft_wrap=True)
    if fetched.failed:
        raise fetched.error()


def _put(session: Session, folder: Path, name: str) -> None:
    sent: list[int] = []

    def count_file(file: DatasetFile, new: bool) -> None:
        if new:
            sent.append(file.size)
        progress.advance(task, 1)

    with _progress(session) as progress:
        task = progress.add_task(f"uploading {folder}", total=None)
        try:
            dataset = session.store.datasets.put(name, folder, region=session.manifest.region, on_file=count_file)
        except (ValueError, NotADirectoryError, UnsafeArchive) as error:
            raise CliError(str(error)) from None
    if session.json:
        answer = {"dataset": dataset.id, "files": len(dataset.files), "bytes": dataset.size, "sent_bytes": sum(sent)}
        answer["region"] = dataset.region
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
    table = empty_table(["DATASET", "VERSION", "REGION", "FILES", "SIZE", "PUT"], text_columns=3)
    for dataset in datasets:
        when = f"{dataset.created_at:%Y-%m-%d %H:%M}"
        region = dataset.region or "—"
        table.add_row(dataset.name, dataset.digest[:12], region, f"{len(dataset.files):,}", size(dataset.size), when)
    session.console.print(table)


def _row(dataset: Any) -> dict[str, Any]:
    return {
        "name": dataset.name, "digest": dataset.digest, "files": len(dataset.files), "bytes": dataset.size,
        "put_at": dataset.created_at, "region": dataset.region,
    }  # fmt: skip


def _progress(session: Session) -> Progress:
    return Progress(
        TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn(), console=session.errors,
        transient=True, disable=session.json,
    )  # fmt: skip
