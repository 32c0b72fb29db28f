"""The figures at the head of the HTML report: costs first, and the saving to plan with."""

from typing import Any

from everspot_core.counting import counted, size

from everspot_cli.report.page import card
from everspot_cli.report.terminal import percent, redone, unknown_parts
from everspot_cli.tables import duration, least, money


def cards(report: dict[str, Any]) -> str:
    """Return all cards, as HTML."""
    parts = [_cost(report), _on_demand_card(report), _saving_card(report), *_idle(report), *_outcome(report)]
    return f'<div class="cards">{"".join(parts)}</div>'


def _cost(report: dict[str, Any]) -> str:
    reasons = unknown_parts(report)
    parts = (
        f"jobs {money(report['jobs_cost_usd'])}, boot and idling {money(report['idle_and_boot_cost_usd'])}"
        if report["scope"] == "cluster"
        else "the seconds that it held instances"
    )
    if reasons:
        return card(least(report["cost_usd"], False), "cost", "; ".join([parts, *reasons]), "bad")
    return card(money(report["cost_usd"]), "cost", parts)


def _on_demand_card(report: dict[str, Any]) -> str:
    if report["scope"] != "cluster":
        return card(money(report["on_demand_cost_usd"]), "the same useful work on-demand", "never interrupted")
    return card(
        money(report["on_demand_cost_usd"]),
        "the same fleet and work on-demand",
        f"jobs {money(report['jobs_on_demand_cost_usd'])}, boot and idling "
        f"{money(report['idle_and_boot_on_demand_cost_usd'])}; no interruptions",
    )


def _saving_card(report: dict[str, Any]) -> str:
    """Return the card of the saving. Its headline is the saving if every spot second were billed. The saving with the
    free time is shown beside it, because nobody can count on free hours."""
    plan, free = report["savings_percent_if_billed"], report["free_usd"]
    small = [f"{percent(report['savings_percent'])} with {money(free)} of free time"] if free else []
    if report["scope"] == "cluster":
        small.append(f"jobs alone {percent(report['jobs_savings_percent'])}")
    tone = "" if plan is None else "good" if plan >= 0 else "bad"
    return card(percent(plan), "saved, to plan with" if free else "saved", "; ".join(small), tone)


def _idle(report: dict[str, Any]) -> list[str]:
    """Return the cost of hours without a job."""
    if report["scope"] != "cluster" or not report["cost_usd"]:
        return []
    idle = report["idle_and_boot_cost_usd"]
    share = 100 * idle / report["cost_usd"]
    small = f"{money(idle)}, of which the scheduler {money(report['scheduler_cost_usd'])}"
    return [card(f"{share:.0f} %", "of the cost was boot and idling", small, "bad" if share > 25 else "")]


def _outcome(report: dict[str, Any]) -> list[str]:
    jobs, waits, accuracy = report["jobs"], report["notice_to_durable_seconds"], report["accuracy"]
    done = sum(job["state"] == "SUCCEEDED" for job in jobs)
    missed = sum(job["deadline_met"] is False for job in jobs)
    again = report["steps_redone_after_notice"]
    late = f"{counted(missed, 'deadline')} missed" if missed else ""
    parts = [
        card(f"{done} of {len(jobs)}", "jobs succeeded", late, "bad" if missed else ""),
        card(str(len(report["interruptions"])), "interruptions", f"{duration(report['lost_seconds'])} of time lost"),
        card(
            str(again),
            "steps redone after notices",
            f"{redone(report, 'steps_redone_total')} in total",
            "good" if again == 0 else "bad",
        ),
    ]
    streamed = report["streamed"]
    if streamed["jobs"]:
        fetched = f"{size(streamed['fetched_bytes'])} fetched"
        parts.append(card(size(streamed["cached_bytes"]), "streamed and not fetched twice", fetched))
    if waits:
        over = f"over {counted(len(waits), 'notice')}"
        parts.append(card(f"{max(waits):.1f} s", "notice to durable, longest", over))
    if accuracy is not None:
        parts.append(card(f"{100 * accuracy:.2f} %", "test accuracy", "the lowest of the jobs"))
    return parts
