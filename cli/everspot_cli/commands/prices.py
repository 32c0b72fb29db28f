"""`everspot cost prices`: the prices that are known, their age, and newer ones from the clouds' own price lists."""

from collections.abc import Collection
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from everspot_clouds.naming import catalogue_types, cloud_of_region
from everspot_clouds.price_files import FOLDER, PROJECT_FILE, find_project, refresh_command, write_table
from everspot_core.capacity.catalogue import Catalogue
from everspot_core.capacity.price_table import PriceTable, unlisted
from everspot_core.counting import counted
from rich.table import Table

from everspot_cli.commands.options import Json, current_session
from everspot_cli.errors import CliError, Exit
from everspot_cli.pricing import load_catalogue, read_price_lists
from everspot_cli.session import Session
from everspot_cli.tables import empty_table
from everspot_cli.yamlfile import read_yaml


class PricesAction(StrEnum):
    """The actions of `everspot cost prices`."""

    SHOW = "show"
    REFRESH = "refresh"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("prices")(prices)


def prices(
    context: typer.Context,
    action: Annotated[
        PricesAction,
        typer.Argument(help="show: what is known; refresh: read the price lists, for a region's file or the cluster."),
    ] = PricesAction.SHOW,
    region: Annotated[
        str | None,
        typer.Option("--region", metavar="REGION", help="This region, without a cluster. Default: the cluster's."),
    ] = None,
    type: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="TYPE", help="Show these types only. Default: the region's."),
    ] = None,
    json: Json = False,
) -> None:
    """Show the known prices, or read newer ones from the cloud's price lists.

    refresh needs the internet and your credentials. With --region it writes prices/CLOUD-REGION.json of the project,
    which is committed like code; without, it writes a table into the cluster's control bucket, which catalogue,
    scheduler and report use from then on.
    """
    session, only = current_session(context, json), type or []
    if region is None:
        _cluster_prices(session, only, refresh=action is PricesAction.REFRESH)
    else:
        _region_prices(session, region, only, refresh=action is PricesAction.REFRESH)


def _region_prices(session: Session, region: str, only: list[str], *, refresh: bool) -> None:
    cloud = cloud_of_region(region)
    if cloud is None:
        raise CliError(
            f"{region!r} is no region of a cloud", Exit.USAGE, hint="--region eu-central-1, or --region europe-west4"
        )
    table, written = None, None
    if refresh:
        project = find_project()
        if project is None:
            raise CliError(
                f"there is no project here: no {PROJECT_FILE} in this folder or above it",
                Exit.USER,
                hint="run it in the project's folder, or leave --region out for the cluster's own table",
            )
        table = read_price_lists(session, cloud, region, [*catalogue_types(cloud), *named_types(project), *only])
        written = write_table(project / FOLDER, table)
    catalogue = load_catalogue(session)
    _show(session, catalogue, region, only or sorted(catalogue.offered(region)), table, written=written)


def _cluster_prices(session: Session, only: list[str], *, refresh: bool) -> None:
    manifest, table = session.manifest, None
    declared = [kind.name for kind in manifest.instance_types]
    if refresh:
        names = [*session.catalogue.offered(manifest.region), *declared, *only]
        table = read_price_lists(session, manifest.cloud, manifest.region, names)
        session.store.write_price_table(table)
        session.__dict__.pop("catalogue", None)
        session.__dict__["price_table"] = table
    catalogue = session.catalogue
    names = only or sorted({*catalogue.offered(manifest.region), *declared})
    _show(session, catalogue, manifest.region, names, table)


def named_types(project: Path) -> set[str]:
    """Return the types that the settings of a project's stacks name. Files that cannot be read are left out: a preview
    says what is wrong with them."""
    names: set[str] = set()
    for path in sorted(project.glob("**/Pulumi.*.yaml")):
        with suppress(CliError):
            document = read_yaml(path)
            names |= _types(document if isinstance(document, dict) else {})
    return names


def _types(document: dict[str, Any]) -> set[str]:
    config = document.get("config")
    cluster = config.get("everspot:cluster") if isinstance(config, dict) else None
    capacity = cluster.get("capacity") if isinstance(cluster, dict) else None
    listed = capacity.get("instanceTypes") if isinstance(capacity, dict) else None
    entries = listed if isinstance(listed, list) else []
    names = [entry.get("type") if isinstance(entry, dict) else entry for entry in entries]
    return {name for name in names if isinstance(name, str)}


def _show(
    session: Session,
    catalogue: Catalogue,
    region: str,
    names: Collection[str],
    table: PriceTable | None,
    written: Path | None = None,
) -> None:
    """Print the prices of types in a region. `table`: what was read just now, if anything."""
    today = session.prices_now.date()
    rows = []
    for name in names:
        listed, spot = catalogue.on_demand(name, region), catalogue.spot_range(name, region)
        dated = listed or (spot[0] if spot else None)
        rows.append(
            {
                "instance_type": name,
                "on_demand_usd_per_hour": listed.usd_per_hour if listed else None,
                "spot_usd_per_hour": [p.usd_per_hour for p in spot] if spot else None,
                "price_as_of": str(dated.as_of) if dated and dated.as_of else None,
                "price_age": dated.age(today) if dated else None,
                "price_source": dated.source if dated else None,
            }
        )
    unpriced = {} if table is None else {name: reason for name, reason in table.unpriced.items() if name in names}
    if session.json:
        file = {} if written is None else {"file": str(written)}
        session.answer({"region": region, "written": table is not None, **file, "prices": rows, "unpriced": unpriced})
        return
    sources = list(dict.fromkeys(str(row["price_source"]) for row in rows if row["price_source"]))
    session.console.print(_table(rows, sources))
    notes = [
        f"{_done(catalogue, table, written)}{counted(len(rows), 'type')} in {region}; Spot from the cheapest to the "
        "most expensive zone."
    ]
    notes += [f"Prices{f' ({n})' if len(sources) > 1 else ''}: {source}." for n, source in enumerate(sources, 1)]
    notes += [f"No price: {', '.join(names)}: {reason}." for reason, names in _by_reason(unpriced).items()]
    if not rows:
        notes = [f"No price of {region} is known. {refresh_command(region)} reads the price lists."]
    elif any(row["price_source"] is None for row in rows):
        notes.append(
            f"Without a price: {refresh_command(region)} reads the price lists; or declare onDemandUsdPerHour with the "
            "type in the stack's settings."
        )
    session.console.print("\n".join(notes), style="dim", soft_wrap=True)


def _by_reason(unpriced: dict[str, str]) -> dict[str, list[str]]:
    reasons: dict[str, list[str]] = {}
    for name, reason in sorted(unpriced.items()):
        reasons.setdefault(reason, []).append(name)
    return reasons


def _done(catalogue: Catalogue, table: PriceTable | None, written: Path | None) -> str:
    """Return the sentence on what was written, if anything was."""
    if table is None:
        return ""
    where = "Noted for the cluster" if written is None else f"Written to {written}"
    if days := unlisted(catalogue, table):
        return f"{where}: Spot prices. On-demand prices stay the catalogue's of {days[0]}. "
    return f"{where}. "


def _table(rows: list[dict[str, Any]], sources: list[str]) -> Table:
    """Return a row for each type. Where prices have several sources, each row has the number of its own."""
    several = len(sources) > 1
    table = empty_table(
        ["TYPE", "ON-DEMAND $/H", "SPOT $/H", "AS OF", *(["SOURCE"] if several else [])], text_columns=1
    )
    for row in rows:
        usd, low_high = row["on_demand_usd_per_hour"], row["spot_usd_per_hour"]
        table.add_row(
            row["instance_type"],
            f"{usd:.4f}" if usd else "—",
            "—" if not low_high else f"{low_high[0]:.4f}" + ("" if len(set(low_high)) == 1 else f"-{low_high[1]:.4f}"),
            row["price_as_of"] or "—",
            *([f"({sources.index(row['price_source']) + 1})" if row["price_source"] else "—"] if several else []),
        )
    return table
