"""Decides whether a job should move to another cluster, and to which.

There are three reasons to move, in this order:

1. *No capacity*: the job waits, and its cluster has had no capacity for it for a while, or never will. For a job that
    waits for spot, no spot capacity is enough: without a deadline, or once its time runs out, the job goes where it
    gets an instance immediately and at most at the on-demand cost of this cluster.
2. *Late*: on-demand cannot finish the job here by its deadline, but could elsewhere, and the last safe moment to leave
    is near.
3. *Cheaper*: the remaining work costs so much less elsewhere that the saving reaches `saving`, `saving_usd` and
    `saving_factor` times the price of the move, whichever is most.

A job with a deadline may wait for spot while there is time, although on-demand is available here as far as is known.
Then neither of the first two reasons applies.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from math import inf

from everspot_core.federation.data_locality import NO_INPUTS, Inputs, describe_inputs

_NEVER = datetime.max.replace(tzinfo=UTC)
UNKNOWN_LENGTH = timedelta(days=1)
"""The assumed work of a job of unknown length, when the price of a move is compared with the cost of the work. It
equals the time for which such a job waits for spot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveTerms:
    """The terms on which jobs move. docs/internals/scheduling.md gives the reasons for the values.

    - `patience`: a waiting job without capacity stays for this long, because capacity mostly comes back soon. A
      critical job moves immediately.
    - `reserve`: a job whose deadline is in danger, or that would soon need on-demand here, leaves while the best other
      cluster has this much spare time. This time allows one cluster to decline and another to be asked.
    - `answer_wait`: a job that moves to save money has this much spare time at the other cluster, and also in its own
      one, which it returns to if its offer is not answered. Where its own cluster could not finish it in time after
      that, `reserve` counts instead.
    - `saving`: the least saving of a move as a fraction of the remaining cost; also at least `saving_usd`, and
      `saving_factor` times the price of the move. Both forecasts are estimates, but the price of the move is certain.
    - `min_stay`: no job moves to save money within this time of its last move. `pause`: no job moves for any other
      reason within this time.
    - `again`: a cluster that has declined a job is not asked about it again for this long. The time doubles after each
      consecutive visit without an instance, up to `again_most`.
    - `max_on_demand_ratio`: if on-demand capacity is exhausted, too, a job without a deadline pays at most this many
      times the on-demand cost of its remaining work. Prices differ by region and the move has a cost, so at 1 no other
      cluster would qualify.
    """

    patience: timedelta = timedelta(minutes=30)
    reserve: timedelta = timedelta(minutes=30)
    answer_wait: timedelta = timedelta(minutes=10)
    saving: float = 0.1
    saving_usd: float = 1.0
    saving_factor: float = 1.0
    min_stay: timedelta = timedelta(hours=1)
    pause: timedelta = timedelta(minutes=10)
    again: timedelta = timedelta(minutes=15)
    again_most: timedelta = timedelta(hours=12)
    max_on_demand_ratio: float = 1.5


DEFAULT = MoveTerms()


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The forecast for a job if a cluster finishes it. For another cluster all figures include the move.

    - `feasible`: the job holds instances there, or there is capacity for it now.
    - `placed`: it holds instances there, or the plan there has some for it now, so that it would not wait.
    - `paid`: it would go to an idle instance of a standing fleet, which is paid for anyway, so that only the move
      costs.
    - `on_demand_usd`: its cost on on-demand; for a job of unknown length, the cost of UNKNOWN_LENGTH of work. Where
      nothing is launched, the cost on the cluster's own instances. None: no instance there can hold it.
    - `usd`: the expected cost from now on; None if the job's length is unknown.
    - `done_by`: the latest end if it goes on-demand immediately; None if nothing bounds it.
    - `restart_by`: the latest end if the job gives up what it holds and goes on-demand immediately; None if nothing
      bounds it.
    - `usd_per_hour`: the lowest price of an hour of its work; it orders clusters whose `usd` is unknown.
    - `dry_since`: since when there has been no capacity for it, or no spot if it waits for spot; None if it is placed,
      or if no instance type there can hold it.
    - `move_usd`: the price of the move. `inputs`: the bytes that the job needs there.
    - `reason`: the reason in words if it is not placed.
    """

    cluster: str
    feasible: bool
    usd: float | None
    done_by: datetime | None
    restart_by: datetime | None = None
    usd_per_hour: float | None = None
    dry_since: datetime | None = None
    move_usd: float = 0.0
    inputs: Inputs = NO_INPUTS
    reason: str = ""
    placed: bool = True
    paid: bool = False
    on_demand_usd: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MovableJob:
    """The facts about the job itself that the decision needs.

    Attributes:
        has_instance: it holds instances.
        budgeted: it has a budget in dollars or GPU-hours. Each cluster takes the cost of its instances from that
            budget, no matter which account pays.
        moved_at: when it last came to its cluster from another one.
        declined: when each cluster last declined it, did not answer in time, or gave it back.
        fruitless_visits: by cluster, the number of its last consecutive visits without an instance.
    """

    job_id: str
    deadline_at: datetime | None
    has_instance: bool = False
    critical: bool = False
    budgeted: bool = False
    moved_at: datetime | None = None
    declined: Mapping[str, datetime] = field(default_factory=dict)
    fruitless_visits: Mapping[str, int] = field(default_factory=dict)


class MoveWhy(StrEnum):
    """Why a job moves."""

    NO_CAPACITY = "no-capacity"
    LATE = "late"
    CHEAPER = "cheaper"


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A decision: offer the job to the cluster of `target`."""

    job_id: str
    reason: MoveWhy
    here: Forecast
    target: Forecast

    @property
    def cluster(self) -> str:
        """The cluster that the job is offered to."""
        return self.target.cluster


def decide_move(
    job: MovableJob, here: Forecast, peers: Sequence[Forecast], terms: MoveTerms, now: datetime
) -> Move | None:
    """Return the move that the job should make now, or None if it stays. The order of `peers` does not matter.

    Args:
        job: The job.
        here: The forecast of the cluster that the job is in.
        peers: The forecasts of the clusters that it may move to.
        terms: The terms on which jobs move.
        now: Market time.
    """
    if job.moved_at is not None and now - job.moved_at < terms.pause:
        return None
    able = [p for p in peers if p.feasible and p.cluster != here.cluster and not _declined(job, p, terms, now)]
    for reason, goals in (
        (MoveWhy.NO_CAPACITY, _without_capacity(job, here, able, terms, now)),
        (MoveWhy.LATE, _late(job, here, able, terms)),
        (MoveWhy.CHEAPER, _cheaper(job, here, able, terms, now)),
    ):
        if goals:
            target = min(goals, key=lambda p: _order(p, job.deadline_at))
            return Move(job_id=job.job_id, reason=reason, here=here, target=target)
    return None


def needs_no_move(job: MovableJob, here: Forecast, terms: MoveTerms) -> bool:
    """Return whether the job stays whatever other clusters offer, so that no forecast of them is needed: it is in time
    here, and its remaining cost is too low for a saving."""
    in_time = job.deadline_at is None or _in_time(here, job.deadline_at)
    return here.feasible and here.placed and in_time and here.usd is not None and here.usd <= terms.saving_usd


def describe_move(move: Move) -> str:
    """Return the decision and its reason in one sentence."""
    here, target = move.here, move.target
    match move.reason:
        case MoveWhy.NO_CAPACITY:
            since = "" if here.dry_since is None else f" since {here.dry_since:%Y-%m-%d %H:%M} UTC"
            because = f"{here.cluster} has had no capacity for it{since}" + (f": {here.reason}" if here.reason else "")
        case MoveWhy.LATE:
            ends = [f"by {p.done_by:%Y-%m-%d %H:%M} UTC" if p.done_by else "at an unknown time" for p in (here, target)]
            because = f"{here.cluster} would finish it {ends[0]}, {target.cluster} {ends[1]}"
        case MoveWhy.CHEAPER:
            because = (
                f"the remaining work costs ${here.usd or 0.0:,.2f} in {here.cluster} and ${target.usd or 0.0:,.2f} in "
                f"{target.cluster}, with the move"
                + (", on an idle instance that is paid for anyway" if target.paid else "")
            )
    sent = describe_inputs(target.inputs, target.move_usd)
    return f"offer {move.job_id} to {target.cluster}: {because}" + (f"; {sent}" if sent else "")


def _without_capacity(
    job: MovableJob, here: Forecast, able: list[Forecast], terms: MoveTerms, now: datetime
) -> list[Forecast]:
    """Return the clusters for a job that waits and whose cluster has had no capacity for it for long."""
    if job.has_instance or (here.feasible and here.placed):
        return []
    undated = job.deadline_at is None and not job.critical
    if here.feasible and not undated and not _runs_out(job, able, terms):
        return []
    lasting = here.dry_since is None or now - here.dry_since >= terms.patience
    if not (lasting or job.critical):
        return []
    if not undated and not here.feasible:
        return able
    if here.feasible and job.moved_at is not None and now - job.moved_at < terms.min_stay:
        return []
    most = (
        inf
        if here.on_demand_usd is None
        else here.on_demand_usd * (1.0 if here.feasible else terms.max_on_demand_ratio)
    )
    in_time = [p for p in able if job.deadline_at is None or _in_time(p, job.deadline_at)]
    return [p for p in in_time if p.placed and _cost(p) <= most]


def _runs_out(job: MovableJob, able: list[Forecast], terms: MoveTerms) -> bool:
    """Return whether a job that waits for spot must leave now, because soon no other cluster could meet its deadline.

    Its own cluster relies on on-demand capacity that was not requested yet.
    """
    if job.deadline_at is None or job.critical:
        return False
    spare = [job.deadline_at - p.done_by for p in able if p.done_by is not None]
    return timedelta(0) <= max(spare, default=timedelta(-1)) < terms.reserve


def _cost(place: Forecast) -> float:
    """Return the cost of the remaining work in a cluster, including the move. A job of unknown length counts
    UNKNOWN_LENGTH of work."""
    if place.usd is not None:
        return place.usd
    hour = timedelta(hours=1)
    return inf if place.usd_per_hour is None else place.usd_per_hour * (UNKNOWN_LENGTH / hour) + place.move_usd


def _late(job: MovableJob, here: Forecast, able: list[Forecast], terms: MoveTerms) -> list[Forecast]:
    """Return the clusters for a job that would be late here, once the time to leave runs out."""
    if job.deadline_at is None or _in_time(here, job.deadline_at):
        return []
    spare = [job.deadline_at - p.done_by for p in able if p.done_by is not None]
    most = max(spare, default=timedelta(-1))
    return able if timedelta(0) <= most < terms.reserve else []


def _cheaper(
    job: MovableJob, here: Forecast, able: Iterable[Forecast], terms: MoveTerms, now: datetime
) -> list[Forecast]:
    """Return the clusters that would finish the job for so much less that it is worth moving."""
    if here.usd is None or (job.moved_at is not None and now - job.moved_at < terms.min_stay):
        return []
    due = None if job.deadline_at is None else job.deadline_at - _spare_time(job.deadline_at, here, terms)
    least = max(terms.saving * here.usd, terms.saving_usd)
    return [
        p
        for p in able
        if p.usd is not None
        and not (p.paid and job.budgeted)
        and here.usd - p.usd > max(least, terms.saving_factor * p.move_usd)
        and (due is None or _in_time(p, due))
    ]


def _spare_time(deadline: datetime, here: Forecast, terms: MoveTerms) -> timedelta:
    """Return the spare time at the other cluster that a job needs to move there only to save money."""
    can_return = here.restart_by is not None and here.restart_by + terms.answer_wait <= deadline
    return terms.answer_wait if can_return else terms.reserve


def _in_time(place: Forecast, deadline: datetime) -> bool:
    return place.done_by is not None and place.done_by <= deadline


def _declined(job: MovableJob, place: Forecast, terms: MoveTerms, now: datetime) -> bool:
    at = job.declined.get(place.cluster)
    if at is None:
        return False
    times = 1 << min(30, max(0, job.fruitless_visits.get(place.cluster, 0) - 1))
    return now - at < min(terms.again * times, max(terms.again, terms.again_most))


def _order(place: Forecast, deadline: datetime | None) -> tuple[bool, datetime, float, float, str]:
    """Return a sort key: clusters in time first, the cheapest of them; then the others, the earliest first."""
    late = deadline is not None and not _in_time(place, deadline)
    return (
        late,
        place.done_by or _NEVER if late else _NEVER,
        inf if place.usd is None else place.usd,
        inf if place.usd_per_hour is None else place.usd_per_hour,
        place.cluster,
    )
