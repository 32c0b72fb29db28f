"""Short constructors for workloads: one instance type with 4 GPUs, and hours in multiples of five minutes."""

from datetime import timedelta

import numpy as np
from everspot_core.capacity.catalogue import builtin
from everspot_simulator.drive import simulate
from everspot_simulator.figures import figures
from everspot_simulator.trace import Trace
from everspot_simulator.workload_file import parse

TYPE = {"name": "four", "vcpus": 4, "memory_gib": 16, "gpus": 4, "gpu": "X", "gpu_memory_gib": 16}
GAP = timedelta(minutes=5)


def offer(market="on-demand", usd=3.0, **more):
    return {"instance_type": "four", "zone": "z", "market": market, "usd_per_hour": usd, **more}


def standing(count=1, market="on-demand", usd=3.0, **more):
    return offer(market, usd, count=count, **more)


def workload(jobs, traces=(), horizon=None, teams=None, **fleet):
    """A workload from plain values; the traces are given apart, so their sources are of no account."""
    terms = {"launch_hours": 0.25, "setup_hours": 0.25, "tick_seconds": 300, "types": [TYPE]}
    values = {
        "jobs": [{"arrival_hours": 0, **job} for job in jobs],
        "fleet": terms | fleet,
        "traces": {name: {"generator": "steady"} for name in traces},
        "teams": teams or {},
    }
    if horizon is not None:
        values["horizon_hours"] = horizon
    return parse(values, "test", builtin())


def trace(*spells, name="t"):
    """(ticks, instances) in turn."""
    counts = [count for ticks, count in spells for _ in range(ticks)]
    return Trace(name=name, gap=GAP, available=np.array(counts))


def drive(jobs, traces=None, **more):
    """The run and its figures."""
    traces = traces or {}
    run = simulate(workload(jobs, traces, **more), traces)
    return run, figures(run)
