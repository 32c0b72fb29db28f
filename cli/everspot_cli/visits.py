"""Texts and figures about jobs that are away at other clusters."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from everspot_core.costs.team_budgets import Amount
from everspot_core.federation.migration import sum_trips
from everspot_core.jobs.job import JobSubmission
from everspot_core.jobs.records import JobRecord

from everspot_cli.tables import away_label, format_date


def move_fields(record: JobRecord) -> dict[str, Any]:
    """Return where a job is away, its trips, and their cost: by the bills of the hosts, with the present visit so far,
    and for the transfer."""
    egress = sum((trip.egress_usd for trip in record.trips), 0.0)
    return {
        "away": record.away.model_dump(mode="json") if record.away is not None else None,
        "trips": [trip.model_dump(mode="json") for trip in record.trips],
        "abroad_usd": round(spent_abroad(record).dollars - egress, 6),
        "egress_usd": round(egress, 6),
    }


def visit_fields(submission: JobSubmission) -> dict[str, Any] | None:
    """Return home's name, the job's id there, and the number of the visit. None if the job is no visit."""
    visit = submission.visit
    return {"home": visit.home, "job_id": visit.job_id, "number": visit.number} if visit is not None else None


def spent_abroad(record: JobRecord | None) -> Amount:
    """Return the cost of a job's visits, egress included: of the ended ones, and of the present one as far as the host
    has reported it."""
    if record is None:
        return Amount()
    dollars, gpu_hours = sum_trips(record.trips)
    return Amount(dollars + ((record.away and record.away.usd) or 0.0), gpu_hours)


def away_words(row: dict[str, Any], now: datetime) -> str | None:
    """Describe where a job is away, since when and why. None if it is not away."""
    away = row["away"]
    if away is None:
        return None
    since = format_date(datetime.fromisoformat(away["since"]), now)
    spent = f", ${away['usd']:.2f} so far" if away["usd"] else ""
    return f"{away_label(row)}, since {since}{spent}" + (f"\n{away['why']}" if away["why"] else "")


def trip_words(row: Mapping[str, Any]) -> str | None:
    """Return a line for each trip. None without trips."""
    return "\n".join(map(_trip, row["trips"])) or None


def _trip(trip: Mapping[str, Any]) -> str:
    cost = "" if trip["usd"] is None else f", ${trip['usd']:.2f}"
    way = f", about ${trip['egress_usd']:.2f} for the way" if trip["egress_usd"] >= 0.005 else ""
    reason = f": {trip['why']}" if trip["why"] else ""
    return f"{trip['cluster']} as {trip['visit']}, {trip['end']} at step {trip['step']}{cost}{way}{reason}"
