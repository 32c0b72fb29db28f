"""The answer of `everspot simulate`, as JSON and as tables."""

import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import PurePath
from typing import Any

from everspot_simulator import Aggregate
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from everspot_cli.commands.simulate.inputs import MADE_UP, Case, SimulationRequest
from everspot_cli.commands.simulate.runs import CaseRow, Result
from everspot_cli.tables import empty_table

_FIGURES = ("SAVING\n%", "±", "MISSES", "SPOT\nH", "ON-DEMAND\nH", "IDLE\nH", "CHANGE-\nOVERS")


def document(results: Sequence[Result]) -> dict[str, Any]:
    """Return the answer as JSON: the document of one policy, or those of several in a list under `policies`."""
    each = [_of_policy(result) for result in results]
    return each[0] if len(each) == 1 else {"policies": each}


def _of_policy(result: Result) -> dict[str, Any]:
    traces = [_row_as_json(row) for row in result.rows]
    return {"policy": result.policy, "overall": asdict(result.overall), "traces": traces}


def _row_as_json(row: CaseRow) -> dict[str, Any]:
    fields = {"path": ", ".join(row.case.paths), **asdict(row.aggregate)}
    if len(row.case.paths) > 1:
        hours = zip(row.case.paths, row.pool_hours, strict=True)
        fields["pools"] = [{"path": path, "spot_hours": spent} for path, spent in hours]
    return fields


def page(request: SimulationRequest, results: Sequence[Result]) -> RenderableType:
    """Return the answer for people: a table of the traces, or tables that compare policies."""
    folder = _folder(request.cases)
    parts: list[RenderableType] = []
    if len(results) == 1:
        parts.append(_traces(results[0], folder))
    else:
        parts += [_comparison(results, folder), Text("\nOverall", style="bold"), _policies(results)]
    if request.pools:
        parts += [Text("\nHours on spot, by pool", style="bold"), _pools(results, folder)]
    return Group(*parts, Text())


def small_print(request: SimulationRequest) -> list[str]:
    """Return the notes below the tables: warnings, and how the figures are computed."""
    return [*_warnings(request), *_method(request, _folder(request.cases))]


def _traces(result: Result, folder: str) -> Table:
    table = empty_table(("TRACE", *_FIGURES), text_columns=1, fold=("TRACE",))
    for row in result.rows:
        table.add_row(_name(row.case, folder), *_figures(row.aggregate))
    if len(result.rows) > 1:
        table.add_row(Text("overall", style="bold"), *_figures(result.overall, style="bold"))
    return table


def _comparison(results: Sequence[Result], folder: str) -> Table:
    """Saving in percent by trace and policy, followed by missed deadlines if there are any."""
    table = empty_table(("SAVING %", *(r.policy for r in results)), text_columns=1, fold=("SAVING %",))
    for rows in zip(*(r.rows for r in results), strict=True):
        table.add_row(_name(rows[0].case, folder), *(_saving_text(row.aggregate) for row in rows))
    if len(results[0].rows) > 1:
        table.add_row(Text("overall", style="bold"), *(_saving_text(r.overall, style="bold") for r in results))
    return table


def _policies(results: Sequence[Result]) -> Table:
    table = empty_table(("POLICY", *_FIGURES), text_columns=1)
    for result in results:
        table.add_row(result.policy, *_figures(result.overall))
    return table


def _pools(results: Sequence[Result], folder: str) -> Table:
    table = empty_table(("POOL", *(r.policy for r in results)), text_columns=1, fold=("POOL",))
    for pool, path in enumerate(results[0].rows[0].case.paths):
        hours = [f"{result.rows[0].pool_hours[pool]:.1f}" for result in results]
        table.add_row(_short(path, folder), *hours)
    if len(results[0].rows[0].case.capacity.regions.names) > 1:
        table.add_row("moves to another region", *(f"{result.overall.moves:.1f}" for result in results))
    return table


def _figures(aggregate: Aggregate, style: str = "") -> list[Text]:
    error = "—" if aggregate.saving_error is None else f"{aggregate.saving_error:.1f}"
    hours = [
        f"{h:.1f}"
        for h in (aggregate.spot_hours, aggregate.on_demand_hours, aggregate.idle_hours, aggregate.changeovers)
    ]
    return [
        Text(f"{aggregate.saving_percent:.1f}", style=style),
        Text(error, style=style),
        Text(str(aggregate.deadline_misses), style="bold red" if aggregate.deadline_misses else style),
        *(Text(h, style=style) for h in hours),
    ]


def _saving_text(aggregate: Aggregate, style: str = "") -> Text:
    text = Text(f"{aggregate.saving_percent:.1f}", style=style)
    missed = aggregate.deadline_misses
    return text.append(f" ({missed} missed)", style="bold red") if missed else text


def _name(case: Case, folder: str) -> str:
    if len(case.paths) == 1:
        return _short(case.paths[0], folder)
    return f"{len(case.paths)} pools"


def _short(path: str, folder: str) -> str:
    return path if path.startswith(MADE_UP) or not folder else os.path.relpath(path, folder)


def _folder(cases: Sequence[Case]) -> str:
    """Return the folder that all trace files share, or "" if they share none. Rows do not repeat it."""
    paths = [path for case in cases for path in case.paths if not path.startswith(MADE_UP)]
    absolute = {PurePath(path).is_absolute() for path in paths}
    if len(absolute) != 1:
        return ""
    return os.path.commonpath([os.path.dirname(path) for path in paths])  # noqa: PTH120 - text, as it was given


def _warnings(request: SimulationRequest) -> list[str]:
    """Warnings of settings under which the figures say little."""
    setting, warnings = request.setting, []
    if setting.deadline < setting.job + setting.changeover:
        warnings.append(
            f"The deadline cannot be met: {setting.job_hours:g} h and a changeover of {setting.changeover_hours:g} h "
            f"do not fit into {setting.deadline_hours:g} h."
        )
    traces = [(path, t) for case in request.cases for path, t in zip(case.paths, case.traces, strict=True)]
    dry = [path for path, t in traces if not t.up(setting.nodes).any()]
    warnings += [f"{path} never has {setting.nodes} at once." for path in dry]
    return warnings


def _method(request: SimulationRequest, folder: str) -> list[str]:
    setting, runs = request.setting, sorted({len(case.starts) for case in request.cases})
    count = f"{runs[0]:,}" if len(runs) == 1 else f"{runs[0]:,} to {runs[-1]:,}"
    of_each = "of the pools" if request.pools else "of each trace" if len(request.cases) > 1 else "of the trace"
    source = [f"Traces of {folder}"] if folder else []
    return [
        *source,
        f"{count} {'start' if runs[-1] == 1 else 'starts'} {of_each}, seed {request.seed}: {setting.job_hours:g} h of "
        f"computing in {setting.deadline_hours:g} h, changeover {setting.changeover_hours:g} h, on-demand at "
        f"{setting.price_ratio:g} times spot{f', {setting.nodes} nodes' if setting.nodes > 1 else ''}"
        f"{f', decisions every {setting.tick_seconds:g} s' if setting.tick_seconds is not None else ''}.",
        "Saving: against on-demand without a changeover; ±: its standard error. Hours and changeovers are means of a "
        "run, misses are counted.",
    ]
