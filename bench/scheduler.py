"""`scheduler.tick_seconds`: one plan for 10,000 jobs and 2,000 instances; `scheduler.tick_growth`: how that grows.
`scheduler.capped_tick_growth`: the same under a cap on launched instances.

`simulator.job_months_per_minute`: through how much time of single jobs the simulator drives the policy `everspot`.
All of it in CPU seconds of one core.
"""

import math
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import numpy as np
from everspot_core.capacity.catalogue import builtin
from everspot_core.cluster.manifest import Limits
from everspot_core.jobs import lease
from everspot_core.jobs.fit import Shape, fits
from everspot_core.jobs.records import Assignment, JobRecord, Market
from everspot_core.schedule import Behaviour, Cap, ClusterView, PoolKey, PoolView, plan
from everspot_core.schedule.market.failover import PREEMPTIONS
from everspot_simulator import GENERATORS, POLICIES, Setting, runs, starts
from everspot_simulator.state import SimulatedInstance, Task
from everspot_simulator.supply import BEGIN
from everspot_simulator.workload import Workload
from everspot_simulator.workload_file import parse
from everspot_simulator.workload_generator import generate

from bench._state import print_figures

SIZES = (1_000, 10_000, 100_000)
MEASURED = 10_000
TICK_LIMIT, GROWTH_LIMIT, MONTHS_AT_LEAST = 1.0, 1.2, 100.0
JOBS_PER_INSTANCE = 5
ROUNDS = 3
NOW = BEGIN + timedelta(days=2)
HOURS_OF_A_MONTH = 730.5
KINDS = ("heavy-tailed", "markov", "diurnal", "droughts", "steady")


def cluster(jobs: int) -> ClusterView:
    """A cluster amid its work: `jobs` jobs, a fifth as many instances, nine in ten of them taken; pools to launch from.

    The jobs are those of the generator of workloads, a thousand that come again and again: four teams, gangs,
    deadlines, critical ones. Each job that waits is decided on its own: spot is scarce, on-demand is not.
    """
    workload = parse(generate(1_000, seed=1), "bench", builtin())
    tasks = [Task.from_job(job, BEGIN, shared=True) for job in workload.jobs]
    count = jobs // JOBS_PER_INSTANCE
    pools = tuple(_pools(workload, count))
    machines = list(_machines(workload, count))
    free = iter(machines[: count * 9 // 10])
    views = []
    for n in range(jobs):
        task = tasks[n % len(tasks)]
        at = NOW - timedelta(hours=task.job.hours * (n % 97) / 97)
        update = {"job_id": f"job-{n:06d}", "submitted_at": at}
        if task.job.deadline_hours is not None:
            update["deadline_at"] = at + timedelta(hours=task.job.deadline_hours)
        task.submission = task.submission.model_copy(update=update)
        small = task.job.nodes == 1 and n % 4 == 0
        machine = next(free, None) if small else None
        task.record = _run_job(machine, f"job-{n:06d}") if machine is not None else None
        views.append(task.view(NOW, workload.fleet, None))
    return ClusterView(
        jobs=tuple(views),
        instances=tuple(m.view(shared=False) for m in machines),
        types=workload.fleet.types,
        pools=pools,
        unions=dict(_unions(workload, pools)),
        usage={team: 100.0 * n for n, team in enumerate(workload.teams)},
        shares=workload.teams,
        tick=timedelta(minutes=5),
        draining=False,
        limits=Limits(),
        shared=False,
        standing=None,
        generation="",
        rolling=False,
        booting=0,
        faults=(),
        idle_limit=timedelta(0),
        cap=None,
        cap_uses=(),
        lasting_changeover=None,
    )


def capped_cluster(jobs: int) -> ClusterView:
    """A cluster under a cap that is full soon. No spot is up: jobs with a deadline wait for it, so that each reserves
    room, and the others need on-demand, so that each asks for room."""
    view = cluster(jobs)
    return replace(
        view,
        jobs=tuple(j if j.submission.deadline_at else replace(j, preempted_at=(NOW,) * PREEMPTIONS) for j in view.jobs),
        pools=tuple(
            replace(p, available=0, behaviour=p.behaviour.observe(False, NOW)) if p.market is Market.SPOT else p
            for p in view.pools
        ),
        cap=Cap(instances=jobs // JOBS_PER_INSTANCE, usd_per_hour=None),
    )


def _machines(workload: Workload, count: int) -> Iterator[SimulatedInstance]:
    large = next(t for t in workload.fleet.types if t.name == "g5.12xlarge")
    for n in range(count):
        market = Market.SPOT if n % 2 else Market.ON_DEMAND
        machine = SimulatedInstance(
            instance_id=f"i-{n:06d}",
            pool=PoolKey(large.name, "us-east-1a", market),
            instance_type=large,
            usd_per_hour=1.0,
            launched_at=BEGIN,
            ready_at=BEGIN,
        )
        machine.boot("bench")
        yield machine


def _run_job(machine: SimulatedInstance, job_id: str) -> JobRecord:
    record = lease.assign(None, job_id, machine.instance_id, BEGIN)
    machine.take(job_id, record.epoch)
    machine.assignment = Assignment(
        instance_id=machine.instance_id, job_id=job_id, epoch=record.epoch, changed_at=BEGIN
    )
    running = lease.start(record, record.epoch, machine.instance_id, BEGIN)
    assert running is not None
    return running


def _pools(workload: Workload, count: int) -> Iterator[PoolView]:
    for n, offer in enumerate(workload.fleet.pools):
        spot = offer.market is Market.SPOT
        behaviour = Behaviour()
        for hour in range(0, 48, 3 + n):
            behaviour = behaviour.observe(hour % 2 == 0, BEGIN + timedelta(hours=hour))
        yield PoolView(
            instance_type=next(t for t in workload.fleet.types if t.name == offer.instance_type),
            zone=offer.zone,
            market=offer.market,
            usd_per_hour=offer.usd_per_hour,
            available=count // 10 if spot else None,
            behaviour=behaviour if spot else Behaviour().observe(True, BEGIN),
            reserved=False,
            placement_score=None,
            refused_at=(),
            noticed_at=None,
            changeover=None,
        )


def _unions(workload: Workload, pools: tuple[PoolView, ...]) -> Iterator[tuple[frozenset[PoolKey], Behaviour]]:
    for need in {job.resources.model_dump_json(): job.resources for job in workload.jobs}.values():
        spot = [p for p in pools if p.market is Market.SPOT and fits(need, Shape.from_machine(p.instance_type))]
        yield frozenset(p.key for p in spot), spot[0].behaviour


def tick_seconds(view: ClusterView) -> float:
    """CPU seconds of one plan, the least of some: what else the machine does can only add to it."""
    return min(_cpu_of_a_plan(view) for _ in range(ROUNDS))


def _cpu_of_a_plan(view: ClusterView) -> float:
    began = time.process_time()
    plan(view, NOW)
    return time.process_time() - began


def job_months_per_minute() -> tuple[float, dict[str, float]]:
    """Over all kinds of traces, and of each: 48 h of computing in 60 h, changeover 0.2 h, ticks of five minutes."""
    setting = Setting(job_hours=48, deadline_hours=60, changeover_hours=0.2, price_ratio=3.1446)
    months, seconds, each = 0.0, 0.0, {}
    for kind in KINDS:
        traces = list(GENERATORS[kind](np.random.default_rng(1), 30 * 288, timedelta(minutes=5), setting))
        at = starts(traces, setting, 20, seed=1)
        spent = []
        for _ in range(ROUNDS):
            began = time.process_time()
            outcomes = runs(traces, at, setting, POLICIES["everspot"])
            spent.append(time.process_time() - began)
        simulated = sum(o.finished_at for o in outcomes) / HOURS_OF_A_MONTH
        each[kind] = 60 * simulated / min(spent)
        months, seconds = months + simulated, seconds + min(spent)
    return 60 * months / seconds, each


def figures_of_a_tick() -> list[dict[str, Any]]:
    """How long a plan takes, and how that grows."""
    ticks = {jobs: tick_seconds(cluster(jobs)) for jobs in SIZES}
    view = cluster(MEASURED)
    standing, shared = (tick_seconds(replace(view, **other)) for other in ({"pools": ()}, {"shared": True}))
    sizes = ", ".join(f"{seconds:.3g} s for {jobs:,}" for jobs, seconds in ticks.items())
    return [
        {
            "name": "scheduler.tick_seconds",
            "value": round(ticks[MEASURED], 3),
            "limit": TICK_LIMIT,
            "unit": "s",
            "note": f"CPU of one plan, the least of {ROUNDS}; {sizes} jobs, and a fifth as many instances; for "
            f"{MEASURED:,} {standing:.3g} s without pools, {shared:.3g} s where instances are shared",
        },
        figure_of_growth("scheduler.tick_growth", ticks),
        figure_of_growth("scheduler.capped_tick_growth", {jobs: tick_seconds(capped_cluster(jobs)) for jobs in SIZES}),
    ]


def figure_of_growth(name: str, ticks: dict[int, float]) -> dict[str, Any]:
    """How the seconds of a plan, by the number of jobs, grow from the least number to the largest."""
    steps = [math.log(ticks[b] / ticks[a]) / math.log(b / a) for a, b in pairwise(SIZES)]
    growth = math.log(ticks[SIZES[-1]] / ticks[SIZES[0]]) / math.log(SIZES[-1] / SIZES[0])
    return {
        "name": name,
        "value": round(growth, 2),
        "limit": GROWTH_LIMIT,
        "unit": "exponent",
        "note": f"from {SIZES[0]:,} to {SIZES[-1]:,} jobs, {ticks[MEASURED]:.3g} s for {MEASURED:,}; step by step "
        f"{', '.join(f'{s:.2f}' for s in steps)}",
    }


def figure_of_the_simulator() -> dict[str, Any]:
    """How fast single jobs are simulated."""
    months, each = job_months_per_minute()
    kinds = ", ".join(f"{kind} {value:.0f}" for kind, value in each.items())
    return {
        "name": "simulator.job_months_per_minute",
        "value": round(months, 1),
        "at_least": MONTHS_AT_LEAST,
        "unit": "months/min",
        "note": f"CPU of one core, policy everspot, 20 starts of each kind of trace: {kinds}",
    }


def main() -> int:
    """Print the figures as JSON lines; 1 if one is on the wrong side of its limit."""
    return int(not print_figures([*figures_of_a_tick(), figure_of_the_simulator()]))


if __name__ == "__main__":
    sys.exit(main())
