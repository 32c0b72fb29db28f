"""The hours and dollars of one run of a job, with which a report compares another one."""

from typing import NamedTuple

from everspot_core.costs.bill import JobBill
from everspot_core.costs.prices import HOUR, rounded, total


class RunFigures(NamedTuple):
    """Hours and dollars of a run; None what is not known."""

    hours: float | None = None
    usd: float | None = None

    @classmethod
    def from_bill(cls, bill: JobBill, *, cost_known: bool) -> "RunFigures":
        """Return the figures of a job. `cost_known`: whether all that it cost is known. Else there are no dollars."""
        usd = float(rounded(bill.cost, 6)) if cost_known else None
        return cls(round(float(total(u.seconds for u in bill.usages) / HOUR), 4), usd)
