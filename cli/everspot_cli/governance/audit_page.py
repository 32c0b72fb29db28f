"""The audit's tables, for the terminal and as a page that loads nothing from the network."""

from collections.abc import Sequence
from html import escape
from typing import Any

from everspot_core.counting import counted

from everspot_cli.governance.charge_table import lower_bound_reasons
from everspot_cli.report.page import build_page, card, section, table
from everspot_cli.report.terminal import percent
from everspot_cli.tables import money

KIND_COLUMNS = ("kind", "cost", "share", "hours")
POOL_COLUMNS = ("type", "zone", "market", "hours", "used", "cost", "idle", "lost")
SMALL_ON_GPUS = "Jobs that need at most half of their GPU's memory"
GPU_COLUMNS = ("job", "ran on", "GPU", "memory GiB", "used GiB", "cost")
SIZE_COLUMNS = ("job", "ran on", "would do", "asked GiB", "used GiB", "cost", "would save")


def part(share: float | None) -> str:
    """Return a share as a percentage, or `—` for None."""
    return percent(None if share is None else 100 * share)


def total(document: dict[str, Any]) -> str:
    """Return the month's dollars, as a lower bound if a price is not known."""
    return f"{'' if document['known'] else '≥ '}{money(document['total_usd'])}"


def kind_cells(document: dict[str, Any]) -> list[list[str]]:
    """Return a row for each kind of use, and their sum."""
    rows = [[k["kind"], money(k["cost_usd"]), part(k["share"]), f"{k['hours']:,.2f}"] for k in document["kinds"]]
    return [*rows, ["total", total(document), "", f"{sum(k['hours'] for k in document['kinds']):,.2f}"]]


def pool_cells(document: dict[str, Any]) -> list[list[str]]:
    """Return a row for each pool of agents."""
    return [
        [
            p["instance_type"],
            p["zone"],
            p["market"],
            f"{p['hours']:,.2f}",
            part(p["utilisation"]),
            *(money(p[key]) for key in ("cost_usd", "idle_usd", "lost_usd")),
        ]
        for p in document["pools"]
    ]


def size_cells(document: dict[str, Any]) -> list[list[str]]:
    """Return a row for each job on a larger type than its memory needed."""
    return [
        [
            o["job_id"],
            o["instance_type"],
            o["would_do"],
            f"{o['asked_memory_gib']:g}",
            f"{o['used_memory_gib']:g}",
            money(o["cost_usd"]),
            money(o["saving_usd"]),
        ]
        for o in document["rightsizing"]
    ]


def gpu_cells(document: dict[str, Any]) -> list[list[str]]:
    """Return a row for each job that held at most half of its GPU's memory."""
    return [
        [
            s["job_id"],
            s["instance_type"],
            s["gpu"],
            f"{s['gpu_memory_gib']:g}",
            f"{s['used_gpu_memory_gib']:g}",
            money(s["cost_usd"]),
        ]
        for s in document["small_on_gpus"]
    ]


def lost_words(document: dict[str, Any]) -> str:
    """Return the losses, in a sentence."""
    lost = document["lost"]
    least = "at least " if lost["steps_redone_is_least"] else ""
    return (
        f"{money(lost['cost_usd'])} of time lost; {counted(lost['interruptions'], 'interruption')}, "
        f"{lost['with_notice']} with notice; {least}{counted(lost['steps_redone'], 'step')} redone. Jobs that failed "
        f"cost {money(lost['failed_jobs_usd'])}, cancelled ones {money(lost['cancelled_jobs_usd'])}."
    )


def measure_words(measure: dict[str, Any]) -> str:
    """Return a measure in a line or two: what it is, and how its saving was computed."""
    few = ", ".join(measure["jobs"][:3]) + (f" and {len(measure['jobs']) - 3} more" if len(measure["jobs"]) > 3 else "")
    return f"{measure['what']}{f' ({few})' if few else ''}. Computed: {measure['how']}."


def why_not(measure: dict[str, Any]) -> str:
    """Return why a measure is not among the recommended ones."""
    if measure["saving_usd"] is None:
        return f"{measure['measure']}: not recommended, its saving is unknown: {measure['how']}."
    if measure["saving_usd"] <= 0:
        return f"{measure['measure']}: not recommended, it would have saved nothing."
    return f"{measure['measure']}: would have saved {money(measure['saving_usd'])}, less than these three."


def audit_page(document: dict[str, Any], cluster: str) -> str:
    """Return the page. `document`: of `audit_document`."""
    moment = f"{document['as_of']:%Y-%m-%d %H:%M:%S} UTC" + ("" if document["complete"] else " · not final yet")
    scale = document["time_scale"]
    market = f" · market time, {scale:g} times as fast as real time" if scale != 1 else ""
    title = f"Audit of {document['month']}"
    sizes, small = size_cells(document), gpu_cells(document)
    return build_page(
        f"Everspot: {title}, {cluster}",
        [
            f"<h1>{escape(title)}</h1>",
            f'<p class="sub">Cluster {escape(cluster)} · as of {moment}{market}</p>',
            _cards(document),
            section("What would have saved most", _measures(document)),
            section("Where the dollars went", table(KIND_COLUMNS, kind_cells(document), 1)),
            section("Pools", table(POOL_COLUMNS, pool_cells(document), 3)),
            section("Jobs on larger types than they needed", table(SIZE_COLUMNS, sizes, 3)) if sizes else "",
            section(SMALL_ON_GPUS, table(GPU_COLUMNS, small, 3)) if small else "",
            _words("Lost work", [lost_words(document)]),
            _words("Not recommended", [why_not(m) for m in document["other_measures"]]),
            _words("Definitions", [f"{name}: {definition}" for name, definition in document["definitions"].items()]),
            _words("Notes", [*document["notes"], f"Not in these figures: {', '.join(document['left_out'])}."]),
        ],
    )


def _cards(document: dict[str, Any]) -> str:
    small = "; ".join(lower_bound_reasons(document))
    saves = document["measures"][0]["saving_usd"] if document["measures"] else None
    parts = [
        card(total(document), "total", small, "bad" * bool(small)),
        card(part(document["utilisation"]), "of the agents' hours worked for jobs"),
        card(money(document["lost"]["cost_usd"]), "lost to interruptions"),
        card(money(saves), "would have been saved by the best measure"),
    ]
    return f'<div class="cards">{"".join(parts)}</div>'


def _measures(document: dict[str, Any]) -> str:
    if not document["measures"]:
        return "<p>No measure is known to have saved anything in this month.</p>"
    rows = [[m["measure"], money(m["saving_usd"]), measure_words(m)] for m in document["measures"]]
    return table(("measure", "would have saved", "what, and how it was computed"), rows, 3)


def _words(title: str, lines: Sequence[str]) -> str:
    if not lines:
        return ""
    return f"<h2>{escape(title)}</h2>" + "".join(f"<p>{escape(line)}</p>" for line in lines)
