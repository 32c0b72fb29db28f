"""Whether a deadline could be kept at all."""

from datetime import datetime

from everspot_core.schedule.actions import Figures, Refuse, Why
from everspot_core.schedule.outlook import HOUR, outlook_of
from everspot_core.schedule.prospects import Prospects
from everspot_core.schedule.view import JobView


def refusal(job: JobView, outlet: Prospects, now: datetime) -> Refuse | None:
    """For a deadline that could not have been kept even by going on-demand at submission; None for all others.

    One that could be then is not given up later, be it that on-demand ran dry: the job runs, and is at risk. The
    figures are upper bounds, on the fastest type: when it would be done if it began now, and for how much.
    """
    deadline, work = job.submission.deadline_at, outlook_of(job)
    if deadline is None or work is None or not outlet.on_demand_pools:
        return None
    speeds = {p.key: job.speeds.get(p.instance_type.name, 1.0) for p in outlet.on_demand_pools}
    fastest = max(speeds.values())
    least = work.changeover_upper + work.left_upper / fastest
    if job.submission.submitted_at + least <= deadline:
        return None
    price = min(p.usd_per_hour for p in outlet.on_demand_pools if speeds[p.key] == fastest)
    earliest, usd = now + least, round(price * job.nodes * (least / HOUR), 2)
    figures: Figures = {"earliest": earliest.isoformat(timespec="minutes"), "usd": usd}
    return Refuse(job_id=job.job_id, epoch=job.epoch, earliest=earliest, usd=usd, why=Why.INFEASIBLE, figures=figures)
