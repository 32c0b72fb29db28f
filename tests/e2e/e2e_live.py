"""Runs a workload file on the local cloud: its pools, real agents, the real scheduler, and its jobs.

An image's boot and a job's restore take a while on real machines, and no time here: the file says how long, and an
agent and a job's program that were started wait for the rest of it. The market runs as fast as this machine can start
both in less than that. So a slow or busy machine makes a run longer, and nothing in it later.
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml
from e2e_elastic import ElasticLive
from e2e_google import REGION as GOOGLE_REGION
from e2e_google import GoogleLive
from e2e_helpers import REGION
from e2e_paced import BOOT, REPORTS, Paced, read
from everspot_clouds.registry import provider
from everspot_core.capacity.catalogue import builtin
from everspot_core.costs.bill import Bill
from everspot_core.jobs.records import InstanceRecord, Market
from everspot_simulator.account import Account
from everspot_simulator.state import hours
from everspot_simulator.workload import Workload
from everspot_train.agent.program import LAUNCHER_VARIABLE

FASTEST = 66.0
"""The highest speed of the market. Above it the delay of a start by one second would exceed the workload's launch
time."""
SPARE = 1.4
"""The longest duration of a start, as a multiple of the measured one."""
ROUNDS = 3
TYPES = {"c6i.large": "c3-highcpu-8", "m6i.large": "n2-standard-8"}
ZONES = {"eu-west-1a": "europe-west4-a", "eu-west-1b": "europe-west4-b"}
"""The types and zones on Google Cloud that replace those of a workload."""


@dataclass(frozen=True)
class Starts:
    """The real start times of processes on this machine under load: of an agent, and of a job's program from its
    assignment on."""

    agent: timedelta
    job: timedelta

    @classmethod
    def measured(cls, rounds: int = 2, concurrent: int = 2) -> "Starts":
        """Measure the start times by the imports, plus the delays between scheduler, agent and store."""
        agent = _seconds("import everspot_train.agent.main", rounds, concurrent)
        job = _seconds("import everspot_store, everspot_train.rundir", rounds, concurrent)
        return cls(timedelta(seconds=agent) + REPORTS, timedelta(seconds=job + 0.8))

    def scale(self, workload: Workload) -> float:
        """The fastest market in which both starts fit into the workload's launch and set-up times."""
        launch, setup = hours(workload.fleet.launch_hours) - BOOT, hours(workload.fleet.setup_hours)
        return min(FASTEST, launch / (SPARE * self.agent), setup / (SPARE * self.job))


def _seconds(code: str, rounds: int, concurrent: int) -> float:
    """Return the median seconds of a process that imports some modules."""

    def time_import(_: int) -> float:
        began = time.monotonic()
        subprocess.run([sys.executable, "-c", code], check=True)
        return time.monotonic() - began

    with ThreadPoolExecutor(concurrent) as pool:
        return statistics.median(pool.map(time_import, range(rounds * concurrent)))


def of_cloud(path: Path, cloud: str, folder: Path) -> Path:
    """A workload's file on a cloud: on Google Cloud the same jobs and the same course of the same pools, of its types,
    at its prices and under its billing rules, in a folder."""
    if cloud == "aws":
        return path
    content = yaml.safe_load(path.read_text())
    for pool in content["fleet"]["pools"]:
        name, zone = TYPES[pool["instance_type"]], ZONES[pool["zone"]]
        pool.update(instance_type=name, zone=zone, usd_per_hour=_usd(name, pool["market"]))
    content["fleet"]["free_within_hours"] = provider(cloud).billing.free_within / timedelta(hours=1)
    for trace in content["traces"].values():
        trace["file"] = str(path.resolve().parent / trace["file"])
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{path.stem}-{cloud}.yaml"
    target.write_text(yaml.safe_dump(content))
    return target


def _usd(name: str, market: str) -> float:
    """An hour of a type on Google Cloud, in all zones."""
    price = builtin().on_demand(name, GOOGLE_REGION)
    if market == Market.SPOT:
        price = (builtin().spot_range(name, GOOGLE_REGION) or (None,))[0]
    assert price is not None, name
    return price.usd_per_hour


@dataclass(frozen=True)
class Lived:
    """The result of a workload. `scale`: the speed of its market; `behind`: the parts where this machine was too
    slow."""

    scale: float
    began: datetime
    behind: tuple[str, ...]
    account: Account
    bill: Bill
    records: Mapping[str, InstanceRecord]


def live_through(
    path: Path,
    folder: Path,
    *,
    cloud: str = "aws",
    scale: float | None = None,
    fastest: float = FASTEST,
    report: Callable[[str], None] = lambda words: None,
) -> Lived:
    """Run a workload's file on a cloud, at the speed `scale`, or as fast as this machine can, at most `fastest`. Run it
    again at half the speed if the machine did not keep up."""
    workload, _ = read(path)
    scale = min(fastest, Starts.measured().scale(workload)) if scale is None else scale
    for number in range(ROUNDS):
        report(f"{len(workload.jobs)} jobs, {scale:.0f} times as fast as the world")
        with WORKLOADS[cloud](folder / str(number), path, scale) as live:
            began = live.play(report)
            lived = Lived(scale, began, tuple(live.behind()), live.account(), live.bill(), live.records())
        report(str(lived.account))
        for words in lived.behind:
            report(f"this machine did not keep up: {words}")
        if not lived.behind:
            break
        scale /= 2
    return lived


class LiveWorkload(Paced, ElasticLive):
    """On AWS. Its jobs read when they were assigned, which jobs with credentials of their own may not."""

    job_role = None

    def __init__(self, folder: Path, path: Path, scale: float) -> None:
        self.describe(path, scale, REGION)
        super().__init__(folder, agent_env={LAUNCHER_VARIABLE: sys.executable}, cpus=2)

    def running(self) -> Mapping[str, Any]:
        return self.agents("pending", "running")

    def _fleet(self) -> None:
        self._hold_initial_state()
        super()._fleet()


class GoogleWorkload(Paced, GoogleLive):
    """On Google Cloud. As on AWS, its jobs read when they were assigned."""

    job_role = False

    # The time for a guest's shutdown. The course determines when an instance is preempted.
    delays: Mapping[str, float] = MappingProxyType({"notice": 30.0})

    def __init__(self, folder: Path, path: Path, scale: float) -> None:
        self.describe(path, scale, f"{GOOGLE_REGION}-")
        super().__init__(folder)

    def running(self) -> Mapping[str, Any]:
        return self.agents()

    def _create(self) -> None:
        self._hold_initial_state()
        super()._create()


WORKLOADS: dict[str, type[LiveWorkload | GoogleWorkload]] = {"aws": LiveWorkload, "gcp": GoogleWorkload}
