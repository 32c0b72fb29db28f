"""The charges of a month as a page that loads nothing from the network."""

from collections.abc import Sequence
from html import escape
from typing import Any

from everspot_cli.governance.charge_table import (
    LINE_COLUMNS,
    STAGE_COLUMNS,
    line_cells,
    lower_bound_reasons,
    stage_cells,
)
from everspot_cli.report.page import build_page, card, section, table
from everspot_cli.tables import least, money


def charge_page(document: dict[str, Any], cluster: str) -> str:
    """Return the page. `document`: of `charge_document`."""
    over = "" if document["complete"] else " · not final yet"
    title = f"Charges of {document['month']}"
    pipelines = document["pipelines"]
    return build_page(
        f"Everspot: {title}, {cluster}",
        [
            f"<h1>{escape(title)}</h1>",
            f'<p class="sub">Cluster {escape(cluster)} · as of {document["as_of"]:%Y-%m-%d %H:%M:%S} UTC{over}</p>',
            _cards(document),
            *(section(f"By {key}", _lines(key, lines, document)) for key, lines in document["by"].items()),
            section("Stages of pipelines", _stages(pipelines)) if pipelines else "",
            _definitions(document["definitions"]),
            _footer(document),
        ],
    )


def _cards(document: dict[str, Any]) -> str:
    lines = next(iter(document["by"].values()))

    def share(*kinds: str) -> str:
        cost = sum(line["cost_usd"] for line in lines if line["kind"] in kinds)
        return f"{100 * cost / document['total_usd']:.0f} %" if document["total_usd"] else "—"

    small = "; ".join(lower_bound_reasons(document))
    extra_costs = [
        f"{money(document[name])} {words}"
        for name, words in (("abroad_usd", "at other clusters"), ("egress_usd", "for copying there"))
        if document[name]
    ]
    parts = [
        card(
            least(document["total_usd"], document["known"]),
            "total",
            small or "; ".join(extra_costs),
            "bad" * bool(small),
        ),
        card(share("value", "untagged", "visitors"), "worked for jobs"),
        card(share("lost"), "lost to interruptions"),
        card(share("boot", "idle", "drain", "shared", "scheduler"), "boot, idle, drain, unused, scheduler"),
    ]
    return f'<div class="cards">{"".join(parts)}</div>'


def _lines(key: str, lines: Sequence[dict[str, Any]], document: dict[str, Any]) -> str:
    rows = [line_cells(line) for line in lines]
    whole = ["total", least(document["total_usd"], document["known"])]
    return table((key, *LINE_COLUMNS), [*rows, [*whole, *[""] * (len(LINE_COLUMNS) - 1)]], 1)


def _stages(pipelines: Sequence[dict[str, Any]]) -> str:
    return table(STAGE_COLUMNS, [cells for run in pipelines for cells in stage_cells(run)], 3)


def _definitions(definitions: dict[str, str]) -> str:
    terms = "".join(f"<dt>{escape(name)}</dt><dd>{escape(definition)}</dd>" for name, definition in definitions.items())
    return f"<details><summary>What these lines are</summary><dl>{terms}</dl></details>"


def _footer(document: dict[str, Any]) -> str:
    lines = [f"Not in these figures: {', '.join(document['left_out'])}."]
    lines += [f"Note: {note}." for note in document["notes"]]
    return "<footer>" + "".join(f"<p>{escape(line)}</p>" for line in lines) + "</footer>"
