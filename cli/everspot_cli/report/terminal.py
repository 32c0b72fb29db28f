"""The report for the terminal."""

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from everspot_cli.tables import duration, facts, word


def money(amount: float | None) -> str:
    """Dollars for people: cents, and more digits where a cent would hide everything."""
    if amount is None:
        return "—"
    return f"${amount:,.2f}" if abs(amount) >= 1 or amount == 0 else f"${amount:.4f}"


def percent(value: float | None) -> str:
    """A share, `—` where there is nothing to compare with."""
    return "—" if value is None else f"{value:.1f} %"


def page(report: dict[str, Any]) -> RenderableType:
    """The whole report."""
    parts: list[RenderableType] = [_head(report), Text(), _jobs(report)]
    if report["interruptions"]:
        parts += [Text("\nInterruptions", style="bold"), _interruptions(report)]
    parts += [Text("\nWhere the hours went", style="bold"), _usage(report), Text(), _small_print(report)]
    return Group(*parts)


def _head(report: dict[str, Any]) -> RenderableType:
    waits = report["notice_to_durable_seconds"]
    rest = (
        f"{money(report['jobs_cost_usd'])} jobs, {money(report['idle_and_boot_cost_usd'])} boot and idling "
        f"(of it {money(report['scheduler_cost_usd'])} scheduler)"
        if report["scope"] == "cluster"
        else None
    )
    listed = (
        f"{money(report['jobs_on_demand_cost_usd'])} jobs, {money(report['idle_and_boot_on_demand_cost_usd'])} "
        "boot and idling"
        if report["scope"] == "cluster"
        else None
    )
    saved = Text(percent(report["savings_percent"]), style="bold green" if report["savings_usd"] >= 0 else "bold red")
    saved.append(f"  {money(report['savings_usd'])}; jobs alone {percent(report['jobs_savings_percent'])}", style="")
    scale = report["time_scale"]
    return facts(
        [
            ("report of", report["scope"] if report["scope"] != "cluster" else f"cluster {report['cluster']}"),
            ("as of", report["as_of"]),
            ("cost", Text(money(report["cost_usd"]), style="bold")),
            ("", None),
            ("  made of", rest),
            ("on-demand", f"{money(report['on_demand_cost_usd'])} for the same useful work, never interrupted"),
            ("  made of", listed),
            ("saved", saved),
            ("interruptions", f"{len(report['interruptions'])}"),
            ("steps redone", f"{report['steps_redone_after_notice']} after a notice, "
                             f"{report['steps_redone_total']} in total"),
            ("notice → durable", ", ".join(f"{s:.1f} s" for s in waits) if waits else None),
            ("time lost", duration(report["lost_seconds"])),
            ("accuracy", f"{100 * report['accuracy']:.2f} %" if report["accuracy"] is not None else None),
            ("time scale", f"{scale:g} times as fast as real time; all times are the market's" if scale != 1 else None),
        ]
    )  # fmt: skip


def _table(*columns: str, left: int = 1) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for index, name in enumerate(columns):
        table.add_column(name, justify="left" if index < left else "right", no_wrap=index == 0)
    return table


def _jobs(report: dict[str, Any]) -> Table:
    table = _table("JOB", "STATE", "TOT. DURATION", "JOB DURATION", "#INT.", "LOST", "REDONE", "COST", "ON-DEMAND",
                   "SAVED", "METRICS", left=2)  # fmt: skip
    for job in report["jobs"]:
        numbers = {k: v for k, v in job["metrics"].items() if isinstance(v, int | float)}
        table.add_row(
            job["job_id"],
            word(job["state"]),
            duration(job["total_duration_seconds"]),
            duration(job["job_duration_seconds"]),
            str(job["interruptions"]),
            duration(job["lost_seconds"]),
            str(job["steps_redone"]),
            money(job["cost_usd"]),
            money(job["on_demand_cost_usd"]),
            percent(job["savings_percent"]),
            ", ".join(f"{name} {value:.4g}" for name, value in sorted(numbers.items())[:3]) or "—",
        )
    return table


def _interruptions(report: dict[str, Any]) -> Table:
    table = _table("AT", "JOB", "KIND", "INSTANCE", "RESUMED ON", "DURABLE AFTER", "CHANGEOVER", "REDONE", left=5)
    for stroke in report["interruptions"]:
        durable = stroke["notice_to_durable_seconds"]
        table.add_row(
            stroke["at"][11:19],
            stroke["job_id"],
            stroke["kind"],
            stroke["instance_id"] or "—",
            stroke["resumed_on"] or "not yet",
            "—" if durable is None else f"{durable:.1f} s",
            duration(stroke["changeover_seconds"]),
            "—" if stroke["steps_redone"] is None else str(stroke["steps_redone"]),
        )
    return table


def _usage(report: dict[str, Any]) -> Table:
    table = _table("MARKET", "TYPE", "ZONE", "INSTANCES", "HOURS", "MEAN $/H", "COST", left=3)
    for row in report["usage"]:
        mean = row["mean_usd_per_hour"]
        table.add_row(
            row["market"],
            row["instance_type"],
            row["zone"],
            str(row["instances"]),
            f"{row['hours']:.3f}",
            "—" if mean is None else f"{mean:.4f}",
            money(row["cost_usd"]),
        )
    return table


def _small_print(report: dict[str, Any]) -> Text:
    lines = [f"Not in these figures: {', '.join(report['left_out'])}."]
    sources: dict[tuple[str, str], list[str]] = {}
    for price in report["list_prices"]:
        sources.setdefault((price["source"], price["age"]), []).append(price["instance_type"])
    lines += [f"List prices of {', '.join(types)}: {source}, {age}." for (source, age), types in sources.items()]
    lines += [f"Note: {note}." for note in report["notes"]]
    return Text("\n".join(lines), style="dim")
