"""The report as one page that asks nothing of the network: figures, the timeline, tables, definitions."""

from collections.abc import Sequence
from html import escape
from importlib import resources
from typing import Any

from everspot_cli.report.gather import Material
from everspot_cli.report.terminal import clock, money, percent, resumed_on, waived, where_prices_come_from
from everspot_cli.report.timeline import draw, legend
from everspot_cli.tables import duration


def document(report: dict[str, Any], material: Material, only: str | None = None) -> str:
    """The page."""
    style = (resources.files("everspot_cli") / "report" / "page.css").read_text()
    name = f"Cluster {report['cluster']}" if only is None else f"Job {only}"
    scale = report["time_scale"]
    market = f" · market time, {scale:g} times as fast as real time" if scale != 1 else ""
    sections = [
        f"<h1>{escape(name)}</h1>",
        f'<p class="sub">Everspot report · as of {escape(report["as_of"][:19].replace("T", " "))} UTC{market}</p>',
        _cards(report),
        f'<h2>Timeline</h2><div class="scroll">{draw(material, only)}</div>{legend(material, only)}',
        _section("Jobs", _jobs(report)),
        _section("Interruptions", _interruptions(report)) if report["interruptions"] else "",
        _section("Where the hours went", _usage(report)),
        _section("Instances", _instances(report)) if report["instances"] else "",
        _definitions(report),
        _footer(report),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>Everspot report: {escape(name)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        + "\n".join(part for part in sections if part)
        + "\n</body>\n</html>\n"
    )


def _card(value: str, label: str, small: str = "", tone: str = "") -> str:
    note = f"<small>{escape(small)}</small>" if small else ""
    return f'<div class="card"><span>{escape(label)}</span><b class="{tone}">{escape(value)}</b>{note}</div>'


def _cards(report: dict[str, Any]) -> str:
    waits, accuracy = report["notice_to_durable_seconds"], report["accuracy"]
    saved = report["savings_percent"]
    done = sum(job["state"] == "SUCCEEDED" for job in report["jobs"])
    redone, silent = report["steps_redone_after_notice"], report["steps_redone_total"]
    whole, free = report["scope"] == "cluster", report["free_usd"] > 0
    cards = [
        _card(
            money(report["cost_usd"]),
            "cost",
            f"jobs {money(report['jobs_cost_usd'])}, boot and idling {money(report['idle_and_boot_cost_usd'])}"
            if whole
            else "the seconds that it held instances",
        ),
        _card(
            money(report["on_demand_cost_usd"]),
            "the same fleet and work on-demand" if whole else "the same useful work on-demand",
            f"jobs {money(report['jobs_on_demand_cost_usd'])}, boot and idling "
            f"{money(report['idle_and_boot_on_demand_cost_usd'])}; no interruptions"
            if whole
            else "list prices, no interruptions",
        ),
        _card(
            percent(saved),
            "saved",
            "; ".join(
                part
                for part in (
                    f"jobs alone {percent(report['jobs_savings_percent'])}" if whole else "",
                    f"{percent(report['savings_percent_if_billed'])} had free spot been billed" if free else "",
                )
                if part
            ),
            "good" if (saved or 0) >= 0 else "bad",
        ),
        _card(f"{done} of {len(report['jobs'])}", "jobs succeeded"),
        _card(str(len(report["interruptions"])), "interruptions", f"{duration(report['lost_seconds'])} of time lost"),
        _card(str(redone), "steps redone after notices", f"{silent} in total", "good" if redone == 0 else "bad"),
    ]
    if waits:
        cards.append(
            _card(
                f"{max(waits):.1f} s",
                "notice to durable, longest",
                f"over {len(waits)} notice{'s' if len(waits) > 1 else ''}",
            )
        )
    if accuracy is not None:
        cards.append(_card(f"{100 * accuracy:.2f} %", "test accuracy", "the lowest of the jobs"))
    return f'<div class="cards">{"".join(cards)}</div>'


def _section(title: str, body: str) -> str:
    return f'<h2>{escape(title)}</h2><div class="scroll">{body}</div>'


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], left: int) -> str:
    def cells(tag: str, values: Sequence[str]) -> str:
        return "".join(
            f"<{tag}{' class=l' if index < left else ''}>{escape(value)}</{tag}>" for index, value in enumerate(values)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<table><thead><tr>{cells('th', columns)}</tr></thead><tbody>{body}</tbody></table>"


_DEADLINE = {True: "met", False: "missed", None: "open"}


def _jobs(report: dict[str, Any]) -> str:
    rows = []
    for job in report["jobs"]:
        accuracy = f"{100 * job['accuracy']:.2f} %" if job["accuracy"] is not None else "—"
        rows.append(
            [
                job["job_id"],
                job["state"],
                job["priority"],
                _DEADLINE[job["deadline_met"]] if job["deadline_at"] and job["state"] != "CANCELLED" else "—",
                duration(job["total_duration_seconds"]),
                duration(job["job_duration_seconds"]),
                f"{job['spot_hours']:.3f} / {job['on_demand_hours']:.3f}",
                str(job["interruptions"]),
                duration(job["lost_seconds"]),
                str(job["steps_redone"]),
                money(job["cost_usd"]),
                money(job["on_demand_cost_usd"]),
                percent(job["savings_percent"]),
                accuracy,
            ]
        )
    names = ("job", "state", "priority", "deadline", "total duration", "job duration", "spot / on-demand h",
             "interrupted", "time lost", "redone", "cost", "on-demand", "saved", "accuracy")  # fmt: skip
    return _table(names, rows, 4)


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
                "—" if stroke["steps_redone"] is None else str(stroke["steps_redone"]),
            ]
        )
    names = ("at", "job", "kind", "learnt from", "instance", "resumed on", "durable after", "changeover",
             "resumed from step", "steps redone")  # fmt: skip
    return _table(names, rows, 6)


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
    return _table(("market", "type", "zone", "instances", "hours", "mean $/h", "cost"), rows, 3)


def _instances(report: dict[str, Any]) -> str:
    rows = []
    for one in report["instances"]:
        end = "running" if one["ended_at"] is None else clock(one["ended_at"], report)
        why = "taken by the cloud" + (", free" if one["free"] else "") if one["interrupted"] else ""
        rows.append([one["instance_id"], one["role"], one["market"], one["instance_type"], one["zone"],
                     ", ".join(one["jobs"]) or "—", clock(one["launched_at"], report), end, why,
                     money(one["cost_usd"])])  # fmt: skip
    names = ("instance", "role", "market", "type", "zone", "jobs", "launched", "ended", "", "cost")
    return _table(names, rows, 6)


def _definitions(report: dict[str, Any]) -> str:
    terms = "".join(
        f"<dt>{escape(name.replace('_', ' '))}</dt><dd>{escape(said)}</dd>"
        for name, said in report["definitions"].items()
    )
    return f"<details><summary>How these figures are defined</summary><dl>{terms}</dl></details>"


def _footer(report: dict[str, Any]) -> str:
    lines = [f"Of the saving, free: {free}."] if (free := waived(report)) else []
    lines.append(f"Not in these figures: {', '.join(report['left_out'])}.")
    lines += where_prices_come_from(report)
    return "<footer>" + "".join(f"<p>{escape(line)}</p>" for line in lines) + "</footer>"
