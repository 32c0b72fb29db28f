"""A dated table of one region's prices, which replaces the catalogue's own."""

from datetime import date, datetime, timedelta

from pydantic import Field

from everspot_core.capacity.catalogue import Catalogue, InstanceType, Offer, Price
from everspot_core.documents import Document, Stored, Utc

STALE = timedelta(days=30)
"""Age from which on prices are called old. List prices change a few times a year, spot prices every day."""


class TypePrice(Stored):
    """Prices of one instance type in US dollars per hour: on-demand, and Spot by zone."""

    instance_type: str
    on_demand_usd_per_hour: float | None = Field(default=None, gt=0)
    spot_usd_per_hour: dict[str, float] = Field(default_factory=dict, description="By zone name; each above 0.")


class PriceTable(Document):
    """The prices of one region at one moment, as the cloud's own price lists stated them."""

    cloud: str
    region: str
    as_of: Utc
    on_demand_source: str
    spot_source: str
    prices: list[TypePrice]
    types: list[InstanceType] = Field(
        default_factory=list, description="Resources of types, as the cloud's API described them."
    )
    unpriced: dict[str, str] = Field(
        default_factory=dict, description="By type, why the price lists give no on-demand price of it."
    )
    other_usd: dict[str, float] = Field(
        default_factory=dict,
        description="Prices of everything but instances, in US dollars, by the names that the cloud's adapter has for "
        "them: of an hour of a NAT gateway, of a GiB of a volume for a month, and so on.",
    )

    def age(self, now: datetime) -> timedelta:
        """Return the age of the prices; never negative."""
        return max(now - self.as_of, timedelta(0))


def priced(catalogue: Catalogue, table: PriceTable | None) -> Catalogue:
    """Return the catalogue with a table's prices for the types and the region of the table.

    A price that the table lacks stays the catalogue's, with the catalogue's date. Types that the catalogue lacks are
    added. Without a table the catalogue is unchanged.
    """
    if table is None:
        return catalogue
    extended = catalogue.with_missing_types(table.types)
    return extended.with_offers(_offer(catalogue, table, row) for row in table.prices)


def newest_last(*tables: PriceTable | None) -> list[PriceTable]:
    """Return those of some tables that exist, the oldest first: so applied, the newest price of each type wins."""
    return sorted((table for table in tables if table is not None), key=lambda table: table.as_of)


def unlisted(catalogue: Catalogue, table: PriceTable) -> list[date]:
    """Return the days of the on-demand prices that the table does not state and that stay the catalogue's, oldest
    first. Not every cloud has a price list by machine type."""
    names = (row.instance_type for row in table.prices if row.on_demand_usd_per_hour is None)
    prices = (catalogue.on_demand(name, table.region) for name in names)
    return sorted({price.as_of for price in prices if price is not None and price.as_of is not None})


def _offer(catalogue: Catalogue, table: PriceTable, row: TypePrice) -> Offer:
    name, region, day = row.instance_type, table.region, table.as_of.date()
    listed = catalogue.on_demand(name, region)
    if row.on_demand_usd_per_hour is not None:
        listed = Price(usd_per_hour=row.on_demand_usd_per_hour, as_of=day, source=table.on_demand_source)
    spot = catalogue.spot_range(name, region)
    if row.spot_usd_per_hour:
        low, high = min(row.spot_usd_per_hour.values()), max(row.spot_usd_per_hour.values())
        spot = (
            Price(usd_per_hour=low, as_of=day, source=table.spot_source),
            Price(usd_per_hour=high, as_of=day, source=table.spot_source),
        )
    return Offer(instance_type=name, region=region, zones=catalogue.zones(name, region), on_demand=listed, spot=spot)
