"""The rows of `everspot fleet`: the pools of a cluster, from the documents in its store, and its cloud if asked."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from everspot_core.capacity.launching import LaunchIntent
from everspot_core.capacity.market import Market, PoolKey
from everspot_core.costs.baselines import Norm
from everspot_core.costs.pool_history import PoolHistory
from everspot_core.counting import counted
from everspot_core.documents import format_duration
from everspot_store import BadDocument, FleetState, PoolState

from everspot_cli.market import MarketAnswer, MarketHistory, list_zones, query_market, read_market_history
from everspot_cli.rows import instance_rows
from everspot_cli.session import Session, run_in_parallel
from everspot_cli.tables import duration, relative_time

CHEAPEST = 5
"""The number of pools that are listed without any instance or refusal."""
CELLS = ("$/H", "SCORE", "BUSY", "IDLE", "COMING", "LAUNCHED", "TAKEN", "LASTS", "REFUSED")
"""The names of a pool's figures."""
COMING, IDLE, BUSY = "BOOTING", "READY", "BUSY"


@dataclass(frozen=True)
class Read:
    """The documents of a cluster's fleet. `state` None: no scheduler has written any."""

    state: FleetState | None
    past: MarketHistory
    instances: list[dict[str, Any]]
    launching: list[LaunchIntent]
    live_market: MarketAnswer = field(default_factory=MarketAnswer)
    troubles: tuple[str, ...] = ()


def read(session: Session, *, live: bool) -> Read:
    """Read the documents; with `live` ask the cloud for spot prices and placement scores of this moment too."""
    trouble: list[str] = []

    def noted() -> FleetState | None:
        try:
            return session.store.notes.fleet.read()
        except BadDocument as error:
            trouble.append(f"prices, scores and refusals cannot be read: {error}")
            return None

    state, before, instances, intents = run_in_parallel(
        noted, lambda: read_market_history(session), lambda: instance_rows(session), session.store.launching.scan
    )
    live_market = _query_market(session, before.history_by_pool) if live else MarketAnswer()
    open_ones = [doc.value for doc in intents.values() if doc.value.outcome is None]
    return Read(
        state,
        before,
        [row for row in instances if row["role"] == "agent"],
        sorted(open_ones, key=lambda intent: intent.seq),
        live_market,
        (*trouble, *live_market.troubles),
    )


def _query_market(session: Session, history_by_pool: Mapping[PoolKey, PoolHistory]) -> MarketAnswer:
    manifest = session.manifest
    names = {
        *(manifest.elastic.types if manifest.elastic else ()),
        *(manifest.fleet.types if manifest.fleet else ()),
    } or {pool.instance_type for pool in history_by_pool}
    types = session.catalogue.types
    return query_market(
        session, [types[name] for name in sorted(names) if name in types], list_zones(session, history_by_pool)
    )


def pool_rows(reading: Read) -> list[dict[str, Any]]:
    """Return a row for each known pool: those with instances first, then the cheapest."""
    noted = {_pool(state): state for state in (reading.state.pools if reading.state else ())}
    here: dict[PoolKey, list[dict[str, Any]]] = defaultdict(list)
    for row in reading.instances:
        here[PoolKey(row["instance_type"], row["zone"], Market(row["market"]))].append(row)
    live = {
        PoolKey(name, zone, Market.SPOT) for name, zone in (*reading.live_market.prices, *reading.live_market.scores)
    }
    rows = [
        _row(pool, noted.get(pool), reading.past, here.get(pool, []), reading.live_market)
        for pool in {*noted, *reading.past.history_by_pool, *here, *live}
    ]
    return sorted(rows, key=_order)


def _pool(state: PoolState) -> PoolKey:
    return PoolKey(state.instance_type, state.zone, state.market)


def _row(
    pool: PoolKey, noted: PoolState | None, past: MarketHistory, here: list[dict[str, Any]], live_market: MarketAnswer
) -> dict[str, Any]:
    history = past.history_by_pool.get(pool, PoolHistory())
    place, spot = (pool.instance_type, pool.zone), pool.market is Market.SPOT
    point = live_market.prices.get(place) if spot else None
    score = live_market.scores.get(place) if spot else None
    counts = {state: sum(row["state"] == state for row in here) for state in (BUSY, IDLE, COMING)}
    return {
        "instance_type": pool.instance_type,
        "zone": pool.zone,
        "market": pool.market.value,
        "usd_per_hour": point.usd_per_hour if point else noted.usd_per_hour if noted else None,
        "placement_score": score.score if score else noted.placement_score if noted else None,
        "busy": counts[BUSY],
        "idle": counts[IDLE],
        "coming": counts[COMING],
        "instances": len(here),
        "jobs": sorted(job for row in here for job in (row["job_id"], *row["residents"]) if job),
        "launched": history.launches,
        "interrupted": history.interrupted,
        "hours": history.hours,
        "lifetimes_hours": list(history.lifetimes),
        "hours_per_interruption": history.hours_per_interruption,
        "over_norm": [norm.value for norm in past.over.get(pool, ())],
        "refusals": len(noted.refused_at) if noted else 0,
        "refused_at": noted.refused_at[-1] if noted and noted.refused_at else None,
        "noticed_at": noted.noticed_at if noted else None,
    }


def _order(row: dict[str, Any]) -> tuple[bool, bool, float, str, str, str]:
    usd = row["usd_per_hour"]
    return not row["instances"], usd is None, usd or 0.0, row["instance_type"], row["zone"], row["market"]


def of_interest(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of pools that have or had instances or refused some, and the `CHEAPEST` of the others."""
    others = [row for row in rows if not _is_known(row) and row["usd_per_hour"] is not None]
    cheapest = sorted(others, key=_order)[:CHEAPEST]
    return [row for row in rows if _is_known(row) or row in cheapest]


def _is_known(row: dict[str, Any]) -> bool:
    return bool(row["instances"] or row["launched"] or row["refusals"] or row["lifetimes_hours"] or row["over_norm"])


def cells(row: dict[str, Any], now: datetime) -> list[str]:
    """Return the figures of a pool's row, in the order of `CELLS`. A ! marks a figure that is over its norm."""
    usd, each = row["usd_per_hour"], row["hours_per_interruption"]
    refused = f"{row['refusals']}, {relative_time(row['refused_at'], now)}" if row["refused_at"] else "—"
    worse = row["over_norm"]
    interruptions = str(row["interrupted"] or "—")
    return [
        (f"{usd:.4f}" if usd is not None else "—") + " !" * (Norm.PRICE in worse),
        str(row["placement_score"] or "—"),
        *(str(row[name] or "—") for name in ("busy", "idle", "coming", "launched")),
        interruptions + " !" * (Norm.INTERRUPTIONS in worse),
        duration(each * 3600 if each is not None else None),
        refused,
    ]


def as_json(session: Session, reading: Read) -> dict[str, Any]:
    """Return the whole answer as JSON."""
    state, elastic = reading.state, session.manifest.elastic
    return {
        "updated_at": state.updated_at if state else None,
        "scheduler_id": state.scheduler_id if state else None,
        "elastic": state.elastic.model_dump() if state and state.elastic else None,
        "idle_limit_seconds": elastic.idle_limit if elastic else None,
        "launching": [
            {
                "seq": intent.seq,
                "count": intent.count,
                "jobs": sorted(set(intent.jobs)),
                "market": intent.market.value,
                "pools": len(intent.pools),
                "made_at": intent.made_at,
            }
            for intent in reading.launching
        ],
        "pools": pool_rows(reading),
        "troubles": list(reading.troubles),
    }


_WORSE = {
    Norm.INTERRUPTIONS: "takes far more instances than it uses to",
    Norm.PRICE: "costs far more than it uses to",
}


def norm_notes(reading: Read) -> list[str]:
    """Return a sentence for each pool that is over its norms."""
    return [
        f"Over its norm: {pool.instance_type} in {pool.zone}, {pool.market.value}, "
        f"{' and '.join(_WORSE[norm] for norm in norms)}."
        for pool, norms in sorted(reading.past.over.items())
    ]


def notes(session: Session, reading: Read, now: datetime) -> list[str]:
    """Return the notes below the table."""
    sentences, state, elastic = norm_notes(reading), reading.state, session.manifest.elastic
    if state is not None and state.elastic is not None:
        use = state.elastic
        cap = f" of ${use.max_usd_per_hour:.2f}" if use.max_usd_per_hour is not None else ""
        usd = f"${use.usd_per_hour:.2f}" if use.usd_per_hour is not None else "nobody knows how many dollars"
        idle = f" One without work is let go after {format_duration(elastic.idle_limit)}." if elastic else ""
        sentences.append(
            f"Launched: {use.instances} of {counted(use.max_instances, 'instance')} at the most, "
            f"{usd}{cap} an hour.{idle}"
        )
    for intent in reading.launching:
        jobs = sorted(set(intent.jobs))
        subject = jobs[0] if len(jobs) == 1 else f"{len(jobs)} jobs"
        sentences.append(
            f"Under way since {duration((now - intent.made_at).total_seconds())}: "
            f"{counted(intent.count, 'instance')} on {intent.market.value} for {subject}."
        )
    if state is None:
        sentences.append("No scheduler has written prices, scores and refusals yet.")
    else:
        sentences.append(
            "Prices, scores and refusals as a scheduler wrote them when they changed, "
            f"{relative_time(state.updated_at, now)}."
        )
    return sentences + [f"{trouble}." for trouble in reading.troubles]
