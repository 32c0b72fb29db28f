"""`idle.…`: what the store's requests cost where nothing runs, at S3's list price; Cloud Storage's is the same.

The real scheduler of a cluster with elastic capacity alone has an hour with nothing to do, and an agent of a standing
fleet an hour without a job, both on a folder store. The clock does not wait. Beside the scheduler's figure stands
the one that previews and `everspot init` state (`requests_usd`), which may be 10 % off.
"""

import json
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

from everspot_clouds.aws import fixed_prices as fixed
from everspot_clouds.base import Identity
from everspot_clouds.folder import FolderMetadata
from everspot_clouds.idle_requests import requests_usd
from everspot_clouds.null_cloud import NullCloud
from everspot_core.capacity.market import Market
from everspot_core.cluster.manifest import Elastic, Manifest
from everspot_scheduler.loop import Scheduler
from everspot_store import Bucket, ManualClock, Store
from everspot_store.backend import Entry, Version, Versioned, WriteResult
from everspot_store.folder import FolderBackend
from everspot_train.agent.agent import Agent
from everspot_train.agent.fitness import Fitness
from everspot_train.agent.hardware import Hardware
from everspot_train.agent.heartbeat import Heartbeat
from everspot_train.agent.own_log import OwnLog
from everspot_train.agent.process import LocalLauncher
from everspot_train.agent.starter import Starter, Surroundings
from everspot_train.agent.threads import HELPER_EVERY
from everspot_train.agent.watch import NoticeWatcher

from bench.loop import USD_PER_1000

HOUR, WARM_UP = timedelta(hours=1), timedelta(minutes=10)
HOURS_A_MONTH = 730
SCHEDULER_LIMIT, AGENT_LIMIT = 1.5, 2.0
"""Dollars a month."""
STATED_LIMIT = 1.1


class CountingBackend(FolderBackend):
    """A folder that counts the requests that it gets, as a bucket bills them."""

    def __init__(self, folder: Path, clock: ManualClock) -> None:
        super().__init__(folder, clock)
        self.requests: Counter[str] = Counter()

    def get(self, key: str) -> Versioned[bytes] | None:
        self.requests["get"] += 1
        return super().get(key)

    def list(self, prefix: str) -> list[Entry]:
        self.requests["list"] += 1
        return super().list(prefix)

    def put(self, key: str, data: bytes) -> Version:
        self.requests["put"] += 1
        return super().put(key, data)

    def create(self, key: str, data: bytes) -> WriteResult:
        self.requests["create"] += 1
        return super().create(key, data)

    def replace(self, key: str, data: bytes, version: Version) -> WriteResult:
        self.requests["replace"] += 1
        return super().replace(key, data, version)

    def delete(self, key: str) -> None:
        self.requests["delete"] += 1
        super().delete(key)


class Site:
    """A cluster on a folder whose two buckets count."""

    def __init__(self, folder: Path, *, elastic: bool) -> None:
        self.folder, self.clock = folder, ManualClock()
        capacity = Elastic(
            types=["g5.xlarge"],
            markets=[Market.SPOT, Market.ON_DEMAND],
            max_instances=4,
            template="lt-1",
            template_version="1",
            places={"us-east-1a": "subnet-1"},
        )
        self.backends = {name: self._backend(name) for name in ("control", "data")}
        control, data = (Bucket(f"file://{folder}/{name}", b, self.clock) for name, b in self.backends.items())
        self.store = Store(control, data, self.clock)
        self.manifest = Manifest(
            cluster="idle",
            cloud="aws",
            region="us-east-1",
            control_url=control.url,
            data_url=data.url,
            elastic=capacity if elastic else None,
        )
        self.store.write_manifest(self.manifest)

    def _backend(self, name: str) -> CountingBackend:
        (self.folder / name).mkdir(parents=True)
        return CountingBackend(self.folder / name, self.clock)

    def count(self) -> Counter[str]:
        """Return the requests since the last call."""
        total: Counter[str] = Counter()
        for backend in self.backends.values():
            total += backend.requests
            backend.requests.clear()
        return total


def idle_scheduler(folder: Path) -> Counter[str]:
    """Return the requests of an hour of a scheduler with nothing to do."""
    site = Site(folder, elastic=True)
    scheduler = Scheduler(site.store, site.manifest, NullCloud(), "bench")
    for span in (WARM_UP, HOUR):
        end = site.clock.monotonic() + span
        site.count()
        scheduler.run(lambda end=end: site.clock.monotonic() >= end)  # type: ignore[misc]
    return site.count()


def idle_agent(folder: Path) -> Counter[str]:
    """Return the requests of an hour of an agent without a job."""
    site = Site(folder, elastic=False)
    clock, store, manifest = site.clock, site.store, site.manifest
    identity = Identity(instance_id="i-1", instance_type="m5.large", zone="us-east-1a", market=Market.SPOT)
    hardware, home = Hardware(vcpus=2, memory_gib=8), folder / "home"
    watch = NoticeWatcher(store, FolderMetadata(folder / "manifest.json", identity), "i-1", clock)
    surroundings = Surroundings(home, {}, None)
    own_log = OwnLog()
    own_log.to(store, "i-1", clock)
    agent = Agent(
        manifest=manifest,
        starter=Starter(
            store=store,
            manifest=manifest,
            identity=identity,
            hardware=hardware,
            processes=LocalLauncher(surroundings.runs, adopt=False, groups=False),
            surroundings=surroundings,
            clock=clock,
        ),
        watch=watch,
        heartbeat=Heartbeat(store, manifest, identity, hardware, watch.store_contact, clock, agent_version="bench"),
        fitness=Fitness(None, hardware, home, {}, clock),
        own_log=own_log,
        clock=clock,
    )
    for span in (WARM_UP, HOUR):
        end = clock.monotonic() + span
        site.count()
        while clock.monotonic() < end:  # its threads, one after the other
            agent.step()
            agent.beats()
            agent.feeds()
            clock.sleep(HELPER_EVERY)
    return site.count()


def usd_a_month(requests: Mapping[str, int]) -> float:
    """Return the price of a month of such hours."""
    return sum(USD_PER_1000[kind] * count for kind, count in requests.items()) / 1000 * HOURS_A_MONTH


def _print(name: str, value: float, limit: float, unit: str, note: str) -> bool:
    figure = {"name": f"idle.{name}", "value": round(value, 3), "limit": limit, "unit": unit, "note": note}
    print(json.dumps(figure), flush=True)
    return value <= limit


def _words(requests: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {kind}" for kind, count in sorted(requests.items())) + " an hour"


def main() -> int:
    """Print the figures; 1 if one is over its limit."""
    with tempfile.TemporaryDirectory(prefix="everspot-bench-") as folder:
        scheduler, agent = idle_scheduler(Path(folder, "scheduler")), idle_agent(Path(folder, "agent"))
    usd = usd_a_month(scheduler)
    expected = float(requests_usd(fixed.STORE_WRITES.usd, fixed.STORE_READS.usd))
    ratio = max(usd / expected, expected / usd)
    stated = f"${usd:.2f} counted, ${expected:.2f} stated by previews and `everspot init`"
    within = [
        _print("scheduler_requests", usd, SCHEDULER_LIMIT, "USD a month", _words(scheduler)),
        _print("stated_requests", ratio, STATED_LIMIT, "ratio", stated),
        _print("agent_requests", usd_a_month(agent), AGENT_LIMIT, "USD a month", _words(agent)),
    ]
    return int(not all(within))


if __name__ == "__main__":
    sys.exit(main())
