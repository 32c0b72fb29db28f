"""The requested resources of an environment, as far as they cost money, without the words of any cloud."""

from dataclasses import dataclass, field
from datetime import date
from fractions import Fraction

from everspot_core.capacity.allocation import Prefer
from everspot_core.capacity.catalogue import InstanceType
from everspot_core.capacity.market import Market

HOURS_A_MONTH = 730
"""Hours of an average month, in which the clouds' own calculators reckon."""

UNTAGGED = "untagged"
"""The team of what has no tag Team."""


@dataclass(frozen=True, kw_only=True)
class Extra:
    """The cost of every instance besides its own price, USD a month of running: its volume, its monitoring.
    `on_demand`: the same for an on-demand instance; None if it does not differ."""

    kind: str
    usd_per_month: Fraction
    on_demand: Fraction | None = None

    @property
    def without_spot(self) -> Fraction:
        """The extra cost of an on-demand instance."""
        return self.usd_per_month if self.on_demand is None else self.on_demand


@dataclass(frozen=True, kw_only=True)
class TypeOption:
    """A type that instances may have.

    Attributes:
        weight: units that one instance counts.
        max_price: USD per instance hour, on Spot.
        zones: the only zones for it, empty for all.
    """

    instance_type: str
    weight: Fraction = Fraction(1)
    priority: float | None = None
    max_price: Fraction | None = None
    zones: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class StandingRequest:
    """Capacity of one market that is always there: `units`, of candidates chosen as `prefer` says.

    Attributes:
        pools: by price alone, spread over so many of the cheapest pools.
        zones: empty if they are unknown.
    """

    name: str
    team: str
    region: str
    market: Market
    units: Fraction
    candidates: tuple[TypeOption, ...]
    zones: tuple[str, ...] = ()
    prefer: Prefer = Prefer.BALANCE
    pools: int = 1
    extras: tuple[Extra, ...] = ()
    agents: bool = True
    """Whether they run jobs; false for what runs the scheduler."""


@dataclass(frozen=True, kw_only=True)
class ElasticRequest:
    """Capacity that follows the work, from nothing to `most` instances, or fewer if all together would cost more than
    `most_usd_per_hour`."""

    name: str
    team: str
    region: str
    markets: tuple[Market, ...]
    most: int
    most_usd_per_hour: Fraction | None
    candidates: tuple[TypeOption, ...]
    zones: tuple[str, ...] = ()
    extras: tuple[Extra, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Cost:
    """A part's cost, exact, in USD a month."""

    low: Fraction = field(default_factory=Fraction)
    expected: Fraction = field(default_factory=Fraction)
    high: Fraction = field(default_factory=Fraction)
    on_demand: Fraction = field(default_factory=Fraction)


@dataclass(frozen=True, kw_only=True)
class CostLine:
    """A part before it is rounded."""

    name: str
    kind: str
    team: str
    cost: Cost


@dataclass(frozen=True, kw_only=True)
class FixedRequest:
    """A cost that does not depend on use, or that lies between two bounds, USD a month."""

    name: str
    kind: str
    team: str
    expected: Fraction
    low: Fraction | None = None
    high: Fraction | None = None

    @property
    def line(self) -> CostLine:
        """It as a line of the estimate."""
        low = self.expected if self.low is None else self.low
        high = self.expected if self.high is None else self.high
        cost = Cost(low=low, expected=self.expected, high=high, on_demand=self.expected)
        return CostLine(name=self.name, kind=self.kind, team=self.team, cost=cost)


@dataclass(frozen=True, kw_only=True)
class RequestedCapacity:
    """All requests of one side of a change.

    Attributes:
        types: declared in place.
        dates: of the fixed prices in use.
        by_use: as in `Estimate`.
        unknown: as in `Estimate`.
        unpriced: as in `CostFigures`.
    """

    standing: tuple[StandingRequest, ...] = ()
    elastic: tuple[ElasticRequest, ...] = ()
    fixed: tuple[FixedRequest, ...] = ()
    types: tuple[InstanceType, ...] = ()
    dates: tuple[date, ...] = ()
    by_use: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    unpriced: tuple[str, ...] = ()
