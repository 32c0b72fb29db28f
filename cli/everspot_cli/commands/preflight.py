"""`everspot preflight`: whether an account is ready for a cluster, before and after it exists."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer
from everspot_clouds.preflight_plan import read_plan
from everspot_clouds.registry import deployer_checks
from everspot_core.cluster.preflight import PreflightPlan, probe_checks
from everspot_core.validation.problems import BadInputs
from rich.table import Table
from rich.text import Text

from everspot_cli.checks import Check, Verdict
from everspot_cli.commands.options import Json, current_session, parse_duration_option
from everspot_cli.errors import CliError, Exit, list_problems
from everspot_cli.probe.runner import run_probes
from everspot_cli.session import Session
from everspot_cli.stack_settings import SettingsOption, project_name, read_config, settings_files, stack_name

_MARK = {
    Verdict.OK: ("✓", "green"),
    Verdict.WARN: ("!", "yellow"),
    Verdict.FAIL: ("✗", "bold red"),
    Verdict.SKIP: ("-", "dim"),
}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("preflight")(preflight)


def preflight(
    context: typer.Context,
    settings: SettingsOption = None,
    probe: Annotated[
        bool,
        typer.Option(
            "--probe",
            help="Check the cluster in use instead: run a small job in each of its markets, which costs cents.",
        ),
    ] = False,
    timeout: Annotated[
        str, typer.Option("--timeout", help="With --probe: how long to wait for the probes before they are cancelled.")
    ] = "20m",
    json: Json = False,
) -> None:
    """Check an account before `pulumi up`: permissions of your credentials, quotas, the machine image, a dry launch.

    Nothing is changed and nothing is launched, but with --probe: then the cluster's own scheduler launches an instance
    per market, which proves launch, metadata, DNS, store, lease and CUDA, and ends after its idle limit. Exit code 4 if
    the credentials do not work, 1 if something else is wrong, else 0.
    """
    session = current_session(context, json)
    if probe and settings:
        raise CliError(
            "--probe checks the cluster in use, and takes no settings", Exit.USAGE, hint="leave out --settings"
        )
    limit = parse_duration_option(timeout, "--timeout")
    checks = _probed(session, limit) if probe else _planned(session, settings)
    if session.json:
        document = {
            cluster: {"ok": not _failures(rows), "checks": [check.as_dict() for check in rows]}
            for cluster, rows in checks.items()
        }
        session.answer({"clusters": document})
    else:
        for cluster, rows in checks.items():
            _print(session, cluster, rows)
    failures = [check for rows in checks.values() for check in _failures(rows)]
    if failures:
        signed_in = all(check.name != "credentials" for check in failures)
        raise typer.Exit(Exit.USER if signed_in else Exit.UNAVAILABLE)


def _planned(session: Session, settings: list[Path] | None) -> dict[str, list[Check]]:
    """Return the checks of the clusters that settings declare, by cluster."""
    return {plan.manifest.cluster: deployer_checks(plan, session.clock) for plan in _plans(settings)}


def _probed(session: Session, timeout: timedelta) -> dict[str, list[Check]]:
    """Return the checks that probes of the cluster in use prove."""
    return {
        session.manifest.cluster: [check for facts in run_probes(session, timeout) for check in probe_checks(facts)]
    }


def _plans(settings: list[Path] | None) -> list[PreflightPlan]:
    """Return the plans of the clusters that settings declare.

    Raises:
        CliError: if a file cannot be read, or if none of them declares a cluster.
    """
    plans = []
    for file in settings_files(settings):
        try:
            plans.append(read_plan(stack_name(file), read_config(file), project_name(file)))
        except BadInputs as bad:
            raise CliError(f"{file} cannot be checked", problems=list_problems(bad.problems)) from None
    cluster_plans = [plan for plan in plans if plan is not None]
    if not cluster_plans:
        raise CliError("none of these settings declares a cluster", Exit.NOT_FOUND, hint="--settings FILE")
    return cluster_plans


def _failures(checks: list[Check]) -> list[Check]:
    return [check for check in checks if check.verdict is Verdict.FAIL]


def _print(session: Session, cluster: str, checks: list[Check]) -> None:
    table = Table(box=None, pad_edge=False, show_header=False, title=cluster, title_justify="left")
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for check in checks:
        mark, style = _MARK[check.verdict]
        table.add_row(Text(mark, style=style), check.name, Text(check.detail))
        if check.fix and check.verdict is not Verdict.OK:
            table.add_row("", "", Text(f"→ {check.fix}", style="dim"))
    session.console.print(table)
