"""`everspot cost prices`: the prices that the cluster uses, their age, and newer ones from the cloud's price lists."""

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any

import typer
from everspot_clouds.base import CloudError, NotOffered
from everspot_core.capacity.price_table import PriceTable, unlisted
from everspot_core.counting import counted
from rich.table import Table

from everspot_cli.commands.options import Json, current_session
from everspot_cli.errors import CliError, Exit
from everspot_cli.session import Session
from everspot_cli.tables import sheet


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
        typer.Argument(help="show: what is known; refresh: read the price lists and note them for the cluster."),
    ] = PricesAction.SHOW,
    type: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="TYPE", help="Show these types only. Default: the region's."),
    ] = None,
    json: Json = False,
) -> None:
    """Show the prices that the cluster uses, or read newer ones from the cloud's own price lists.

    refresh needs the internet and your credentials. It writes one dated table into the control bucket, which catalogue,
    scheduler and report use from then on.
    """
    session = current_session(context, json)
    if action is PricesAction.REFRESH:
        table = _refresh(session)
        session.store.write_price_table(table)
        session.__dict__.pop("catalogue", None)
        session.__dict__["price_table"] = table
    _show(session, type or [], written=action is PricesAction.REFRESH)


def _refresh(session: Session) -> PriceTable:
    manifest = session.manifest
    region = manifest.region
    type_names = [*session.catalogue.offered(region), *(t.name for t in manifest.instance_types)]
    with session.errors.status(f"reading the price lists of {region} …") as status:
        pages = 0

        def page() -> None:
            nonlocal pages
            pages += 1
            status.update(f"reading the price lists of {region} … {pages} pages")

        table = _read_price_table(region, type_names, session, page)
    if not table.prices:
        raise CliError(f"the price lists name none of these types in {region}", hint="is the region right?")
    return table


def _read_price_table(region: str, type_names: list[str], session: Session, page: Callable[[], None]) -> PriceTable:
    try:
        return session.cloud.price_table(region, type_names, session.now, page)
    except NotOffered as error:
        raise CliError(str(error)) from None
    except CloudError as error:
        raise CliError(str(error), Exit.UNAVAILABLE, hint=error.fix) from None


def _show(session: Session, only: list[str], *, written: bool) -> None:
    catalogue, region, today = session.catalogue, session.manifest.region, session.now.date()
    names = only or sorted({*catalogue.offered(region), *(t.name for t in session.manifest.instance_types)})
    rows: list[dict[str, Any]] = []
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
    if session.json:
        session.answer({"region": region, "written": written, "prices": rows})
        return
    sources = list(dict.fromkeys(row["price_source"] for row in rows if row["price_source"]))
    session.console.print(_table(rows, sources))
    done = "Noted for the cluster. " if written else ""
    table = session.price_table
    if written and table is not None and (days := unlisted(catalogue, table)):
        done = f"Noted for the cluster: Spot prices. On-demand prices stay the catalogue's of {days[0]}. "
    notes = [f"{done}{counted(len(rows), 'type')} in {region}; Spot from the cheapest to the most expensive zone."]
    notes += [f"Prices{f' ({n})' if len(sources) > 1 else ''}: {source}." for n, source in enumerate(sources, 1)]
    if any(row["price_source"] is None for row in rows):
        notes.append("Without a price: declare onDemandUsdPerHour with the type in the stack's settings.")
    session.console.print("\n".join(notes), style="dim", soft_wrap=True)


def _table(rows: list[dict[str, Any]], sources: list[str]) -> Table:
    """Return a row for each type. Where prices have several sources, each row has the number of its own."""
    several = len(sources) > 1
    table = sheet(["TYPE", "ON-DEMAND $/H", "SPOT $/H", "AS OF", *(["SOURCE"] if several else [])], text_columns=1)
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
