"""A cluster without instances: the avoidable part of a job's wait, and the cost of time without jobs.

`elastic.submit_to_training_ratio`: from the moment that `everspot submit` is started until the job's first step, over
what nothing could save: the launch as the market has it, and the start of a training process with its imports, measured
while the instance boots. At the market's own pace, with a cluster's usual limits, and each time on an instance that is
launched for it; the submissions lie at different parts of the scheduler's tick.

`elastic.idle_usd_share`: of a short workload in a fast market, the part of the ledger's bill that no job held, beside
what the simulator says of the same workload with launch and set-up as long as they were.
"""

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

from everspot_clouds.aws.rules import BILLING
from everspot_core.capacity.catalogue import builtin
from everspot_core.capacity.market import Market
from everspot_core.cluster.manifest import Limits
from everspot_core.costs.bill import bill
from everspot_core.jobs.changeover import ChangeoverPart
from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_simulator.account import Account, of_bill, simulated
from everspot_simulator.workload_file import parse

from bench._live import TYPE, ZONE, LiveCluster
from bench.resume import imports

ROUNDS, RATIO = 5, 1.3
PROGRAM = """
import os, pathlib, time, torch
from everspot_train.trainer import BatchOrder, Run, TensorLoader

with Run.open(seed=0, precision="fp32") as run:
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    run.track(model=model, optimizer=optimizer, loader=TensorLoader((torch.ones(8, 8),), BatchOrder(8, 1)))
    for (x,) in run.batches(1):
        run.step(model(x).square().mean())
        pathlib.Path(os.environ["FIRST_STEP"]).write_text(repr(time.monotonic()))
"""
SCALE, MOST, IDLE, USD = 30.0, 2, timedelta(minutes=5), 0.031
QUICK = Limits.model_validate({"lease_ttl": "30s", "beat_every": "5s", "poll_every": "0.5s", "tick_every": "1s"})
WORKLOAD = {"a": (0, 20), "b": (0, 30), "c": (6, 20), "d": (12, 15), "e": (75, 15)}
"""By job, minutes of market time: its arrival, and its work. The last one finds nothing running."""
POINTS = 0.05
"""By so much the two shares may differ."""


def first_step(live: LiveCluster, number: int) -> tuple[float, float]:
    """Return the seconds from the submission to the first step, and the unavoidable part of them."""
    code, marker = live.folder / "code", live.folder / f"first-{number}"
    code.mkdir(exist_ok=True)
    (code / "main.py").write_text(PROGRAM)
    spec = {"name": f"job-{number}", "code": str(code), "entrypoint": ["main.py"],
            "env": {"FIRST_STEP": str(marker), "OMP_NUM_THREADS": "1"}}  # fmt: skip
    (live.folder / "job.yaml").write_text(json.dumps(spec))
    began = time.monotonic()
    live.everspot("submit", str(live.folder / "job.yaml"))
    live.until(lambda: live.living() or None)
    floor = imports()
    live.until(lambda: (marker.exists() and marker.read_text()) or None)
    return float(marker.read_text()) - began, live.boot.total_seconds() + floor


def submit_to_training(folder: Path) -> bool:
    """Print the figure; whether it is within its limit."""
    totals, floor = [], []
    with LiveCluster(folder, scale=1, idle_limit=timedelta(seconds=1), most=1) as live:
        for number in range(ROUNDS):
            live.until(lambda: live.living() == 0 or None)
            time.sleep(Limits().tick_every.total_seconds() * (1 + number / ROUNDS))
            seconds, least = first_step(live, number)
            totals.append(seconds)
            floor.append(least)
        parts = measured(live)
    ratio = statistics.median(a / b for a, b in zip(totals, floor, strict=True))
    breakdown = ", ".join(f"{part} {seconds.total_seconds():.1f}" for part, seconds in parts.items())
    note = (
        f"median of {ROUNDS}: {statistics.median(totals):.1f} s from the command to the first step, "
        f"{statistics.median(floor):.1f} s for the launch, process start and imports; the ledger's parts: {breakdown} s"
    )
    print_figure("submit_to_training_ratio", ratio, RATIO, "ratio", note)
    return ratio <= RATIO


def measured(live: LiveCluster) -> dict[ChangeoverPart, timedelta]:
    """How long the parts of a changeover took by the ledger, medians in market time."""
    changeovers = live.store.notes.changeovers.read()
    times = changeovers.times if changeovers is not None else ()
    return {ChangeoverPart(p.part): timedelta(seconds=statistics.median(p.seconds)) for p in times}


def lived(live: LiveCluster) -> tuple[Account, dict[str, timedelta]]:
    """Return the ledger's account of the workload, and when each job came."""
    (code := live.folder / "code").mkdir()
    (code / "main.py").write_text("import os, time\ntime.sleep(float(os.environ['WORK']))\n")
    began, jobs = live.clock.now(), dict[str, JobSubmission]()
    for name, (arrival, work) in WORKLOAD.items():
        live.sleep(began + timedelta(minutes=arrival) - live.clock.now())
        env = {"WORK": repr(work * 60 / SCALE)}
        spec = JobSpec.model_validate({"name": name, "code": str(code), "entrypoint": ["main.py"], "env": env})
        jobs[name] = live.store.submit(JobSubmission(job_id=name, spec=spec, submitted_at=live.clock.now()), code)
    live.until(lambda: len(live.store.ends.scan()) == len(live.store.launches.scan()) > 0 or None)
    launches = [document.value for document in live.store.launches.scan().values()]
    ends = [document.value for document in live.store.ends.scan().values()]
    events, now = live.store.events_by_job(list(jobs)), live.clock.now()
    invoice = bill(launches, ends, live.store.prices(), events, builtin(), now, rules=BILLING)
    return of_bill(invoice, jobs), {name: job.submitted_at - began for name, job in jobs.items()}


def promised(parts: Mapping[ChangeoverPart, timedelta], arrivals: Mapping[str, timedelta]) -> Account:
    """Return the simulator's account of it, with changeovers as long as they were."""
    hour = timedelta(hours=1)
    pool = {"instance_type": TYPE, "zone": ZONE, "market": Market.SPOT, "usd_per_hour": USD}
    before_the_agent = (ChangeoverPart.LAUNCH, ChangeoverPart.BOOT, ChangeoverPart.AGENT)
    launch = sum((parts[part] for part in before_the_agent), timedelta())
    fleet = {"launch_hours": launch / hour, "setup_hours": parts[ChangeoverPart.DATA] / hour, "max_instances": MOST,
             "tick_seconds": QUICK.tick_every.total_seconds() * SCALE, "idle_limit_seconds": IDLE.total_seconds(),
             "pools": [pool]}  # fmt: skip
    jobs = [{"id": n, "arrival_hours": arrivals[n] / hour, "hours": work / 60} for n, (_, work) in WORKLOAD.items()]
    return simulated(parse({"jobs": jobs, "fleet": fleet}, "bench", builtin()), {})


def idle_share(folder: Path) -> bool:
    """Print the figure; whether it is near the simulator's."""
    with LiveCluster(folder, scale=SCALE, idle_limit=IDLE, most=MOST, limits=QUICK, usd=USD) as live:
        account, arrivals = lived(live)
        parts = measured(live)
    expected = promised(dict.fromkeys(ChangeoverPart, timedelta()) | parts, arrivals)
    note = (
        f"of ${account.usd:.4f}; the simulator says {expected.idle_usd_share:.3f} of ${expected.usd:.4f}, the limit is "
        f"{POINTS} more. {len(WORKLOAD)} jobs on up to {MOST} instances, {SCALE:g} market seconds in a second"
    )
    limit = expected.idle_usd_share + POINTS
    print_figure("idle_usd_share", account.idle_usd_share, limit, "part of the dollars", note)
    return account.idle_usd_share <= limit


def print_figure(name: str, value: float, limit: float, unit: str, note: str) -> None:
    line = {"name": f"elastic.{name}", "value": round(value, 3), "limit": round(limit, 3), "unit": unit, "note": note}
    print(json.dumps(line), flush=True)


def main() -> int:
    """Print both figures; 1 if one is over its limit."""
    with tempfile.TemporaryDirectory(prefix="everspot-bench-") as name:
        within = [figure(Path(name, figure.__name__)) for figure in (submit_to_training, idle_share)]
    return int(not all(within))


if __name__ == "__main__":
    sys.exit(main())
