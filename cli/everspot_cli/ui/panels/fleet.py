"""The web UI's page of the fleet: its pools and its instances."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from everspot_core.counting import counted

from everspot_cli.fleet import CELLS, cells, of_interest
from everspot_cli.tables import describe_notice, duration
from everspot_cli.ui.sources import FleetRead

SHOWN = 500
"""The most instances in the table."""


@dataclass(frozen=True)
class PoolLine:
    """A row of the table of pools. `figures`: in the order of `FleetPanel.columns`."""

    instance_type: str
    zone: str
    market: str
    figures: tuple[str, ...]


@dataclass(frozen=True)
class InstanceLine:
    """A row of the table of instances."""

    instance_id: str
    place: str
    role: str
    state: str
    jobs: tuple[str, ...]
    notice: str
    age: str


@dataclass(frozen=True)
class FleetPanel:
    """The page. `meanings`: what the columns of the pools say, in their order."""

    summary: str
    columns: tuple[str, ...]
    pools: tuple[PoolLine, ...]
    pools_left_out: int
    instances: tuple[InstanceLine, ...]
    instances_left_out: int
    notes: tuple[str, ...]


def panel(read: FleetRead, now: datetime, *, all_pools: bool = False) -> FleetPanel:
    """Return the page for a reading of the fleet. `all_pools`: also the pools in which nothing has happened."""
    pools = read.pools if all_pools else of_interest(read.pools)
    return FleetPanel(
        summary=_summary(read.instances),
        columns=CELLS,
        pools=tuple(
            PoolLine(row["instance_type"], row["zone"], row["market"], tuple(cells(row, now))) for row in pools
        ),
        pools_left_out=len(read.pools) - len(pools),
        instances=tuple(_instance(row) for row in read.instances[:SHOWN]),
        instances_left_out=max(0, len(read.instances) - SHOWN),
        notes=tuple(read.notes),
    )


def _summary(rows: Sequence[dict[str, Any]]) -> str:
    if not rows:
        return "No instance runs."
    states = Counter(row["state"].lower() for row in rows)
    states_text = ", ".join(
        f"{number} {state}" for state, number in sorted(states.items(), key=lambda s: (-s[1], s[0]))
    )
    return f"{counted(len(rows), 'instance')}: {states_text}."


def _instance(row: dict[str, Any]) -> InstanceLine:
    return InstanceLine(
        instance_id=row["instance_id"],
        place=f"{row['instance_type']} {row['zone']} {row['market']}",
        role=row["role"],
        state=row["state"],
        jobs=tuple(job for job in (row["job_id"], *row["residents"]) if job),
        notice=describe_notice(row),
        age=duration(row["age_seconds"]),
    )
