"""The price tables by which a change is reviewed: those before the change, because the change itself may edit them."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce

from everspot_clouds.price_files import FOLDER, BadPriceFile, file_name, load_catalogue, project_prices, read_tables
from everspot_core.capacity.catalogue import Catalogue, Price, builtin
from everspot_core.capacity.price_table import PriceTable, TypePrice, priced
from everspot_core.counting import first_few

from everspot_review.affected import Project, git, git_output
from everspot_review.errors import ReviewError

_SHOWN = 5
"""Prices, or types, of a file in a sentence."""


@contextmanager
def use_prices(project: Project, base: str) -> Iterator[tuple[str, ...]]:
    """Price with the project's own tables while the block runs: a workflow's commands run outside of the project.

    The tables are those of the revision that HEAD and `base` have in common. Of the present tables only prices are used
    that are not known without them: a change may name a new type and add its prices. The block gets a sentence on each
    file that the change edits. `base`: empty for the tables as they are now.

    Raises:
        ReviewError: if one of the present tables cannot be read.
    """
    try:
        tables = read_tables(project.root / FOLDER)
    except BadPriceFile as error:
        raise ReviewError(str(error)) from None
    if not base:
        with project_prices(tables):
            yield ()
        return
    earlier = _tables_at(project, base)
    with project_prices(earlier):
        base_catalogue = load_catalogue()
    additions = [_addition(table, base_catalogue) for table in tables]
    with project_prices([*earlier, *additions]):
        yield tuple(_describe_changes(earlier, tables, {_name(table): table for table in additions}, base_catalogue))


def _addition(table: PriceTable, base_catalogue: Catalogue) -> PriceTable:
    """Return what a table adds to the prices of the base. Its prices of everything but instances are added only for a
    region without a known price; elsewhere those of another region stand in."""
    rows = [_unknown_prices(row, table.region, base_catalogue) for row in table.prices]
    return table.model_copy(
        update={
            "prices": [row for row in rows if row.on_demand_usd_per_hour is not None or row.spot_usd_per_hour],
            "types": [each.model_copy(update={"on_demand_usd_per_hour": None}) for each in table.types],
            "other_usd": {} if table.region in base_catalogue.regions else table.other_usd,
        }
    )


def _unknown_prices(row: TypePrice, region: str, base_catalogue: Catalogue) -> TypePrice:
    """Return those prices of a row that are not known. An on-demand price below all known spot prices is left out:
    it would lower them, because an estimate has no spot price above the on-demand price."""
    on_demand = base_catalogue.on_demand(row.instance_type, region)
    spot = base_catalogue.spot_range(row.instance_type, region)
    usd = row.on_demand_usd_per_hour if on_demand is None else None
    if usd is not None and spot is not None and usd < spot[0].usd_per_hour:
        usd = None
    prices = {"on_demand_usd_per_hour": usd, "spot_usd_per_hour": row.spot_usd_per_hour if spot is None else {}}
    return row.model_copy(update=prices)


def _tables_at(project: Project, base: str) -> list[PriceTable]:
    """Return the readable tables of the revision that HEAD and `base` have in common."""
    common = git(project.root, "merge-base", base, "HEAD").strip()
    inside = git(project.root, "rev-parse", "--show-prefix").strip()
    paths = git(project.root, "ls-tree", "--full-tree", "--name-only", "-z", common, f"{inside}{FOLDER}/").split("\0")
    tables = []
    for path in (each for each in paths if each.endswith(".json")):
        try:
            table = PriceTable.read(git_output(project.root, "show", f"{common}:{path}"))
        except ValueError:  # nothing was priced with it before the change either
            continue
        if path == f"{inside}{FOLDER}/{_name(table)}":
            tables.append(table)
    return tables


def _describe_changes(
    earlier: Sequence[PriceTable],
    present: Sequence[PriceTable],
    additions: Mapping[str, PriceTable],
    base_catalogue: Catalogue,
) -> Iterator[str]:
    """Yield a sentence on each changed file. `additions`: what each file adds to the prices of `base_catalogue`."""
    before, after = ({_name(table): table for table in side} for side in (earlier, present))
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if old == new:
            continue
        table = new or old
        if table is None:
            continue
        types = [row.instance_type for row in additions[name].prices] if name in additions else []
        if not types:
            use = "The figures are at the prices before the change."
        elif table.region not in base_catalogue.regions:
            use = "Its prices are in the figures, because no other prices of the region are known."
        else:
            use = (
                "The figures are at the prices before the change, except where none was known: they have its prices "
                f"of {first_few(types, _SHOWN)}."
            )
        verb = "removes" if new is None else "adds" if old is None else "edits"
        prices = _changed_prices(table.region, reduce(priced, earlier, builtin()), reduce(priced, present, builtin()))
        largest = f" Prices per hour: {first_few(prices, _SHOWN)}." if prices else ""
        yield f"The change {verb} {FOLDER}/{name}. {use}{largest}"


def _name(table: PriceTable) -> str:
    return file_name(table.cloud, table.region)


def _changed_prices(region: str, before: Catalogue, after: Catalogue) -> list[str]:
    """Return the changed prices of a region's types as texts, the largest changes first."""
    changes: list[tuple[float, str]] = []  # by how much, and the text
    for name in {*before.offered(region), *after.offered(region)}:
        for market, old, new in (
            ("on-demand", before.on_demand(name, region), after.on_demand(name, region)),
            ("spot", _lowest_spot(before, name, region), _lowest_spot(after, name, region)),
        ):
            sides = [price.usd_per_hour if price is not None else None for price in (old, new)]
            if sides[0] != sides[1]:
                first, second = sides
                factor = abs(math.log(second / first)) if first and second else 0.0
                shown = " → ".join("unknown" if side is None else f"${side:,.4g}" for side in sides)
                changes.append((factor, f"{name} {market} {shown}"))
    return [text for _, text in sorted(changes, key=lambda change: (-change[0], change[1]))]


def _lowest_spot(catalogue: Catalogue, name: str, region: str) -> Price | None:
    spot = catalogue.spot_range(name, region)
    return spot[0] if spot is not None else None
