"""A workload's jobs on a cluster of either cloud, and their results."""

import shutil
import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml
from everspot_clouds.registry import provider
from everspot_core.capacity.catalogue import builtin
from everspot_core.cluster.manifest import Limits
from everspot_core.costs.attempts import attempts
from everspot_core.costs.bill import Bill, bill
from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_core.jobs.records import Event, EventKind, InstanceRecord, JobState, Reason, Role
from everspot_local.cloud import LocalCloud
from everspot_local.controls.schedules import load
from everspot_scheduler.close_ledger import settle_ledger
from everspot_simulator.account import Account, of_bill
from everspot_simulator.state import Task, hours
from everspot_simulator.supply import BEGIN
from everspot_simulator.trace import Trace
from everspot_simulator.trace import parse as parse_trace
from everspot_simulator.workload import Workload, WorkloadJob, load_traces
from everspot_simulator.workload_file import parse as parse_workload
from everspot_store import Store, SystemClock

HERE = Path(__file__).parent
PROGRAM = (HERE / "programs/paced.py", HERE.parent / "agent/programs/toy/toy_train.py")
STEP = timedelta(seconds=30)
"""Market time of a step."""
BOOT = timedelta(seconds=15)
"""Market time until a machine begins to boot, longer than the market takes to report it as running."""
REPORTS = timedelta(seconds=0.6)
"""Real time that an agent takes to report once it runs."""
LEASE = timedelta(minutes=10)
"""Market time of a lease, if it is long enough in real time. Its renewals contain the job's progress."""
LATE, LATEST = 0.2, 0.6
"""The allowed delay of the median start, and of the slowest one, over the workload's times."""
AGENT = """
import os, time
os.sched_getaffinity = lambda pid: set(range({cpus}))
began = os.stat(".").st_mtime
from everspot_train.agent.main import main
time.sleep(max(0.0, began + {seconds} - time.time()))
main()
"""
"""A machine's folder is created at its boot. The agent imports its modules before the wait ends."""


def read(path: Path) -> tuple[Workload, dict[str, Trace]]:
    """A workload with its traces, as `everspot simulate --workload` reads them."""
    workload = parse_workload(yaml.safe_load(path.read_text()), str(path), builtin())
    return workload, load_traces(workload, lambda name: parse_trace((path.parent / name).read_text(), name))


class Paced(ABC):
    """The cluster of a workload's fleet, and its jobs. Subclasses for a cloud set the attributes without a default."""

    delays: Mapping[str, float] = MappingProxyType({})
    """Settings of the market, in seconds, that differ from the workload's."""
    cloud: LocalCloud
    store: Store
    folder: Path
    clock: SystemClock
    until: Callable[..., Any]
    ended: Callable[[str], JobState | None]

    @abstractmethod
    def running(self) -> Mapping[str, Any]:
        """Instances that were launched and have not ended, by id."""

    def describe(self, path: Path, scale: float, before_zones: str) -> None:
        """Apply the workload's fleet. `before_zones`: the prefix of its zones' names."""
        self.path = path
        self.workload, self.traces = read(path)
        self.scale = scale
        fleet = self.workload.fleet
        real = timedelta(seconds=fleet.tick_seconds / self.scale)
        self.limits = Limits(
            lease_ttl=max(timedelta(seconds=10), LEASE / self.scale), beat_every=timedelta(seconds=5),
            poll_every=timedelta(seconds=0.4), notice_poll=timedelta(seconds=0.5), tick_every=real / 2,
            stop_margin=timedelta(seconds=0.5),
        )  # fmt: skip
        self.types = tuple(dict.fromkeys(p.instance_type for p in fleet.pools))
        self.zones = tuple(sorted({p.zone.removeprefix(before_zones) for p in fleet.pools}))
        self.idle_limit = fleet.idle_limit
        self.max_instances = fleet.max_instances or len(self.workload.jobs)
        self.max_usd_per_hour, self.shared = fleet.max_usd_per_hour, fleet.shared
        self.only = {name: sorted({p.zone for p in fleet.pools if p.instance_type == name}) for name in self.types}
        self.own_idle_limit = "30m"  # a safety net only: the scheduler ends them
        self.jobs: dict[str, str] = {}
        self.running_jobs = list[str]()

    def agent(self, cpus: int | None) -> tuple[str, ...]:
        remaining = (hours(self.workload.fleet.launch_hours) - BOOT) / self.scale - REPORTS
        return "-c", AGENT.format(cpus=cpus or 2, seconds=remaining.total_seconds())

    def play(self, report: Callable[[str], None] = lambda words: None) -> datetime:
        """Start the market, submit every job at its arrival, and wait until all jobs and instances have ended. Return
        the start time."""
        self._begin()
        began = self.clock.now()
        for job in sorted(self.workload.jobs, key=lambda j: (j.arrival_hours, j.id)):
            wait = began + hours(job.arrival_hours) - self.clock.now()
            time.sleep(max(0.0, self.clock.to_real(wait).total_seconds()))
            self._submit(job)
            report(f"{self._hours(began):5.2f} h: {job.id}")
        limit = self.clock.to_real(hours(self.workload.horizon_hours))
        self.until(self._all_over, limit)
        report(f"{self._hours(began):5.2f} h: all jobs are over")
        self.until(lambda: not self.running() or None, limit)
        report(f"{self._hours(began):5.2f} h: nothing runs any more")
        return began

    def _all_over(self) -> bool:
        """Return whether every job has ended. Each call reads only the last job that is not known to have ended,
        because the caller polls several times a second."""
        while self.running_jobs and self.ended(self.running_jobs[-1]):
            self.running_jobs.pop()
        return not self.running_jobs

    def _hours(self, began: datetime) -> float:
        return (self.clock.now() - began) / timedelta(hours=1)

    def _begin(self) -> None:
        """The scheduler runs, and the market begins its course."""
        self.until(lambda: self.store.schedulers.scan())
        self._replay(load(self.path, builtin()))

    def _hold_initial_state(self) -> None:
        """Hold the market at the workload's first state until it begins, so that no process sees another state."""
        course = load(self.path, builtin())
        self._replay({**course, "pools": [{**pool, "data": pool["data"][:1]} for pool in course["pools"]]})

    def _replay(self, course: dict[str, Any]) -> None:
        self.cloud.do("replay", **{**course, "delays": course["delays"] | {"boot": BOOT.total_seconds()} | self.delays})

    def _submit(self, job: WorkloadJob) -> None:
        code = self.folder / "code"
        if not code.exists():
            code.mkdir()
            for file in PROGRAM:
                shutil.copy(file, code)
        plain = Task.from_job(job, BEGIN).submission.spec.model_dump(exclude_defaults=True, exclude={"recipe"})
        env = {
            "TOY_STEPS": str(max(1, round(hours(job.actual) / STEP))),
            "TOY_STEP_SECONDS": str(self.clock.to_real(STEP).total_seconds()),
            "TOY_EVERY": "40",
            "PACED_SETUP": str(self.workload.fleet.setup_hours * 3600),
        }
        spec = JobSpec.model_validate({**plain, "code": str(code), "entrypoint": ["paced.py"], "env": env})
        now = self.clock.now()
        deadline = None if job.deadline_hours is None else now + hours(job.deadline_hours)
        submission = JobSubmission(job_id=f"{job.id}-1", spec=spec, submitted_at=now, deadline_at=deadline)
        self.jobs[job.id] = self.store.submit(submission, code).job_id
        self.running_jobs.append(self.jobs[job.id])

    def behind(self) -> list[str]:
        """Return the parts in which this machine did not keep up with its market. Such a run is not valid."""
        fleet, problems = self.workload.fleet, list[str]()
        history, records = self.history(), self.records()
        all_attempts = [a for events in history.values() for a in attempts(events)]
        launches = {name: launch.value.launched_at for name, launch in self.store.launches.scan().items()}
        boots = [r.booted_at - launches[n] for n, r in records.items() if r.role is Role.AGENT and n in launches]
        setups = [a.training_at - a.start for a in all_attempts if a.training_at is not None]
        starts = (("launch", boots, fleet.launch_hours), ("set-up", setups, fleet.setup_hours))
        for subject, durations, promised_hours in (s for s in starts if s[1]):
            for which, bound, late in (
                ("the middle", LATE, statistics.median(durations)),
                ("the longest", LATEST, max(durations)),
            ):
                if late > (1 + bound) * hours(promised_hours):
                    problems.append(
                        f"{which} {subject} took {late.total_seconds():.0f} s instead of {promised_hours * 3600:.0f}"
                    )
        if lost := [f"{a.job_id} on {a.instance_id}" for a in all_attempts if a.reason is Reason.LOST]:
            problems.append(f"a notice was too short for {', '.join(lost)}")
        for beat in (b.value for b in self.store.schedulers.scan().values()):
            tick = (beat.updated_at - beat.started_at) / max(1, beat.ticks)
            if tick.total_seconds() > fleet.tick_seconds:
                problems.append(f"a tick took {tick.total_seconds():.0f} s")
        return problems

    # Results ----------------------------------------------------------------------------------------------

    def submissions(self) -> dict[str, JobSubmission]:
        return {job: self.store.jobs.get(job).value for job in self.jobs.values()}  # type: ignore[union-attr]

    def history(self) -> Mapping[str, list[Event]]:
        return self.store.events_by_job(list(self.jobs.values()))

    def records(self) -> dict[str, InstanceRecord]:
        return {name: document.value for name, document in self.store.instances.scan().items()}

    def bill(self) -> Bill:
        """Return the bill as the report computes it."""
        manifest = self.store.manifest()
        cloud = provider(manifest.cloud)
        reader = cloud.reading(manifest, self.clock)
        assert reader is not None
        settle_ledger(self.store, manifest, reader)
        reader.close()
        launches, ends = self.store.launches.scan(), self.store.ends.scan()
        return bill(
            [document.value for document in launches.values()],
            [document.value for document in ends.values()],
            self.store.prices(),
            self.history(),
            builtin(),
            self.clock.now(),
            rules=cloud.billing,
        )

    def account(self) -> Account:
        infeasible = (
            job
            for job, events in self.history().items()
            if any(e.kind is EventKind.FAILED and e.data.get("reason") == Reason.INFEASIBLE for e in events)
        )
        return of_bill(self.bill(), self.submissions(), infeasible)
