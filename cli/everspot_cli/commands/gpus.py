"""`everspot gpus`: which types with GPUs there are, where, and what they cost."""

from datetime import date
from typing import Annotated, Any

import typer
from everspot_clouds.price_files import refresh_command
from everspot_core.capacity.catalogue import Catalogue
from everspot_core.capacity.gpu_offers import GpuOffer, has_model, list_gpu_offers, list_models
from everspot_core.cluster.manifest import Manifest
from everspot_core.counting import counted
from everspot_core.validation.problems import near

from everspot_cli.commands.options import Json, current_session
from everspot_cli.errors import CliError, Exit
from everspot_cli.pricing import load_catalogue
from everspot_cli.session import Session
from everspot_cli.tables import empty_table

SHOWN = 40
"""Rows of the table; `--json` has all."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("gpus")(gpus)


def gpus(
    context: typer.Context,
    model: Annotated[
        str | None, typer.Option("--model", metavar="GPU", help="This GPU only, such as L4 or A100. Default: all.")
    ] = None,
    region: Annotated[
        list[str] | None,
        typer.Option("--region", metavar="REGION", help="This region; again for more. Default: all with known prices."),
    ] = None,
    json: Json = False,
) -> None:
    """Show the GPUs of every cloud by region with their prices, the cheapest GPU first.

    Prices come from the project's files and from the cluster in use, otherwise from Everspot's catalog, each with its
    date. CLUSTER is the number of instances of the type that the cluster in use may have.
    """
    session = current_session(context, json)
    manifest = session.manifest if session.has_cluster else None
    catalogue = session.catalogue if manifest is not None else load_catalogue(session)
    if model is not None and not any(has_model(kind, model) for kind in catalogue.types.values()):
        models = list_models(catalogue.types.values())
        hint = ", ".join(models)
        raise CliError(f"no known type has the GPU {model}{near(model, models)}", Exit.NOT_FOUND, hint=hint)
    offers = list_gpu_offers(catalogue, model, region)
    rows = [_row(offer, manifest, session.now.date()) for offer in offers]
    if session.json:
        session.answer({"offers": rows})
        return
    if rows:
        _print(session, rows)
    session.console.print("\n".join(_notes(catalogue, rows, model, region)), style="dim", soft_wrap=True)


def _row(offer: GpuOffer, manifest: Manifest | None, today: date) -> dict[str, Any]:
    kind, dated = offer.instance_type, offer.on_demand or (offer.spot[0] if offer.spot else None)
    return {
        "gpu": kind.gpu,
        "gpus": kind.gpus,
        "gpu_memory_gib": kind.gpu_memory_gib,
        "instance_type": kind.name,
        "region": offer.region,
        "on_demand_usd_per_hour": offer.on_demand.usd_per_hour if offer.on_demand else None,
        "spot_usd_per_hour": [price.usd_per_hour for price in offer.spot] if offer.spot else None,
        "usd_per_gpu_hour": offer.usd_per_gpu_hour,
        "cluster_instances": None if manifest is None else _allowed(offer, manifest),
        "price_as_of": str(dated.as_of) if dated and dated.as_of else None,
        "price_age": dated.age(today) if dated else None,
    }


def _allowed(offer: GpuOffer, manifest: Manifest) -> int:
    """Return how many instances of a type a cluster may have at most: standing ones, and launched ones."""
    if offer.region != manifest.region:
        return 0
    name, standing, elastic = offer.instance_type.name, manifest.standing, manifest.elastic
    units = standing.on_demand_units + standing.spot_units if standing and name in standing.weights else 0
    always = int(units // standing.weights[name]) if standing and units else 0
    return always + (elastic.max_instances if elastic is not None and name in elastic.types else 0)


def _print(session: Session, rows: list[dict[str, Any]]) -> None:
    with_cluster = rows[0]["cluster_instances"] is not None
    columns = ["GPUS", "TYPE", "REGION", "$/H", "SPOT $/H", "PER GPU", "AS OF"]
    table = empty_table([*columns, *(["CLUSTER"] if with_cluster else [])], text_columns=3, whole=columns[:2])
    for row in rows[:SHOWN]:
        usd, low_high = row["on_demand_usd_per_hour"], row["spot_usd_per_hour"]
        table.add_row(
            f"{row['gpus']}x{row['gpu']} {row['gpu_memory_gib']:.0f}G",
            row["instance_type"],
            row["region"],
            f"{usd:.3f}" if usd else "—",
            "—" if not low_high else f"{low_high[0]:.3f}" + ("" if len(set(low_high)) == 1 else f"-{low_high[1]:.3f}"),
            f"{row['usd_per_gpu_hour']:.3f}",
            row["price_as_of"] or "—",
            *([str(row["cluster_instances"] or "—")] if with_cluster else []),
        )
    session.console.print(table)


def _notes(catalogue: Catalogue, rows: list[dict[str, Any]], model: str | None, regions: list[str] | None) -> list[str]:
    notes = [f"{counted(len(rows), 'offer')}, by the lowest known price of a GPU."] if rows else []
    if len(rows) > SHOWN:
        notes[0] = f"{SHOWN} of {counted(len(rows), 'offer')}, by the lowest known price of a GPU; --json has all."
    unknown = sorted(set(regions or ()) - set(catalogue.regions))
    notes += [f"No price of {region} is known: {refresh_command(region)} reads the price lists." for region in unknown]
    if not rows and not unknown:
        notes.append(f"No price of {model or 'a GPU'} is known in {', '.join(regions or catalogue.regions)}.")
    if regions is None:
        notes.append(f"Other regions than {', '.join(catalogue.regions)}: {refresh_command('REGION')}.")
    return notes
