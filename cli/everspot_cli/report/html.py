"""The report as one page that loads nothing from the network: figures, the timeline, tables, definitions."""

from collections.abc import Sequence
from html import escape
from typing import Any

from everspot_cli.machine_use import MACHINE_COLUMNS, machine_cells
from everspot_cli.report.cards import cards
from everspot_cli.report.continued_runs import CONTINUED_COLUMNS, continued_cells
from everspot_cli.report.early_stops import EARLY_STOP_COLUMNS, early_stop_cells
from everspot_cli.report.gather import Material
from everspot_cli.report.page import build_page, section, table
from everspot_cli.report.paths import draw_paths
from everspot_cli.report.reused_stages import REUSED_COLUMNS, reused_cells
from everspot_cli.report.terminal import (
    clock,
    describe_free_hours,
    describe_lower_bounds,
    percent,
    redone,
    resumed_on,
    sweep_cells,
    where_prices_come_from,
)
from everspot_cli.report.timeline import draw, legend
from everspot_cli.tables import duration, least, money


def document(report: dict[str, Any], material: Material, only: str | None = None) -> str:
    """Return the page."""
    name = f"Cluster {report['cluster']}" if only is None else f"Job {only}"
    scale = report["time_scale"]
    market = f" · market time, {scale:g} times as fast as real time" if scale != 1 else ""
    machines, early_stops = machine_cells(report["jobs"]), early_stop_cells(report["jobs"])
    reused, continued = reused_cells(report["jobs"]), continued_cells(report["jobs"])
    sections = [
        f"<h1>{escape(name)}</h1>",
        f'<p class="sub">Everspot report · as of {escape(report["as_of"][:19].replace("T", " "))} UTC{market}</p>',
        cards(report),
        section("Jobs", _jobs(report)),
        section("Stopped early", table(EARLY_STOP_COLUMNS, early_stops, 2)) if early_stops else "",
        section("Stages not run again", table(REUSED_COLUMNS, reused, 2)) if reused else "",
        section("Continued runs", table(CONTINUED_COLUMNS, continued, 2)) if continued else "",
        section("Use of the machines", table(MACHINE_COLUMNS, machines, 3)) if machines else "",
        *(section(f"Cost by {key}", _share(key, rows)) for key, rows in report["cost_by_tag"].items()),
        section("Sweeps", _sweeps(report)) if report["sweeps"] else "",
        section("Each job's path", paths) if (paths := draw_paths(material, only)) else "",
        f'<h2>Timeline of the instances</h2><div class="scroll">{draw(material, only)}</div>{legend(material, only)}',
        section("Interruptions", _interruptions(report)) if report["interruptions"] else "",
        section("Where the hours went", _usage(report)),
        section("Instances", _instances(report)) if report["instances"] else "",
        _definitions(report),
        _footer(report),
    ]
    return build_page(f"Everspot report: {name}", sections)


_DEADLINE = {True: "met", False: "missed", None: "open"}


def _jobs(report: dict[str, Any]) -> str:
    """Return the table of the jobs. The cost is next to the name, because later columns may be out of sight on a narrow
    page."""
    rows = []
    for job in report["jobs"]:
        accuracy = f"{100 * job['accuracy']:.2f} %" if job["accuracy"] is not None else "—"
        rows.append(
            [
                job["job_id"],
                job["state"],
                _DEADLINE[job["deadline_met"]] if job["deadline_at"] and job["state"] != "CANCELLED" else "—",
                least(job["cost_usd"], job["cost_known"]),
                money(job["on_demand_cost_usd"]),
                percent(job["savings_percent"]),
                duration(job["total_duration_seconds"]),
                duration(job["job_duration_seconds"]),
                f"{job['spot_hours']:.3f} / {job['on_demand_hours']:.3f}",
                str(job["interruptions"]),
                duration(job["lost_seconds"]),
                redone(job),
                accuracy,
                job["priority"],
            ]
        )
    names = ("job", "state", "deadline", "cost", "on-demand", "saved", "total duration", "job duration",
             "spot / on-demand h", "interrupted", "time lost", "redone", "accuracy", "priority")  # fmt: skip
    return table(names, rows, 3)


def _share(key: str, rows: Sequence[dict[str, Any]]) -> str:
    table_rows = [
        [
            row["value"],
            least(row["cost_usd"], row["cost_known"]),
            money(row["on_demand_cost_usd"]),
            percent(row["savings_percent"]),
            str(row["jobs"]),
            f"{row['spot_hours']:.3f} / {row['on_demand_hours']:.3f}",
            duration(row["lost_seconds"]),
        ]
        for row in rows
    ]
    return table((key, "cost", "on-demand", "saved", "jobs", "spot / on-demand h", "time lost"), table_rows, 1)


def _sweeps(report: dict[str, Any]) -> str:
    columns = ("sweep", "metric", "trials", "useful", "cost", "a trial", "a useful one")
    return table(columns, sweep_cells(report["sweeps"]), 2)


def _interruptions(report: dict[str, Any]) -> str:
    rows = []
    for stroke in report["interruptions"]:
        durable = stroke["notice_to_durable_seconds"]
        rows.append(
            [
                clock(stroke["at"], report),
                stroke["job_id"],
                stroke["kind"],
                stroke["source"] or "—",
                stroke["instance_id"] or "—",
                resumed_on(report, stroke),
                "—" if durable is None else f"{durable:.1f} s",
                duration(stroke["changeover_seconds"]),
                "—" if stroke["resumed_from"] is None else str(stroke["resumed_from"]),
                redone(stroke),
            ]
        )
    names = ("at", "job", "kind", "learnt from", "instance", "resumed on", "durable after", "changeover",
             "resumed from step", "steps redone")  # fmt: skip
    return table(names, rows, 6)


def _usage(report: dict[str, Any]) -> str:
    rows = [
        [
            row["market"],
            row["instance_type"],
            row["zone"],
            str(row["instances"]),
            f"{row['hours']:.3f}",
            "—" if row["mean_usd_per_hour"] is None else f"{row['mean_usd_per_hour']:.4f}",
            money(row["cost_usd"]),
        ]
        for row in report["usage"]
    ]
    return table(("market", "type", "zone", "instances", "hours", "mean $/h", "cost"), rows, 3)


def _instances(report: dict[str, Any]) -> str:
    rows = []
    for instance in report["instances"]:
        end = "running" if instance["ended_at"] is None else clock(instance["ended_at"], report)
        outcome = "taken by the cloud" + (", free" if instance["free"] else "") if instance["interrupted"] else ""
        outcome = outcome if instance["length_known"] else "never seen: how long it ran is not known"
        rows.append(
            [
                *(instance[key] for key in ("instance_id", "role", "market", "instance_type", "zone")),
                ", ".join(instance["jobs"]) or "—",
                clock(instance["launched_at"], report),
                end,
                outcome,
                least(instance["cost_usd"], instance["length_known"]),
            ]
        )
    names = ("instance", "role", "market", "type", "zone", "jobs", "launched", "ended", "", "cost")
    return table(names, rows, 6)


def _definitions(report: dict[str, Any]) -> str:
    terms = "".join(
        f"<dt>{escape(name.replace('_', ' '))}</dt><dd>{escape(definition)}</dd>"
        for name, definition in report["definitions"].items()
    )
    return f"<details><summary>How these figures are defined</summary><dl>{terms}</dl></details>"


def _footer(report: dict[str, Any]) -> str:
    lines = [f"Beside the saving, free: {free}."] if (free := describe_free_hours(report)) else []
    lines += describe_lower_bounds(report)
    lines.append(f"Not in these figures: {', '.join(report['left_out'])}.")
    lines += where_prices_come_from(report)
    return "<footer>" + "".join(f"<p>{escape(line)}</p>" for line in lines) + "</footer>"
