"""A whole cluster inside one process and one thread, on a clock turned by hand.

Real agents, the real scheduler and the toy trainer take turns by a seeded dice. Each machine reaches the store through
a `Knife`, which can end the machine at any call (before or after the call took effect), lose answers, or hold the
machine there while the others go on, as SIGSTOP does.

These tests use no cloud and hold for all clouds, because machines communicate only through the store. How each cloud's
buckets answer is told to tests/store, and a scheduler killed within a cloud's calls to test_scheduler_elastic_kills.py.
"""

import itertools
import json
import random
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from agent_helpers import TOY
from everspot_clouds.base import Identity
from everspot_clouds.folder import FolderCloud, FolderMetadata
from everspot_core.cluster.manifest import Limits, Manifest
from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_core.jobs.records import EventKind, JobRecord, JobState, Market
from everspot_scheduler.loop import Scheduler
from everspot_store import Bucket, Fenced, ManualClock, Store, StoreUnavailable
from everspot_store.folder import FolderBackend
from everspot_train.agent.agent import Agent
from everspot_train.agent.artifacts.open_files import OpenFiles, OwnOpenFiles
from everspot_train.agent.fitness import Fitness
from everspot_train.agent.hardware import Hardware
from everspot_train.agent.heartbeat import Heartbeat
from everspot_train.agent.own_log import OwnLog
from everspot_train.agent.process import JobLaunch, TrainingProcess
from everspot_train.agent.starter import Starter, Surroundings
from everspot_train.agent.utilization.counters import JobCounters
from everspot_train.agent.watch import NoticeWatcher
from everspot_train.rundir import RunDir
from knife import Cut, Knife, KnifedBackend

sys.path.insert(0, str(TOY))
from toy_train import Toy, expected

LIMITS = Limits(
    lease_ttl=timedelta(seconds=15),
    beat_every=timedelta(seconds=5),
    poll_every=timedelta(seconds=0.5),
    tick_every=timedelta(seconds=1),
)


class TurnTrainer:
    """The toy as a training process that goes one step at a time."""

    def __init__(self, run_dir: Path, store: Store, clock: ManualClock, env: Mapping[str, str]) -> None:
        self._args = (RunDir(run_dir), store, clock, env)
        self._output = run_dir / "output.log"
        self._steps: Iterator[None] | None = None
        self._code: int | None = None

    def advance(self) -> None:
        if self._code is not None:
            return
        try:
            if self._steps is None:
                self._steps = Toy(*self._args).steps()
            next(self._steps)
        except StopIteration:
            self._code = 0
        except Fenced:
            self._code = 3
        except Exception:
            self._output.write_text(traceback.format_exc())
            self._code = 1

    def exit_code(self) -> int | None:
        return self._code

    def cpu_seconds(self) -> float | None:
        return None

    def counters(self) -> JobCounters:
        return JobCounters()

    def limit_hit(self) -> float | None:
        return None

    def memory_gib(self) -> float | None:
        return None

    def terminate(self, *, final: bool = False) -> None:
        self._code = self._code if self._code is not None else -15

    def kill(self) -> None:
        self._code = self._code if self._code is not None else -9


class Machine:
    """One instance: agent and trainer, which live and die together."""

    def __init__(self, world: "World", name: str) -> None:
        self.name = name
        self.knife = Knife(world.dice)
        self.store = world.open_store(self.knife)
        self.trainer: TurnTrainer | None = None
        identity = Identity(instance_id=name, instance_type="m5.large", zone="us-east-1a", market=Market.SPOT)
        hardware = Hardware(vcpus=2, memory_gib=8)
        clock, manifest = world.clock, world.manifest
        self.watch = NoticeWatcher(self.store, FolderMetadata(world.root, identity), name, clock)
        heartbeat = Heartbeat(
            self.store, manifest, identity, hardware, self.watch.store_contact, clock, agent_version="test"
        )
        home = world.root / "instances" / name
        surroundings = Surroundings(home, {"TOY_TRACE": str(world.trace_file)}, launcher="toy")
        self.agent = Agent(
            manifest=manifest,
            starter=Starter(
                store=self.store,
                manifest=manifest,
                identity=identity,
                hardware=hardware,
                processes=self,
                surroundings=surroundings,
                clock=clock,
            ),
            watch=self.watch,
            heartbeat=heartbeat,
            fitness=Fitness(None, hardware, home, {}, clock),
            own_log=OwnLog(),
            clock=clock,
        )
        self._clock = clock

    def launch(self, job: JobLaunch) -> TrainingProcess:
        self.trainer = TurnTrainer(job.run_dir, self.store, self._clock, job.env)
        return self.trainer

    def open_files(self, run_dir: Path) -> OpenFiles:
        return OwnOpenFiles()

    def clear(self) -> int:
        return 0

    def turn(self, dice: random.Random) -> None:
        """One of its threads, or its trainer, does one thing."""
        trainer = self.trainer
        choices = [self.agent.step, self.agent.beats, self.agent.beats, self.agent.feeds]
        dice.choice([*choices, trainer.advance, trainer.advance] if trainer else choices)()


class World:
    """Machines, a scheduler, one folder and one clock."""

    def __init__(self, root: Path, seed: int, *, machines: int = 2) -> None:
        self.root = root
        self.dice = random.Random(seed)
        self.clock = ManualClock()
        for name in ("control", "data"):
            (root / name).mkdir(parents=True)
        self.manifest = Manifest(
            cluster="faults",
            cloud="folder",
            control_url=f"file://{root}/control",
            data_url=f"file://{root}/data",
            limits=LIMITS,
        )
        self.trace_file = root / "trace.jsonl"
        self.store = self.open_store(Knife(self.dice))
        self.store.write_manifest(self.manifest)
        self.machines: list[Machine] = []
        self.born = 0
        self.deaths = 0
        self.scheduler_deaths = 0
        self.frozen: set[str] = set()
        self.scheduler_frozen = False
        for _ in range(machines):
            self.add_machine()
        self.scheduler_knife = Knife(self.dice)
        self.scheduler = self.new_scheduler()

    def open_store(self, knife: Knife) -> Store:
        def bucket(name: str) -> Bucket:
            folder = self.root / name
            return Bucket(
                f"file://{folder}", KnifedBackend(FolderBackend(folder, self.clock), knife, self.clock), self.clock
            )

        return Store(bucket("control"), bucket("data"), self.clock)

    def add_machine(self) -> Machine:
        self.born += 1
        machine = Machine(self, f"i-{self.born}")
        self.machines.append(machine)
        return machine

    def new_scheduler(self) -> Scheduler:
        store = self.open_store(self.scheduler_knife)
        return Scheduler(store, self.manifest, FolderCloud(store), f"scheduler-{self.scheduler_deaths}")

    def submit(self, job_id: str, **env: str) -> None:
        spec = JobSpec(name="toy", entrypoint=["toy_train.py"], code=str(TOY), env={"TOY_STEP_SECONDS": "0.3", **env})
        self.store.submit(JobSubmission(job_id=job_id, spec=spec, submitted_at=self.clock.now()), TOY)

    def turn(self) -> None:
        """Somebody does something, and a little time passes."""
        self.clock.advance(timedelta(seconds=self.dice.uniform(0, 0.1)))
        if self.dice.random() < 0.1:
            if not self.scheduler_frozen:
                self._scheduler_turn()
            return
        free = [machine for machine in self.machines if machine.name not in self.frozen]
        if not free:
            return
        machine = self.dice.choice(free)
        try:
            machine.turn(self.dice)
        except Cut:
            self.machines.remove(machine)
            self.deaths += 1
            self.add_machine()

    def _scheduler_turn(self) -> None:
        try:
            self.scheduler.tick()
        except Cut:
            self.scheduler_deaths += 1
            self.scheduler_knife = Knife(self.dice)
            self.scheduler = self.new_scheduler()
        except StoreUnavailable:
            pass  # its loop goes on with the next tick

    def run_until(self, done: Callable[[], bool], turns: int = 30_000) -> None:
        for number in range(turns):
            if number % 20 == 0 and done():
                return
            self.turn()
        raise AssertionError(f"not done after {turns} turns: {[r.value for r in self.store.records.scan().values()]}")

    def record(self, job_id: str) -> JobRecord | None:
        document = self.store.records.get(job_id)
        return document.value if document else None

    def finished(self, *job_ids: str) -> bool:
        records = [self.record(job_id) for job_id in job_ids]
        return all(record is not None and record.state.final for record in records)

    def trace(self) -> list[dict[str, Any]]:
        if not self.trace_file.exists():
            return []
        return [json.loads(line) for line in self.trace_file.read_text().splitlines()]

    def keys(self) -> dict[str, str]:
        control = {f"control/{entry.key}": entry.etag for entry in self.store.control.list()}
        return control | {f"data/{entry.key}": entry.etag for entry in self.store.data.list()}

    def final_state(self, job_id: str) -> dict[str, Any]:
        folder = Path(tempfile.mkdtemp(prefix=f"final-{job_id}-", dir=self.root))
        assert self.store.checkpoints(job_id).restore(folder) is not None
        return json.loads((folder / "state.json").read_text())

    def check_job(self, job_id: str, steps: int) -> None:
        """Not lost, trained by one owner at a time, and with the weights of the undisturbed run."""
        record = self.record(job_id)
        assert record is not None
        assert record.state is JobState.SUCCEEDED
        assert record.errors == 0
        assert self.final_state(job_id) == {"step": steps, "weight": expected(steps)}
        check_single_owner([fact for fact in self.trace() if fact["job"] == job_id], steps)
        events = self.store.events(job_id)
        started = {(event.epoch, event.writer) for event in events if event.kind is EventKind.STARTED}
        assert len({epoch for epoch, _ in started}) == len(started), "two agents started one epoch"
        assert all(event.epoch <= record.epoch for event in events)


def check_single_owner(trace: list[dict[str, Any]], steps: int) -> None:
    """The steps really executed, in the order of their execution: epochs never go back, each has one instance, no
    step is left out."""
    epochs = [fact["epoch"] for fact in trace]
    assert epochs == sorted(epochs), "an earlier owner trained after a later one had begun"
    owners = {(fact["epoch"], fact["instance"]) for fact in trace}
    assert len(owners) == len(set(epochs)), "one epoch was trained by two instances"
    assert {fact["step"] for fact in trace} == set(range(steps))
    for before, after in itertools.pairwise(trace):
        assert after["step"] <= before["step"] + 1, "a step was left out"
        if after["epoch"] == before["epoch"]:
            assert after["step"] == before["step"] + 1


__all__ = ["Cut", "World", "check_single_owner", "expected"]
