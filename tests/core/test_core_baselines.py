"""Spot pools that perform worse than usual are found."""

from datetime import UTC, datetime, timedelta

from everspot_core.capacity.market import Market, PoolKey
from everspot_core.costs.baselines import Norm, in_use, over_norm
from everspot_core.costs.ledger import EndRecord, LaunchRecord, PricePoint
from everspot_core.jobs.records import Role

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
POOL = PoolKey("m6i.large", "us-east-1a", Market.SPOT)
OTHER = PoolKey("m6i.large", "us-east-1b", Market.SPOT)


def launch(name: str, began: datetime, pool: PoolKey = POOL, role: Role = Role.AGENT) -> LaunchRecord:
    return LaunchRecord(instance_id=name, **pool._asdict(), role=role, launched_at=began)


def end(name: str, at: datetime) -> EndRecord:
    return EndRecord(instance_id=name, ended_at=at, interrupted=True)


def price(ago: float, usd: float, pool: PoolKey = POOL) -> PricePoint:
    return PricePoint(**pool._asdict(), at=NOW - ago * HOUR, usd_per_hour=usd, source="t")


def test_a_pool_that_takes_far_more_than_it_used_to_is_over_its_norm() -> None:
    launches = {n: launch(n, NOW - 100 * HOUR) for n in ("a", "b", "c")}
    ends = {"a": end("a", NOW - 90 * HOUR)}
    assert over_norm(launches, ends, [], NOW) == {}
    ends |= {n: end(n, NOW - HOUR / 2) for n in ("b", "c")}
    assert over_norm(launches, ends, [], NOW) == {POOL: (Norm.INTERRUPTIONS,)}
    always = {f"x{n}": launch(f"x{n}", NOW - (n + 1) * HOUR / 2) for n in range(60)}
    usual_ends = {name: end(name, record.launched_at + HOUR / 2) for name, record in always.items()}
    assert over_norm(always, usual_ends, [], NOW) == {}, "two an hour is what this pool does"


def test_a_pool_that_costs_far_more_than_in_the_last_week_is_over_its_norm() -> None:
    used = {"a": launch("a", NOW - 2 * HOUR), "b": launch("b", NOW - 2 * HOUR, OTHER)}
    assert over_norm(used, {}, [price(200, 1.0), price(1, 1.4)], NOW) == {}
    dear = [price(200, 1.0), price(1, 1.6)]
    assert over_norm(used, {}, [*dear, price(200, 1.6, OTHER)], NOW) == {POOL: (Norm.PRICE,)}
    assert over_norm(used, {}, [price(20, 1.0), price(1, 1.6)], NOW) == {}, "too little is known of it"
    ends = {"a": end("a", NOW - 2 * HOUR)}
    assert over_norm(used, ends, dear, NOW) == {}, "nobody uses it any more"


def test_only_spot_pools_of_agents_that_are_in_use_count() -> None:
    launches = {
        "a": launch("a", NOW - 9 * HOUR),
        "b": launch("b", NOW - 9 * HOUR, OTHER),
        "c": launch("c", NOW, OTHER._replace(market=Market.ON_DEMAND)),
        "d": launch("d", NOW, OTHER._replace(zone="us-east-1c"), Role.SCHEDULER),
    }
    ends = {"a": end("a", NOW - HOUR / 2), "b": end("b", NOW - 2 * HOUR)}
    assert set(in_use(launches, ends, NOW)) == {POOL}
