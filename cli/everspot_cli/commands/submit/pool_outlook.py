"""The knowledge of a dry run about the pools of each candidate: prices in force, placement scores, and their
history."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from everspot_core.capacity.catalogue import Catalogue, InstanceType, builtin
from everspot_core.capacity.market import Market, PoolKey
from everspot_core.costs.pool_history import PoolHistory
from everspot_core.jobs.candidates import Candidate

from everspot_cli.market import MarketAnswer, list_zones, merge_spot_history, query_market, read_histories, with_prices
from everspot_cli.session import Session
from everspot_cli.tables import duration


@dataclass(frozen=True)
class PoolFacts:
    """`region`: of the cluster, to whose zones prices, scores and history belong."""

    region: str = ""
    zones: tuple[str, ...] = ()
    live_market: MarketAnswer = field(default_factory=MarketAnswer)
    history_by_pool: dict[PoolKey, PoolHistory] = field(default_factory=dict)

    def scores(self, candidate: Candidate) -> list[int]:
        """Return the candidate's scores: of the cluster's zones, else of its region as a whole."""
        name = candidate.instance_type.name
        if candidate.region == self.region:
            zones = [
                self.live_market.scores[name, zone].score
                for zone in self.zones
                if (name, zone) in self.live_market.scores
            ]
            if zones:
                return zones
        whole = self.live_market.regions.get((name, candidate.region))
        return [whole.score] if whole is not None else []

    def history(self, candidate: Candidate) -> PoolHistory:
        """Return the history of the candidate's spot pools."""
        return (
            merge_spot_history(self.history_by_pool, candidate.instance_type.name)
            if candidate.region == self.region
            else PoolHistory()
        )


def outlook(session: Session, types: Collection[InstanceType], regions: Collection[str]) -> PoolFacts:
    """Ask the cloud and the ledger about the cluster's types. `regions`: those to choose from."""
    history_by_pool = read_histories(session)
    zones = list_zones(session, history_by_pool)
    several = regions if len(regions) > 1 else ()
    return PoolFacts(
        session.manifest.region, tuple(zones), query_market(session, types, zones, several), history_by_pool
    )


def priced_now(session: Session, catalogue: Catalogue, look: PoolFacts) -> Catalogue:
    """Return the catalogue with the spot prices in force, as far as the cloud has stated them."""
    return with_prices(session, catalogue, look.live_market) if look.live_market.prices else catalogue


def is_estimate(candidate: Candidate) -> bool:
    """Return whether its spot price is the catalogue's own, which is older and not measured in the cluster."""
    return candidate.spot is not None and candidate.spot == builtin().spot_range(
        candidate.instance_type.name, candidate.region
    )


def as_json(candidate: Candidate, look: PoolFacts) -> dict[str, Any]:
    """Return a candidate's pools, for JSON."""
    name, history, here = candidate.instance_type.name, look.history(candidate), candidate.region == look.region
    scores = look.scores(candidate)
    spot = candidate.spot[0] if candidate.spot else None
    return {
        "spot_price_is_estimate": is_estimate(candidate) if spot else None,
        "spot_price_as_of": str(spot.as_of) if spot and spot.as_of else None,
        "spot_price_source": spot.source if spot else None,
        "placement_scores": [min(scores), max(scores)] if scores else None,
        "spot_launches": history.launches,
        "spot_interrupted": history.interrupted,
        "spot_hours_per_interruption": history.hours_per_interruption,
        "pools": [_pool(name, zone, look) for zone in look.zones] if here else [],
    }


def _pool(name: str, zone: str, look: PoolFacts) -> dict[str, Any]:
    price, score = look.live_market.prices.get((name, zone)), look.live_market.scores.get((name, zone))
    history = look.history_by_pool.get(PoolKey(name, zone, Market.SPOT), PoolHistory())
    return {
        "zone": zone,
        "spot_usd_per_hour": price.usd_per_hour if price else None,
        "since": price.at if price else None,
        "placement_score": score.score if score else None,
        "scored_at": score.at if score else None,
        "launches": history.launches,
        "interrupted": history.interrupted,
        "hours_per_interruption": history.hours_per_interruption,
    }


def columns(shown: list[Candidate], look: PoolFacts) -> list[str]:
    """Return the columns that have content."""
    return [
        *(["SCORE"] if any(look.scores(c) for c in shown) else []),
        *(["TAKEN"] if any(look.history(c).launches for c in shown) else []),
    ]


def cells(candidate: Candidate, look: PoolFacts, column_names: list[str]) -> list[str]:
    """Return a candidate's cells of these columns."""
    scores, history = look.scores(candidate), look.history(candidate)
    low_high = f"{min(scores)}" if len(set(scores)) == 1 else f"{min(scores)}-{max(scores)}" if scores else "—"
    interrupted = f"{history.interrupted}/{history.launches}" if history.launches else "—"
    return [{"SCORE": low_high, "TAKEN": interrupted}[column] for column in column_names]


def notes(session: Session, shown: list[Candidate], look: PoolFacts) -> list[str]:
    """Return the notes below the table."""
    sentences = []
    if any(is_estimate(c) for c in shown):
        sentences.append("~ an estimate: the catalogue's figure of an earlier day, not what spot costs here now")
    if any(point.instance_type in {c.instance_type.name for c in shown} for point in look.live_market.prices.values()):
        sentences.append(f"Spot prices without ~ are those in force at {session.now:%Y-%m-%d %H:%M} UTC.")
    column_names = columns(shown, look)
    if "SCORE" in column_names:
        sentences.append("SCORE: how likely the cloud finds it now that spot is available, 1 to 10, by zone.")
    if "TAKEN" in column_names:
        total = sum((look.history(c) for c in shown), start=PoolHistory())
        each = total.hours_per_interruption
        rate = f", one for each {duration(each * 3600)} that an instance ran" if each is not None else ""
        sentences.append(f"TAKEN: spot instances of this cluster that the cloud took back, of those launched{rate}.")
    return sentences + [f"{trouble}." for trouble in look.live_market.troubles]
