"""The arithmetic of an estimate: bounds, sums, and the effect of the target."""

from datetime import UTC, date, datetime, timedelta
from fractions import Fraction

import pytest
from everspot_core.capacity.allocation import Prefer
from everspot_core.capacity.catalogue import Catalogue, InstanceType, Offer, Price
from everspot_core.capacity.market import Market
from everspot_core.costs.ledger import LaunchRecord, PricePoint
from everspot_core.estimate.model import CostFigures, Range
from everspot_core.estimate.requested import (
    ElasticRequest,
    Extra,
    FixedRequest,
    RequestedCapacity,
    StandingRequest,
    TypeOption,
)
from everspot_core.estimate.totals import estimate
from everspot_core.estimate.usage_history import Recent
from hypothesis import given
from hypothesis import strategies as st

DAY = date(2026, 1, 1)
REGION = "here-1"


def _price(usd: float) -> Price:
    return Price(usd_per_hour=usd, as_of=DAY, source="test")


def _offer(name: str, on_demand: float, low: float, high: float) -> Offer:
    return Offer(instance_type=name, region=REGION, on_demand=_price(on_demand), spot=(_price(low), _price(high)))


KNOWN = Catalogue(
    [InstanceType(name=name, vcpus=vcpus, memory_gib=8) for name, vcpus in (("a", 2), ("b", 4), ("c", 8))],
    [_offer("a", 1.0, 0.2, 0.6), _offer("b", 2.5, 0.5, 0.7), _offer("c", 3.0, 1.0, 3.5)],
)

candidates = st.builds(
    TypeOption,
    instance_type=st.sampled_from("abc"),
    weight=st.sampled_from([Fraction(1), Fraction(2), Fraction(5, 2), Fraction(4)]),
    priority=st.none() | st.integers(0, 3).map(float),
    max_price=st.none() | st.sampled_from([Fraction(1, 10), Fraction(1, 2), Fraction(2)]),
)
standing = st.builds(
    StandingRequest,
    name=st.sampled_from(["x", "y"]),
    team=st.sampled_from(["red", "blue"]),
    region=st.just(REGION),
    market=st.sampled_from(Market),
    units=st.integers(0, 300).map(Fraction),
    candidates=st.lists(candidates, min_size=1, max_size=3, unique_by=lambda c: c.instance_type).map(tuple),
    prefer=st.sampled_from(Prefer),
    extras=st.sampled_from([(), (Extra(kind="volumes", usd_per_month=Fraction(8)),)]),
)
elastic = st.builds(
    ElasticRequest,
    name=st.just("z"),
    team=st.sampled_from(["red", "blue"]),
    region=st.just(REGION),
    markets=st.sampled_from([(Market.SPOT,), (Market.ON_DEMAND,), tuple(Market)]),
    most=st.integers(0, 50),
    most_usd_per_hour=st.none() | st.sampled_from([Fraction(1, 2), Fraction(40)]),
    candidates=st.lists(candidates, min_size=1, max_size=3, unique_by=lambda c: c.instance_type).map(tuple),
)
fixed = st.builds(
    FixedRequest,
    name=st.text("kn", min_size=1, max_size=2),
    kind=st.just("keys"),
    team=st.sampled_from(["red", "green"]),
    expected=st.integers(0, 10_000).map(lambda n: Fraction(n, 700)),
)
any_side = st.builds(
    RequestedCapacity,
    standing=st.lists(standing, max_size=3).map(tuple),
    elastic=st.lists(elastic, max_size=1).map(tuple),
    fixed=st.lists(fixed, max_size=3).map(tuple),
)


def figures(side: RequestedCapacity) -> CostFigures:
    side_figures = estimate(RequestedCapacity(), side, KNOWN, as_of=DAY).after
    assert side_figures is not None
    return side_figures


def cents(ranges: list[Range]) -> list[int]:
    return [round(100 * sum(getattr(each, name) for each in ranges)) for name in Range.model_fields]


@given(any_side)
def test_teams_and_parts_add_up_to_the_total_and_expected_lies_between_low_and_high(side: RequestedCapacity) -> None:
    side_figures = figures(side)
    assert (
        cents(list(side_figures.teams.values()))
        == cents([side_figures.total])
        == cents([part.range for part in side_figures.parts])
    )
    for part in side_figures.parts:
        assert part.range.low <= part.range.expected <= part.range.high


@given(any_side)
def test_a_change_of_nothing_is_exactly_nothing(side: RequestedCapacity) -> None:
    cost_estimate = estimate(side, side, KNOWN, as_of=DAY)
    assert cost_estimate.before == cost_estimate.after


@given(standing, st.integers(1, 40))
def test_a_larger_target_never_costs_less(smaller: StandingRequest, more: int) -> None:
    larger = StandingRequest(**{**vars(smaller), "units": smaller.units + more})
    less, much = (figures(RequestedCapacity(standing=(fleet,))).total for fleet in (smaller, larger))
    assert less.low <= much.low and less.expected <= much.expected and less.high <= much.high
    assert less.on_demand <= much.on_demand


def standing_fleet(units: int, *names: str, market: Market = Market.SPOT, **more: object) -> StandingRequest:
    fields = {"name": "fleet", "team": "red", "region": REGION, "market": market, "units": Fraction(units)}
    own = tuple(TypeOption(instance_type=name) for name in names)
    return StandingRequest(**{**fields, "candidates": own, **more})  # type: ignore[arg-type]


def total(*fleets: StandingRequest) -> tuple[float, ...]:
    return tuple(figures(RequestedCapacity(standing=fleets)).total.model_dump().values())


def test_spot_reaches_from_the_cheapest_pool_to_the_dearest_one_and_no_higher_than_on_demand() -> None:
    # a: 0.2 to 0.6; c: 1.0 to 3.5, where at most 3.0 is paid; a is chosen, at 0.4
    assert total(standing_fleet(10, "a", "c")) == (1460, 2920, 21900, 7300)


def test_a_limit_bounds_the_highest_price() -> None:
    limited = (TypeOption(instance_type="a", max_price=Fraction("0.45")),)
    assert total(standing_fleet(1, "a", candidates=limited)) == (146, 292, 328.5, 730)


def limited(name: str, usd: str) -> TypeOption:
    return TypeOption(instance_type=name, max_price=Fraction(usd))


def test_a_limit_below_every_known_price_buys_nothing_and_says_why() -> None:
    reason = "fleet: no spot a is bought: its maxPrice allows $0.1 an hour, and its lowest known price is $0.2"
    alone = RequestedCapacity(standing=(standing_fleet(2, candidates=(limited("a", "0.1"),)),))
    cost_estimate = estimate(RequestedCapacity(), alone, KNOWN, as_of=DAY)
    assert cost_estimate.unknown == (reason,)
    assert cost_estimate.after is not None and (cost_estimate.after.unpriced, cost_estimate.after.nothing_known) == (
        ("fleet",),
        True,
    )
    with_second_type = RequestedCapacity(
        standing=(standing_fleet(2, candidates=(limited("a", "0.1"), TypeOption(instance_type="b"))),)
    )
    cost_estimate = estimate(RequestedCapacity(), with_second_type, KNOWN, as_of=DAY)
    assert cost_estimate.unknown == (reason,)
    assert cost_estimate.after is not None and cost_estimate.after.unpriced == ()
    assert cost_estimate.after.total.model_dump() == figures(
        RequestedCapacity(standing=(standing_fleet(2, "b"),))
    ).total.model_dump() | {
        "on_demand": 1460.0  # the limit is one of Spot alone
    }


def test_elastic_capacity_whose_limit_is_below_every_known_price_has_no_figure() -> None:
    more = ElasticRequest(
        name="more",
        team="red",
        region=REGION,
        markets=(Market.SPOT,),
        most=3,
        most_usd_per_hour=None,
        candidates=(limited("a", "0.1"),),
    )
    cost_estimate = estimate(RequestedCapacity(), RequestedCapacity(elastic=(more,)), KNOWN, as_of=DAY)
    assert cost_estimate.unknown[0].startswith("more: no spot a is bought: its maxPrice allows $0.1 an hour")
    assert cost_estimate.after is not None and (cost_estimate.after.unpriced, cost_estimate.after.nothing_known) == (
        ("more",),
        True,
    )


BEGIN, MONTH = datetime(2026, 1, 1, tzinfo=UTC), timedelta(hours=730)


def elastic_request(name: str, kinds: str = "a", most: int = 9) -> ElasticRequest:
    return ElasticRequest(
        name=name, team=name, region=REGION, markets=(Market.SPOT,), most=most, most_usd_per_hour=None,
        candidates=tuple(TypeOption(instance_type=kind) for kind in kinds),
    )  # fmt: skip


def expected_by_name(kinds: str, *requests: ElasticRequest) -> dict[str, float]:
    """Return what requests are expected to cost after a month in which one instance of each of these types ran."""
    launches = [
        LaunchRecord(
            instance_id=f"i-{number}", instance_type=kind, zone=f"{REGION}a", market=Market.SPOT, launched_at=BEGIN
        )
        for number, kind in enumerate(kinds)
    ]
    points = [
        PricePoint(instance_type=kind, zone=f"{REGION}a", market=Market.SPOT, at=BEGIN, usd_per_hour=usd, source="test")
        for kind, usd in (("a", 0.4), ("b", 0.6))
    ]
    recent = Recent.from_ledger(launches, [], points, since=BEGIN, until=BEGIN + MONTH)
    figures = estimate(None, RequestedCapacity(elastic=requests), KNOWN, recent, as_of=DAY).after
    assert figures is not None
    assert figures.total.expected == pytest.approx(sum(part.range.expected for part in figures.parts))
    return {part.name: part.range.expected for part in figures.parts}


def test_recent_use_counts_for_one_elastic_request_only() -> None:
    own_a, own_b = 0.4 * 730, 0.6 * 730
    assert expected_by_name("aaa", elastic_request("x")) == {"x": 3 * own_a}
    requests = elastic_request("x"), elastic_request("y")
    assert expected_by_name("aaa", *requests) == {"x": 3 * own_a, "y": 0}
    assert expected_by_name("ab", elastic_request("x", "a"), elastic_request("y", "b")) == {"x": own_a, "y": own_b}
    small = elastic_request("x", most=1), elastic_request("y")
    assert expected_by_name("aaa", *small) == {"x": own_a, "y": 2 * own_a}, "one instance fits the first"
    ended = elastic_request("x", most=0), elastic_request("y")
    assert expected_by_name("a", *ended) == {"y": own_a}


def test_the_last_instance_may_bring_more_units_than_are_missing() -> None:
    mixed = (TypeOption(instance_type="a"), TypeOption(instance_type="c", weight=Fraction(4)))
    # 3 units, at the most 6: a costs 0.4 a unit, and c, which is a unit's 2.25 / 4, is not chosen
    low, expected, high, _ = total(standing_fleet(3, "a", candidates=mixed))
    assert (low, expected, high) == (438, 876, 3285)
    whole = (TypeOption(instance_type="c", weight=Fraction(4)),)
    assert total(standing_fleet(3, "c", candidates=whole)) == (547.5, 1642.5, 2190, 2190)


def test_the_dearest_type_bounds_what_is_on_demand_and_the_cheapest_is_expected() -> None:
    assert total(standing_fleet(2, "a", "b", market=Market.ON_DEMAND)) == (1460, 1460, 3650, 1460)


def test_what_no_price_is_known_of_is_named_and_is_in_no_figure() -> None:
    cost_estimate = estimate(
        RequestedCapacity(),
        RequestedCapacity(standing=(standing_fleet(2, "a", "q"), standing_fleet(1, "r", name="other"))),
        KNOWN,
        as_of=DAY,
    )
    assert cost_estimate.unknown == ("fleet: no spot price of q is known", "other: no spot price of r is known")
    assert cost_estimate.after is not None and {part.name for part in cost_estimate.after.parts} == {"fleet"}
    assert cost_estimate.after.unpriced == ("other",)


def test_a_side_that_is_not_known_has_no_figures() -> None:
    cost_estimate = estimate(RequestedCapacity(standing=(standing_fleet(1, "a"),)), None, KNOWN, as_of=DAY)
    assert cost_estimate.after is None and cost_estimate.before is not None and cost_estimate.prices_as_of == DAY
