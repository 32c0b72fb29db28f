"""Instance types: their resources, the regions that offer them, and their prices, each with a dated source."""

import csv
import difflib
import json
import re
from collections.abc import Iterable, Mapping
from datetime import date
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any

from pydantic import Field, ValidationInfo, field_validator

from everspot_core.counting import counted
from everspot_core.documents import Frozen

_LETTER_ZONE = re.compile(r"^([a-z]{2,4}(?:-[a-z]+)+-\d+)(?:[a-z]|-[a-z]+-\d+[a-z])\Z")
_DASHED_ZONE = re.compile(r"^([a-z]+-[a-z]+\d+)-[a-z]\Z")


_BURSTABLE = re.compile(r"t\d[a-z]*\.|(e2-(micro|small|medium)|f1-micro|g1-small)$")


def is_burstable(name: str) -> bool:
    """Return whether a type's processors are its own for a part of the time only; see `InstanceType.is_burstable`."""
    return _BURSTABLE.match(name) is not None


class InstanceType(Frozen):
    """An instance type and its resources. Memory is in GiB; `gpu_memory_gib` is the memory of each GPU."""

    name: str
    arch: str = Field(default="x86_64", description="x86_64 or arm64.")
    vcpus: int = Field(ge=1, le=10_000)
    memory_gib: float = Field(gt=0, le=1_000_000)
    gpus: int = Field(default=0, ge=0, le=1_000)
    gpu: str | None = None
    gpu_memory_gib: float = Field(default=0, ge=0, le=10_000)
    local_nvme_gb: float = Field(
        default=0, ge=0, le=1_000_000, description="NVMe disks of the machine itself, in GB; scratch, lost with it."
    )
    network_gbps: float | None = Field(
        default=None,
        gt=0,
        le=100_000,
        description="What its network carries at any time, Gbit/s, of one network card; None: not known.",
    )
    efa_interfaces: int | None = Field(
        default=None,
        ge=0,
        le=1_000,
        description="Network adapters for RDMA, such as EFA, that it takes; None: unknown.",
    )
    nvswitch: bool | None = Field(
        default=None, description="Whether an NVSwitch joins its GPUs, which needs a fabric manager; None: not known."
    )
    on_demand_usd_per_hour: float | None = Field(
        default=None,
        gt=0,
        le=10_000,
        description="Only for types declared in place; the catalogue keeps prices by region and date.",
    )

    @property
    def is_burstable(self) -> bool:
        """Whether its processors are its own for a part of the time only, by its name. Under the steady load of
        training the rest costs credits, or is not there. Sources: the clouds' user guides, "Burstable performance
        instances" and "Shared-core machine types"."""
        return is_burstable(self.name)

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, bool) and info.field_name != "nvswitch":
            raise ValueError(f"has to be a number or a text, not {str(value).lower()}")
        return value


class Price(Frozen):
    """A price in US dollars per hour, and its source. `as_of` None: declared in place without a date."""

    usd_per_hour: float = Field(gt=0)
    as_of: date | None
    source: str = Field(min_length=1)
    note: str = ""

    def age(self, today: date) -> str:
        """Return how old the price is, for people: `seen today`, `12 days old`, `10 months old`, or `undated`."""
        if self.as_of is None:
            return "undated"
        days = (today - self.as_of).days
        if days <= 0:
            return "seen today"
        if days < 60:
            return f"{counted(days, 'day')} old"
        return f"{counted(days * 12 // 365, 'month')} old" if days < 730 else f"{counted(days // 365, 'year')} old"


class Offer(Frozen):
    """An instance type in one region: its prices, as far as they are known, and its zones."""

    instance_type: str
    region: str
    zones: tuple[str, ...] = ()
    on_demand: Price | None = None
    spot: tuple[Price, Price] | None = None


class UnknownInstanceType(KeyError):
    """A type name that the catalogue lacks. `near`: similar names that it has."""

    def __init__(self, name: str, near: Iterable[str]) -> None:
        self.name, self.near = name, tuple(near)
        suggestion = f"; did you mean {' or '.join(self.near)}?" if self.near else ""
        super().__init__(
            f"instance type {name!r} is not in the catalogue{suggestion} A type that it lacks can be declared in "
            "place, with vcpus, memory_gib and on_demand_usd_per_hour"
        )

    def __str__(self) -> str:
        return str(self.args[0])


class Catalogue:
    """Instance types by name, and their offers by region. Immutable."""

    def __init__(self, types: Iterable[InstanceType], offers: Iterable[Offer]) -> None:
        self._types = MappingProxyType({t.name: t for t in types})
        self._offers = MappingProxyType({(o.instance_type, o.region): o for o in offers})

    @property
    def types(self) -> Mapping[str, InstanceType]:
        """Every type by its name."""
        return self._types

    @property
    def regions(self) -> tuple[str, ...]:
        """The regions for which there are offers, sorted."""
        return tuple(sorted({region for _, region in self._offers}))

    def get(self, name: str) -> InstanceType:
        """Return the type of this name.

        Raises:
            UnknownInstanceType: if no type has this name. The message lists similar names.
        """
        try:
            return self._types[name]
        except KeyError:
            raise UnknownInstanceType(name, difflib.get_close_matches(name, self._types, n=3)) from None

    def on_demand(self, name: str, region: str) -> Price | None:
        """Return the on-demand price of a type in a region. A price declared in place wins, and holds in every
        region."""
        declared = self._types[name].on_demand_usd_per_hour if name in self._types else None
        if declared is not None:
            return Price(usd_per_hour=declared, as_of=None, source="declared in the settings")
        offer = self._offers.get((name, region))
        return offer.on_demand if offer is not None else None

    def most_expensive(self, name: str) -> Price | None:
        """Return the highest on-demand price of a type over all regions."""
        prices = [self.on_demand(name, region) for kind, region in self._offers if kind == name]
        return max((price for price in prices if price is not None), key=lambda p: p.usd_per_hour, default=None)

    def spot_range(self, name: str, region: str) -> tuple[Price, Price] | None:
        """Return lowest and highest spot price over the region's zones at the moment the source was taken."""
        offer = self._offers.get((name, region))
        return offer.spot if offer else None

    def zones(self, name: str, region: str) -> tuple[str, ...]:
        """Return zones that offer the type, by the ids or names of the source; empty if the source does not say."""
        offer = self._offers.get((name, region))
        return offer.zones if offer else ()

    def offered(self, region: str) -> tuple[str, ...]:
        """Return names of the types that the source lists in a region, in the source's order."""
        return tuple(name for name, offer_region in self._offers if offer_region == region)

    def with_types(self, extras: Iterable[InstanceType]) -> "Catalogue":
        """Return this catalogue with types declared in place, which replace types of the same name."""
        return Catalogue([*self._types.values(), *extras], self._offers.values())

    def with_missing_types(self, more: Iterable[InstanceType]) -> "Catalogue":
        """Return this catalogue with those of some types that it lacks."""
        return Catalogue([*more, *self._types.values()], self._offers.values())

    def with_offers(self, offers: Iterable[Offer]) -> "Catalogue":
        """Return this catalogue with newer offers, which replace offers of the same type and region."""
        return Catalogue(self._types.values(), [*self._offers.values(), *offers])


def zone_region(zone: str) -> str:
    """Return the region of a zone name: `us-east-1` of `us-east-1a`, `us-central1` of `us-central1-a`.

    Raises:
        ValueError: if no cloud names its zones so.
    """
    match = _LETTER_ZONE.match(zone) or _DASHED_ZONE.match(zone)
    if match is None:
        raise ValueError(f"{zone!r} is not the name of a zone, such as us-east-1a or us-central1-a")
    return match.group(1)


@cache
def builtin() -> Catalogue:
    """Return the catalogue that comes with Everspot: a snapshot of each cloud. Every price carries its source and
    date."""
    data = resources.files("everspot_core") / "data"
    sources = json.loads((data / "sources.json").read_text())
    types: dict[str, InstanceType] = {}
    offers: list[Offer] = []
    for own in (source for source in sources.values() if "file" in source):
        for row in csv.DictReader((data / own["file"]).read_text().splitlines()):
            types.setdefault(row["instance_type"], _type(row))
            if row["region"]:  # otherwise no price of the type is known anywhere
                offers.append(_offer(row, sources[row["source"]] if row["source"] else own))
    return Catalogue(types.values(), offers)


def _type(row: Mapping[str, str]) -> InstanceType:
    return InstanceType(
        name=row["instance_type"],
        arch=row["arch"],
        vcpus=int(row["vcpus"]),
        memory_gib=float(row["memory_gib"]),
        gpus=int(row["gpus"] or 0),
        gpu=row["gpu"] or None,
        gpu_memory_gib=float(row["gpu_memory_gib"] or 0),
        local_nvme_gb=float(row["local_nvme_gb"] or 0),
        network_gbps=float(row["network_gbps"]) if row["network_gbps"] else None,
        efa_interfaces=int(row["efa_interfaces"]) if row["efa_interfaces"] else None,
        nvswitch={"yes": True, "no": False}.get(row["nvswitch"]),
    )


def _offer(row: Mapping[str, str], source: Mapping[str, str]) -> Offer:
    def price(column: str) -> Price | None:
        if not row[column]:
            return None
        note = "; ".join(n for n in (source["note"], row["note"]) if n)
        as_of = date.fromisoformat(source["as_of"])
        return Price(usd_per_hour=float(row[column]), as_of=as_of, source=source["source"], note=note)

    low, high = price("spot_usd_per_hour_min"), price("spot_usd_per_hour_max")
    return Offer(
        instance_type=row["instance_type"],
        region=row["region"],
        zones=tuple(z for z in row["zones"].split(";") if z),
        on_demand=price("on_demand_usd_per_hour"),
        spot=(low, high) if low and high else None,
    )
