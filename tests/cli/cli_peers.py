"""Two clusters in folders that name each other as peers, with the documents that their schedulers write."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from everspot_core.cluster.manifest import Manifest
from everspot_core.cluster.peers import Peer
from everspot_core.jobs.records import Market
from everspot_store import ElasticUse, FleetState, PeerSight, PoolState, SchedulerBeat, Store

T0 = datetime(2026, 3, 1, 12, tzinfo=UTC)


def met(world, root: Path) -> Store:
    """A second cluster that names the world's as its peer, and is named by it. `root`: an empty folder for it."""
    for part in ("control", "data"):
        (root / part).mkdir()
    urls = {"control_url": (root / "control").as_uri(), "data_url": (root / "data").as_uri()}
    store = Store.open(*urls.values(), clock=world.clock)
    back = Peer(name="test", cloud="folder", control_url=world.url)
    store.write_manifest(Manifest(cluster="there", cloud="folder", federation=(back,), **urls))
    store.schedulers.put("s1", SchedulerBeat(scheduler_id="s1", started_at=T0, updated_at=world.clock.now()))
    peer = Peer(name="there", cloud="folder", control_url=urls["control_url"], egress_usd_per_gb=0.09)
    world.store.write_manifest(world.store.manifest().model_copy(update={"federation": (peer,)}))
    return store


def note(world, problem: str, minutes: int = 0, *, down: bool = False) -> None:
    """Write the scheduler's observation of the peer."""
    at = world.clock.now() - timedelta(minutes=minutes)
    sight = PeerSight(name="there", seen_at=at, beat_at=at, alive=not problem, problem=problem, down=down)
    beat = SchedulerBeat(scheduler_id="s1", started_at=T0, updated_at=at, peers=[sight])
    world.store.schedulers.put("s1", beat)


def publish(store, usd: float, *, elastic: bool = True, kind: str = "m6i.large") -> None:
    """Write a scheduler's document on its pools: a Spot pool without preemptions, and on-demand at three times the
    price."""
    shape = {"instance_type": kind, "changeover_seconds": 360.0, "changeover_upper_seconds": 900.0}
    behaved = {"up": True, "since": T0 - timedelta(days=30)}
    pools = [
        PoolState(**shape, zone="us-east-1a", market=Market.SPOT, usd_per_hour=usd, **behaved),
        PoolState(**shape, zone="us-east-1a", market=Market.ON_DEMAND, usd_per_hour=3 * usd),
    ]
    use = ElasticUse(instances=0, max_instances=4, usd_per_hour=0.0) if elastic else None
    store.notes.fleet.write(FleetState(scheduler_id="s1", updated_at=T0, pools=pools, elastic=use))
