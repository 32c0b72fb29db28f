"""The runs of `everspot simulate`."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from everspot_simulator import (
    POLICIES,
    Aggregate,
    Outcome,
    Setting,
    Step,
    aggregate_runs,
    aggregate_traces,
    best,
    outcome,
    steps,
)
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from everspot_cli.commands.simulate.inputs import OPTIMAL, Case, SimulationRequest
from everspot_cli.session import Session


@dataclass(frozen=True, kw_only=True)
class CaseRow:
    """The result of one policy in one case. `pool_hours`: hours on spot in each pool, mean of the runs."""

    case: Case
    aggregate: Aggregate
    pool_hours: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Result:
    """The result of one policy, case by case and overall."""

    policy: str
    rows: tuple[CaseRow, ...]
    overall: Aggregate


def simulate(request: SimulationRequest, session: Session) -> list[Result]:
    """Run every policy through every case, from all of its starts; a terminal shows the progress."""
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    quiet = session.json or not session.errors.is_terminal
    results = []
    with Progress(*columns, console=session.errors, transient=True, disable=quiet) as progress:
        total = sum(len(case.starts) for case in request.cases)
        bars = {name: progress.add_task(name, total=total, start=False) for name in request.policies}
        for name, bar in bars.items():
            progress.start_task(bar)
            rows = tuple(_row(case, request.setting, name, partial(progress.advance, bar)) for case in request.cases)
            results.append(Result(policy=name, rows=rows, overall=aggregate_traces([row.aggregate for row in rows])))
    return results


def simulate_steps(case: Case, start: int, setting: Setting, policy: str) -> list[Step]:
    """Return the steps of one run."""
    decides = best(case.capacity, start, setting) if policy == OPTIMAL else POLICIES[policy]
    return list(steps(case.capacity, start, setting, decides))


def _row(case: Case, setting: Setting, policy: str, done: Callable[[], None]) -> CaseRow:
    outcomes: list[Outcome] = []
    hours = [0.0] * len(case.traces)
    for start in case.starts:
        run = simulate_steps(case, start, setting, policy)
        outcomes.append(outcome(run, setting, case.capacity))
        for step in run:
            if step.pool is not None:
                hours[step.pool] += step.seconds / 3600
        done()
    return CaseRow(case=case, aggregate=aggregate_runs(outcomes), pool_hours=tuple(h / len(outcomes) for h in hours))
