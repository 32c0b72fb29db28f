"""The pools as the cloud describes them now, and as the cluster's ledger has seen them."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from everspot_core.capacity.catalogue import Catalogue, InstanceType
from everspot_core.capacity.market import Market, PoolKey
from everspot_core.capacity.placement import groups
from everspot_core.capacity.price_table import PriceTable, TypePrice, priced
from everspot_core.costs.baselines import Norm, in_use, over_norm
from everspot_core.costs.ledger import EndRecord, LaunchRecord
from everspot_core.costs.pool_history import PoolHistory, histories

from everspot_cli.session import Session, run_in_parallel

if TYPE_CHECKING:
    from everspot_clouds.base import Cloud, PlacementScore
    from everspot_core.costs.ledger import PricePoint

Place = tuple[str, str]
"""Instance type and zone."""


@dataclass(frozen=True, slots=True)
class MarketAnswer:
    """A cloud's answer. `prices`: of spot now, and since when. `regions`: scores of whole regions, by type and region.
    `troubles`: the questions that failed, and why."""

    prices: "dict[Place, PricePoint]" = field(default_factory=dict)
    scores: "dict[Place, PlacementScore]" = field(default_factory=dict)
    regions: "dict[Place, PlacementScore]" = field(default_factory=dict)
    troubles: tuple[str, ...] = ()


def query_market(
    session: Session, types: Iterable[InstanceType], zones: Collection[str], regions: Collection[str] = ()
) -> MarketAnswer:
    """Ask the cluster's cloud for spot prices and placement scores. A question that fails is reported in the answer,
    and is never an error.

    Args:
        types: those of the cluster. A score is for all types together that may replace each other.
        zones: those of the cluster. Without any, there are no prices.
        regions: the regions for which a score as a whole is wanted.
    """
    kinds = list(types)
    try:
        errors = session.cloud.errors()
    except ImportError as error:
        return MarketAnswer(troubles=(f"{session.manifest.cloud} was not asked: {error}",))
    try:
        cloud = session.cloud.reading(session.manifest, session.clock, session.price_tables)
    except errors as error:
        return MarketAnswer(troubles=(f"{session.manifest.cloud} could not be asked: {error}",))
    if cloud is None or not kinds:
        return MarketAnswer()
    try:
        return _query_cloud(session, cloud, errors, kinds, zones, regions)
    finally:
        cloud.close()


def _query_cloud(
    session: Session,
    cloud: "Cloud",
    errors: tuple[type[Exception], ...],
    kinds: list[InstanceType],
    zones: Collection[str],
    regions: Collection[str],
) -> MarketAnswer:
    troubles: list[str] = []
    refusals: tuple[type[Exception], ...] = (*errors, OSError)

    def fetch(subject: str, call: Any) -> Any:
        try:
            return call()
        except refusals as error:
            troubles.append(f"{subject} could not be read from {session.manifest.cloud}: {error}")
            return []

    pools = [(kind.name, zone) for kind in kinds for zone in zones]
    type_groups = groups(kinds)
    points, scored, whole = run_in_parallel(
        lambda: fetch("spot prices", lambda: cloud.spot_prices(pools, session.now)),
        lambda: fetch("placement scores", lambda: [s for g in type_groups for s in cloud.placement_scores(g, 1)]),
        lambda: fetch(
            "scores of regions",
            lambda: [s for g in type_groups for s in cloud.placement_scores(g, 1, regions)] if regions else [],
        ),
    )
    return MarketAnswer(
        prices={(point.instance_type, point.zone): point for point in points},  # oldest first: the newest stays
        scores={(name, score.zone): score for score in scored for name in score.types},
        regions={(name, score.region): score for score in whole for name in score.types},
        troubles=tuple(dict.fromkeys(troubles)),
    )


def with_prices(session: Session, catalogue: Catalogue, answer: MarketAnswer) -> Catalogue:
    """Return the catalogue with a cloud's spot prices in place of its own."""
    spot: dict[str, dict[str, float]] = {}
    for (name, zone), point in answer.prices.items():
        spot.setdefault(name, {})[zone] = point.usd_per_hour
    sources = sorted({point.source for point in answer.prices.values()})
    table = PriceTable(
        cloud=session.manifest.cloud,
        region=session.manifest.region,
        as_of=session.now,
        on_demand_source="",
        spot_source=", ".join(sources),
        prices=[TypePrice(instance_type=name, spot_usd_per_hour=zones) for name, zones in sorted(spot.items())],
    )
    return priced(catalogue, table)


def read_histories(session: Session) -> dict[PoolKey, PoolHistory]:
    """Return the history of the pools from which the cluster has had instances, by the ledger."""
    return histories(*_read_ledger(session), session.now)


@dataclass(frozen=True)
class MarketHistory:
    """The history of the pools by the ledger. `over`: the spot pools that do worse than usual, and in what."""

    history_by_pool: dict[PoolKey, PoolHistory]
    over: dict[PoolKey, tuple[Norm, ...]]


def read_market_history(session: Session) -> MarketHistory:
    """Return the histories and the pools over their norms, by the rule of the scheduler's metrics and alarm."""
    launches, ends = _read_ledger(session)
    now, by_id = session.now, {launch.instance_id: launch for launch in launches}
    used = in_use(by_id, ends, now)
    prices = session.store.prices(used) if used else []
    return MarketHistory(histories(launches, ends, now), over_norm(by_id, ends, prices, now))


def _read_ledger(session: Session) -> tuple[list[LaunchRecord], dict[str, EndRecord]]:
    """Return all launches, and all ends by the instance."""
    launches, ends = run_in_parallel(session.store.launches.scan, session.store.ends.scan)
    return [doc.value for doc in launches.values()], {name: doc.value for name, doc in ends.items()}


def list_zones(session: Session, pools: Iterable[PoolKey]) -> list[str]:
    """Return the zones in which the cluster may have instances: the declared zones, else all zones in its history."""
    manifest = session.manifest
    declared = {
        *(manifest.elastic.places if manifest.elastic else ()),
        *(manifest.fleet.zones if manifest.fleet else ()),
    }
    return sorted(declared or {pool.zone for pool in pools})


def merge_spot_history(history_by_pool: dict[PoolKey, PoolHistory], instance_type: str) -> PoolHistory:
    """Return the history of all spot pools of a type together."""
    spot_histories = (
        h for pool, h in history_by_pool.items() if pool.instance_type == instance_type and pool.market is Market.SPOT
    )
    return sum(spot_histories, start=PoolHistory())
