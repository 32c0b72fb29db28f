"""`everspot simulate --workload` and `--generate-workload`: the jobs of many users on one fleet, or on several clusters
that take over jobs from each other."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

import typer
import yaml
from everspot_core.capacity.catalogue import builtin
from everspot_core.counting import counted
from everspot_core.validation.problems import BadInputs, Problems
from everspot_simulator.drive import simulate
from everspot_simulator.federated import FederatedWorkload, is_federated, parse_federated
from everspot_simulator.federated_drive import simulate_federated
from everspot_simulator.federated_figures import federated_figures
from everspot_simulator.federated_generator import NAMES, generate_federated
from everspot_simulator.figures import WaitingTimes, WorkloadFigures, figures
from everspot_simulator.trace import Trace
from everspot_simulator.trace import parse as parse_trace
from everspot_simulator.workload import Workload, load_traces
from everspot_simulator.workload_file import parse
from everspot_simulator.workload_generator import generate
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from everspot_cli.commands.simulate import federated
from everspot_cli.errors import CliError, Exit, fields_wrong, list_problems
from everspot_cli.session import Session
from everspot_cli.tables import empty_table
from everspot_cli.yamlfile import read_yaml

W = TypeVar("W", Workload, FederatedWorkload)

_OWN = {"--workload": {"--json"}, "--generate-workload": {"--jobs", "--seed", "--clusters", "--json"}}
DEFAULT_JOBS = 300
MOST_JOBS = 100_000
_LARGEST, _MOST_VALUES = 64 * 1024 * 1024, 5_000_000  # bytes and values of a file with MOST_JOBS jobs
_HINT = "everspot simulate --generate-workload FILE writes one that can be taken for a pattern"


def run_workload_options(
    context: typer.Context, workload: Path | None, output_path: Path | None, jobs: int | None, seed: int,
    clusters: int | None, session: Session,
) -> bool:  # fmt: skip
    """Simulate or generate a workload, whichever option is given; False if neither is.

    Raises:
        CliError: if options exclude each other, and as `run` and `write` raise it.
    """
    if output_path is not None:
        _alone(context, "--generate-workload")
        write(output_path, jobs, seed, clusters, session)
    elif workload is not None:
        _alone(context, "--workload")
        run(workload, session)
    elif jobs is not None or clusters is not None:
        option = "--jobs" if jobs is not None else "--clusters"
        raise CliError(f"simulate: {option} is for --generate-workload", Exit.USAGE, hint="everspot simulate --help")
    return output_path is not None or workload is not None


def _alone(context: typer.Context, option: str) -> None:
    """Refuse options that do not apply to a workload."""
    used_options = [
        p.opts[0] for p in context.command.params
        if p.name is not None and getattr(context.get_parameter_source(p.name), "name", "") == "COMMANDLINE"
    ]  # fmt: skip
    others = [name for name in used_options if name != option and name not in _OWN[option]]
    if others:
        message = f"{option} does not go with {', '.join(others)}"
        raise CliError(f"simulate: {message}", Exit.USAGE, hint="everspot simulate --help")


def write(path: Path, jobs: int | None, seed: int, clusters: int | None, session: Session) -> None:
    """Generate a workload and write it: as JSON if the file's name ends so, else as YAML. `clusters`: None: one fleet.

    Raises:
        CliError: if an option is out of range, or the file cannot be written.
    """
    count, faults = DEFAULT_JOBS if jobs is None else jobs, []
    if not 1 <= count <= MOST_JOBS:
        faults.append({"field": "--jobs", "problem": f"must be from 1 to {MOST_JOBS}; it is {count}"})
    if seed < 0:
        faults.append({"field": "--seed", "problem": f"must be >= 0; it is {seed}"})
    if clusters is not None and not 2 <= clusters <= len(NAMES):
        faults.append({"field": "--clusters", "problem": f"must be from 2 to {len(NAMES)}; it is {clusters}"})
    if faults:
        raise CliError("simulate: no workload can be made of that", problems=faults)
    values = generate(count, seed) if clusters is None else generate_federated(count, seed, clusters)
    if path.suffix.lower() == ".json":
        text = json.dumps(values, indent=1) + "\n"
    else:
        # Each innermost mapping is one line, so that a job is easy to read.
        text = yaml.safe_dump(values, sort_keys=False, default_flow_style=None, width=200)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CliError(f"{path} cannot be written: {error.strerror or error}") from None
    if session.json:
        session.answer({"path": str(path), "jobs": count, "seed": seed})
    else:
        session.console.print(f"{counted(count, 'job')} written to {path}", soft_wrap=True)


def run(path: Path, session: Session) -> None:
    """Simulate a workload and print its figures.

    Raises:
        CliError: if there is no such file, or naming every fault in it.
    """
    values: Any = read_yaml(path, size=_LARGEST, nodes=_MOST_VALUES)
    if is_federated(values):
        clusters, traces = _read(path, lambda: parse_federated(values, str(path), builtin()))
        with _busy(sum(len(w.jobs) for w in clusters.clusters.values()), session):
            moving, staying = (
                federated_figures(simulate_federated(clusters, traces, moving=moving)) for moving in (True, False)
            )
        federated.report_figures(path, moving, staying, session)
        return
    workload, traces = _read(path, lambda: parse(values, str(path), builtin()))
    with _busy(len(workload.jobs), session):
        summary = figures(simulate(workload, traces))
    if session.json:
        session.answer({"path": str(path), **summary.to_json()})
    else:
        session.console.print(_page(summary))
        session.console.print("\n".join(_small_print(summary)), style="dim", soft_wrap=True)


def _busy(jobs: int, session: Session) -> AbstractContextManager[object]:
    """Return a progress display for a running simulation."""
    if session.json or not session.errors.is_terminal:
        return nullcontext()
    return session.errors.status(f"{counted(jobs, 'job')} …")


def _read(path: Path, parsed: Callable[[], W]) -> tuple[W, dict[str, Trace]]:
    """Return the workload of a file and its traces. The error names every problem in any of them."""
    problems = Problems()
    loaded: dict[str, Trace] = {}

    def load(name: str) -> Trace:
        """Return the trace of a file. On a problem, note it and return a placeholder, so that all files are checked."""
        try:
            loaded[name] = parse_trace(_text(path.parent / name), name)
        except CliError as error:
            problems.add("traces", str(error))
        except BadInputs as error:
            for problem in error.problems:
                problems.add(f"traces: {name}", str(problem))
        return loaded.get(name) or parse_trace({"metadata": {"gap_seconds": 1}, "data": [0]}, name)

    try:
        workload = parsed()
        traces = load_traces(workload, load)
        problems.raise_any(f"workload {path}")
    except BadInputs as error:
        message = f"{path}: {fields_wrong(len(error.problems))}"
        raise CliError(message, hint=_HINT, problems=list_problems(error.problems)) from None
    return workload, traces


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise CliError(f"there is no file {path}", Exit.NOT_FOUND) from None
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _page(summary: WorkloadFigures) -> RenderableType:
    cost = summary.cost
    money = _row(
        ("COST $", f"{cost.total:,.2f}"),
        ("SPOT $", f"{cost.spot:,.2f}"),
        ("ON-DEMAND $", f"{cost.on_demand:,.2f}"),
        ("IDLE $", f"{cost.idle:,.2f}"),
        ("IDLE %", f"{100 * summary.idle_usd_share:.1f}"),
        ("PAID H", f"{summary.paid_hours:,.1f}"),
        ("BUSY H", f"{summary.busy_hours:,.1f}"),
        ("UTILIZATION", f"{100 * summary.utilization:.0f} %"),
    )
    jobs = _row(
        ("JOBS", str(summary.jobs)),
        ("FINISHED", str(summary.finished)),
        ("MISSES", Text(str(summary.misses), style="bold red" if summary.misses else "")),
        ("REFUSED", str(summary.refused)),
        ("UNFINISHED", str(summary.unfinished)),
        ("PREEMPTIONS", str(summary.preemptions)),
        ("CHANGEOVERS", str(summary.changeovers)),
        ("LAUNCHED", str(summary.launched)),
    )
    waits = empty_table(("WAITING", "JOBS", "MEAN H", "P50 H", "P95 H", "MAX H", "HELD $/H"), text_columns=1)
    waits.add_row(Text("all", style="bold"), *_wait_cells(summary.waiting), f"Jain {summary.fairness.jain:.2f}")
    for name, waiting in summary.waiting_by_priority.items():
        waits.add_row(name, *_wait_cells(waiting), "")
    for name, waiting in summary.waiting_by_team.items():
        held_usd_per_hour = summary.fairness.teams.get(name)
        waits.add_row(
            f"team {name or '(none)'}",
            *_wait_cells(waiting),
            "—" if held_usd_per_hour is None else f"{held_usd_per_hour:.2f}",
        )
    return Group(jobs, Text(), money, Text(), waits, Text())


def _row(*cells: tuple[str, str | Text]) -> Table:
    table = empty_table([name for name, _ in cells], text_columns=0)
    table.add_row(*(value for _, value in cells))
    return table


def _wait_cells(waiting: WaitingTimes) -> list[str]:
    hours = (waiting.mean, waiting.p50, waiting.p95, waiting.max)
    return [str(waiting.jobs), *(f"{h:.2f}" for h in hours)]


def _small_print(summary: WorkloadFigures) -> list[str]:
    late = f", the latest by {summary.latest_hours:.2f} h" if summary.misses else ""
    return [
        f"{summary.hours:.1f} h until the last job was over; {summary.with_deadline} jobs had a deadline{late}.",
        "Cost: every instance from its launch to its end; idle: the part for hours without a job, booting included. "
        "Waiting: from submission to the first instance. Held: dollars an hour of what a team held while jobs of its "
        "own waited, over its weight; Jain's index of it is 1 if all teams fared alike.",
    ]
