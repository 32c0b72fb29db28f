"""`everspot doctor`: what works, what does not, and who can fix it."""

import typer
from everspot_clouds.registry import CLOUDS, find_cloud, provider
from everspot_core.capacity.catalogue import builtin
from everspot_store import StoreError
from everspot_store.region import split_region
from rich.table import Table
from rich.text import Text

from everspot_cli.checks import Check, Verdict
from everspot_cli.checks.cluster import cluster_checks
from everspot_cli.checks.stack import orphan_checks, pending_check, stack_state
from everspot_cli.commands.options import Json, current_session
from everspot_cli.errors import CliError, Exit
from everspot_cli.session import Session

_STYLE = {Verdict.OK: "green", Verdict.WARN: "yellow", Verdict.FAIL: "bold red", Verdict.SKIP: "dim"}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("doctor")(doctor)


def doctor(context: typer.Context, json: Json = False) -> None:
    """Check the cluster: store, scheduler, instances, peers, credentials, quotas, clock, its stack, orphans.

    Exit code 4 if the store or the credentials are not available, 1 if something else is wrong, else 0.
    """
    session = current_session(context, json)
    checks = _checks(session)
    failed = [c for c in checks if c.verdict is Verdict.FAIL]
    out_of_reach = any(c.group in ("store", "credentials") for c in failed)
    if session.json:
        readable = not any(c.name == "cluster.json" and c.verdict is Verdict.FAIL for c in checks) and not out_of_reach
        name = session.manifest.cluster if readable else None
        session.answer({"cluster": name, "ok": not failed, "checks": [c.as_dict() for c in checks]})
    else:
        _print(session, checks)
    if failed:
        raise typer.Exit(Exit.UNAVAILABLE if out_of_reach else Exit.USER)


def _checks(session: Session) -> list[Check]:
    try:
        url = session.store_url
    except CliError as error:
        return [Check("store", "store named", Verdict.FAIL, str(error), error.hint), *_stack_checks(session, None)]
    checks = [Check("store", "store named", Verdict.OK, url)]
    checks += cluster_checks(session)
    readable = not any(c.verdict is Verdict.FAIL and c.group == "store" for c in checks)
    cloud = find_cloud(url)
    if readable and not CLOUDS[session.manifest.cloud].schemes:  # its store is another cloud's
        cloud = session.manifest.cloud
    if cloud is not None and (not readable or session.manifest.cloud == cloud):
        manifest = session.manifest if readable else None
        region = manifest.region if manifest is not None else _url_region(url)
        catalogue = session.catalogue if readable else builtin()
        checks += provider(cloud).checks(region, manifest, catalogue, session.clock)
    return checks + _stack_checks(session, url, readable=readable)


def _stack_checks(session: Session, url: str | None, *, readable: bool = False) -> list[Check]:
    """Check the stack. A stack whose first update was killed names no store, and may still cost money."""
    try:
        state = stack_state(session, url)
    except CliError as error:
        return [Check("user", "pending operations", Verdict.SKIP, str(error), error.hint)]
    checks = [pending_check(session, state)] if state is not None else []
    manifest = session.manifest if readable else None
    if manifest is None and state is None:
        return checks
    return checks + orphan_checks(session, state, manifest, session.catalogue if readable else builtin())


def _url_region(url: str) -> str | None:
    """Return the region that a store's URL names. None if it names no region or is invalid."""
    try:
        return split_region(url)[1]
    except StoreError:
        return None


def _print(session: Session, checks: list[Check]) -> None:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for check in checks:
        table.add_row(Text(check.verdict.value, style=_STYLE[check.verdict]), check.name, Text(check.detail))
        if check.fix and check.verdict in (Verdict.FAIL, Verdict.WARN):
            table.add_row("", "", Text(f"→ {check.group}: {check.fix}", style="dim"))
    session.console.print(table)
