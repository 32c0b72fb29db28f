"""`make live`: runs a workload in the simulator and on the local cloud, and compares the results.

Exit code 0 only if the dollars are within 10 %, the same deadlines were met, and failovers are within one.
"""

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from e2e_live import WORKLOADS, live_through, of_cloud
from e2e_paced import read
from everspot_core.costs.attempts import Attempt
from everspot_core.costs.bill import Bill
from everspot_core.jobs.records import InstanceRecord, Market, Role
from everspot_core.schedule.view import PoolKey
from everspot_simulator.account import Account, differences, of_run
from everspot_simulator.drive import WorkloadRun, simulate
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
HOUR = timedelta(hours=1)
PARTS = ("boot", "set-up", "work", "saving", "idle", "not billed")


class Span(NamedTuple):
    """A job on an instance. `works_from` None: it never came so far."""

    start: datetime
    works_from: datetime | None
    worked_until: datetime
    end: datetime


@dataclass(frozen=True)
class Life:
    """An instance from its launch to its end, and the jobs that it held."""

    pool: PoolKey
    usd_per_hour: float
    launched_at: datetime
    ready_at: datetime
    ended_at: datetime
    free: bool
    spans: tuple[Span, ...]

    def parts(self) -> dict[str, float]:
        """Dollars by what they were paid for."""
        spent = Counter[str]()
        spent["boot"] = (min(self.ready_at, self.ended_at) - self.launched_at) / HOUR
        for span in self.spans:
            works = min(span.works_from or span.end, span.end)
            until = max(works, span.worked_until)
            spent["set-up"] += (works - span.start) / HOUR
            spent["work"] += (until - works) / HOUR
            spent["saving"] += (span.end - until) / HOUR
        whole = (self.ended_at - self.launched_at) / HOUR
        spent["idle"] = whole - sum(spent.values())
        if self.free:
            return {"not billed": whole * self.usd_per_hour}
        return {part: hours * self.usd_per_hour for part, hours in spent.items()}


def promised_lives(run: WorkloadRun) -> list[Life]:
    """Return the lives of a simulation."""
    fleet, spans = run.workload.fleet, dict[str, list[Span]]()
    for a in run.attempts:
        for name in a.instances:
            spans.setdefault(name, []).append(Span(a.began_at, a.works_from, a.worked_until, a.ended_at))
    lives = []
    for m in run.machines:
        ended = m.ended_at or run.ended_at
        free = (
            m.interrupted and m.pool.market is Market.SPOT and (ended - m.launched_at) / HOUR < fleet.free_within_hours
        )
        own_spans = tuple(spans.get(m.instance_id, ()))
        lives.append(Life(m.pool, m.usd_per_hour, m.launched_at, m.ready_at, ended, free, own_spans))
    return lives


def lived_lives(bill: Bill, records: Mapping[str, InstanceRecord], usd: dict[PoolKey, float]) -> list[Life]:
    """Return the lives of a cluster, from its ledger and its events."""
    attempts_by_instance: dict[str, list[Attempt]] = {}
    for attempt in (a for job in bill.jobs for a in job.attempts if a.instance_id is not None):
        attempts_by_instance.setdefault(attempt.instance_id or "", []).append(attempt)
    lives = []
    for instance in (i for i in bill.instances if i.launch.role is Role.AGENT):
        launch, record = instance.launch, records.get(instance.launch.instance_id)
        key = PoolKey(launch.instance_type, launch.zone, launch.market)
        spans = tuple(
            Span(a.start, a.training_at, a.notice_at or a.end or instance.end, a.end or instance.end)
            for a in attempts_by_instance.get(launch.instance_id, [])
        )
        ready = record.booted_at if record is not None else instance.end
        lives.append(Life(key, usd[key], launch.launched_at, ready, instance.end, instance.free, spans))
    return lives


def parts(lives: Iterable[Life]) -> dict[str, float]:
    """Dollars by what they were paid for, of all of them."""
    total = Counter[str]()
    for life in lives:
        total.update(life.parts())
    return dict(total)


def table(rows: Sequence[tuple[str, object, object]]) -> Table:
    comparison = Table(title="promised and lived")
    comparison.add_column("")
    for column in ("simulated", "lived"):
        comparison.add_column(column, justify="right")
    for row in rows:
        comparison.add_row(*(f"{cell:.4f}" if isinstance(cell, float) else str(cell) for cell in row))
    return comparison


def rows(
    accounts: tuple[Account, Account], lives: tuple[list[Life], list[Life]], over: tuple[float, float]
) -> list[tuple[str, object, object]]:
    """Return the rows of the comparison."""
    first, second = accounts
    spent = [parts(side) for side in lives]
    table_rows: list[tuple[str, object, object]] = [("dollars", first.usd, second.usd)]
    table_rows += [(f"  {part}", *(side.get(part, 0.0) for side in spent)) for part in PARTS]
    for market in Market:
        paid = [sum(sum(x.parts().values()) for x in s if x.pool.market is market and not x.free) for s in lives]
        table_rows.append((f"  {market.value}", *paid))
    table_rows += [
        ("idle part of the dollars", first.idle_usd_share, second.idle_usd_share),
        ("instances", *(len(side) for side in lives)),
        ("attempts", *(sum(len(x.spans) for x in side) for side in lives)),
        ("deadlines met", len(first.met), len(second.met)),
        ("late", _names(first.late), _names(second.late)),
        ("refused", _names(first.refused), _names(second.refused)),
        ("failovers", sum(first.failovers.values()), sum(second.failovers.values())),
        ("  of", _names(first.failovers), _names(second.failovers)),
        ("hours to the end", *over),
    ]
    return table_rows


def _names(jobs: Iterable[str]) -> str:
    return " ".join(sorted(jobs)) or "-"


def main() -> int:
    """Run it; 0 if the promise was kept."""
    options = argparse.ArgumentParser(prog="make live", description=__doc__)
    options.add_argument("--cloud", choices=sorted(WORKLOADS), default="aws", help="whose local cloud")
    options.add_argument("--workload", type=Path, default=HERE / "workloads/long.yaml")
    options.add_argument("--scale", type=float, help="seconds of market time in a second; by default as measured here")
    arguments = options.parse_args()
    console, began = Console(), time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="everspot-live-"))
    path = of_cloud(arguments.workload, arguments.cloud, folder)
    workload, traces = read(path)
    run = simulate(workload, traces)
    lived = live_through(
        path, folder, cloud=arguments.cloud, scale=arguments.scale,
        report=lambda words: console.print(f"  {words}", highlight=False),
    )  # fmt: skip
    accounts = of_run(run), lived.account
    usd = {key: offer.usd_per_hour for key, offer in workload.fleet.offers().items()}
    lives = promised_lives(run), lived_lives(lived.bill, lived.records, usd)
    over = (run.ended_at - run.began_at) / HOUR, max(x.ended_at - lived.began for x in lives[1]) / HOUR
    console.print(table(rows(accounts, lives, over)))
    difference_lines = differences(*accounts)
    for difference in difference_lines:
        console.print(difference, style="red", highlight=False)
    console.print(f"in {(time.monotonic() - began) / 60:.1f} minutes", highlight=False)
    if difference_lines:
        console.print(f"logs and books: {folder}", highlight=False)
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if difference_lines else 0


if __name__ == "__main__":
    sys.exit(main())
