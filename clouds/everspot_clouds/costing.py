"""The common parts of the estimates of all clouds: reading declared inputs, and collecting an environment's
requests."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal
from fractions import Fraction
from itertools import takewhile
from typing import Any

from everspot_core.capacity.catalogue import InstanceType
from everspot_core.capacity.fleet import TypeChoice
from everspot_core.capacity.market import Market
from everspot_core.capacity.price_table import PriceTable
from everspot_core.cluster.declared import DeclaredResource, is_fully_known
from everspot_core.costs.prices import exact
from everspot_core.estimate.requested import (
    HOURS_A_MONTH,
    UNTAGGED,
    ElasticRequest,
    FixedRequest,
    RequestedCapacity,
    StandingRequest,
)
from everspot_core.validation.problems import camel

from everspot_clouds.idle_requests import requests_usd
from everspot_clouds.price_files import load_catalogue, other_prices

TEAM = "Team"
"""The tag that costs are divided by."""


@dataclass(frozen=True, slots=True)
class FixedPrice:
    """A list price that does not depend on an instance type.

    Attributes:
        usd: US dollars for one unit.
        per: The unit, such as `hour` or `month`.
        source: Where it is stated, for a reviewer.
        subject: What it is a price of, for the sentence of an estimate that another region's price is taken.
        key: Its name in `PriceTable.other_usd`; empty if the price lists are not read for it.
    """

    usd: Fraction
    per: str
    source: str
    subject: str = ""
    key: str = ""

    @property
    def usd_per_month(self) -> Fraction:
        """Of one, for a month: an hour's price 730 times."""
        return self.usd * HOURS_A_MONTH if self.per == "hour" else self.usd


def price(usd: str, per: str, source: str, subject: str = "", key: str = "") -> FixedPrice:
    """Return a price in dollars, written as the list has it."""
    return FixedPrice(Fraction(Decimal(usd)), per, source, subject, key)


def listed_price(price: FixedPrice, table: PriceTable | None) -> FixedPrice | None:
    """Return a list price as a region's table has it; None if there is no table, or it lacks the price."""
    usd = None if table is None else table.other_usd.get(price.key)
    return None if usd is None else replace(price, usd=exact(usd))


@dataclass
class Costing:
    """Collects the requests of one side of a change, in one region after the other (`within`).

    Attributes:
        as_of: The day of the list prices that come with Everspot.
        listed_regions: The regions with the list prices that come with Everspot. The prices were read for the first.
        region: Of the resources that are priced now, None if unknown.
        listed: The region's own prices of everything but instances, from its price lists; None without price lists.
    """

    as_of: date
    listed_regions: tuple[str, ...] = ()
    region: str | None = None
    listed: PriceTable | None = None
    standing: list[StandingRequest] = field(default_factory=list)
    elastic: list[ElasticRequest] = field(default_factory=list)
    fixed: list[FixedRequest] = field(default_factory=list)
    types: dict[str, InstanceType] = field(default_factory=dict)
    used: dict[str, list[str]] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    unpriced: list[str] = field(default_factory=list)
    _dates: set[date] = field(default_factory=set)
    _stand_ins: set[tuple[str, str]] = field(default_factory=set)

    def within(self, cloud: str, region: str | None) -> "Costing":
        """Return the same collection, to which the resources of a region are added at the region's prices."""
        return replace(self, region=region, listed=None if region is None else other_prices(cloud, region))

    def rate(self, price: FixedPrice) -> FixedPrice:
        """Return a list price as the region has it: from its price lists, else the one that comes with Everspot, which
        is noted where it is another region's."""
        own = listed_price(price, self.listed)
        if own is not None and self.listed is not None:
            self._dates.add(self.listed.as_of.date())
            return own
        self._dates.add(self.as_of)
        if self.region not in self.listed_regions and price.subject:
            self._stand_ins.add((self.region or "a region that is not known", price.subject))
        return price

    def add_monthly(
        self,
        resource: DeclaredResource,
        kind: str,
        usd: Fraction,
        *,
        team: str | None = None,
        low: Fraction | None = None,
        high: Fraction | None = None,
    ) -> None:
        """Add the fixed monthly cost of a resource. `team`: None where the resource cannot say."""
        self.fixed.append(
            FixedRequest(name=resource.name, kind=kind, team=team or "", expected=usd, low=low, high=high)
        )

    def add_metered(self, resource: DeclaredResource, meter: str) -> None:
        """Note that a resource costs by use. `meter`: the counted units, in words."""
        self.used.setdefault(meter, []).append(resource.name)

    def note_unknown_cost(self, resource: DeclaredResource, reason: str) -> None:
        """Note that the cost of a resource is unknown."""
        self.unpriced.append(resource.name)
        self.note_unknown_part(resource, reason)

    def note_unknown_part(self, resource: DeclaredResource, reason: str) -> None:
        """Note that a part of the cost of a resource is unknown."""
        self.unknown.append(f"{resource.name}: {reason}")

    def _note_stand_ins(self) -> None:
        for region in sorted({region for region, _ in self._stand_ins}):
            *most, last = sorted(subject for where, subject in self._stand_ins if where == region)
            subjects = f"{', '.join(most)} and {last}" if most else last
            self.unknown.append(
                f"{region}: its list prices of {subjects} are not known here; {self.listed_regions[0]}'s stand in "
                "for them, and are mostly the same or lower"
            )

    def total(self) -> RequestedCapacity:
        """Return the whole. Costs that can have no tag belong to the environment's team, if it has only one."""
        all_teams = (
            [charge.team for charge in self.standing]
            + [charge.team for charge in self.elastic]
            + [a.team for a in self.fixed]
        )
        teams = set(all_teams) - {"", UNTAGGED}
        own = teams.pop() if len(teams) == 1 else UNTAGGED
        fixed = (replace(charge, team=charge.team or own) for charge in self.fixed)
        self._note_stand_ins()
        return RequestedCapacity(
            standing=tuple(self.standing),
            elastic=tuple(self.elastic),
            fixed=tuple(fixed),
            types=tuple(self.types.values()),
            dates=tuple(sorted(self._dates)) if self.fixed or self.standing or self.elastic else (),
            by_use=tuple(f"{meter}: {', '.join(sorted(names))}" for meter, names in sorted(self.used.items())),
            unknown=tuple(dict.fromkeys(self.unknown)),
            unpriced=tuple(dict.fromkeys(self.unpriced)),
        )


def read_team(tags: Any) -> str:
    """Return the team that tags name. They are a mapping, or with some services a list of key and value."""
    if isinstance(tags, list | tuple):
        tags = {str(tag.get("key")): tag.get("value") for tag in items(tags)}
    team = tags.get(TEAM) if isinstance(tags, Mapping) and is_fully_known(tags) else None
    return str(team) if team else UNTAGGED


def number(value: Any) -> Fraction | None:
    """Parse a number of an input, also from a text; None if it cannot have a price, or is not known yet."""
    if isinstance(value, bool) or not isinstance(value, int | float | str) or not is_fully_known(value):
        return None
    try:
        parsed = float(value)
    except ValueError:
        return None
    return exact(parsed) if 0 <= parsed < math.inf else None


def items(value: Any) -> list[Mapping[str, Any]]:
    """Return the mappings of a list; none where it is no list, or not known yet."""
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list | tuple) else []


def texts(value: Any) -> tuple[str, ...]:
    """Return the texts of a list that are known; none where it is no list."""
    listed = value if isinstance(value, list | tuple) else ()
    return tuple(item for item in listed if isinstance(item, str) and is_fully_known(item))


def part(inputs: Any, *path: str) -> Any:
    """Return the value at a path of inputs, taking the first item of a list; None if nothing is there."""
    for key in path:
        if isinstance(inputs, list | tuple):
            inputs = inputs[0] if inputs else None
        inputs = inputs.get(key) if isinstance(inputs, Mapping) else None
    return inputs


def nearest(
    resource: DeclaredResource, templates: Sequence[DeclaredResource], *, within: bool = False
) -> DeclaredResource | None:
    """Return the template that a fleet launches from.

    A preview knows a new template by no id yet. It is declared beside its fleet, in the same component, and named like
    it. `within`: the resource is the component itself.
    """
    parents = (*resource.parent_types, resource.type) if within else resource.parent_types
    siblings = [template for template in templates if template.parent_types == parents]
    return max(siblings, key=lambda t: _common(t.name, resource.name), default=None)


def _common(first: str, other: str) -> int:
    """Return the characters that both begin with."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, other, strict=False)))


def choices(capacity: Mapping[str, Any]) -> tuple[list[TypeChoice], list[InstanceType]]:
    """Return the types of a component's capacity, in the words of its settings: what is chosen, and what is declared in
    place.

    A type that is declared by less than the catalogue needs is left out of the second.
    """
    chosen, declared = [], []
    listed = capacity.get("instanceTypes")
    for entry in listed if isinstance(listed, list | tuple) else ():
        facts = {"type": entry} if isinstance(entry, str) else entry
        if not isinstance(facts, Mapping) or not isinstance(facts.get("type"), str):
            continue
        name = str(facts["type"])
        own_facts = {key: facts[camel(key)] for key in InstanceType.model_fields if camel(key) in facts}
        own = {key: facts[camel(key)] for key in TypeChoice.model_fields if camel(key) in facts}
        chosen.append(TypeChoice(name=name, **own))
        if own_facts:
            declared += _declared(name, own_facts)
    return chosen, declared


def _declared(name: str, facts: Mapping[str, Any]) -> list[InstanceType]:
    listed = load_catalogue().types.get(name)
    try:
        return [InstanceType.model_validate({**(listed.model_dump() if listed else {"name": name}), **facts})]
    except ValueError:  # pydantic's is one
        return []


def list_markets(elastic: Mapping[str, Any]) -> tuple[Market, ...]:
    """Return the markets of elastic capacity: the named ones, or both."""
    names = texts(elastic.get("markets"))
    return tuple(market for market in Market if not names or market.value in names)


Rule = Callable[[Costing, DeclaredResource], None]
"""How resources of a type are priced."""


def by_use(meter: str) -> Rule:
    """Return the rule of a type that costs by use alone. `meter`: the counted units, in words."""
    return lambda costing, resource: costing.add_metered(resource, meter)


def declared_types(costing: Costing, resource: DeclaredResource) -> None:
    """The rule of a component that costs nothing itself, and declares types in place."""
    capacity = resource.inputs.get("capacity")
    if isinstance(capacity, Mapping):
        costing.types.update({kind.name: kind for kind in choices(capacity)[1]})


def idle_requests(written: FixedPrice, read: FixedPrice) -> Rule:
    """Return the rule of a scheduler: what it asks of the store while there is nothing to do. `written`, `read`: the
    prices of 1,000 requests that write or list, and of 1,000 that read."""

    def rule(costing: Costing, resource: DeclaredResource) -> None:
        costing.add_monthly(resource, "store requests", requests_usd(costing.rate(written).usd, costing.rate(read).usd))

    return rule


def apply(
    costing: Costing, resources: Sequence[DeclaredResource], rules: Mapping[str, Rule], free: frozenset[str], own: str
) -> None:
    """Price every resource by its type's rule. A type of the cloud, by its prefix `own`, without a rule is reported as
    unknown unless it is free."""
    for resource in sorted(resources, key=lambda one: one.urn):
        rule = rules.get(resource.type)
        if rule is not None:
            try:
                rule(costing, resource)
            except ValueError:  # the provider's to refuse
                costing.note_unknown_cost(resource, "its inputs cannot be read")
        elif resource.type.startswith(own) and resource.type not in free:
            costing.note_unknown_cost(resource, f"{resource.type} has no price here")
