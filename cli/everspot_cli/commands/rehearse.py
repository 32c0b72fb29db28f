"""`everspot rehearse`: does an interruption change what a job computes?"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from everspot_cli.commands.options import Env, Json, Set, current_session, parse_duration_option
from everspot_cli.errors import CliError, Exit
from everspot_cli.rehearsal import history
from everspot_cli.rehearsal.engine import check_machine, run_rehearsal
from everspot_cli.rehearsal.job import read_job, staged_code
from everspot_cli.rehearsal.table import describe_difference, fixes, leftovers, places_table, summary
from everspot_cli.session import Session
from everspot_cli.specs import Overrides

LEAST_STEPS = 4


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("rehearse")(rehearse)


def rehearse(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The job's file, or a script (train.py).")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[ARGUMENT]...", help="More arguments of the program, after `--`.")
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(
            "--steps",
            min=LEAST_STEPS,
            help="Optimizer steps of each run. Default: 12, or a few more than an epoch if that has at most 40.",
        ),
    ] = None,
    processes: Annotated[
        int | None, typer.Option("--processes", help="Processes that train together. Default: as many as the job's.")
    ] = None,
    set: Set = None,
    env: Env = None,
    timeout: Annotated[str, typer.Option("--timeout", help="The longest time of one run.")] = "10m",
    json: Json = False,
) -> None:
    """Run a few steps of a job on this machine, undisturbed and interrupted, and show the first difference.

    It needs torch and the job's packages on this machine, and no cluster. Exit codes: 0 every resumed run is exact; 1
    something differs; 2 the job or an option is wrong; 4 something is not installed; 5 the program itself fails.
    """
    session = current_session(context, json)
    limit = parse_duration_option(timeout, "--timeout")
    check_machine()
    job = read_job(file, Overrides.read(None, set or (), env or ()), arguments or [], processes)
    with staged_code(job.folder) as (folder, digest), _progress(session) as show:
        answer = run_rehearsal(job.spec, folder, steps, limit.total_seconds(), show)
    answer |= {"code_digest": digest, "notes": job.notes}
    if answer["verdict"] == "exact" and digest is not None:
        history.remember(digest, datetime.now(UTC), answer["steps"])
    if session.json:
        session.answer(answer)
    elif answer["verdict"] != "failed":
        _print(session, answer)
    if answer["verdict"] == "failed":
        _print_output(session, answer)
        raise CliError(f"the program cannot be rehearsed: {answer['message']}", Exit.JOB_FAILED)
    if answer["verdict"] != "exact":
        raise typer.Exit(int(Exit.USER))


def _print(session: Session, answer: dict[str, Any]) -> None:
    out = session.console
    undisturbed = answer["undisturbed"]
    if undisturbed:
        out.print(
            "Two undisturbed runs differ from each other, so the script itself is not deterministic.", style="bold"
        )
        out.print(f"  {describe_difference(undisturbed)}", markup=False, soft_wrap=True)
        out.print(f"  {undisturbed['fix']}\n", markup=False, soft_wrap=True)
    out.print(places_table(answer))
    for title, lines in (
        ("What to do", fixes(answer)),
        ("Not restored, without an effect so far (later steps may depend on it)", leftovers(answer)),
        ("Not compared, because two undisturbed runs differ in it", answer["ignored"] if not undisturbed else []),
        ("This machine", answer["notes"]),
    ):
        if lines:
            out.print(f"\n{title}", style="bold")
            for line in lines:
                out.print(f"  {line}", markup=False, soft_wrap=True)
    out.print(f"\n{summary(answer)}", markup=False, soft_wrap=True)


def _print_output(session: Session, answer: dict[str, Any]) -> None:
    if not session.json and answer["output"]:
        session.errors.print(answer["output"].rstrip(), markup=False, soft_wrap=True, style="dim")


@contextmanager
def _progress(session: Session) -> Iterator[Callable[[str, int, int], None]]:
    """Show which run is under way: a bar in a terminal, else a line for each; nothing with --json."""
    if session.json:
        yield lambda doing, run, of: None
    elif not session.errors.is_terminal:
        yield lambda doing, run, of: session.errors.print(f"run {run} of {of}: {doing}", markup=False, soft_wrap=True)
    else:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
        with Progress(*columns, console=session.errors, transient=True) as progress:
            task = progress.add_task("preparing", total=None)
            yield lambda doing, run, of: progress.update(
                task, description=f"run {run} of {of}: {doing}", completed=run - 1, total=of
            )
