"""Spot prices from Compute Engine: advice.capacityHistory. They hold for a region and change once a day at most.

Sources: Compute API, CapacityHistoryRequest and CapacityHistoryResponse; "View Spot VM preemption rates and prices":
prices of a year, by region, in US dollars, for whole VMs; none for N1 types with attached GPUs and for custom types.
For those, and for types that the API refuses, the price of the catalogue and of the cluster's price tables is used,
each from its date on and with its source.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, time, timedelta
from typing import Any

from everspot_core.capacity.catalogue import builtin, zone_region
from everspot_core.capacity.market import Market
from everspot_core.capacity.price_table import PriceTable, TypePrice, newest_last
from everspot_core.clock import Clock
from everspot_core.costs.ledger import PricePoint
from everspot_store import BadDocument, Store

from everspot_clouds.base import Trouble
from everspot_clouds.gcp.errors import ApiError, trouble
from everspot_clouds.gcp.http_api import Api
from everspot_clouds.gcp.instances import moment
from everspot_clouds.gcp.machines import parse_type

SOURCE = "compute:advice.capacityHistory"
KEPT = timedelta(hours=1)
"""Market time for which an answer is used again: prices change at midnight, Pacific time."""
_log = logging.getLogger(__name__)

Steps = tuple[tuple[datetime, float, str], ...]
"""Moments, the dollars per hour from each moment on, and the sources; oldest first."""


Tables = Callable[[], Sequence[PriceTable]]
"""Reads the price tables of a cluster, the oldest first."""


def no_tables() -> Sequence[PriceTable]:
    """Return no table."""
    return ()


def stored_tables(store: Store) -> list[PriceTable]:
    """Return the price tables of a cluster, the oldest first: of its settings, and of `everspot cost prices refresh`.

    Raises:
        StoreError: if the store failed. A document that cannot be read is logged and left out.
    """

    def declared() -> PriceTable | None:
        manifest = store.read_manifest()
        return manifest.value.list_prices if manifest is not None else None

    tables: list[PriceTable | None] = []
    for read_table in (declared, store.price_table):
        try:
            tables.append(read_table())
        except BadDocument as error:
            _log.error("%s: its prices are not used", error)
    return newest_last(*tables)


class SpotPrices:
    """Spot prices of one project, with a short memory. `tables`: of the cluster, for types of which the API states no
    price."""

    def __init__(self, api: Api, clock: Clock, tables: Tables = no_tables) -> None:
        self._api, self._clock, self._tables = api, clock, tables
        self._answers: dict[tuple[str, str], tuple[datetime, Steps]] = {}

    def spot_prices(self, pools: Iterable[tuple[str, str]], since: datetime) -> list[PricePoint]:
        """See `Cloud.spot_prices`. Raises the errors of `Api`."""
        zones: dict[tuple[str, str], set[str]] = defaultdict(set)
        for instance_type, zone in pools:
            zones[instance_type, zone_region(zone)].add(zone)
        points = [
            PricePoint(instance_type=name, zone=zone, market=Market.SPOT, at=at, usd_per_hour=usd, source=source)
            for (name, region), pool_zones in sorted(zones.items())
            for at, usd, source in in_force(self._steps(name, region), since)
            for zone in sorted(pool_zones)
        ]
        return sorted(points, key=lambda p: (p.at, p.instance_type, p.zone))

    def _steps(self, name: str, region: str) -> Steps:
        now, cached = self._clock.now(), self._answers.get((name, region))
        if cached is not None and now - cached[0] < KEPT:
            return cached[1]
        steps = self._request_steps(name, region) or listed(name, region, self._tables())
        self._answers[name, region] = now, steps
        return steps

    def _request_steps(self, name: str, region: str) -> Steps:
        machine = parse_type(name)
        if machine.attached:
            return ()
        try:
            return read(request_history(self._api, machine.machine, region))
        except ApiError as error:
            if trouble(error) is not Trouble.REQUEST:
                raise
            _log.info("no prices of %s in %s (%s): the catalogue's are taken", name, region, error)
            return ()


def request_history(api: Api, machine: str, region: str) -> dict[str, Any]:
    """Return the answer about one machine type. Raises the errors of `Api`."""
    body = {
        "types": ["PRICE"],
        "instanceProperties": {"machineType": machine, "scheduling": {"provisioningModel": "SPOT"}},
    }
    return api.call("POST", "compute", f"projects/{api.project}/regions/{region}/advice/capacityHistory", body=body)


def read(answer: Mapping[str, Any]) -> Steps:
    """Return the prices of an answer, oldest first. Prices in another currency, and empty ones, are left out."""
    steps = []
    for record in answer.get("priceHistory") or ():
        price, start = record.get("listPrice") or {}, (record.get("interval") or {}).get("startTime")
        usd = int(price.get("units") or 0) + int(price.get("nanos") or 0) / 1e9
        if start and usd > 0 and price.get("currencyCode", "USD") == "USD":
            steps.append((moment(start), round(usd, 9), SOURCE))
    return tuple(sorted(steps))


def listed(name: str, region: str, tables: Sequence[PriceTable] = ()) -> Steps:
    """Return the prices of a type in the catalogue and in newer price tables, each from its date on; none if none of
    them has the type. `tables`: the oldest first.

    It is one price for all zones: the highest, because where they differ the bill must not be too low.
    """
    steps = []
    price_range = builtin().spot_range(name, region)
    if price_range is not None and (highest := price_range[1]).as_of is not None:
        steps.append((datetime.combine(highest.as_of, time(), UTC), highest.usd_per_hour, highest.source))
    for table in tables:
        usd = [max(row.spot_usd_per_hour.values()) for row in table.prices if _prices_spot(row, name)]
        if table.region == region and usd:
            steps.append((table.as_of, usd[-1], table.spot_source))
    return tuple(sorted(steps))


def _prices_spot(row: TypePrice, name: str) -> bool:
    return row.instance_type == name and bool(row.spot_usd_per_hour)


def in_force(steps: Steps, since: datetime) -> Steps:
    """Return the price in force at a moment and every change after it. If all prices are younger than that moment, only
    the changes are returned."""
    before = [step for step in steps if step[0] <= since]
    after = [step for step in steps if step[0] > since]
    return (*before[-1:], *after)
