"""EC2 Fleet's allocation, as properties and as the examples in its documentation."""

from everspot_core.capacity.allocation import (
    Allocation,
    AllocationRequest,
    Cause,
    Launchable,
    Pool,
    Prefer,
    allocate,
)
from everspot_core.jobs.records import Market
from hypothesis import given
from hypothesis import strategies as st

TYPES = ("m5.large", "m5.xlarge", "c5.large")
ZONES = ("us-east-1a", "us-east-1b")


def pool(instance_type: str, zone: str, available: int, price: float, market: Market = Market.SPOT) -> Pool:
    return Pool(instance_type=instance_type, zone=zone, market=market, available=available, usd_per_hour=price)


def spot(strategy: Prefer, amount: float, *candidates: Launchable, **more: object) -> AllocationRequest:
    return AllocationRequest.model_validate(
        {"candidates": candidates, "spot": amount, "spot_strategy": strategy, **more}
    )


A, B = Launchable(instance_type="m5.large", zone="us-east-1a"), Launchable(instance_type="c5.large", zone="us-east-1b")


@st.composite
def situations(draw: st.DrawFn) -> tuple[AllocationRequest, list[Pool]]:
    pools = [
        Pool(
            instance_type=t,
            zone=z,
            market=m,
            available=draw(st.integers(0, 6)),
            usd_per_hour=draw(st.sampled_from([0.01, 0.02, 0.05, 0.1])),
        )
        for t in TYPES
        for z in ZONES
        for m in Market
        if draw(st.booleans())
    ]
    candidate = st.builds(
        Launchable,
        instance_type=st.sampled_from(TYPES),
        zone=st.sampled_from(ZONES),
        weight=st.sampled_from([0.5, 1, 2, 4]),
        priority=st.none() | st.integers(0, 3),
        max_price=st.none() | st.sampled_from([0.01, 0.03, 0.2]),
    )
    request = AllocationRequest(
        candidates=tuple(draw(st.lists(candidate, min_size=1, max_size=6))),
        on_demand=draw(st.integers(0, 8)),
        spot=draw(st.integers(0, 12)),
        spot_strategy=draw(st.sampled_from(list(Prefer))),
        on_demand_strategy=draw(st.sampled_from([Prefer.PRICE, Prefer.ORDER])),
    )
    return request, pools


def part(result: Allocation, market: Market) -> list[float]:
    return [p.weight for p in result.placements if p.market is market]


@given(situations())
def test_a_target_is_exceeded_by_less_than_the_last_weight(situation: tuple[AllocationRequest, list[Pool]]) -> None:
    request, pools = situation
    result = allocate(request, pools)
    for market, target in ((Market.ON_DEMAND, request.on_demand), (Market.SPOT, request.spot)):
        weights = part(result, market)
        assert sum(weights[:-1]) < target or not weights


@given(situations())
def test_what_is_missing_is_stated_and_only_missing_when_nothing_more_can_be_had(
    situation: tuple[AllocationRequest, list[Pool]],
) -> None:
    request, pools = situation
    result = allocate(request, pools)
    for market, target, missing in (
        (Market.ON_DEMAND, request.on_demand, result.on_demand_shortfall),
        (Market.SPOT, request.spot, result.spot_shortfall),
    ):
        assert missing == max(0.0, target - sum(part(result, market)))
        if missing:
            refused = {r.candidate for r in result.refusals if r.market is market}
            assert refused == set(range(len(request.candidates)))


@given(situations())
def test_no_pool_gives_more_than_it_has_and_no_spot_costs_more_than_allowed(
    situation: tuple[AllocationRequest, list[Pool]],
) -> None:
    request, pools = situation
    result = allocate(request, pools)
    for offered_pool in pools:
        key = (offered_pool.instance_type, offered_pool.zone, offered_pool.market)
        pool_placements = [p for p in result.placements if (p.instance_type, p.zone, p.market) == key]
        assert len(pool_placements) <= offered_pool.available
        assert all(p.usd_per_hour == offered_pool.usd_per_hour for p in pool_placements)
    for placed in result.placements:
        limit = request.candidates[placed.candidate].max_price
        # A limit is for a unit, as EC2's MaxPrice is.
        assert placed.market is Market.ON_DEMAND or limit is None or placed.usd_per_hour / placed.weight <= limit


@given(situations())
def test_the_on_demand_base_does_not_depend_on_spot(situation: tuple[AllocationRequest, list[Pool]]) -> None:
    request, pools = situation
    alone = allocate(request.model_copy(update={"spot": 0}), [p for p in pools if p.market is Market.ON_DEMAND])
    with_spot = allocate(request, pools)
    assert alone.placements == tuple(p for p in with_spot.placements if p.market is Market.ON_DEMAND)


@given(situations(), st.randoms(use_true_random=False))
def test_the_order_of_the_pools_changes_nothing(situation: tuple[AllocationRequest, list[Pool]], rng: object) -> None:
    request, pools = situation
    shuffled = list(pools)
    rng.shuffle(shuffled)  # type: ignore[attr-defined]
    assert allocate(request, pools) == allocate(request, shuffled)


def test_lowest_price_counts_the_price_of_a_unit_and_not_of_an_instance() -> None:
    big = Launchable(instance_type="m5.xlarge", zone="us-east-1a", weight=4)
    result = allocate(
        spot(Prefer.PRICE, 4, A, big),
        [pool("m5.large", "us-east-1a", 9, 0.03), pool("m5.xlarge", "us-east-1a", 9, 0.08)],
    )
    assert [p.instance_type for p in result.placements] == ["m5.xlarge"]


def test_capacity_optimized_ignores_the_price() -> None:
    pools = [pool("m5.large", "us-east-1a", 3, 0.01), pool("c5.large", "us-east-1b", 9, 0.09)]
    result = allocate(spot(Prefer.DEPTH, 2, A, B), pools)
    assert {p.instance_type for p in result.placements} == {"c5.large"}


def test_price_capacity_optimized_takes_the_cheapest_of_the_deep_pools() -> None:
    shallow = pool("m5.large", "us-east-1a", 2, 0.01)
    dear, cheap = pool("c5.large", "us-east-1b", 9, 0.09), pool("m5.xlarge", "us-east-1b", 8, 0.05)
    result = allocate(
        spot(Prefer.BALANCE, 1, A, B, Launchable(instance_type="m5.xlarge", zone="us-east-1b")),
        [shallow, dear, cheap],
    )
    assert result.placements[0].instance_type == "m5.xlarge"


def test_lowest_price_spreads_over_the_number_of_pools_asked_for() -> None:
    pools = [pool("m5.large", "us-east-1a", 9, 0.01), pool("c5.large", "us-east-1b", 9, 0.02)]
    result = allocate(spot(Prefer.PRICE, 4, A, B, instance_pools_to_use=2), pools)
    assert sorted(p.instance_type for p in result.placements) == ["c5.large"] * 2 + ["m5.large"] * 2


def test_prioritized_on_demand_goes_by_priority_and_says_which_it_tried_in_vain() -> None:
    first = Launchable(instance_type="m5.large", zone="us-east-1a", priority=0)
    second = Launchable(instance_type="c5.large", zone="us-east-1b", priority=1)
    pools = [
        pool("m5.large", "us-east-1a", 0, 0.1, Market.ON_DEMAND),
        pool("c5.large", "us-east-1b", 5, 0.01, Market.ON_DEMAND),
    ]
    request = AllocationRequest(candidates=(second, first), on_demand=1, on_demand_strategy=Prefer.ORDER)
    result = allocate(request, pools)
    assert [p.instance_type for p in result.placements] == ["c5.large"]
    assert [(r.candidate, r.cause) for r in result.refusals] == [(1, Cause.NO_CAPACITY)]


def test_spot_by_order_takes_the_first_of_the_deep_pools_whatever_it_costs() -> None:
    worth = [
        Launchable(instance_type=kind, zone="us-east-1a", priority=rank)
        for rank, kind in enumerate(["m5.xlarge", "m5.large", "c5.large"])
    ]
    pools = [
        pool("m5.xlarge", "us-east-1a", 1, 0.01),  # first by its worth, but there is hardly any
        pool("m5.large", "us-east-1a", 6, 0.09),
        pool("c5.large", "us-east-1a", 8, 0.02),
    ]
    result = allocate(spot(Prefer.ORDER, 1, *worth), pools)
    assert [p.instance_type for p in result.placements] == ["m5.large"]


def test_a_price_above_the_limit_is_told_apart_from_a_dry_pool_and_from_no_pool() -> None:
    dear = Launchable(instance_type="m5.large", zone="us-east-1a", max_price=0.01)
    nowhere = Launchable(instance_type="m5.xlarge", zone="us-east-1a")
    pools = [pool("m5.large", "us-east-1a", 5, 0.02), pool("c5.large", "us-east-1b", 0, 0.02)]
    result = allocate(spot(Prefer.PRICE, 1, dear, B, nowhere), pools)
    assert [r.cause for r in result.refusals] == [Cause.PRICE_TOO_HIGH, Cause.NO_CAPACITY, Cause.NO_POOL]
    assert result.spot_shortfall == 1
