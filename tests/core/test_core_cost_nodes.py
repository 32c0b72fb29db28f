"""The bill of a cluster whose instances are pods: it counts nodes, and agrees with a second, simple computation."""

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import timedelta
from fractions import Fraction

import pytest
from cost_helpers import LISTED, T0, at, end, event, launch, price
from everspot_clouds.kubernetes.rules import BILLING
from everspot_core.capacity.catalogue import builtin
from everspot_core.costs.bill import bill
from everspot_core.costs.job_budget import spent
from everspot_core.costs.ledger import EndRecord, LaunchRecord
from everspot_core.costs.nodes import is_billed, tenures_by_machine
from everspot_core.costs.occupancy import Tenure, in_order
from everspot_core.costs.prices import PriceBook
from everspot_core.costs.team_budgets import ENVIRONMENT, spending
from everspot_core.estimate.usage_history import Recent
from everspot_core.governance.usage import UsageKind, usage_rows
from everspot_core.jobs.records import Event, EventKind, Market, Role
from hypothesis import given, settings
from hypothesis import strategies as st

PER_SECOND = Fraction("0.036") / 3600


def node(name: str = "i-1", seconds: float = 0, market: Market = Market.SPOT) -> LaunchRecord:
    return launch(name, market, seconds, Role.NODE)


def pod(name: str = "p-1", on: str = "i-1", seconds: float = 0, share: float = 1.0) -> LaunchRecord:
    return launch(name, Market.SPOT, seconds).model_copy(update={"node": on, "node_share": share})


def compute(launches, ends=(), events=None, as_of=100_000.0):
    return bill(launches, ends, [price(0.036)], events or {}, builtin(), at(as_of), rules=BILLING)


def hold(start: float, until: float, on: str = "p-1", job: str = "job-1") -> dict[str, list[Event]]:
    return {job: [event(EventKind.ASSIGNED, start, 1, on, job), event(EventKind.LOST, until, 1, on, job)]}


def seconds_by_kind(computed_bill, reported=None) -> dict[UsageKind, Fraction]:
    kinds: dict[UsageKind, Fraction] = defaultdict(Fraction)
    for row in usage_rows(computed_bill, reported):
        kinds[row.kind] += row.seconds
    return kinds


def test_a_node_costs_from_its_launch_until_it_is_gone_and_a_job_its_own_time():
    """The first job of the study: 0.330 h by its pod, 0.463 h on the machine."""
    launches, ends = [node(), pod(seconds=240)], [end(1428, "p-1"), end(1667)]
    computed_bill = compute(launches, ends, events=hold(300, 1400))
    assert computed_bill.cost == 1667 * PER_SECOND
    assert computed_bill.jobs[0].cost == 1100 * PER_SECOND
    assert [i.launch.instance_id for i in computed_bill.instances] == ["i-1"]
    kinds = seconds_by_kind(computed_bill, {"p-1": at(260)})
    idle = kinds[UsageKind.IDLE]
    assert (kinds[UsageKind.BOOT], idle, kinds[UsageKind.DRAIN]) == (260, 40 + 28, 1667 - 1428)
    assert sum(kinds.values()) == 1667
    rows = [row for row in usage_rows(computed_bill) if row.job_id]
    assert {(row.resource, row.epoch) for row in rows} == {("i-1", 1)}


def test_the_time_between_two_agents_of_a_node_is_idle_and_a_node_without_an_agent_costs_too():
    launches = [node(), pod("p-1", seconds=100), pod("p-2", seconds=500), node("i-2")]
    ends = [end(300, "p-1"), end(800, "p-2"), end(1000), end(200, "i-2")]
    events = hold(120, 300) | hold(520, 800, "p-2", "job-2")
    computed_bill = compute(launches, ends, events=events)
    assert computed_bill.cost == 1200 * PER_SECOND
    kinds = seconds_by_kind(computed_bill)
    assert kinds[UsageKind.BOOT] == 120 + 200
    assert kinds[UsageKind.IDLE] == 220
    assert kinds[UsageKind.DRAIN] == 200


def test_a_node_that_karpenter_ends_after_a_notice_is_not_free_and_one_that_ec2_ends_is():
    launches, events = [node(), pod(seconds=100)], hold(150, 600)
    drained = compute(launches, [end(620, "p-1", interrupted=True), end(640)], events=events)
    assert drained.cost == 640 * PER_SECOND
    interrupted_node = compute(launches, [end(600, "p-1", interrupted=True), end(600, interrupted=True)], events=events)
    assert interrupted_node.cost == 0
    late = compute(launches, [end(600, "p-1", interrupted=True), end(3600, interrupted=True)], events=events)
    assert late.cost == 3600 * PER_SECOND


def test_a_pod_on_a_node_of_others_is_billed_by_its_share_of_it_and_never_free():
    launches, ends = [pod(on="i-9", seconds=100, share=0.25)], [end(600, "p-1", interrupted=True)]
    computed_bill = compute(launches, ends, events=hold(200, 600))
    assert computed_bill.cost == 500 * PER_SECOND / 4
    assert computed_bill.jobs[0].cost == 400 * PER_SECOND / 4
    kinds = seconds_by_kind(computed_bill)
    assert (kinds[UsageKind.BOOT], kinds[UsageKind.SHARED], sum(kinds.values())) == (25, 0, 125)
    assert not any("no node" in note for note in computed_bill.notes)
    short = compute(launches, [end(110, "p-1")])
    assert short.cost == 10 * PER_SECOND / 4  # EC2's minimum is the machine's, not the pod's


def test_a_pod_whose_own_node_nobody_described_is_billed_alone_and_named():
    computed_bill = compute([pod(seconds=100)], [end(400, "p-1")])
    assert computed_bill.cost == 300 * PER_SECOND
    assert any("no node is recorded of p-1" in note for note in computed_bill.notes)


def test_a_claim_on_a_pod_ends_with_the_pod():
    launches, ends = [node(), pod(seconds=100)], [end(400, "p-1"), end(1000)]
    assert compute(launches, ends, events=hold(200, 900)).jobs[0].cost == 200 * PER_SECOND


def test_the_budget_of_a_job_counts_its_node():
    launches = {r.instance_id: r for r in (node(), pod(seconds=100))}
    arguments = {
        "submitted_at": T0, "now": at(2000), "launches": launches, "prices": PriceBook([price(0.036)], builtin()),
        "catalogue": builtin(), "rules": BILLING,
    }  # fmt: skip
    events = hold(200, 600)["job-1"]
    ends = {"p-1": end(600, "p-1", interrupted=True), "i-1": end(640)}
    assert spent(events, ends=ends, **arguments).dollars == pytest.approx(float(400 * PER_SECOND))
    interrupted_node = {"p-1": end(600, "p-1", interrupted=True), "i-1": end(600, interrupted=True)}
    assert spent(events, ends=interrupted_node, **arguments).dollars == 0


def test_an_estimate_by_recent_use_counts_nodes_and_no_pod_twice():
    records = [node(), pod(seconds=100), pod("p-9", on="i-9", seconds=0)]
    recent = Recent.from_ledger(records, [end(600, "p-1"), end(1000)], [], since=T0, until=at(2000))
    _, stretches = recent.split({}, {})
    assert sorted({s.launch.instance_id for s in stretches}) == ["i-1", "p-9"]
    assert sum(s.hours for s in stretches if s.launch.instance_id == "i-1") == Fraction(1000, 3600)


@dataclass
class World:
    """A ledger in whole seconds. `pods`: name, node, start, end, share; `jobs`: name, pod, start, end."""

    as_of: int
    nodes: list[tuple[str, int, int | None, Market, bool]]
    pods: list[tuple[str, str, int, int | None, float]]
    jobs: list[tuple[str, str, int, int]]
    prices: list[tuple[int, int]]
    launches: list[LaunchRecord] = field(default_factory=list)
    ends: list[EndRecord] = field(default_factory=list)
    events: dict[str, list[Event]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, start, until, market, interrupted_node in self.nodes:
            self.launches.append(node(name, start, market))
            if until is not None:
                self.ends.append(end(until, name, interrupted_node))
        markets = {name: market for name, *_, market, _ in self.nodes}
        for name, on, start, until, share in self.pods:
            record = pod(name, on, start, share).model_copy(update={"market": markets.get(on, Market.SPOT)})
            self.launches.append(record)
            if until is not None:
                self.ends.append(end(until, name, True))
        for name, on, start, until in self.jobs:
            self.events |= hold(start, until, on, name)

    def usd(self, second: int, market: Market) -> Fraction:
        if market is Market.ON_DEMAND:
            return LISTED / 3600
        return next(Fraction(cents, 100) for start, cents in reversed(self.prices) if start <= second) / 3600

    def holder(self, second: int, pods: set[str]) -> str | None:
        return next((job for job, on, start, until in self.jobs if on in pods and start <= second < until), None)

    def sum_up(self) -> tuple[dict[str | None, Fraction], dict[UsageKind, int]]:
        """Dollars by job, and by nobody, and the seconds of nodes by kind: second by second."""
        dollars: dict[str | None, Fraction] = defaultdict(Fraction)
        kinds: dict[UsageKind, int] = defaultdict(int)
        spans = {name: (start, self.as_of if until is None else min(until, self.as_of))
                 for name, _, start, until, _ in self.pods}  # fmt: skip
        for name, launched, last_second, market, interrupted_node in self.nodes:
            if launched >= self.as_of:
                continue
            running = last_second is None or last_second > self.as_of
            last = self.as_of if last_second is None or running else last_second
            own = {p for p, on, start, *_ in self.pods if on == name and start < self.as_of}
            free = interrupted_node and not running and market is Market.SPOT and last - launched < 3600
            drained = None if running or not own else max(spans[p][1] for p in own)
            worked = False
            for second in range(launched, max(last, launched + 60)):
                present = {p for p in own if spans[p][0] <= second < spans[p][1] and second < last}
                job = self.holder(second, present)
                worked = worked or job is not None
                if not free:
                    dollars[job] += self.usd(second, market)
                if job is None:
                    over = drained is not None and second >= drained
                    kinds[UsageKind.DRAIN if over else UsageKind.IDLE if worked else UsageKind.BOOT] += 1
        node_names = {name for name, *_ in self.nodes}
        for name, on, start, _, share in self.pods:
            if on not in node_names:
                for second in range(start, spans[name][1]):
                    dollars[self.holder(second, {name})] += self.usd(second, Market.SPOT) * Fraction(repr(share))
        return {key: amount for key, amount in dollars.items() if amount}, kinds


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Nodes with one agent after another, agents on nodes of others, and jobs on some that may outlive their pods."""
    second = st.integers(0, 300)
    nodes, pods, jobs = [], [], []
    for number in range(draw(st.integers(1, 3))):
        name, others = f"i-{number}", draw(st.integers(0, 3)) == 0
        moment = launched = draw(second)
        for agent in range(draw(st.integers(0, 3))):
            start = moment + draw(st.integers(0, 60))
            moment = start + draw(st.integers(1, 120))
            pod_name, share = f"p-{number}-{agent}", draw(st.sampled_from([0.125, 0.3, 1.0])) if others else 1.0
            pods.append((pod_name, name, start, moment, share))
            if draw(st.booleans()):
                begun = start + draw(st.integers(0, 40))
                jobs.append((f"job-{number}-{agent}", pod_name, begun, begun + draw(st.integers(1, 200))))
        if not others:
            last_second = moment + draw(st.integers(0, 100)) if draw(st.booleans()) else None
            nodes.append((name, launched, last_second, draw(st.sampled_from(list(Market))), draw(st.booleans())))
    prices = sorted({0: 4} | dict(draw(st.lists(st.tuples(second, st.integers(1, 50)), max_size=4))))
    amounts = {0: 4} | {moment: draw(st.integers(1, 50)) for moment in prices}
    return World(draw(st.integers(1, 900)), nodes, pods, jobs, sorted(amounts.items()))


@settings(max_examples=settings.default.max_examples, deadline=None)
@given(worlds())
def test_the_bill_of_nodes_equals_a_sum_second_by_second(world: World):
    points = [price(cents / 100, second) for second, cents in world.prices]
    computed_bill = bill(world.launches, world.ends, points, world.events, builtin(), at(world.as_of), rules=BILLING)
    dollars, kinds = world.sum_up()
    assert computed_bill.cost == sum(dollars.values())
    assert {j.job_id: j.cost for j in computed_bill.jobs if j.cost} == {k: v for k, v in dollars.items() if k}
    rows = usage_rows(computed_bill)
    assert sum((row.cost for row in rows), Fraction(0)) == computed_bill.cost
    nodes = {name for name, *_ in world.nodes}
    for kind in (UsageKind.BOOT, UsageKind.IDLE, UsageKind.DRAIN):
        assert sum(r.seconds for r in rows if r.kind is kind and r.resource in nodes) == kinds[kind], kind


@settings(max_examples=settings.default.max_examples, deadline=None)
@given(worlds())
def test_budgets_spend_what_the_bill_says(world: World):
    now = at(world.as_of)
    points = [price(cents / 100, second) for second, cents in world.prices]
    book = PriceBook(points, builtin())
    launches = {record.instance_id: record for record in world.launches if record.launched_at < now}
    ends = {record.instance_id: record for record in world.ends}
    claims = {on: [Tenure(name, at(start), min(at(until), now))]
              for name, on, start, until in world.jobs if at(start) < now}  # fmt: skip
    tenures = tenures_by_machine(claims, launches, ends)
    by_holder: dict[str, float] = defaultdict(float)
    for name, record in launches.items():
        if is_billed(record, launches):
            amounts = spending(
                record, ends.get(name), in_order(tenures.get(name, ())), gpus=1, book=book, rules=BILLING,
                since=T0 - timedelta(days=1), now=now,
            )  # fmt: skip
            for (_, holder), amount in amounts.items():
                by_holder[holder] += amount.dollars
    dollars, _ = world.sum_up()
    expected = {key or ENVIRONMENT: float(amount) for key, amount in dollars.items()}
    assert {k: v for k, v in by_holder.items() if v} == pytest.approx(expected)
