"""`everspot profile JOB`."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from everspot_core.counting import size
from everspot_core.jobs.profile import DEFAULT_STEPS, MOST_PROFILED_STEPS, PROFILE_FOLDER, Operation, Profile
from rich.table import Table

from everspot_cli.commands.options import JobId, Json, current_session, parse_duration_option
from everspot_cli.job_lookup import find_job
from everspot_cli.profiling import profile_job
from everspot_cli.session import Session
from everspot_cli.tables import empty_table, facts

SHOWN = 15
"""The operations that the table has; `--json` has all that were reported."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("profile")(profile)


def profile(
    context: typer.Context,
    job_id: JobId,
    steps: Annotated[
        int, typer.Option("--steps", min=1, max=MOST_PROFILED_STEPS, help="Steps to record.")
    ] = DEFAULT_STEPS,
    timeout: Annotated[str, typer.Option("--timeout", help="Longest wait for the profile.")] = "10m",
    json: Json = False,
) -> None:
    """Record some steps of a running job with torch's profiler: its most expensive operations and its waits for data.

    The job goes on, somewhat slower while it is recorded; the result says how much. The trace is an output of the job.
    """
    session = current_session(context, json)
    limit = parse_duration_option(timeout, "--timeout")
    name = find_job(session, job_id).job_id
    with _progress(session, name) as show:
        result = profile_job(session, name, steps, limit, show)
    if session.json:
        session.answer(_document(name, result))
        return
    session.console.print(facts(_facts(result)))
    session.console.print()
    session.console.print(_table(result))
    session.console.print(f"\n{_describe_trace(name, result)}", markup=False, soft_wrap=True)


@contextmanager
def _progress(session: Session, name: str) -> Iterator[Callable[[str], None]]:
    """Show what the command waits for: a line on standard error for each change; nothing with --json."""
    if session.json:
        yield lambda words: None
        return
    with session.progress(f"profile of {name}", shown=True):
        yield lambda words: session.errors.print(f"{name} {words}", style="dim", soft_wrap=True)


def _document(name: str, result: Profile) -> dict[str, Any]:
    shares = [result.share(operation) for operation in result.operations]
    fields = result.model_dump(mode="json", exclude={"version", "operations", "trace", "id", "state", "message"})
    operations = [
        {**operation.model_dump(mode="json"), "share": share}
        for operation, share in zip(result.operations, shares, strict=True)
    ]
    trace = f"outputs/{PROFILE_FOLDER}/{result.trace}" if result.trace else None
    derived = {
        "slowdown": result.slowdown,
        "profiler_seconds": result.profiler_seconds,
        "data_wait_share": result.data_wait_share,
    }
    return {"job_id": name, "profile": result.id, **fields, **derived, "operations": operations, "trace": trace}


def _facts(result: Profile) -> list[tuple[str, str]]:
    first, step_seconds = result.first_step or 0, result.median_step_seconds or result.step_seconds
    ranks = f", rank 0 of {result.ranks}" if result.ranks > 1 else ""
    return [
        ("recorded", f"steps {first} to {first + result.steps - 1}{ranks}"),
        (
            "step",
            f"{_seconds(step_seconds)} while recorded{_describe_cost(result)}",
        ),
        ("profiler cost", _describe_profiler(result)),
        ("waits for data", _describe_data(result)),
    ]


def _describe_cost(result: Profile) -> str:
    if result.slowdown is None:
        return ""
    cost = f"{result.slowdown:+.0%}" if result.slowdown else "no measurable slowdown"
    baseline = f"in {result.plain_steps} steps around it" if result.plain_steps else "before"
    return f", {_seconds(result.plain_step_seconds)} {baseline}: {cost}"


def _describe_profiler(result: Profile) -> str:
    stopped = f"{_seconds(result.stopped_seconds)} to start and to end"
    if result.profiler_seconds is None or result.stopped_seconds is None:
        return stopped
    slower = _seconds(result.profiler_seconds - result.stopped_seconds)
    return f"{_seconds(result.profiler_seconds)} of training: {stopped}, {slower} in slower steps"


def _describe_data(result: Profile) -> str:
    data = result.data
    if data is None or data.wait_seconds is None or not result.steps:
        return "not measured: the loop reads its batches in a way that neither Everspot nor torch sees"
    share = f" ({result.data_wait_share:.0%})" if result.data_wait_share is not None else ""
    workers = f", {data.workers} workers" if data.workers is not None else ""
    loader = f"; {data.loader}{workers}" if data.loader else ""
    return f"{_seconds(data.wait_seconds / result.steps)} a step{share}{loader}"


def _table(result: Profile) -> Table:
    gpu = result.uses_gpu
    columns = ("OPERATION", "CALLS", *(("GPU",) if gpu else ()), "CPU", "SHARE")
    table = empty_table(columns, text_columns=1, fold=("OPERATION",))
    for operation in result.operations[:SHOWN]:
        times = [_seconds(operation.gpu_seconds)] if gpu else []
        table.add_row(
            operation.name, f"{operation.calls:,}", *times, _seconds(operation.cpu_seconds), _share(result, operation)
        )
    others = result.operations[SHOWN:]
    if others:
        shares = [share for operation in others if (share := result.share(operation)) is not None]
        times = [_seconds(sum(operation.gpu_seconds or 0 for operation in others))] if gpu else []
        cpu = _seconds(sum(operation.cpu_seconds or 0 for operation in others))
        table.add_row(f"{len(others)} more", f"{sum(o.calls for o in others):,}", *times, cpu, f"{sum(shares):.1%}")
    return table


def _share(result: Profile, operation: Operation) -> str:
    share = result.share(operation)
    return f"{share:.1%}" if share is not None else "—"


def _seconds(value: float | None) -> str:
    """Return a short time with three digits: `1.24 s`, `12.4 ms`, `8.1 µs`."""
    if value is None:
        return "—"
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if value * factor >= 1 or unit == "µs":
            return f"{value * factor:.3g} {unit}"
    raise AssertionError("the last unit takes every value")


def _describe_trace(name: str, result: Profile) -> str:
    if not result.trace:
        return f"No trace: {result.trace_note or 'the program has written none'}"
    path = f"{PROFILE_FOLDER}/{result.trace}"
    return (
        f"Trace ({size(result.trace_bytes)}): everspot pull {name} {path}\n"
        "It opens in https://ui.perfetto.dev, which reads it in the browser, or in chrome://tracing."
    )
