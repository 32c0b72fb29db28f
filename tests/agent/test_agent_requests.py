"""What a running job costs in requests: the real parts of agent and trainer, an hour of a clock turned by hand."""

import queue
import struct
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from everspot_clouds.base import Identity
from everspot_core.cluster.manifest import Limits, Manifest
from everspot_core.jobs import lease as transitions
from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_core.jobs.records import Assignment, EventKind, InstanceState, Market
from everspot_store import Bucket, ManualClock, Store
from everspot_store.testing import MemoryBackend
from everspot_train.agent.actions import JobKey
from everspot_train.agent.agent import POLL_BUSY
from everspot_train.agent.hardware import Hardware
from everspot_train.agent.heartbeat import Heartbeat
from everspot_train.agent.session import JobSession
from everspot_train.agent.threads import DueTimer
from everspot_train.agent.watch import Contact
from everspot_train.rundir import RunContext, RunDir, Status, TrainingPhase
from everspot_train.trainer.reporter import Reporter
from everspot_train.writer.protocol import AnyAnswer, PublishedAnswer, PublishRequest, StreamFile
from everspot_train.writer.service import WriterService

pytestmark = pytest.mark.torch

# Amazon S3, us-east-1, S3 Standard, list price as of 2026-01 (https://aws.amazon.com/s3/pricing/): dollars a request.
# DELETE is free. A listing costs as much as a write.
USD = {"write": 0.005 / 1000, "read": 0.0004 / 1000, "free": 0.0}
KIND = {"get": "read", "delete": "free"}
HOURS_A_MONTH = 730


class Counting(MemoryBackend):
    """Counts what S3 would bill."""

    def __init__(self, counted: Counter[tuple[str, str]]) -> None:
        super().__init__()
        self._counted = counted

    def __getattribute__(self, name: str):  # type: ignore[no-untyped-def]
        attribute = super().__getattribute__(name)
        if name not in ("get", "list", "put", "create", "replace", "delete", "upload", "download"):
            return attribute

        def call(key: str, *arguments: object) -> object:
            if not object.__getattribute__(self, "_within"):
                self._counted[(KIND.get(name, "write"), f"{name} {key.split('/')[0]}")] += 1
            self._within += 1
            try:
                return attribute(key, *arguments)
            finally:
                self._within -= 1

        return call

    _within = 0


def test_an_hour_of_a_running_job_costs_less_than_a_dollar_a_month(tmp_path: Path) -> None:
    clock, counted, limits = ManualClock(datetime(2026, 1, 1, tzinfo=UTC)), Counter[tuple[str, str]](), Limits()
    buckets = [Bucket(f"memory://{name}", Counting(counted), clock) for name in ("control", "data")]
    store = Store(*buckets, clock=clock)
    submission = store.submit(JobSubmission(job_id="j", spec=JobSpec(name="toy", recipe="r"), submitted_at=clock.now()))
    store.records.create("j", transitions.assign(None, "j", "i-1", clock.now()))
    store.assignments.put("i-1", Assignment(instance_id="i-1", job_id="j", epoch=1, changed_at=clock.now()))
    lease = store.acquire("j", 1, "i-1", ttl=limits.lease_ttl)
    assert lease is not None
    session = JobSession(store, clock, lease, submission, tmp_path / "run", limits)
    context = RunContext(
        job_id="j", epoch=1, instance_id="i-1", cloud="folder", control_url="", submission=submission,
        scratch_dir=str(tmp_path / "run" / "scratch"),
    )  # fmt: skip
    session.prepare(context)
    rundir = RunDir(tmp_path / "run")
    rundir.write(Status(phase=TrainingPhase.TRAINING, step=0))
    manifest = Manifest(cluster="c", cloud="folder", control_url="memory:", data_url="memory:", limits=limits)
    identity = Identity(instance_id="i-1", instance_type="m5.large", zone="z", market=Market.SPOT)
    hardware, contact = Hardware(vcpus=2, memory_gib=8), Contact("the store", clock)
    heartbeat = Heartbeat(store, manifest, identity, hardware, contact, clock, agent_version="1")
    reporter = Reporter(rundir, store, context, clock)
    events = store.event_writer("j", 1, "trainer-i-1", "i-1")
    checkpoints = store.checkpoints("j", 1, incarnation=lease.incarnation)
    answers: queue.SimpleQueue[AnyAnswer] = queue.SimpleQueue()
    publisher = WriterService(checkpoints, clock, answers.put)
    poll = DueTimer(limits.poll_every * POLL_BUSY, clock)

    def go_on(seconds: int) -> None:
        for second in range(seconds):
            clock.advance(timedelta(seconds=1))
            with (rundir.path / "output.log").open("ab") as output:
                output.write(b"step 1: loss 0.5\n")
            heartbeat.beat(InstanceState.BUSY, JobKey("j", 1), None)
            session.renew_if_due()
            if poll.due():
                store.assignments.get("i-1")
            session.ship()
            reporter.progress(int(clock.monotonic().total_seconds()), {"loss": 0.5})
            if second % 600 == 0:
                publisher.publish(_snapshot(tmp_path, int(clock.monotonic().total_seconds())))
                assert isinstance(answers.get(timeout=60), PublishedAnswer)
                events.emit(EventKind.CHECKPOINTED, step=0)
            if reporter._flight is not None:
                reporter._flight.result()

    go_on(300)  # a beginning costs more
    counted.clear()
    go_on(3600)
    usd = sum(count * USD[kind] for (kind, _), count in counted.items()) * HOURS_A_MONTH
    for (kind, operation), count in sorted(counted.items()):
        print(f"{count:5d} an hour  {kind:5s}  {operation:24s} ${count * USD[kind] * HOURS_A_MONTH:.3f} a month")
    print(f"${usd:.2f} a job-month of requests")
    assert usd < 1.00
    writes = sum(count for (kind, _), count in counted.items() if kind == "write")
    assert writes < 270
    assert session.lease_view().value == "valid"
    publisher.close()
    reporter.close()


def _snapshot(folder: Path, step: int) -> PublishRequest:
    """A manifest and a stream, as the trainer library hands them over for one rank."""
    copy_folder = folder / f"snapshot-{step}"
    copy_folder.mkdir()
    (copy_folder / "manifest.json").write_bytes(b"{}")
    (folder / "memory").write_bytes(struct.pack("=2q", step, 8))
    streams = {"stream-00000": StreamFile(path=str(folder / "memory"), size=8, counter_at=8)}
    return PublishRequest(
        step=step, directory=str(copy_folder), streams=streams, info={}, unchanged={}, keep=2, again=False, now=True
    )
