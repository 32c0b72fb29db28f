"""Reads a month of the ledger as rows."""

from dataclasses import dataclass
from datetime import datetime

from everspot_core.governance.month import Month
from everspot_core.governance.pending_changes import pending_changes
from everspot_core.governance.usage import UsageRow, usage_rows

from everspot_cli.errors import CliError, Exit
from everspot_cli.report.gather import Material, gather
from everspot_cli.session import Session, run_in_parallel


@dataclass(frozen=True)
class MonthLedger:
    """The rows of one month, and the material of the report from which they were made.

    Attributes:
        over: whether the month has ended.
        changes: why its figures may still change; empty if they are final.
    """

    month: Month
    over: bool
    changes: list[str]
    material: Material
    rows: list[UsageRow]


def parse_month(text: str | None, now: datetime) -> Month:
    """Return the month of an option, or the present month in market time without one.

    Raises:
        CliError: if it is no month, or has not begun.
    """
    if text is None:
        return Month.containing(now)
    try:
        month = Month.parse(text)
    except ValueError as error:
        raise CliError(f"--month: {error}", Exit.USAGE) from None
    if month.begin > now:
        raise CliError(f"--month: {month.name} has not begun; it is {now:%Y-%m-%d} (market time, UTC)", Exit.USAGE)
    return month


def read_month(session: Session, month: Month, as_of: datetime | None = None) -> MonthLedger:
    """Read the cluster and cut out one month. With `as_of` it is the ledger of that moment."""
    material = gather(session, as_of)
    rows = usage_rows(material.bill, reported_at(session), material.records, since=month.begin, until=month.end)
    changes = pending_changes(
        material.bill,
        material.records,
        month,
        session.cloud.billing,
        may_lack_entries=material.note is not None,
    )
    return MonthLedger(month, month.over(material.as_of), changes, material, rows)


def reported_at(session: Session) -> dict[str, datetime]:
    """Return when the agent of each instance first reported, by instance id, as far as its record is kept."""
    store = session.store
    present, past = run_in_parallel(store.instances.scan, store.past_instances.scan)
    return {iid: doc.value.booted_at for iid, doc in {**past, **present}.items()}
