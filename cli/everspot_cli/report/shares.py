"""The jobs' cost by each tag, the team first."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any

FIRST = ("Team", "Project", "Environment", "ModelVersion")
MOST = 6
"""Most tag keys in the report, the usual ones first."""
UNTAGGED = "(none)"
VISITORS = "(jobs of other clusters)"
_SUMMED = ("cost_usd", "on_demand_cost_usd", "lost_seconds", "spot_hours", "on_demand_hours")


def shares(jobs: Sequence[dict[str, Any]], visits: Collection[str]) -> dict[str, list[dict[str, Any]]]:
    """By tag key, a row for each value of the tags, the most expensive first. The rows of a key add up to the jobs'
    sum. `visits`: the jobs of other clusters, whose tags are of their home."""
    keys = {key for job in jobs if job["job_id"] not in visits for key in job["tags"]}
    ordered = [key for key in FIRST if key in keys] + sorted(keys - set(FIRST))
    return {key: _rows(jobs, visits, key) for key in ordered[:MOST]}


def _gpu_waste(jobs: Sequence[dict[str, Any]]) -> dict[str, float | None]:
    """Return the dollars that were paid while GPUs did not compute, and the share of those paid while they did. None if
    no job's GPUs were measured."""
    measured = [job for job in jobs if job["machine"] is not None and job["machine"]["wasted_gpu_usd"] is not None]
    cost = sum(job["cost_usd"] for job in measured)
    wasted = round(sum(job["machine"]["wasted_gpu_usd"] for job in measured), 6)
    if not measured:
        return {"wasted_gpu_usd": None, "gpu_utilization": None}
    return {"wasted_gpu_usd": wasted, "gpu_utilization": round(1 - wasted / cost, 4) if cost else None}


def _rows(jobs: Sequence[dict[str, Any]], visits: Collection[str], key: str) -> list[dict[str, Any]]:
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for job in jobs:
        value = VISITORS if job["job_id"] in visits else job["tags"].get(key, UNTAGGED)
        groups[value].append(job)
    rows = []
    for value, own in groups.items():
        sums = {name: round(sum(job[name] for job in own), 6) for name in _SUMMED}
        listed = sums["on_demand_cost_usd"]
        saved = round(100 * (1 - sums["cost_usd"] / listed), 2) if listed else None
        rows.append(
            {
                "value": value,
                "jobs": len(own),
                **sums,
                "cost_known": all(job["cost_known"] for job in own),
                "savings_percent": saved,
                **_gpu_waste(own),
            }
        )
    return sorted(rows, key=lambda row: (-row["cost_usd"], row["value"]))
