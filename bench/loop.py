"""`loop.…`: whole ticks of the scheduler against a store and a cloud that answer every request after 20 ms.

Requests, seconds and, at S3's list price, dollars per month: at 100 live jobs on 50 instances, 1,000 on 200 and 10,000
on 2,000. Every instance has a job, the rest of the jobs wait, a third of them with a budget in dollars. Between ticks
the agents do what theirs do in the time of one: heartbeats and renewals every 10 s, and a job of two hours now and then
comes to its end, for which another is submitted.
"""

import json
import math
import random
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from everspot_clouds.base import CloudInstance, PlacementScore
from everspot_clouds.null_cloud import NullCloud
from everspot_core.cluster.manifest import Limits, Manifest
from everspot_core.costs.ledger import PricePoint
from everspot_core.jobs import lease
from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_core.jobs.records import InstanceRecord, InstanceState, JobRecord, JobState, Market, Reason, Role
from everspot_scheduler.loop import Scheduler
from everspot_store import Bucket, ManualClock, Store
from everspot_store.backend import Entry, Version, Versioned, WriteResult
from everspot_store.testing import MemoryBackend

SIZES = ((100, 50), (1_000, 200), (10_000, 2_000))
LATENCY = 0.02  # seconds of each request
PAGE, DESCRIBED = 1_000, 500  # keys, instances per request
TICKS = 12
JOB_HOURS = 2.0
BEGIN = datetime(2026, 5, 1, tzinfo=UTC)
MONTH = timedelta(hours=730.5)
USD_PER_1000 = {"list": 0.005, "put": 0.005, "create": 0.005, "replace": 0.005, "get": 0.0004, "delete": 0.0}
"""Amazon S3 pricing, S3 Standard, us-east-1: PUT, COPY, POST and LIST requests; GET and all others; DELETE is free."""
SECONDS_LIMIT, DOLLARS_LIMIT = 10.0, 30.0


class SlowBackend(MemoryBackend):
    """Answers after `LATENCY`, many requests at a time, and counts them. `quick`: for what others do meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: Counter[str] = Counter()
        self._counting = threading.Lock()
        self._tables: dict[str, set[str]] = {}
        self.quick = True

    def _wait(self, operation: str, times: int = 1) -> None:
        if not self.quick:
            with self._counting:
                self.requests[operation] += times
            time.sleep(LATENCY * times)

    def get(self, key: str) -> Versioned[bytes] | None:
        self._wait("get")
        return super().get(key)

    def list(self, prefix: str) -> list[Entry]:
        with self._lock:  # by table: the product's listings are what is measured, not this one
            keys = sorted(key for key in self._tables.get(prefix.partition("/")[0], ()) if key.startswith(prefix))
            entries = [Entry(key, self._tags[key], len(self.objects[key]), BEGIN) for key in keys]
        self._wait("list", max(1, math.ceil(len(entries) / PAGE)))
        return entries

    def put(self, key: str, data: bytes) -> Version:
        self._tables.setdefault(key.partition("/")[0], set()).add(key)
        return super().put(key, data)

    def create(self, key: str, data: bytes) -> WriteResult:
        self._wait("create")
        return super().create(key, data)

    def replace(self, key: str, data: bytes, version: Version) -> WriteResult:
        self._wait("replace")
        return super().replace(key, data, version)

    def delete(self, key: str) -> None:
        self._wait("delete")
        self._tables.get(key.partition("/")[0], set()).discard(key)
        super().delete(key)


class SlowCloud(NullCloud):
    """Describes what there is, page by page."""

    def __init__(self, described: list[CloudInstance]) -> None:
        self._described = described

    def instances(self) -> list[CloudInstance]:
        time.sleep(LATENCY * math.ceil(len(self._described) / DESCRIBED))
        return self._described

    def spot_prices(self, pools: Iterable[tuple[str, str]], since: datetime) -> list[PricePoint]:
        time.sleep(LATENCY)
        return []

    def placement_scores(
        self, types: Collection[str], count: int, regions: Collection[str] = ()
    ) -> list[PlacementScore]:
        time.sleep(LATENCY)
        return []


class World:
    """A cluster amid its work, with agents that are only their writes."""

    def __init__(self, jobs: int, instances: int) -> None:
        self.clock, self.dice = ManualClock(BEGIN), random.Random(1)
        self.control = SlowBackend()
        self.store = Store(
            Bucket("memory://control", self.control, self.clock),
            Bucket("memory://data", MemoryBackend(), self.clock),
            self.clock,
        )
        self.manifest = Manifest(
            cluster="bench", cloud="aws", region="us-east-1", control_url="s3://c", data_url="s3://d"
        )
        self.store.write_manifest(self.manifest)
        self.count = 0
        self.machines = [self._machine(f"i-{n:05}") for n in range(instances)]
        for machine in self.machines:
            self._put(f"instances/{machine.instance_id}.json", machine)
        for _ in range(jobs):
            self.submit()
        described = [_described(m) for m in self.machines]
        self.scheduler = Scheduler(self.store, self.manifest, SlowCloud(described), "bench")

    def _machine(self, name: str) -> InstanceRecord:
        return InstanceRecord(
            instance_id=name, cluster="bench", role=Role.AGENT, instance_type="g5.xlarge", zone="us-east-1a",
            market=Market.SPOT, vcpus=4, memory_gib=16, gpus=1, gpu="A10G", gpu_memory_gib=24,
            state=InstanceState.READY, booted_at=BEGIN, updated_at=BEGIN,
        )  # fmt: skip

    def _put(self, key: str, document: Any) -> None:
        self.control.put(key, document.to_json())

    def submit(self) -> None:
        """One more job; every third with a budget."""
        self.count += 1
        job = f"job-{self.count:06}"
        budget = {"dollars": 1_000} if self.count % 3 == 0 else {}
        spec = JobSpec.model_validate({"name": "bench", "recipe": "image-classification", "budget": budget})
        self._put(f"jobs/{job}.json", JobSubmission(job_id=job, spec=spec, submitted_at=self.clock.now()))

    def agents(self, span: timedelta) -> None:
        """Write the documents of the agents in a span of time."""
        now = self.clock.now()
        assignments = self.store.assignments.scan()
        for n, machine in enumerate(self.machines):
            assignment = assignments.get(machine.instance_id)
            if assignment is None or assignment.value.job_id is None:
                continue
            key = f"records/{assignment.value.job_id}.json"
            record = JobRecord.read(self.control.objects[key])
            done = self.dice.random() < span / timedelta(hours=JOB_HOURS)
            if record.state is JobState.ASSIGNED:
                record = lease.start(record, record.epoch, machine.instance_id, now) or record
            elif record.state is not JobState.RUNNING:
                continue
            elif done:
                spec = JobSubmission.read(self.control.objects[f"jobs/{record.job_id}.json"]).spec
                record = lease.release(record, Reason.FINISHED, now, spec)
                self.submit()
            elif (int(now.timestamp()) // int(span.total_seconds()) + n) % 2:
                record = lease.renew(record, record.progress, now)
            else:
                beat = {"beat": machine.beat + 1, "updated_at": now, "state": InstanceState.BUSY}
                beat |= {"job_id": record.job_id, "epoch": record.epoch}
                self.machines[n] = machine.model_copy(update=beat)
                self._put(f"instances/{machine.instance_id}.json", self.machines[n])
                continue
            self._put(key, record)

    def tick(self) -> tuple[float, float, Counter[str]]:
        """Seconds, those of the processor, and requests of one tick."""
        self.control.requests.clear()
        self.control.quick = False
        began, busy = time.monotonic(), time.process_time()
        self.scheduler.tick()
        seconds, busy, requests = time.monotonic() - began, time.process_time() - busy, Counter(self.control.requests)
        self.control.quick = True
        return seconds, busy, requests

    def between(self, span: timedelta) -> None:
        """Until the next tick."""
        self.clock.advance(span)
        self.agents(span)


def _described(machine: InstanceRecord) -> CloudInstance:
    return CloudInstance(
        instance_id=machine.instance_id,
        instance_type=machine.instance_type,
        zone=machine.zone,
        market=machine.market,
        role=machine.role,
        launched_at=BEGIN,
    )


def dollars(requests: Counter[str], interval: timedelta) -> float:
    """Of a month of ticks that ask so much each."""
    return sum(USD_PER_1000[name] * count / 1000 for name, count in requests.items()) * (MONTH / interval)


def figures(jobs: int, instances: int) -> list[dict[str, Any]]:
    """Return the cost of a cluster of this size for its scheduler."""
    world, interval = World(jobs, instances), Limits().tick_every
    first, _, _ = world.tick()
    for _ in range(2):  # the jobs that the first tick assigned start
        world.between(interval)
        world.tick()
    tick_seconds, worked, total = [], [], Counter[str]()
    for _ in range(TICKS):
        world.between(interval)
        seconds, busy, requests = world.tick()
        tick_seconds.append(seconds)
        worked.append(busy)
        total += requests
    mean = Counter({name: count / TICKS for name, count in total.items()})
    words = ", ".join(f"{count:.1f} {name}" for name, count in sorted(mean.items()))
    size = f"{jobs:,} live jobs, {instances:,} instances"
    big, small = jobs == SIZES[-1][0], jobs == SIZES[0][0]
    return [
        {
            "name": f"loop.tick_seconds_{jobs}",
            "value": round(statistics.mean(tick_seconds), 2),
            "limit": SECONDS_LIMIT if big else None,
            "unit": "s",
            "note": f"{size}: mean of {TICKS} ticks, the longest {max(tick_seconds):.2f} s; "
            f"{statistics.mean(worked):.2f} s of the mean are the processor's; the first tick of a new scheduler, "
            f"which reads everything and gives out {instances:,} jobs, {first:.1f} s",
        },
        {
            "name": f"loop.requests_{jobs}",
            "value": round(sum(mean.values()), 1),
            "limit": None,
            "unit": "per tick",
            "note": f"{size}: {words}",
        },
        {
            "name": f"loop.dollars_{jobs}",
            "value": round(dollars(mean, interval), 2),
            "limit": DOLLARS_LIMIT if small else None,
            "unit": "$/month",
            "note": f"{size}: S3's requests of the scheduler at list price, a tick every "
            f"{interval.total_seconds():g} s; ticks in which nothing changes are "
            "twice as far apart, which is not counted here",
        },
    ]


def main() -> int:
    """Print the figures as JSON lines; 1 if one is on the wrong side of its limit."""
    failed = False
    for jobs, instances in SIZES:
        for figure in figures(jobs, instances):
            print(json.dumps({name: value for name, value in figure.items() if value is not None}), flush=True)
            failed |= figure["limit"] is not None and figure["value"] > figure["limit"]
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
