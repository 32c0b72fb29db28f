"""A cluster in a test: its store, agents that follow the contract exactly, and a scripted cloud."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from pathlib import Path

from everspot_clouds.base import CloudEnd, CloudInstance, Message, MessageKind, Phase, PlacementScore, Trouble
from everspot_clouds.null_cloud import NullCloud
from everspot_core.cluster.gauges import Gauge
from everspot_core.cluster.manifest import Limits, Manifest
from everspot_core.costs.ledger import PricePoint
from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_core.jobs.records import (
    Event,
    EventKind,
    InstanceRecord,
    InstanceState,
    Market,
    Order,
    Progress,
    Reason,
    Role,
)
from everspot_scheduler.loop import Scheduler
from everspot_store import Lease, ManualClock, Store, SystemClock

LIMITS = Limits(lease_ttl="15s", beat_every="5s", poll_every="1s", tick_every="1s", notice_poll="1s")


class FakeCloud(NullCloud):
    """Answers what the test has put into it, and remembers what was acknowledged."""

    def __init__(self) -> None:
        self.described: dict[str, CloudInstance] = {}
        self.inbox: list[Message] = []
        self.acknowledged: list[Message] = []
        self.prices: list[PricePoint] = []
        self.scores: list[PlacementScore] = []
        self.stored_gauges: list[tuple[str, dict[Gauge, float], datetime]] = []
        self.scored: list[tuple[tuple[str, ...], int]] = []  # the requested scores
        self.describe_calls = 0
        self.error: Exception | None = None
        self.ends_error: Exception | None = None
        self.kind = Trouble.TRANSIENT
        self.notified: list[tuple[str, dict[str, object]]] = []
        self.ended: list[str] = []
        self.reported_ends: list[CloudEnd] = []  # ends that are reported separately from the description
        self.deaf = 0  # notifications that fail before one is sent

    def instances(self) -> list[CloudInstance]:
        self.describe_calls += 1
        if self.error is not None:
            raise self.error
        return list(self.described.values())

    def ends(self) -> list[CloudEnd]:
        if self.ends_error is not None:
            raise self.ends_error
        return list(self.reported_ends)

    def messages(self) -> list[Message]:
        received, self.inbox = self.inbox, []
        return received

    def acknowledge(self, messages: Iterable[Message]) -> None:
        self.acknowledged += messages

    def spot_prices(self, pools: Iterable[tuple[str, str]], since: datetime) -> list[PricePoint]:
        requested_pools = set(pools)
        points = [p for p in self.prices if (p.instance_type, p.zone) in requested_pools]
        before = [p for p in points if p.at <= since]
        return before[-1:] + [p for p in points if p.at > since]

    def placement_scores(
        self, types: Collection[str], count: int, regions: Collection[str] = ()
    ) -> list[PlacementScore]:
        self.scored.append((tuple(types), count))
        return [s for s in self.scores if set(s.types) == set(types)]

    def terminate(self, instances: Iterable[str]) -> None:
        self.ended += instances

    def quota_name(self, instance_type: str, market: Market) -> str:
        return market.value

    def publish_gauges(self, namespace: str, gauges: Mapping[Gauge, float], at: datetime) -> None:
        self.stored_gauges.append((namespace, dict(gauges), at))

    def notify(self, settings: object, subject: str, text: str, data: dict[str, object]) -> None:
        if self.deaf:
            self.deaf -= 1
            raise OSError("the webhook does not answer")
        self.notified.append((subject, data))

    def trouble(self, error: Exception) -> Trouble:
        return self.kind

    def send(self, kind: MessageKind, instance_id: str, at: datetime | None = None, **kw: object) -> Message:
        message = Message(kind=kind, handle=f"h{id(self)}-{len(self.inbox)}", instance_id=instance_id, at=at, **kw)
        self.inbox.append(message)
        return message


class Agent:
    """An agent in process. It heartbeats, takes up its assignment, makes `speed` steps a turn, and obeys."""

    def __init__(
        self,
        cluster: "Cluster",
        iid: str,
        market: Market,
        zone: str = "us-east-1a",
        vcpus: int = 2,
        gpus: int = 0,
        kind: str = "c6i.large",
    ) -> None:
        self.cluster, self.iid, self.lease = cluster, iid, None
        self.reason = Reason.FINISHED
        self.alive, self.steps, self.speed = True, 0, 1
        self.unfit: InstanceState | None = None
        self.breaks = False  # whatever it runs fails
        self.record = InstanceRecord(
            instance_id=iid,
            cluster="test",
            role=Role.AGENT,
            instance_type=kind,
            zone=zone,
            market=market,
            vcpus=vcpus,
            memory_gib=4,
            gpus=gpus,
            state=InstanceState.READY,
            generation=cluster.manifest.generation,
            booted_at=cluster.clock.now(),
            updated_at=cluster.clock.now(),
        )

    def turn(self) -> None:
        """One round of the agent: beat, poll, work."""
        if not self.alive:
            return
        store, lease = self.cluster.store, self.lease
        if lease is not None:
            self._work(lease)
        else:
            self._poll()
        update = {
            "state": self.unfit or (InstanceState.BUSY if self.lease else InstanceState.READY),
            "job_id": self.lease.job_id if self.lease else None,
            "epoch": self.lease.epoch if self.lease else None,
            "beat": self.record.beat + 1,
            "updated_at": self.cluster.clock.now(),
        }
        self.record = self.record.model_copy(update=update)
        store.instances.put(self.iid, self.record)

    def _poll(self) -> None:
        assignment = self.cluster.store.assignments.get(self.iid)
        if assignment is not None and assignment.value.order is Order.LEAVE:
            self.cluster.end(self.iid, interrupted=False)
        elif assignment is not None and assignment.value.job_id is not None and assignment.value.order is Order.RUN:
            self.lease = self.cluster.store.acquire(assignment.value.job_id, assignment.value.epoch, self.iid)
            if self.lease is not None:
                self.cluster.starts[self.lease.job_id].append((self.lease.epoch, self.iid))

    def _work(self, lease: Lease) -> None:
        assignment = self.cluster.store.assignments.get(self.iid)
        if assignment is not None and assignment.value.order is not Order.RUN and assignment.value.epoch == lease.epoch:
            lease.release(assignment.value.reason or Reason.SHUTDOWN)
            self.lease = None
            return
        if self.breaks:
            lease.release(Reason.ERROR, exit_code=1, detail="CUDA error")
            self.lease = None
            return
        done = lease.record.progress.step + self.speed
        if done >= self.cluster.length:
            lease.release(Reason.FINISHED)
            self.lease = None
        elif not lease.renew(Progress(step=done)):
            self.lease = None


class Cluster:
    """One cluster: a store, a manifest, agents and schedulers, and a clock that moves only by `run`."""

    def __init__(self, store: Store, clock: ManualClock | SystemClock, *, length: int = 4) -> None:
        self.store, self.clock, self.length = store, clock, length
        self.cloud = FakeCloud()
        self.manifest = Manifest(
            cluster="test",
            cloud="aws",
            region="us-east-1",
            control_url=store.control.url,
            data_url=store.data.url,
            limits=LIMITS,
        )
        store.write_manifest(self.manifest)
        self.agents: dict[str, Agent] = {}
        self.starts: dict[str, list[tuple[int, str]]] = defaultdict(list)
        self.schedulers = [self.scheduler()]

    def scheduler(self, name: str = "s1", store: Store | None = None) -> Scheduler:
        return Scheduler(store or self.store, self.manifest, self.cloud, name)

    def agent(self, iid: str, market: Market = Market.SPOT, zone: str = "us-east-1a", **kw: int) -> Agent:
        agent = Agent(self, iid, market, zone, **kw)
        agent.turn()
        self.agents[iid] = agent
        self.cloud.described[iid] = CloudInstance(
            instance_id=iid,
            instance_type="c6i.large",
            zone=zone,
            market=market,
            role=Role.AGENT,
            launched_at=self.clock.now().replace(microsecond=0),
        )
        return agent

    def declare(self, **update: object) -> None:
        """Write `cluster.json` as `pulumi up` does."""
        self.manifest = self.manifest.model_copy(update=update)
        self.store.write_manifest(self.manifest)

    def end(self, iid: str, *, interrupted: bool, phase: Phase = Phase.ENDED, stated: bool = True) -> None:
        """Let the cloud end an instance, which kills its processes immediately."""
        self.agents[iid].alive = False
        was = self.cloud.described[iid]
        self.cloud.described[iid] = CloudInstance(
            instance_id=iid,
            instance_type=was.instance_type,
            zone=was.zone,
            market=was.market,
            role=was.role,
            launched_at=was.launched_at,
            phase=phase,
            ended_at=self.clock.now() if stated else None,
            interrupted=interrupted,
        )

    def submit(self, name: str, **spec: object) -> JobSubmission:
        settings = {"name": name, "recipe": "image_classification", **spec}
        job = JobSubmission(job_id=name, spec=JobSpec.model_validate(settings), submitted_at=self.clock.now())
        return self.store.submit(job)

    def run(self, seconds: int) -> None:
        """Run all actors once per second."""
        for _ in range(seconds):
            for scheduler in self.schedulers:
                scheduler.tick()
            for agent in self.agents.values():
                agent.turn()
            self.check()
            self.clock.advance(timedelta(seconds=1))

    def check(self) -> None:
        """No instance holds two jobs' leases, and no epoch of a job was ever started twice."""
        owners = [r.value.owner for r in self.store.records.scan().values() if r.value.state.owned]
        assert len(owners) == len(set(owners)), owners
        for name, starts in self.starts.items():
            epochs = [epoch for epoch, _ in starts]
            assert len(epochs) == len(set(epochs)), (name, starts)

    def state(self, name: str) -> str:
        record = self.store.records.get(name)
        return record.value.state.value if record is not None else "PENDING"

    def events_of_kind(self, name: str, kind: EventKind) -> list[Event]:
        return [e for e in self.store.events(name) if e.kind is kind]


def folder_store(root: Path, clock: ManualClock | SystemClock | None = None) -> Store:
    for part in ("control", "data"):
        (root / part).mkdir(parents=True, exist_ok=True)
    return Store.open(*[(root / part).as_uri() for part in ("control", "data")], clock=clock)
