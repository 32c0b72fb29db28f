"""An account's vCPU quotas: which of them apply to a fleet, and whether they suffice for its target.

Codes and names: Service Quotas, service code `ec2`
(https://docs.aws.amazon.com/ec2/latest/instancetypes/ec2-instance-quotas.html). They count the vCPUs of running
instances, per region, family group and market. Spot has quotas of its own. A new account has almost no quota for GPUs.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from everspot_core.capacity.catalogue import Catalogue, InstanceType
from everspot_core.capacity.market import Market
from everspot_core.counting import counted

CONSOLE = "https://console.aws.amazon.com/servicequotas/home/services/ec2/quotas/{code}"
"""Where a person asks for more of a quota."""
_STANDARD = frozenset("acdhimrtz")
_LETTERS = re.compile(r"[a-z]+")
_GENERATION = re.compile(r"[a-z]+\d+")
_ROUNDING = 1e-9
_OWN = frozenset({"dl", "hpc", "inf", "mac", "trn", "vt"})
"""Families that begin with the letter of another family group."""


@dataclass(frozen=True)
class Quota:
    """One quota, by its code."""

    code: str
    name: str
    market: Market
    families: frozenset[str]


QUOTAS = tuple(
    Quota(code, name, market, frozenset(families))
    for code, name, market, families in (
        ("L-1216C47A", "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances", Market.ON_DEMAND, _STANDARD),
        ("L-DB2E81BA", "Running On-Demand G and VT instances", Market.ON_DEMAND, {"g", "vt"}),
        ("L-417A185B", "Running On-Demand P instances", Market.ON_DEMAND, {"p"}),
        ("L-6E869C2A", "Running On-Demand DL instances", Market.ON_DEMAND, {"dl"}),
        ("L-74FC7D96", "Running On-Demand F instances", Market.ON_DEMAND, {"f"}),
        ("L-1945791B", "Running On-Demand Inf instances", Market.ON_DEMAND, {"inf"}),
        ("L-2C3B7624", "Running On-Demand Trn instances", Market.ON_DEMAND, {"trn"}),
        ("L-7295265B", "Running On-Demand X instances", Market.ON_DEMAND, {"x"}),
        ("L-34B43A08", "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests", Market.SPOT, _STANDARD),
        ("L-3819A6DF", "All G and VT Spot Instance Requests", Market.SPOT, {"g", "vt"}),
        ("L-7212CCBC", "All P4, P3 and P2 Spot Instance Requests", Market.SPOT, {"p4", "p3", "p2"}),
        ("L-C4BD4855", "All P5 Spot Instance Requests", Market.SPOT, {"p5"}),
        ("L-85EED4F7", "All DL Spot Instance Requests", Market.SPOT, {"dl"}),
        ("L-88CF9481", "All F Spot Instance Requests", Market.SPOT, {"f"}),
        ("L-B5D1601B", "All Inf Spot Instance Requests", Market.SPOT, {"inf"}),
        ("L-6B0D517C", "All Trn Spot Instance Requests", Market.SPOT, {"trn"}),
        ("L-E3A00192", "All X Spot Instance Requests", Market.SPOT, {"x"}),
    )
)
"""The quotas of instances that can train."""


@dataclass(frozen=True)
class Reach:
    """How much of a target one quota allows. `types`: the fleet's types that count towards it; `vcpus`: its value, None
    if unknown; `least`: vCPUs of the whole target with the type that needs the fewest; `units`: units of the target
    that fit, None for all."""

    quota: Quota
    types: tuple[str, ...]
    vcpus: float | None
    least: float
    units: float | None


_SPOT_NAME = re.compile(r"All (?P<families>[A-Z]\d+(?:(?:, | and )[A-Z]\d+)*) Spot Instance Requests")
"""The names of Spot quotas of single generations, such as those of P5."""


def stated_quotas(names: Mapping[str, str]) -> tuple[Quota, ...]:
    """Return the quotas, with those of newer generations that the account states. `names`: by code, as Service Quotas
    states them."""
    listed = {quota.code for quota in QUOTAS}
    newer = []
    for code, name in names.items():
        match = None if code in listed else _SPOT_NAME.fullmatch(name)
        if match is not None:
            families = re.split(", | and ", match["families"].lower())
            newer.append(Quota(code, name, Market.SPOT, frozenset(families)))
    return (*QUOTAS, *newer)


def find_quota(instance_type: str, market: Market, quotas: Sequence[Quota] = QUOTAS) -> Quota | None:
    """Return the quota that an instance counts towards; None if none of them is the family's: AWS's page does not say
    to which Spot quota P6 counts, so that only the account's own list tells. `quotas`: see `stated_quotas`."""
    series = instance_type.partition(".")[0]
    letters = _LETTERS.match(series)
    if letters is None:
        return None
    family = letters.group() if letters.group() in _OWN else letters.group()[0]
    # On Spot each generation of P has a quota of its own, or shares one with others by name.
    generation = _GENERATION.match(series)
    required = generation.group() if market is Market.SPOT and family == "p" and generation else family
    return next((quota for quota in quotas if quota.market is market and required in quota.families), None)


def reaches(
    units: float,
    weights: Mapping[str, float],
    catalogue: Mapping[str, InstanceType],
    market: Market,
    values: Mapping[str, float],
    most: Mapping[str, int] | None = None,
    quotas: Sequence[Quota] = QUOTAS,
) -> list[Reach]:
    """Return how much of a target of `units` each quota of the fleet allows. `values`: vCPUs by quota code; `most`:
    units by type, where more than these would cost too much: a quota need not hold more than there may ever be of its
    types."""
    groups: dict[Quota, list[str]] = {}
    for name in weights:
        quota = find_quota(name, market, quotas)
        if quota is not None and name in catalogue:
            groups.setdefault(quota, []).append(name)
    results = []
    for quota, names in groups.items():
        required = units if most is None else max(most[name] for name in names)
        results.append(_reach(quota, names, required, weights, catalogue, values.get(quota.code)))
    return results


def enough(units: float, quota_reaches: Sequence[Reach]) -> bool:
    """Return whether the quotas together reach the target. An unknown quota is taken to be enough."""
    return (
        any(reach.units is None for reach in quota_reaches) or sum(reach.units or 0 for reach in quota_reaches) >= units
    )


@dataclass(frozen=True)
class QuotaNeed:
    """A part of a cluster, and how much of it the account's quotas allow. `count`: units of standing capacity, or the
    most instances that may be launched; `markets`: their markets."""

    standing: bool
    markets: tuple[Market, ...]
    count: int
    reaches: tuple[Reach, ...]


Launchable = Mapping[Market, Mapping[str, int]]
"""By market and type: how many instances of it may be launched at most, if all of them are of this type."""


def launchable(
    count: int,
    usd_per_hour: float | None,
    markets: Iterable[Market],
    types: Sequence[str],
    catalogue: Catalogue,
    region: str,
) -> Launchable:
    """Return the launches that a cap of so many instances and of so many USD per hour allows, at the catalogue's lowest
    prices. Only the number limits a type without a price."""

    def most(name: str, market: Market) -> int:
        price, spot = catalogue.on_demand(name, region), catalogue.spot_range(name, region)
        if market is Market.SPOT and spot is not None:
            price = spot[0] if price is None or spot[0].usd_per_hour < price.usd_per_hour else price
        if usd_per_hour is None or price is None or price.usd_per_hour <= 0:
            return count
        return min(count, math.floor(usd_per_hour / price.usd_per_hour + _ROUNDING))

    return {market: {name: most(name, market) for name in types} for market in markets}


def needs(
    standing: Mapping[Market, int],
    weights: Mapping[str, float],
    elastic: Launchable,
    catalogue: Mapping[str, InstanceType],
    values: Mapping[str, float],
    quotas: Sequence[Quota] = QUOTAS,
) -> list[QuotaNeed]:
    """Return the needs of a cluster in each market: of standing capacity first, then of launches from the rest of the
    quota.

    `standing`: units by market, with the `weights` of its types; `values`: vCPUs by quota code; `quotas`: see
    `stated_quotas`.
    """
    quota_needs, remaining = [], dict(values)
    for market, units in standing.items():
        if units > 0:
            own = reaches(units, weights, catalogue, market, values, quotas=quotas)
            quota_needs.append(QuotaNeed(True, (market,), units, tuple(own)))
            remaining |= {r.quota.code: max(0.0, r.vcpus - r.least) for r in own if r.vcpus is not None}
    for market, most in elastic.items():
        each = {name: 1.0 for name, count in most.items() if count > 0}
        if each:
            count = max(most.values())
            quota_needs.append(
                QuotaNeed(
                    False, (market,), count, tuple(reaches(count, each, catalogue, market, remaining, most, quotas))
                )
            )
    return quota_needs


def shortfalls(quota_needs: Sequence[QuotaNeed], values: Mapping[str, float]) -> list[str]:
    """Return a sentence for each part that cannot be reached, with the quota to ask for. Launched instances may be of
    any of their markets, so only all of those together may fall short. `values`: vCPUs by quota code."""
    launched = [need for need in quota_needs if not need.standing]
    parts = [need for need in quota_needs if need.standing]
    if launched:
        all_reaches = tuple(reach for need in launched for reach in need.reaches)
        most = max(need.count for need in launched)
        parts.append(QuotaNeed(False, tuple(m for need in launched for m in need.markets), most, all_reaches))
    return [_shortfall(need, values) for need in parts if need.reaches and not enough(need.count, need.reaches)]


def _shortfall(need: QuotaNeed, values: Mapping[str, float]) -> str:
    where = " and ".join(market.value for market in need.markets)
    noun = "unit" if need.standing else "launched instance"
    has = ", ".join(
        f"{r.quota.code} ({r.quota.name}) has {r.vcpus:g} vCPUs left for {r.units:g} of them" for r in need.reaches
    )
    # The quota with the smallest shortfall.
    scarcest = min(need.reaches, key=lambda reach: reach.least - (reach.vcpus or 0))
    much = values.get(scarcest.quota.code, 0) + scarcest.least - (scarcest.vcpus or 0)
    return (
        f"The account's quotas do not hold {counted(need.count, noun)} on {where}: {has}. Ask for {much:g} vCPUs of "
        f"{scarcest.quota.code}: {CONSOLE.format(code=scarcest.quota.code)}"
    )


def most_vcpus(
    standing: Mapping[Market, float],
    elastic: Launchable,
    weights: Mapping[str, float],
    catalogue: Mapping[str, InstanceType],
) -> dict[Quota, int]:
    """Return the most vCPUs that may count towards each quota. `standing`: units by market; `weights`: units of an
    instance, by type."""
    vcpus: dict[Quota, int] = {}
    for market in Market:
        for name, weight in weights.items():
            quota = find_quota(name, market)
            if quota is None or name not in catalogue:
                continue
            count = math.ceil(standing.get(market, 0) / weight) + elastic.get(market, {}).get(name, 0)
            if count:
                vcpus[quota] = max(vcpus.get(quota, 0), count * catalogue[name].vcpus)
    return vcpus


def _reach(
    quota: Quota,
    names: list[str],
    units: float,
    weights: Mapping[str, float],
    catalogue: Mapping[str, InstanceType],
    value: float | None,
) -> Reach:
    # As EC2 does, the last instance may go beyond the target.
    least = min(math.ceil(units / weights[name]) * catalogue[name].vcpus for name in names)
    most = max(math.floor((value or 0) / catalogue[name].vcpus) * weights[name] for name in names)
    return Reach(quota, tuple(names), value, least, None if value is None or value >= least else most)
