"""The bill: the cost of every instance, the jobs it worked for, and the cost of the same useful work on-demand.

Every second from launch to end counts, but at least the minimum of the cloud's `BillingRules`. A spot instance costs
the price of each moment, or nothing if the cloud interrupts it within its free time. An on-demand instance costs its
list price. A job pays for the seconds from assignment to release. The fleet bears the rest of an instance's life: boot,
idle time, the scheduler. Where agents are pods, their nodes are billed (`nodes`). If jobs share an instance, each pays
the share that was fixed at its assignment (`sharing`), and the fleet bears the time that no share covers. So the parts
always add up to the cost of the instance.

`on_demand_cost` is the cost of the same fleet on-demand without interruptions: the useful seconds of the jobs and the
seconds of boot and idling at list price. It leaves out seconds lost to interruptions.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction
from functools import cached_property

from everspot_core.capacity.catalogue import Catalogue
from everspot_core.costs.attempts import Attempt, Interruption, Span, attempts, ended_at, interruptions, lost_spans
from everspot_core.costs.billing import BillingRules
from everspot_core.costs.job_budget import BudgetUse, spent
from everspot_core.costs.ledger import UNKNOWN, EndRecord, LaunchRecord, PricePoint
from everspot_core.costs.nodes import PodSpan, is_billed, pod_spans, pods_by_node, tenures_by_machine
from everspot_core.costs.occupancy import Tenure, in_order, parts
from everspot_core.costs.prices import PriceBook, PriceSegment, exact, notes, seconds_between, total
from everspot_core.jobs.records import Event, JobRecord, Market

__all__ = [
    "Bill",
    "BudgetUse",
    "InstanceBill",
    "JobBill",
    "Usage",
    "bill",
    "savings_percent",
    "spent",
]


@dataclass(frozen=True)
class Usage:
    """A part of one instance's life: a job's if `job_id` is set, otherwise boot or idling.

    Attributes:
        paid: its time, cut at changes of price.
        listed: the useful part of that time at list price.
        free: not billed, because the cloud took the instance so soon.
        share: the job's share of the instance, where jobs share it.
    """

    launch: LaunchRecord
    job_id: str | None
    paid: tuple[PriceSegment, ...] = field(repr=False)
    listed: tuple[PriceSegment, ...] = field(repr=False)
    free: bool
    share: Fraction = Fraction(1)

    @property
    def seconds(self) -> Fraction:
        """Its length."""
        return total(s.seconds for s in self.paid)

    @property
    def instance_seconds(self) -> Fraction:
        """Its seconds times its share of the instance."""
        return self.seconds * self.share

    @property
    def useful_seconds(self) -> Fraction:
        """Its length in seconds, without the time lost to interruptions."""
        return total(s.seconds for s in self.listed)

    @property
    def cost(self) -> Fraction:
        """Dollars, exact."""
        return Fraction(0) if self.free else total(s.cost for s in self.paid) * self.share

    @property
    def waived(self) -> Fraction:
        """Dollars that are not billed because the cloud took the instance so soon, exact."""
        return total(s.cost for s in self.paid) * self.share if self.free else Fraction(0)

    @property
    def on_demand_cost(self) -> Fraction:
        """Dollars for the useful seconds at list price, exact."""
        return total(s.cost for s in self.listed) * self.share


@dataclass(frozen=True)
class InstanceBill:
    """The bill of one instance.

    Attributes:
        end: the end of the instance, or the moment of the bill while it is `running`.
        unknown: nobody knows how long it ran, and it is billed for the minimum of the cloud.
        pods: of a node: the agents on it, in order.
    """

    launch: LaunchRecord
    end: datetime
    running: bool
    interrupted: bool
    free: bool
    usages: tuple[Usage, ...]
    unknown: bool = False
    pods: tuple[PodSpan, ...] = ()

    @property
    def cost(self) -> Fraction:
        """Dollars, exact."""
        return total(u.cost for u in self.usages)


@dataclass(frozen=True)
class JobBill:
    """One job over all its attempts."""

    job_id: str
    attempts: tuple[Attempt, ...]
    interruptions: tuple[Interruption, ...]
    lost_seconds: Fraction
    usages: tuple[Usage, ...] = field(repr=False)

    @property
    def cost(self) -> Fraction:
        """Dollars for the seconds that it held instances."""
        return total(u.cost for u in self.usages)

    @property
    def on_demand_cost(self) -> Fraction:
        """Dollars for its useful seconds at list price."""
        return total(u.on_demand_cost for u in self.usages)


@dataclass(frozen=True)
class Bill:
    """The bill of everything up to `as_of`. `notes`: assumptions about prices."""

    as_of: datetime
    instances: tuple[InstanceBill, ...]
    jobs: tuple[JobBill, ...]
    notes: tuple[str, ...]
    left_out: tuple[str, ...]

    @cached_property
    def unknown_lengths(self) -> tuple[str, ...]:
        """The instances whose end nobody reported."""
        return tuple(i.launch.instance_id for i in self.instances if i.unknown)

    @property
    def usages(self) -> tuple[Usage, ...]:
        """Every part of every instance's life."""
        return tuple(u for instance in self.instances for u in instance.usages)

    @property
    def idle(self) -> tuple[Usage, ...]:
        """The parts of instances that no job held: boot, idling, the scheduler's instance."""
        return tuple(u for u in self.usages if u.job_id is None)

    @property
    def cost(self) -> Fraction:
        """Dollars in total: jobs, boot and idling."""
        return total(i.cost for i in self.instances)

    @property
    def on_demand_cost(self) -> Fraction:
        """See the module's definition."""
        return total(u.on_demand_cost for u in self.usages)


def savings_percent(cost: Fraction, on_demand_cost: Fraction) -> float | None:
    """Return how much less than on-demand, in percent; negative if more; None if there is nothing to compare with."""
    return float(100 * (1 - cost / on_demand_cost)) if on_demand_cost else None


def bill(
    launches: Iterable[LaunchRecord],
    ends: Iterable[EndRecord],
    points: Iterable[PricePoint],
    events: Mapping[str, Sequence[Event]],
    catalogue: Catalogue,
    as_of: datetime,
    reported: Mapping[tuple[str, int], int] | None = None,
    *,
    rules: BillingRules,
    records: Mapping[str, JobRecord] | None = None,
) -> Bill:
    """Compute the bill at the moment `as_of` from the ledger and the events by job.

    Args:
        launches: All launches, those of schedulers included. Launches after `as_of` are ignored.
        ends: An end after `as_of` counts as still running.
        points: Prices as the cloud stated them.
        events: All events by job id.
        catalogue: For list prices.
        as_of: Market time.
        reported: Last step seen by (job, epoch), where metrics know more than events.
        rules: The cloud's.
        records: The jobs' records as of that moment, by job id. A record may know an end that no event names.
    """
    book, ended = PriceBook(points, catalogue), {e.instance_id: e for e in ends}
    reported_by_job: dict[str, dict[int, int]] = defaultdict(dict)
    for (job, epoch), step in (reported or {}).items():
        reported_by_job[job][epoch] = step
    known_records = records or {}
    histories = {
        job: attempts(own, reported_by_job.get(job, {}), record=known_records.get(job))
        for job, own in sorted(events.items())
    }
    lost = {
        job: lost_spans(history, min(as_of, ended_at(events[job], known_records.get(job)) or as_of))
        for job, history in histories.items()
    }
    recorded = {launch.instance_id: launch for launch in launches}
    tenures, pods = _list_tenures(histories, recorded, ended, as_of), pods_by_node(recorded.values())
    instances = tuple(
        _instance(
            launch,
            ended.get(launch.instance_id),
            tenures.get(launch.instance_id, []),
            pod_spans(pods.get(launch.instance_id, ()), recorded, ended, as_of),
            lost,
            book,
            rules,
            as_of,
        )
        for launch in sorted(recorded.values(), key=lambda launch: (launch.launched_at, launch.instance_id))
        if launch.launched_at < as_of and is_billed(launch, recorded)
    )
    of_job: dict[str, list[Usage]] = defaultdict(list)
    for instance in instances:
        for usage in instance.usages:
            of_job[usage.job_id or ""].append(usage)
    jobs = tuple(
        JobBill(
            job_id=job,
            attempts=tuple(history),
            interruptions=tuple(interruptions(history)),
            lost_seconds=total(seconds_between(*span) for span in lost[job]),
            usages=tuple(of_job[job]),
        )
        for job, history in histories.items()
    )
    unknown = sorted(set(tenures) - set(recorded))
    missing = [f"no launch is recorded of {', '.join(unknown)}: what jobs used of it is not billed"] if unknown else []
    return Bill(
        as_of=as_of,
        instances=instances,
        jobs=jobs,
        notes=(*missing, *_unknown(instances, rules), *_unrecorded_nodes(instances), *_notes(instances)),
        left_out=rules.left_out,
    )


def _unknown(instances: Sequence[InstanceBill], rules: BillingRules) -> list[str]:
    names = [
        f"{i.launch.instance_id} ({i.launch.instance_type} in {i.launch.zone}, {i.launch.market.value})"
        for i in instances
        if i.unknown
    ]
    least = int(rules.minimum.total_seconds())
    return [
        f"{name}: it was launched, and neither the cloud nor its agent ever told when it ended; how long it cost "
        f"money is not known, and {least} s are billed at the least"
        for name in names
    ]


def _unrecorded_nodes(instances: Sequence[InstanceBill]) -> list[str]:
    """Return a note on pods that have a whole machine which the ledger does not list."""
    names = [i.launch.instance_id for i in instances if i.launch.node and i.launch.node_share == 1]
    if not names:
        return []
    return [f"no node is recorded of {', '.join(names)}: only the time of these pods is billed, not boot and drain"]


def _notes(instances: Sequence[InstanceBill]) -> tuple[str, ...]:
    priced: list[tuple[str, Sequence[PriceSegment]]] = []
    for instance in instances:
        pool = f"{instance.launch.instance_type} in {instance.launch.zone}"
        for usage in instance.usages:
            priced.append((f"{pool}, {instance.launch.market.value}", usage.paid))
            priced.append((f"{pool}, on-demand", usage.listed))
    return tuple(notes(priced))


def _list_tenures(
    histories: Mapping[str, Sequence[Attempt]],
    launches: Mapping[str, LaunchRecord],
    ends: Mapping[str, EndRecord],
    as_of: datetime,
) -> dict[str, list[Tenure]]:
    """Return the tenures of each machine that is billed, in order."""
    claimed: dict[str, list[Tenure]] = defaultdict(list)
    for job, history in histories.items():
        for attempt in history:
            if attempt.instance_id is not None:
                end = min(attempt.end or as_of, as_of)
                claimed[attempt.instance_id].append(Tenure(job, attempt.start, end, attempt.share, attempt.gpus))
    machines = tenures_by_machine(claimed, launches, ends)
    return {machine: in_order(claims) for machine, claims in machines.items()}


def _instance(
    launch: LaunchRecord,
    ended: EndRecord | None,
    tenures: Sequence[Tenure],
    pods: tuple[PodSpan, ...],
    lost: Mapping[str, Sequence[Span]],
    book: PriceBook,
    rules: BillingRules,
    as_of: datetime,
) -> InstanceBill:
    running = ended is None or ended.ended_at > as_of
    end = as_of if ended is None or running else max(ended.ended_at, launch.launched_at)
    interrupted = not running and ended is not None and ended.interrupted
    free = interrupted and rules.is_free(launch, end - launch.launched_at)
    usages = []
    billed_share = exact(launch.node_share)
    for piece in parts(launch.launched_at, end, rules.minimum_life(launch), tenures):
        job, share = piece.holder, piece.share
        useful = _without(piece.start, piece.end, lost.get(job, ()) if job is not None else ())
        pool = (launch.instance_type, launch.zone)
        paid = book.segments(*pool, launch.market, piece.start, piece.end)
        listed = [s for span in useful for s in book.segments(*pool, Market.ON_DEMAND, *span)]
        usages.append(Usage(launch, job, tuple(paid), tuple(listed), free, share * billed_share))
    unknown = not running and ended is not None and ended.source == UNKNOWN
    return InstanceBill(launch, end, running, interrupted, free, tuple(usages), unknown, pods)


def _without(start: datetime, end: datetime, spans: Sequence[Span]) -> list[Span]:
    remaining, cursor = [], start
    for cut_from, cut_to in spans:
        if cut_to <= cursor or cut_from >= end:
            continue
        if cursor < cut_from:
            remaining.append((cursor, cut_from))
        cursor = max(cursor, cut_to)
    if cursor < end:
        remaining.append((cursor, end))
    return remaining
