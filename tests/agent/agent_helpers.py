"""Helpers of agent and kill tests: a cluster on a folder, real agent processes, a fake scheduler, a metadata server."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import agent_forks
from everspot_core.cluster.manifest import Limits, Manifest
from everspot_core.jobs import lease as transitions
from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_core.jobs.records import Assignment, Event, EventKind, JobRecord, JobState, Order, Reason
from everspot_store import Store, SystemClock, Versioned
from everspot_train.agent import parent_death_signal
from metadata_server import MetadataServer, metadata_pages

TOY = Path(__file__).parent / "programs" / "toy"
SOON = 180.0
"""The timeout in real seconds for events that take a few seconds on an idle machine."""


def eventually(description: str, check: Callable[[], Any], seconds: float = SOON, interval: float = 0.05) -> Any:
    """Wait for a true result of `check`, and return it."""
    end = time.monotonic() + seconds
    while True:
        answer = check()
        if answer:
            return answer
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {description}")
        time.sleep(interval)


@dataclass
class Proc:
    """A real agent process."""

    popen: "subprocess.Popen[bytes] | agent_forks.Fork"
    home: Path
    log: Path

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def wait(self, seconds: float = SOON) -> int:
        return self.popen.wait(seconds)

    def tree(self) -> list[int]:
        """The agent, its training process, and that process's children, which have their own sessions."""
        mark, main = str(self.home).encode(), self.popen.pid if self.popen.poll() is None else None
        pids = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                    if state == "Z":
                        continue
                    if int(entry.name) == main or mark in (entry / "environ").read_bytes():
                        pids.append(int(entry.name))
                except OSError:
                    continue
        return pids

    def signal_tree(self, number: int) -> None:
        for pid in self.tree():
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue

    def end(self) -> None:
        self.signal_tree(signal.SIGKILL)
        self.popen.wait(10)


@dataclass
class Cluster:
    """A cluster on a folder, with the agents that a test starts."""

    root: Path
    limits: Limits
    clock: SystemClock = field(default_factory=SystemClock)
    agents: list[Proc] = field(default_factory=list)
    servers: list[MetadataServer] = field(default_factory=list)
    launcher: str = sys.executable

    def __post_init__(self) -> None:
        for name in ("control", "data"):
            (self.root / name).mkdir(parents=True)
        self.manifest = Manifest(
            cluster="test",
            cloud="folder",
            control_url=f"file://{self.root}/control",
            data_url=f"file://{self.root}/data",
            limits=self.limits,
        )
        self.store = Store.open(self.manifest.control_url, self.manifest.data_url, clock=self.clock)
        self.store.write_manifest(self.manifest)
        self.manifest_file = self.root / "manifest.json"
        self.manifest_file.write_bytes(self.manifest.to_json())
        self.trace_file = self.root / "trace.jsonl"

    def start_agent(self, instance_id: str, **env: str) -> Proc:
        """Start an agent without a metadata service."""
        options = ["--manifest", str(self.manifest_file), "--instance-id", instance_id, "--market", "spot"]
        return self._start(instance_id, options, env)

    def start_with_metadata(self, server: MetadataServer, instance_id: str, **env: str) -> Proc:
        """Start an agent that gets all its settings from a metadata service."""
        return self._start(instance_id, [], {"AWS_EC2_METADATA_SERVICE_ENDPOINT": server.endpoint, **env})

    def metadata_server(self, instance_id: str) -> MetadataServer:
        server = MetadataServer(metadata_pages(self.manifest, instance_id))
        self.servers.append(server)
        return server

    def _start(self, instance_id: str, options: list[str], env: dict[str, str]) -> Proc:
        home = self.root / "instances" / f"{instance_id}-{len(self.agents)}"
        home.mkdir(parents=True)
        log = home / "agent.log"
        whole = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "EVERSPOT_HOME": str(home),
            "EVERSPOT_WORK": str(self.root / "work"),
            "EVERSPOT_LAUNCHER": self.launcher,
            "EVERSPOT_POWEROFF": f"touch {home}/powered-off",
            "TOY_TRACE": str(self.trace_file),
            **env,
        }
        whole = {name: value for name, value in whole.items() if value}
        command = [sys.executable, "-m", "everspot_train.agent.main", *options]
        return self._spawn(command, home, log, whole)

    def _spawn(self, command: list[str], home: Path, log: Path, env: dict[str, str]) -> Proc:
        python, option, module, *arguments = command
        if (python, option) == (sys.executable, "-m") and agent_forks.is_possible(env):
            proc = Proc(agent_forks.Fork(module, arguments, env, home, log), home, log)
            self.agents.append(proc)
            return proc
        tied = [sys.executable, "-I", parent_death_signal.__file__, str(os.getpid()), "-", "0", *command]
        with log.open("wb") as output:
            popen = subprocess.Popen(
                tied,  # a killed test run does not call `close`
                env=env,
                cwd=home,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        proc = Proc(popen, home, log)
        self.agents.append(proc)
        return proc

    def start_scheduler(self) -> Proc:
        """Start the real scheduler on the folder."""
        home = self.root / f"scheduler-{len(self.agents)}"
        home.mkdir()
        env = {"PATH": os.environ["PATH"], "HOME": str(home), "EVERSPOT_HOME": str(home)}
        command = [sys.executable, "-m", "everspot_scheduler.main", "--manifest", str(self.manifest_file)]
        return self._spawn(command, home, home / "scheduler.log", env)

    def submit(self, job_id: str, code: Path = TOY, **spec: Any) -> JobSubmission:
        defaults: dict[str, Any] = {"name": "toy", "entrypoint": ["toy_train.py"], "code": str(code)}
        submission = JobSubmission(job_id=job_id, spec=JobSpec(**{**defaults, **spec}), submitted_at=self.clock.now())
        return self.store.submit(submission, code)

    def printed(self, job_id: str = "job-1") -> str:
        """Return the job's output in the store. Invalid bytes are replaced."""
        return b"".join(chunk.data for chunk in self.store.read_logs(job_id)).decode(errors="replace")

    def assign(self, job_id: str, instance_id: str) -> JobRecord:
        """Assign a job as a scheduler does: write the instance's assignment first, then the job's record."""
        old = self.store.records.get(job_id)
        record = transitions.assign(old.value if old else None, job_id, instance_id, self.clock.now())
        self.order(instance_id, job_id=job_id, epoch=record.epoch)
        written = self.store.records.replace(job_id, old, record) if old else self.store.records.create(job_id, record)
        assert written is not None, "somebody else changed the record"
        self.store.event_writer(job_id, record.epoch, "scheduler", instance_id).emit(
            EventKind.ASSIGNED, instance_type="m5.large", zone="us-east-1a", market="spot", instance=instance_id
        )
        return record

    def order(self, instance_id: str, **fields: Any) -> None:
        """Replace an assignment."""
        self.store.assignments.put(
            instance_id, Assignment(instance_id=instance_id, changed_at=self.clock.now(), **fields)
        )

    def stop(
        self, instance_id: str, reason: Reason, *, cordoned: bool = False, deadline: datetime | None = None
    ) -> None:
        document = self.store.assignments.get(instance_id)
        assert document is not None
        update = {"order": Order.STOP, "reason": reason, "cordoned": cordoned, "deadline": deadline}
        self.store.assignments.put(instance_id, document.value.model_copy(update=update))

    def expire(self, job_id: str) -> JobRecord:
        """Expire a lease as a scheduler does."""
        old = self.store.records.get(job_id)
        assert old is not None
        step = old.value.progress.step
        new = transitions.expire(old.value, self.clock.now())
        assert self.store.records.replace(job_id, old, new) is not None
        self.store.event_writer(job_id, new.epoch, "scheduler").emit(EventKind.LOST, cause="expired", step=step)
        return new

    def record(self, job_id: str) -> JobRecord | None:
        document = self.store.records.get(job_id)
        return document.value if document else None

    def wait_state(self, job_id: str, *states: JobState, seconds: float = SOON) -> JobRecord:
        def check() -> JobRecord | None:
            record = self.record(job_id)
            return record if record is not None and record.state in states else None

        try:
            return eventually(f"{job_id} is {' or '.join(states)}", check, seconds)
        except AssertionError as error:
            logs = "\n".join(f"--- {agent.home.name}\n{agent.output}" for agent in self.agents)
            raise AssertionError(f"{error}; it is {self.record(job_id)}\n{logs}") from None

    def wait_instance(self, instance_id: str, check: Callable[[Any], Any], seconds: float = SOON) -> Any:
        def look() -> Any:
            document = self.store.instances.get(instance_id)
            return document.value if document is not None and check(document.value) else None

        return eventually(f"{instance_id} is as wished", look, seconds)

    def events(self, job_id: str, kind: EventKind | None = None) -> list[Event]:
        return [event for event in self.store.events(job_id) if kind is None or event.kind is kind]

    def kinds(self, job_id: str) -> list[str]:
        return [event.kind.value for event in self.store.events(job_id)]

    def trace(self) -> list[dict[str, Any]]:
        if not self.trace_file.exists():
            return []
        whole = self.trace_file.read_text().rpartition("\n")[0]  # without a line that is being written
        return [json.loads(line) for line in whole.splitlines()]

    def wait_steps(self, count: int, seconds: float = SOON) -> None:
        eventually(f"{count} steps executed", lambda: len(self.trace()) >= count, seconds)

    def final_state(self, job_id: str) -> dict[str, Any]:
        """Return the content of the toy's newest checkpoint, read by its digest."""
        folder = self.root / f"final-{job_id}-{time.monotonic_ns()}"
        checkpoint = self.store.checkpoints(job_id).restore(folder)
        assert checkpoint is not None
        return json.loads((folder / "state.json").read_text())

    def keys(self) -> dict[str, tuple[str, datetime]]:
        """Return every key of both buckets with its ETag and time."""
        control = {f"control/{e.key}": (e.etag, e.modified) for e in self.store.control.list()}
        return control | {f"data/{e.key}": (e.etag, e.modified) for e in self.store.data.list()}

    def close(self) -> None:
        for agent in self.agents:
            agent.end()
        for server in self.servers:
            server.close()


FAST = Limits(
    lease_ttl=timedelta(seconds=12),
    beat_every=timedelta(seconds=5),
    poll_every=timedelta(seconds=0.2),
    tick_every=timedelta(seconds=0.5),
    notice_poll=timedelta(seconds=0.2),
    stop_margin=timedelta(seconds=2),
)


def market_in(seconds: float) -> datetime:
    """Return a whole second of market time at least this far in the future."""
    return (datetime.now(UTC) + timedelta(seconds=seconds + 1)).replace(microsecond=0)


__all__ = ["FAST", "TOY", "Cluster", "MetadataServer", "Proc", "Versioned", "eventually", "market_in", "metadata_pages"]
