"""`everspot cost estimate`: what an environment costs a month, from its settings file alone."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import typer
from everspot_clouds.estimating import Environment, environment, estimated
from everspot_clouds.price_files import BadPriceFile, find_project, project_prices, project_tables
from everspot_core.capacity.price_table import PriceTable
from everspot_core.estimate.model import CostFigures, Estimate, Range
from everspot_core.estimate.usage_history import Recent
from everspot_core.validation.problems import BadInputs
from rich.table import Table

from everspot_cli.commands.options import Json, current_session
from everspot_cli.errors import CliError, Exit, list_problems
from everspot_cli.session import Session, run_in_parallel
from everspot_cli.stack_settings import SettingsOption, project_name, read_config, settings_files, stack_name
from everspot_cli.tables import empty_table

MONTH = timedelta(days=30)
"""How much of a ledger is looked at."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("estimate")(estimate)


def estimate(
    context: typer.Context,
    settings: SettingsOption = None,
    before: Annotated[
        Path | None,
        typer.Option("--before", metavar="FILE", help="Earlier settings to compare with; for one FILE."),
    ] = None,
    ledger: Annotated[
        bool,
        typer.Option(
            "--ledger",
            help="Use prices, pools and elastic use of the last 30 days of the cluster in use.",
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Estimate the monthly cost of environments from their settings: low, expected, high, all on-demand.

    It needs neither credentials nor Pulumi. A preview of the same settings gives the same figures.
    """
    session = current_session(context, json)
    files = settings_files(settings)
    if (before is not None or ledger) and len(files) != 1:
        raise CliError("--before and --ledger go with one file of settings", Exit.USAGE, hint="--settings FILE")
    recent = _recent(session) if ledger else None
    catalogue = session.catalogue if ledger else None
    was = None if before is None else _read(before, stack_name(files[0]))
    estimates: dict[str, Estimate] = {}
    for file in files:
        with project_prices(_price_tables(file)):
            will = _read(file, stack_name(file))
            formerly = None if was is None else was.resources
            estimates[stack_name(file)] = estimated(
                formerly, will.resources, regions=will.regions, catalogue=catalogue, recent=recent
            )
    if session.json:
        session.answer(
            {"environments": {name: cost_estimate.model_dump(mode="json") for name, cost_estimate in estimates.items()}}
        )
        return
    for name, cost_estimate in estimates.items():
        _show(session, name, cost_estimate, compared=before is not None)


def _price_tables(file: Path) -> list[PriceTable]:
    """Return the price tables of the project that a settings file belongs to, else of the one around the command.

    Raises:
        CliError: if one of them cannot be read.
    """
    try:
        return project_tables(file.parent if find_project(file.parent) is not None else None)
    except BadPriceFile as error:
        raise CliError(str(error)) from None


def _read(file: Path, stack: str) -> Environment:
    """Return the environment that a settings file declares.

    Raises:
        CliError: if it cannot be read, or naming everything that is wrong in it.
    """
    config = read_config(file)
    try:
        return environment(stack, config, project_name(file))
    except BadInputs as bad:
        raise CliError(f"{file} cannot be priced", problems=list_problems(bad.problems)) from None


def _recent(session: Session) -> Recent:
    """Return the last month of the cluster's ledger."""
    store, now = session.store, session.now
    launches, ends, points = run_in_parallel(store.launches.scan, store.ends.scan, store.prices)
    recent_launches = [doc.value for doc in launches.values()]
    first = min((launch.launched_at for launch in recent_launches), default=None)
    if first is None or first >= now:
        raise CliError("the cluster's ledger is empty: no instance was launched yet", hint="leave out --ledger")
    return Recent.from_ledger(
        recent_launches, (doc.value for doc in ends.values()), points, since=max(first, now - MONTH), until=now
    )


def _show(session: Session, name: str, cost_estimate: Estimate, *, compared: bool) -> None:
    after, console = cost_estimate.after, session.console
    assert after is not None  # noqa: S101 - settings that cannot be read are an error
    if not after.parts and not (compared and cost_estimate.before and cost_estimate.before.parts):
        unpriced = f"what {', '.join(after.unpriced)} cost is unknown"
        console.print(f"{name}: {unpriced if after.unpriced else 'nothing that costs by the month'}")
        return
    console.print(_table(name, after))
    if compared and cost_estimate.before is not None:
        console.print(_change(cost_estimate.before.total, after.total), soft_wrap=True)
    notes = [f"USD for 730 hours, at prices of {cost_estimate.prices_as_of} and later."]
    notes += [f"Not counted, since it costs by use: {words}." for words in cost_estimate.by_use]
    notes += [f"Not known: {words}." for words in cost_estimate.unknown]
    console.print("\n".join(notes) + "\n", style="dim", soft_wrap=True)


def _table(name: str, figures: CostFigures) -> Table:
    """Return a row for each kind of each team's costs, one for each team, and the total."""
    table = empty_table([name.upper(), "TEAM", "LOW", "EXPECTED", "HIGH", "ALL ON-DEMAND"], text_columns=2)
    several = len(figures.teams) > 1
    for team, total in figures.teams.items():
        kinds: dict[str, list[Range]] = {}
        for part in figures.parts:
            if part.team == team:
                kinds.setdefault(part.kind, []).append(part.range)
        for kind, ranges in kinds.items():
            table.add_row(kind, team, *_cells(ranges))
        if several:
            table.add_row("all", team, *_cells([total]), style="bold")
    table.add_row("total at least" if figures.unpriced else "total", "", *_cells([figures.total]), style="bold")
    return table


def _cells(ranges: list[Range]) -> list[str]:
    return [usd(sum(getattr(cost_range, key) for cost_range in ranges)) for key in Range.model_fields]


def usd(amount: float) -> str:
    """Return dollars for a table: cents below a hundred."""
    return f"${amount:,.0f}" if amount >= 100 else f"${amount:,.2f}"


def _change(was: Range, will: Range) -> str:
    """Return the change of each figure."""
    pairs: list[tuple[str, Any, Any]] = [(key, getattr(was, key), getattr(will, key)) for key in Range.model_fields]
    if all(old == new for _, old, new in pairs):
        return "No figure changes."
    differences = (f"{key.replace('_', '-')} {usd(old)} → {usd(new)}" for key, old, new in pairs)
    return f"Before → after: {', '.join(differences)}."
