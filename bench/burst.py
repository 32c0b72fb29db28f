"""A burst of short jobs on an empty cluster: the cost of unused launches, and the delay of the last job's end.

`burst.unused_usd_share`: of the dollars for launched instances, the part for instances that never ran a job.

`burst.makespan_ratio`: the time until the last job is done, divided by that of a plan that immediately launches an
instance for each job and lets each free instance take the next job.

Both are the worst of several bursts of 60 jobs, simulated with the product's own plan. Jobs are submitted together, by
a loop, or in groups; with declared or unknown lengths; before and after changeovers were measured. Boot times differ by
instance.
"""

import json
import random
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import product

from everspot_core.capacity.catalogue import builtin
from everspot_core.jobs.changeover import Changeover
from everspot_core.schedule import Action, ClusterView, JobView, PoolKey, plan
from everspot_simulator.cluster import Cluster
from everspot_simulator.drive import WorkloadRun, drive
from everspot_simulator.state import SimulatedInstance
from everspot_simulator.workload import Workload
from everspot_simulator.workload_file import parse

JOBS, SEED = 60, 24
LAUNCH, SETUP, SPREAD = timedelta(seconds=120), timedelta(seconds=3), timedelta(seconds=20)
UNUSED_LIMIT, MAKESPAN_LIMIT = 0.05, 1.2
HOUR = timedelta(hours=1)
SUBMITTED: Mapping[str, Callable[[int], float]] = {
    "at once": lambda n: 0.0,
    "one a second": lambda n: float(n),
    "one in two seconds": lambda n: 2.0 * n,
    "ten in twenty seconds": lambda n: 20.0 * (n // 10),
}
"""By kind of burst, the second at which job n is submitted."""
MEASURED = {"nothing measured": None, "changeovers measured": Changeover(LAUNCH + SETUP, 2 * (LAUNCH + SETUP))}
"""The plan's knowledge of changeovers."""


class UnevenCluster(Cluster):
    """A simulated cluster whose instances take up to SPREAD longer to boot, each another time."""

    def __init__(self, workload: Workload) -> None:
        self._delays = random.Random(SEED)
        super().__init__(workload, {})

    def launch(self, key: PoolKey, job_id: str | None) -> SimulatedInstance:
        machine = super().launch(key, job_id)
        machine.ready_at += self._delays.random() * SPREAD
        return machine


@dataclass(frozen=True, slots=True)
class Burst:
    """One burst. `declared`: the plan knows how long the jobs run."""

    submitted: str
    declared: bool
    measured: str

    def __str__(self) -> str:
        return f"{self.submitted}, lengths {'declared' if self.declared else 'unknown'}, {self.measured}"

    def plan(self, view: ClusterView, now: datetime) -> list[Action]:
        """Return the actions of the product's plan, whose view has only what a scheduler knows."""
        return plan(replace(view, jobs=tuple(self._as_known(job) for job in view.jobs)), now)

    def _as_known(self, job: JobView) -> JobView:
        spec = job.submission.spec
        if not self.declared:
            spec = spec.model_copy(update={"expected_duration": None})
        submission = job.submission.model_copy(update={"spec": spec})
        return replace(job, submission=submission, outlook=None, changeover=MEASURED[self.measured])

    def run(self, *, at_once: bool = False) -> WorkloadRun:
        """The simulated burst. `at_once`: an instance is launched for each job, as for critical ones."""
        lengths = random.Random(SEED)
        jobs = [
            {"id": f"job-{n:02}", "arrival_hours": SUBMITTED[self.submitted](n) / 3600,
             "hours": lengths.uniform(2, 8) / 3600, "priority": "critical" if at_once else "normal"}
            for n in range(JOBS)
        ]  # fmt: skip
        pool = {"instance_type": "g5.xlarge", "zone": "a", "market": "on-demand", "usd_per_hour": 1.0}
        fleet = {"launch_hours": LAUNCH / HOUR, "setup_hours": SETUP / HOUR, "tick_seconds": 10,
                 "idle_limit_seconds": 300, "pools": [pool]}  # fmt: skip
        return drive(UnevenCluster(parse({"jobs": jobs, "fleet": fleet}, "bench", builtin())), self.plan)


def unused_share(run: WorkloadRun) -> float:
    """The part of the launched dollars that was paid for instances that never ran a job."""
    used = {name for attempt in run.attempts for name in attempt.instances}
    dollars = {m.instance_id: _hours(m) * m.usd_per_hour for m in run.machines}
    return sum(usd for name, usd in dollars.items() if name not in used) / sum(dollars.values())


def _hours(machine: SimulatedInstance) -> float:
    assert machine.ended_at is not None
    return (machine.ended_at - machine.launched_at) / HOUR


def makespan(run: WorkloadRun) -> timedelta:
    """From the first submission until the last job is done."""
    done = [task.finished_at for task in run.tasks.values()]
    assert len(done) == JOBS and None not in done
    return max(at for at in done if at is not None) - run.began_at


def main() -> int:
    """Print both figures, each beside its limit; 1 if one is over it."""
    bursts = [Burst(*parameters) for parameters in product(SUBMITTED, (True, False), MEASURED)]
    unused, ratios = dict[Burst, float](), dict[Burst, float]()
    launched = dict[Burst, tuple[int, int]]()
    for burst in bursts:
        staged, all_at_once = burst.run(), burst.run(at_once=True)
        unused[burst] = unused_share(staged)
        ratios[burst] = makespan(staged) / makespan(all_at_once)
        launched[burst] = len(staged.machines), len(all_at_once.machines)
    failed = False
    figures = (("unused_usd_share", unused, UNUSED_LIMIT, "part of the dollars"),
               ("makespan_ratio", ratios, MAKESPAN_LIMIT, "ratio"))  # fmt: skip
    for name, values, limit, unit in figures:
        worst = max(bursts, key=lambda b: values[b])
        count, count_at_once = launched[worst]
        note = (
            f"the worst of {len(bursts)} bursts of {JOBS} jobs of 2 to 8 s, which is: {worst}. {count} instances "
            f"instead of {count_at_once}"
        )
        line = {"name": f"burst.{name}", "value": round(values[worst], 3), "limit": limit, "unit": unit, "note": note}
        print(json.dumps(line), flush=True)
        failed |= values[worst] > limit
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
