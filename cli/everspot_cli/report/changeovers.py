"""The durations of changeovers, part by part, as rows and as a table."""

from typing import Any

from everspot_core.changeover import Changeover, ChangeoverPart, Changeovers, Experience
from rich.console import RenderableType

from everspot_cli.tables import duration, sheet


def changeover_rows(found: Changeovers | None) -> list[dict[str, Any]]:
    """A row for the whole and for each part, over all pools, then one for each part in each pool. Seconds."""
    times = [t for t in found.times if t.seconds] if found is not None else []
    if not times:
        return []
    seen = Experience(times)
    rows = [_row("whole", None, None, None, None, seen.whole())]
    rows += [_row(part.value, None, None, None, seen.measured(part), seen.part(part)) for part in ChangeoverPart]
    for t in times:
        if t.part in set(ChangeoverPart):
            said = seen.part(ChangeoverPart(t.part), t.instance_type, t.zone, t.market)
            rows.append(_row(t.part, t.instance_type, t.zone, t.market.value, len(t.seconds), said))
    return rows


def changeovers(rows: list[dict[str, Any]]) -> RenderableType:
    """The table."""
    table = sheet(("PART", "TYPE", "ZONE", "MARKET", "MEASURED", "EXPECTED", "AT MOST"), left=4)
    for row in rows:
        pool = (row["instance_type"] or "all", row["zone"] or "", row["market"] or "")
        count = "" if row["measured"] is None else str(row["measured"])
        table.add_row(row["part"], *pool, count, duration(row["expected_seconds"]), duration(row["upper_seconds"]))
    return table


def _row(
    part: str, kind: str | None, zone: str | None, market: str | None, measured: int | None, said: Changeover
) -> dict[str, Any]:
    return {
        "part": part,
        "instance_type": kind,
        "zone": zone,
        "market": market,
        "measured": measured,
        "expected_seconds": round(said.expected.total_seconds(), 1),
        "upper_seconds": round(said.upper.total_seconds(), 1),
    }
