"""The cells of the tables of charges, the same in the terminal and in HTML."""

from typing import Any

from everspot_cli.report.terminal import percent, unknown_parts
from everspot_cli.tables import least, money

LINE_COLUMNS = ("cost", "lost to interruptions", "on-demand", "jobs", "instance hours", "GPUs used", "wasted on GPUs")
STAGE_COLUMNS = ("pipeline", "submitted", "stage", "cost", "jobs", "metric", "gain", "a point")
_OF_JOBS = ("value", "untagged")


def lower_bound_reasons(document: dict[str, Any]) -> list[str]:
    """Return why the sum of a month is a lower bound."""
    return unknown_parts(document) or ([] if document["known"] else ["a visit's bill was not reported"])


def line_cells(line: dict[str, Any]) -> list[str]:
    """Return a line of charges. Losses of its jobs are in the line of lost time, and marked with `+` here."""
    lost = f"+ {money(line['lost_usd'])}" if line["kind"] in _OF_JOBS and line["lost_usd"] else "—"
    return [
        line["value"],
        least(line["cost_usd"], line["known"]),
        lost,
        money(line["on_demand_cost_usd"]),
        str(line["jobs"]) if line["jobs"] else "—",
        f"{line['instance_hours']:.3f}",
        percent(100 * line["gpu_utilization"]) if line["gpu_utilization"] is not None else "—",
        money(line["wasted_gpu_usd"]) if line["gpu_utilization"] is not None else "—",
    ]


def stage_cells(run: dict[str, Any]) -> list[list[str]]:
    """Return a row for each stage of a run, and one for all of them with what was gained."""
    rows = [
        [
            run["pipeline"],
            "",
            stage["stage"],
            least(stage["cost_usd"], stage["known"]),
            str(len(stage["jobs"])),
            "",
            "",
            "",
        ]
        for stage in run["stages"]
    ]
    state = "" if run["ended_at"] is not None else " (goes on)"
    whole = [
        run["pipeline"],
        f"{run['submitted_at']:%Y-%m-%d %H:%M}{state}",
        "all stages",
        least(run["cost_usd"], run["known"]),
        str(sum(len(stage["jobs"]) for stage in run["stages"])),
        f"{run['metric']} {run['value']:.4g}" if run["value"] is not None else "—",
        f"{run['gain']:+.4g}" if run["gain"] is not None else "—",
        money(run["usd_per_point"]),
    ]
    return [whole, *rows]
