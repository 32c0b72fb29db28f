"""The types and prices for checking and estimating a component: from the project's files, else from Everspot's catalog,
else from the cloud's price lists."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pulumi
from everspot_clouds import price_files
from everspot_clouds.price_files import BadPriceFile, project_table, refresh_command
from everspot_clouds.price_lookup import LookUp, look_up
from everspot_core.capacity.catalogue import Catalogue, builtin
from everspot_core.capacity.price_table import PriceTable, priced


def load_catalogue() -> Catalogue:
    """Return the types and prices that are known without asking.

    Raises:
        pulumi.RunError: if a file of the project's prices cannot be read.
    """
    try:
        return price_files.load_catalogue()
    except BadPriceFile as error:
        raise pulumi.RunError(str(error)) from None


def ask_for_missing(catalogue: Catalogue, region: str, names: Collection[str]) -> LookUp:
    """Return what the region's price lists answer for those of some types that the catalogue has no price of; nothing
    if it has all.

    Raises:
        pulumi.RunError: if a file of the project's prices cannot be read.
    """
    missing = sorted({name for name in names if catalogue.on_demand(name, region) is None})
    if not region or not missing:
        return LookUp()
    try:
        return look_up(region, missing)
    except BadPriceFile as error:
        raise pulumi.RunError(str(error)) from None


def with_missing(catalogue: Catalogue, region: str, names: Collection[str]) -> Catalogue:
    """Return a catalogue with the prices of some types in a region that it lacks, as the price lists have them."""
    return priced(catalogue, ask_for_missing(catalogue, region, names).table)


def unpriced_types(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the types of a spec whose price is not declared in place."""
    return [entry["type"] for entry in entries if "on_demand_usd_per_hour" not in entry]


def declared_prices(cloud: str, region: str, names: Collection[str]) -> PriceTable | None:
    """Return the on-demand prices of a cluster's types that its scheduler cannot know otherwise, for `cluster.json`:
    those of the project's file, or of the price lists. None if the catalogue that comes with Everspot has all.

    Spot prices are left out: the scheduler asks for them, and they would change the document every day.

    Raises:
        pulumi.RunError: if a file of the project's prices cannot be read.
    """
    # Whatever this machine has cached, the scheduler knows the shipped catalogue alone.
    table = project_table(cloud, region) or ask_for_missing(builtin(), region, names).table
    if table is None:
        return None
    rows = [
        row.model_copy(update={"spot_usd_per_hour": {}})
        for row in table.prices
        if row.instance_type in names and row.on_demand_usd_per_hour is not None
    ]
    return table.model_copy(update={"prices": rows, "types": [], "unpriced": {}}) if rows else None


def tell_of_asking(parent: pulumi.Resource, region: str, names: Collection[str]) -> None:
    """Say in a preview that prices were asked of the price lists, and how they are kept for reviews."""
    answer = ask_for_missing(load_catalogue(), region, names)
    if pulumi.runtime.is_dry_run() and answer.table is not None:
        pulumi.log.info(
            f"Prices of {region} were read from the price lists just now; {refresh_command(region)} keeps them in the "
            "project, where reviews see them",
            parent,
        )
