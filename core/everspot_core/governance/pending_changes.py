"""What may still change the figures of a month after its end."""

from collections.abc import Mapping
from datetime import timedelta

from everspot_core.costs.bill import Bill, JobBill
from everspot_core.costs.billing import BillingRules
from everspot_core.counting import counted
from everspot_core.governance.month import Month
from everspot_core.jobs.records import JobRecord, Reason

LATE = timedelta(hours=1)
"""How long after a moment its last entries come. The scheduler asks half an hour back for Spot prices, and an owner
without notice is lost once its lease has expired."""


def pending_changes(
    bill: Bill, records: Mapping[str, JobRecord], month: Month, rules: BillingRules, *, may_lack_entries: bool = False
) -> list[str]:
    """Return why figures of the month may still change, in sentences; empty if they are final.

    Args:
        bill: Of the whole cluster.
        records: Of the jobs.
        month: The month.
        rules: The cloud's.
        may_lack_entries: Whether the ledger may lack entries, because no scheduler writes it.
    """
    if not month.over(bill.as_of):
        return [f"{month.name} is not over: this is up to {bill.as_of:%Y-%m-%d %H:%M} UTC"]
    reasons = ["the ledger may lack entries"] if may_lack_entries else []
    if bill.as_of < month.end + LATE:
        reasons.append(
            f"the last prices and events of {month.name} may come until {month.end + LATE:%Y-%m-%d %H:%M} UTC"
        )
    young = [
        instance
        for instance in bill.instances
        if instance.running and instance.launch.launched_at < month.end
        if rules.is_free(instance.launch, max(timedelta(0), bill.as_of - instance.launch.launched_at - LATE))
    ]
    if young:
        reasons.append(f"{counted(len(young), 'instance')} would be free if the cloud took it now")
    jobs = [job for job in bill.jobs if _can_be_lost(job, records.get(job.job_id), month)]
    if jobs:
        names = ", ".join(job.job_id for job in jobs[:3]) + (", …" if len(jobs) > 3 else "")
        reasons.append(f"work of {month.name} since the last checkpoint may become lost, of {names}")
    return reasons


def _can_be_lost(job: JobBill, record: JobRecord | None, month: Month) -> bool:
    """Return whether time of the month may become lost, or count as work again. A loss without notice takes all time
    since the last checkpoint. A loss is taken back where the owner lived."""
    if not job.attempts:
        return False
    last = job.attempts[-1]
    is_running = record is None or not record.state.final
    is_open = last.end is None or (is_running and last.reason is Reason.LOST)
    return is_open and last.start < month.end and last.lost_from < month.end
