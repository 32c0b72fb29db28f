"""Decides whether a job's deadline can be kept: at its submission, and when the plan first looks at it.

At submission only the author's figures are known. The measure is the same as in the plan: a run on-demand, of speed 1,
that begins immediately, with the lasting bound of the measured changeover and the declared duration as the job's upper
bound. A deadline that such a run cannot keep is infeasible. The bound that accepted a deadline is kept with the job,
and the plan refuses the job by no longer bound.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from everspot_core.jobs.candidates import Candidate, misfits
from everspot_core.jobs.job import JobSubmission
from everspot_core.jobs.timing import BadZone, finish
from everspot_core.schedule.actions import ReasonFigures, Refuse, Why
from everspot_core.schedule.jobs import CHANGEOVER_UPPER, HOUR, job_outlook
from everspot_core.schedule.market.offers import Offers
from everspot_core.schedule.view import JobView


@dataclass(frozen=True, slots=True, kw_only=True)
class Feasibility:
    """The answer about a deadline.

    Attributes:
        feasible: None if the job's length is unknown; the plan then never lets it wait for spot.
        past: the deadline is not after the submission.
        least: the longest time from submission to the end of a run on-demand; None if the length is unknown, or no date
            is that late.
        earliest: the earliest deadline that could be kept; None likewise.
        slack: the deadline less `earliest`; negative if it cannot be kept.
        begin_by: when on-demand has to begin at the latest; None unless feasible, or if the job has a window.
        cheapest: the candidate that would finish by `earliest` for the least money.
        usd: its cost on-demand, changeover included; None without a price.
        changeover: the bound of the changeover.
        bounds: the fields of the job that restrict when it may run.
    """

    deadline: datetime
    feasible: bool | None
    past: bool
    least: timedelta | None = None
    earliest: datetime | None = None
    slack: timedelta | None = None
    begin_by: datetime | None = None
    cheapest: Candidate | None = None
    usd: float | None = None
    changeover: timedelta = CHANGEOVER_UPPER
    bounds: tuple[str, ...] = ()


def feasibility(
    submission: JobSubmission, candidates: Iterable[Candidate], changeover: timedelta = CHANGEOVER_UPPER
) -> Feasibility | None:
    """Return whether the deadline of this job can be kept; None if it has none.

    `candidates`: the types that it might run on, all taken as equally fast; those that cannot hold it are ignored.
    `changeover`: the lasting bound of launch, boot and set-up.
    """
    deadline, submitted, work = submission.deadline_at, submission.submitted_at, submission.spec.expected_duration
    if deadline is None:
        return None
    past = deadline <= submitted
    if work is None:
        return Feasibility(deadline=deadline, feasible=False if past else None, past=past)
    window, begin = submission.spec.window, submission.start_at or submitted
    bounds = tuple(n for n, bound in (("start_after", submission.start_at), ("window", window)) if bound is not None)
    earliest = finish(begin, work, changeover, window)
    if earliest is None:
        return Feasibility(deadline=deadline, feasible=False, past=past, bounds=bounds)
    able = [c for c in candidates if not misfits(c.instance_type, submission.spec.resources)]
    hourly, cheapest = _cheapest(able)
    feasible, slack, least = earliest <= deadline and not past, deadline - earliest, earliest - submitted
    return Feasibility(
        deadline=deadline,
        feasible=feasible,
        past=past,
        least=least,
        earliest=earliest,
        slack=slack,
        begin_by=begin + slack if feasible and window is None else None,
        cheapest=cheapest,
        usd=hourly * ((work + changeover) / HOUR) if hourly is not None else None,
        changeover=changeover,
        bounds=bounds,
    )


def refusal(
    job: JobView, offers: Offers, now: datetime, tick: timedelta, lasting: timedelta | None = None
) -> Refuse | None:
    """Return the refusal of a job whose deadline not even on-demand from submission on could have kept.

    None for all other jobs, and for one that was submitted by force. A deadline that was feasible at submission is not
    given up later, even if on-demand runs dry: the job runs, at risk. The figures are upper bounds on the fastest type:
    when the job would be done if it began now, and its cost. `tick`: the longest time until the next decision, for
    which an instance that is ready may wait. `lasting`: the lasting bound of a changeover; None: the upper bound of the
    job's outlook.
    """
    deadline, work = job.submission.deadline_at, job_outlook(job)
    if deadline is None or work is None or not offers.on_demand_pools or job.submission.forced:
        return None
    speeds = {p.key: job.speeds.get(p.instance_type.name, 1.0) for p in offers.on_demand_pools}
    fastest = max(speeds.values())
    bound = min(b for b in (work.changeover_upper, lasting) if b is not None) + tick
    # A bound that accepted the deadline already has the tick of that time in it.
    accepted = job.submission.changeover_bound
    least = min(bound, accepted if accepted is not None else bound) + work.remaining_upper / fastest
    if job.submission.submitted_at + least <= (job.accepted_deadline_at or deadline):
        return None
    price = min(p.usd_per_hour for p in offers.on_demand_pools if speeds[p.key] == fastest)
    earliest, usd = _earliest(job, now, least, bound), round(price * job.nodes * (least / HOUR), 2)
    figures: ReasonFigures = {"earliest": earliest.isoformat(timespec="minutes"), "usd": usd}
    return Refuse(job_id=job.job_id, epoch=job.epoch, earliest=earliest, usd=usd, cause=Why.INFEASIBLE, figures=figures)


def _earliest(job: JobView, now: datetime, least: timedelta, changeover: timedelta) -> datetime:
    """Return when a job that begins now is done within its hours. `least`: its changeover and its work."""
    changeover = min(changeover, least)
    try:
        return finish(now, least - changeover, changeover, job.submission.spec.window) or now + least
    except BadZone:
        return now + least


def _cheapest(candidates: Iterable[Candidate]) -> tuple[float, Candidate] | tuple[None, None]:
    """Return the lowest on-demand price and its candidate; of equals the first by name, so that the answer is
    definite."""
    priced = [(c.on_demand.usd_per_hour, c) for c in candidates if c.on_demand is not None]
    return min(priced, key=lambda p: (p[0], p[1].instance_type.name, p[1].region), default=(None, None))
