"""The durations of changeovers, part by part, as rows and as a table."""

from typing import Any

from everspot_core.jobs.changeover import Changeover, ChangeoverPart, Changeovers, Experience
from rich.console import RenderableType

from everspot_cli.tables import duration, empty_table


def changeover_rows(changeovers: Changeovers | None) -> list[dict[str, Any]]:
    """Return a row for the whole and for each part, over all pools, then one for each part in each pool. Seconds."""
    times = [t for t in changeovers.times if t.seconds] if changeovers is not None else []
    if not times:
        return []
    experience = Experience(times)
    rows = [_row("whole", None, None, None, None, experience.whole())]
    rows += [
        _row(part.value, None, None, None, experience.measured(part), experience.part(part)) for part in ChangeoverPart
    ]
    for t in times:
        if t.part in set(ChangeoverPart):
            changeover = experience.part(ChangeoverPart(t.part), t.instance_type, t.zone, t.market)
            rows.append(_row(t.part, t.instance_type, t.zone, t.market.value, len(t.seconds), changeover))
    return rows


def changeovers(rows: list[dict[str, Any]]) -> RenderableType:
    """Return the table."""
    table = empty_table(("PART", "TYPE", "ZONE", "MARKET", "MEASURED", "EXPECTED", "AT MOST"), text_columns=4)
    for row in rows:
        pool = (row["instance_type"] or "all", row["zone"] or "", row["market"] or "")
        count = "" if row["measured"] is None else str(row["measured"])
        table.add_row(row["part"], *pool, count, duration(row["expected_seconds"]), duration(row["upper_seconds"]))
    return table


def _row(
    part: str, kind: str | None, zone: str | None, market: str | None, measured: int | None, changeover: Changeover
) -> dict[str, Any]:
    return {
        "part": part,
        "instance_type": kind,
        "zone": zone,
        "market": market,
        "measured": measured,
        "expected_seconds": round(changeover.expected.total_seconds(), 1),
        "upper_seconds": round(changeover.upper.total_seconds(), 1),
    }
