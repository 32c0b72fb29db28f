"""A small cluster with a history in a folder, written through the store and read through the command."""

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from everspot_cli.main import main
from everspot_core.capacity.catalogue import InstanceType
from everspot_core.cluster.manifest import FleetOffer, Manifest
from everspot_core.costs.ledger import EndRecord, LaunchRecord, PricePoint
from everspot_core.jobs import lease
from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_core.jobs.records import (
    EventKind,
    InstanceRecord,
    InstanceState,
    JobRecord,
    Market,
    Progress,
    Reason,
    Resident,
    Role,
)
from everspot_store import ManualClock, SchedulerBeat, Store

sys.path.insert(0, str(Path(__file__).parent))  # for the helpers of several test files

from cluster_history import record_history

T0 = datetime(2026, 3, 1, 12, tzinfo=UTC)
POOLS = {
    "i-base": ("m6i.large", "us-east-1a", Market.ON_DEMAND, Role.AGENT),
    "i-brain": ("t3.small", "us-east-1a", Market.ON_DEMAND, Role.SCHEDULER),
    "i-spot1": ("c6i.large", "us-east-1b", Market.SPOT, Role.AGENT),
    "i-spot2": ("m7i.large", "us-east-1c", Market.SPOT, Role.AGENT),
    "i-0a1b2c3d4e5f60718": ("g5.xlarge", "us-east-1b", Market.SPOT, Role.AGENT),
    "i-spot3": ("c6i.large", "us-east-1a", Market.SPOT, Role.AGENT),
}


NAMED = re.compile(r"cluster \S+: \S+ \(.*\)\n")
PLAIN = {"COLUMNS": "200", "NO_COLOR": "1"}


def everspot(*arguments: str, env: dict[str, str] | None = None, encoding: str = "utf-8") -> "Answer":
    """Run a command line in this process. `encoding`: of the console."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding=encoding, write_through=True) for _ in range(2))
    code = 0
    with mock.patch.dict(os.environ, {**PLAIN, **(env or {})}), redirect_stdout(out), redirect_stderr(err):
        try:
            main(list(arguments))
        except SystemExit as ended:
            code = int(ended.code or 0)
    return Answer(code, *(stream.buffer.getvalue().decode(encoding) for stream in (out, err)))


@pytest.fixture(autouse=True)
def _own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes what the person who runs it has configured."""
    home = tmp_path_factory.mktemp("home")
    for variable in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(variable, str(home / variable))
    for variable in ("EVERSPOT_STORE", "EVERSPOT_CLUSTER", "EVERSPOT_CLOCK"):
        monkeypatch.delenv(variable, raising=False)


@dataclass
class Answer:
    """The result of running the command. `cluster`: the line of standard error that names the cluster; `err` is without
    it."""

    code: int
    out: str
    err: str
    cluster: str = ""

    def __post_init__(self) -> None:
        header = NAMED.match(self.err)
        if header:
            self.cluster, self.err = header.group(), self.err[header.end() :]

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class World:
    """The cluster. Times are seconds after T0."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "control").mkdir()
        (root / "data").mkdir()
        self.clock = ManualClock(T0)
        self.url = (root / "control").as_uri()
        self.store = Store.open(self.url, (root / "data").as_uri(), clock=self.clock)
        self.store.write_manifest(
            Manifest(
                cluster="test",
                cloud="folder",
                region="us-east-1",
                control_url=self.url,
                data_url=(root / "data").as_uri(),
            )
        )

    def run(self, *arguments: str, env: dict[str, str] | None = None, encoding: str = "utf-8") -> Answer:
        """`everspot --store … arguments` in this process, by the function that the command itself calls."""
        return everspot("--store", self.url, *arguments, env=env, encoding=encoding)

    def run_apart(self, *arguments: str, env: dict[str, str] | None = None) -> Answer:
        """The same as a process of its own."""
        done = subprocess.run(
            [sys.executable, "-m", "everspot_cli.main", "--store", self.url, *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=180,
            env={**os.environ, **PLAIN, **(env or {})},
        )
        return Answer(done.returncode, done.stdout, done.stderr)

    def offer(self, *types: str, **declared: Any) -> None:
        """Write the types of the fleets into `cluster.json`. `declared`: fields of a type that the catalogue lacks."""
        own = [InstanceType(**declared)] if declared else []
        fleet = FleetOffer(types=list(types), zones=["us-east-1a"], markets=[Market.SPOT])
        self.store.write_manifest(self.store.manifest().model_copy(update={"fleet": fleet, "instance_types": own}))

    def to(self, seconds: float) -> datetime:
        """Turn the clock on to a moment."""
        self.clock.advance(T0 + timedelta(seconds=seconds) - self.clock.now())
        return self.clock.now()

    def launch(self, iid: str, seconds: float) -> None:
        kind, zone, market, role = POOLS[iid]
        at = T0 + timedelta(seconds=seconds)
        self.store.launches.create(
            iid,
            LaunchRecord(instance_id=iid, instance_type=kind, zone=zone, market=market, role=role, launched_at=at),
        )
        if market is Market.SPOT:
            self.price(iid, 0, 0.04)

    def end(self, iid: str, seconds: float, interrupted: bool = False) -> None:
        at = T0 + timedelta(seconds=seconds)
        self.store.ends.create(iid, EndRecord(instance_id=iid, ended_at=at, interrupted=interrupted))

    def price(self, iid: str, seconds: float, usd: float) -> None:
        kind, zone, market, _ = POOLS[iid]
        at = T0 + timedelta(seconds=seconds)
        self.store.add_price(
            PricePoint(instance_type=kind, zone=zone, market=market, at=at, usd_per_hour=usd, source="test")
        )

    def beat(
        self, iid: str, job: str | None = None, state: InstanceState | None = None, residents: tuple[str, ...] = (),
        generation: str = "",
    ) -> None:  # fmt: skip
        kind, zone, market, role = POOLS[iid]
        now = self.clock.now()
        self.store.instances.put(
            iid,
            InstanceRecord(
                instance_id=iid, cluster="test", role=role, instance_type=kind, zone=zone, market=market, vcpus=2,
                memory_gib=8, job_id=job, booted_at=now, updated_at=now,
                state=state or (InstanceState.BUSY if job or residents else InstanceState.READY),
                residents=tuple(Resident(job_id=name, epoch=1) for name in residents), generation=generation,
            ),
        )  # fmt: skip

    def scheduler_beat(self) -> None:
        now = self.clock.now()
        self.store.schedulers.put("s-1", SchedulerBeat(scheduler_id="s-1", started_at=now, updated_at=now))

    def submit(self, job: str, seconds: float = 0, **spec: Any) -> None:
        at = self.to(seconds)
        settings = {"name": job, "recipe": "image-classification", **spec}
        spec_read = JobSpec.model_validate(settings)
        due = at + spec_read.deadline if isinstance(spec_read.deadline, timedelta) else spec_read.deadline
        submission = JobSubmission(job_id=job, spec=spec_read, submitted_at=at, deadline_at=due)
        self.store.submit(submission)
        self.store.event_writer(job, 0, "cli").emit(EventKind.SUBMITTED)

    def record(self, job: str) -> JobRecord | None:
        doc = self.store.records.get(job)
        return doc.value if doc else None

    def save(self, record: JobRecord) -> JobRecord:
        self.store.records.put(record.job_id, record)
        return record

    def assign(self, job: str, iid: str, seconds: float) -> JobRecord:
        now = self.to(seconds)
        record = lease.assign(self.record(job), job, iid, now)
        kind, zone, market, _ = POOLS[iid]
        self.emit(job, EventKind.ASSIGNED, instance_type=kind, zone=zone, market=market.value, record=record)
        return self.save(record)

    def start(self, job: str, seconds: float, from_step: int = 0) -> None:
        now = self.to(seconds)
        record = self.record(job)
        started = lease.start(record, record.epoch, record.owner, now)
        self.save(started)
        self.emit(job, EventKind.TRAINING, from_step=from_step, restored=from_step > 0, seconds=4.0)

    def emit(self, job: str, kind: EventKind, record: JobRecord | None = None, **data: Any) -> None:
        record = record or self.record(job)
        writer = self.store.event_writer(job, record.epoch, record.owner or "scheduler", record.owner)
        writer.emit(kind, **data)

    def checkpoint(self, job: str, seconds: float, step: int, trigger: str = "interval") -> None:
        self.to(seconds)
        self.emit(job, EventKind.CHECKPOINTED, step=step, bytes=1000, seconds=0.5, trigger=trigger)

    def leave(self, job: str, seconds: float, reason: Reason, **kwargs: Any) -> None:
        now = self.to(seconds)
        record = self.record(job)
        spec = self.store.jobs.get(job).value.spec
        self.save(lease.release(record, reason, now, spec, **kwargs))

    def lose(self, job: str, seconds: float, step: int) -> None:
        now = self.to(seconds)
        record = self.record(job)
        self.emit(job, EventKind.LOST, cause="expired", step=step)
        self.save(lease.expire(record, now))

    def finish(self, job: str, seconds: float, step: int, accuracy: float) -> None:
        record = self.record(job)
        progress = Progress(step=step, total_steps=step, metrics={"loss": 0.3, "test_accuracy": accuracy})
        self.save(record.model_copy(update={"progress": progress}))
        self.to(seconds)
        self.emit(job, EventKind.FINISHED, step=step, metrics={"test_accuracy": accuracy})
        self.leave(job, seconds, Reason.FINISHED)


@pytest.fixture
def world(tmp_path: Path) -> World:
    """An empty cluster."""
    return World(tmp_path)


@pytest.fixture
def past(world: World) -> World:
    """The cluster with its past, see cluster_history.py."""
    record_history(world)
    return world


@pytest.fixture
def spec_file(tmp_path: Path) -> Callable[[str], Path]:
    """Writes a job file."""

    def write(text: str) -> Path:
        path = tmp_path / "job.yaml"
        path.write_text(text)
        return path

    return write


@pytest.fixture
def play(world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A sweep's playground, see sweep_helpers.py."""
    from sweep_helpers import Playground

    monkeypatch.setenv("EVERSPOT_CLOCK", "1e-12@1772539200")  # two days after the world's, and so it stays
    return Playground(world, tmp_path)
