"""`everspot tensorboard`: the curves of jobs in TensorBoard."""

import importlib.util
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer
from everspot_core.counting import counted, first_few
from everspot_store import StoreUnavailable

from everspot_cli import userconfig
from everspot_cli.commands.options import Json, current_session
from everspot_cli.session import Session
from everspot_cli.tensorboard.runs import Runs
from everspot_cli.ui.loopback import ADDRESS

POLL = timedelta(seconds=5)
"""TensorBoard reads its files again as often."""
INSTALL = "TensorBoard is not installed: `pip install tensorboard`, then `tensorboard --logdir {}`"
_LONGEST_NAME = 100
_SHOWN = 5
_STOPPING_TIME = timedelta(seconds=10)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("tensorboard")(tensorboard)


def tensorboard(
    context: typer.Context,
    names: Annotated[list[str], typer.Argument(metavar="JOB...", help="Jobs, the beginnings of their ids, or sweeps.")],
    logdir: Annotated[
        Path | None, typer.Option("--logdir", metavar="DIR", help="Where to put the files. Default: a cache folder.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", metavar="N", min=1, max=65535, help="TensorBoard's. Default: the first free from 6006."),
    ] = None,
    json: Json = False,
) -> None:
    """Show the metrics of jobs, or of a sweep's trials, in TensorBoard, kept up to date until Ctrl-C.

    Only this machine can reach it. Steps that were done again after an interruption are there once. Event files that
    the program writes are beside them, as runs of each attempt, a minute old at most. Without TensorBoard the files are
    kept up to date until the jobs have ended. With --json they are written once, and nothing is started.
    """
    session = current_session(context, json)
    folder = (logdir or _cache_folder(session, names)).absolute()
    runs = Runs(session, folder, names)
    program = _find_tensorboard()
    try:
        runs.read()
        if session.json:
            rows = [
                {"job_id": run.job_id, "state": run.state.value, "points": run.file.points,
                 "last_step": run.file.last_step, "program_files": run.program.count,
                 "folder": str(folder / run.job_id)}
                for run in runs
            ]  # fmt: skip
            session.answer({"logdir": str(folder), "runs": rows, "tensorboard": program is not None})
            return
        _print_runs(session, runs, folder)
        with suppress(KeyboardInterrupt):  # the end of the command, as it is said above
            if program is None:
                session.errors.print(INSTALL.format(folder), soft_wrap=True)
                _follow(session, runs)
            else:
                _serve(session, runs, [*program, "--logdir", str(folder), "--host", ADDRESS], port)
    finally:
        runs.close()


def _cache_folder(session: Session, names: Sequence[str]) -> Path:
    name = "+".join(names).replace("/", "_")[:_LONGEST_NAME]
    folder = userconfig.base("XDG_CACHE_HOME", ".cache") / "everspot" / "tensorboard"
    return folder / session.manifest.cluster / name


def _find_tensorboard() -> list[str] | None:
    """Return the command that starts TensorBoard; None if it is not installed."""
    package = importlib.util.find_spec("tensorboard")
    if package is not None and package.origin is not None:  # a folder of that name is none
        return [sys.executable, "-P", "-m", "everspot_cli.tensorboard.server"]
    program = shutil.which("tensorboard")
    return [program] if program is not None else None


def _print_runs(session: Session, runs: Runs, folder: Path) -> None:
    session.console.print(f"{counted(len(list(runs)), 'run')} in {folder}", soft_wrap=True)
    empty = [run.job_id for run in runs if not (run.file.points or run.program.count)]
    if empty:
        words = f"no metric has arrived yet of {first_few(empty, _SHOWN)}"
        session.errors.print(words, style="dim", soft_wrap=True)


def _follow(session: Session, runs: Runs) -> None:
    """Bring what is new until all jobs have ended."""
    while not runs.are_complete:
        session.clock.sleep(POLL)
        _read(session, runs)


def _serve(session: Session, runs: Runs, command: list[str], port: int | None) -> None:
    """Run TensorBoard, and bring what is new until it ends."""
    with _running([*command, *(("--port", str(port)) if port is not None else ())]) as process:
        while True:
            with suppress(subprocess.TimeoutExpired):
                code = process.wait(POLL.total_seconds())
                raise typer.Exit(code if code >= 0 else 128 - code)
            _read(session, runs)


def _read(session: Session, runs: Runs) -> None:
    try:
        runs.read()
    except StoreUnavailable as error:  # the next look may be luckier
        session.errors.print(f"warning: {error}", style="yellow", soft_wrap=True)


@contextmanager
def _running(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program, which ends with this one, also if this one is told to terminate."""
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    process = subprocess.Popen(command)  # noqa: S603 - our own command line
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(_STOPPING_TIME.total_seconds())
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        signal.signal(signal.SIGTERM, before)
