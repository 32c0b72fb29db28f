"""Nodes beneath pods are on the ledger, and cost money in the place of the pods."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from everspot_clouds.base import CloudInstance, Phase
from everspot_clouds.kubernetes.rules import BILLING
from everspot_core.cluster.manifest import DeclaredCapacity
from everspot_core.costs.bill import bill
from everspot_core.costs.team_budgets import Allowance, Budgets, Caps, Unit
from everspot_core.jobs.records import Market, Role
from everspot_scheduler.budget_spending import READ_EVERY, BudgetSpending
from everspot_scheduler.ledger import GRACE, SETTLED
from everspot_scheduler.loop import Scheduler
from everspot_scheduler.watch.prometheus import PrometheusWatcher
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from scheduler_helpers import Cluster

TEAM = {"tags": {"Team": "vision"}}


@pytest.fixture
def pods(cluster: Cluster) -> Cluster:
    """A cluster on Kubernetes whose node i-9 was launched a minute before its pod."""
    cluster.declare(cloud="kubernetes")
    cluster.schedulers = [cluster.scheduler("s1")]
    begun = cluster.clock.now().replace(microsecond=0)
    cluster.clock.advance(timedelta(minutes=1))
    cluster.agent("pod", Market.ON_DEMAND)
    cluster.cloud.described["pod"] = replace(cluster.cloud.described["pod"], node="i-9", launch="token")
    cluster.cloud.described["i-9"] = machine(cluster, "i-9", begun)
    return cluster


def machine(cluster: Cluster, name: str, launched_at: datetime) -> CloudInstance:
    return replace(
        cluster.cloud.described["pod"], instance_id=name, role=Role.NODE, launched_at=launched_at, node="", launch=""
    )


def billed(cluster: Cluster):
    store = cluster.store
    events = store.events_by_job(list(store.jobs.scan()))
    ledgers = [[d.value for d in table.scan().values()] for table in (store.launches, store.ends)]
    catalogue = cluster.schedulers[0].services.ledger.catalogue
    return bill(
        *ledgers, points=store.prices(), events=events, catalogue=catalogue, as_of=cluster.clock.now(), rules=BILLING
    )


def test_the_ledger_has_the_node_and_says_of_the_pod_where_it_is(pods: Cluster) -> None:
    pods.run(5)
    launches = {n: d.value for n, d in pods.store.launches.scan().items()}
    assert {n: (launch.role, launch.node) for n, launch in launches.items()} == {
        "pod": (Role.AGENT, "i-9"), "i-9": (Role.NODE, ""),
    }  # fmt: skip
    assert launches["i-9"].launched_at == launches["pod"].launched_at - timedelta(minutes=1)
    (instance,) = billed(pods).instances
    assert instance.launch.instance_id == "i-9"


def test_budgets_count_the_node_and_equal_the_bill_before_and_after_its_end(pods: Cluster) -> None:
    caps = Caps(day=Allowance(dollars=1000))
    pods.store.change_budgets(lambda b: Budgets(environment=caps).changed("vision", caps, pods.clock.now(), "ann"))
    pods.clock.advance(READ_EVERY)
    pods.length = 10_000
    pods.submit("mine", **TEAM)
    pods.run(30)

    def spent(budget_spending: BudgetSpending) -> dict[str, float]:
        scheduler = pods.schedulers[0]
        uses = budget_spending.look(scheduler.observe.observer.look(), scheduler.services.ledger)
        return {use.team: use.spent for use in uses if use.unit is Unit.DOLLARS}

    ongoing = BudgetSpending(pods.store)
    for step in (timedelta(0), timedelta(hours=1), 3 * SETTLED):
        pods.clock.advance(step)
        pods.run(1)
        bill_now = billed(pods)
        expected = {"": float(bill_now.cost), "vision": float(bill_now.jobs[0].cost)}
        assert spent(ongoing) == pytest.approx(expected)
        assert spent(BudgetSpending(pods.store)) == pytest.approx(expected)
    pods.end("pod", interrupted=True)
    pods.clock.advance(timedelta(seconds=30))
    node = pods.cloud.described["i-9"]
    pods.cloud.described["i-9"] = replace(node, phase=Phase.ENDED, ended_at=pods.clock.now(), interrupted=False)
    pods.run(20)
    for step in (timedelta(0), 3 * SETTLED):
        pods.clock.advance(step)
        expected = pytest.approx(float(billed(pods).cost))
        assert spent(ongoing)[""] == expected
        assert spent(BudgetSpending(pods.store))[""] == expected
    assert {n: d.value.interrupted for n, d in pods.store.ends.scan().items()} == {"pod": True, "i-9": False}


def test_a_node_that_the_cloud_forgot_ended_at_the_last_report_of_its_agents(pods: Cluster) -> None:
    pods.run(5)
    beat = pods.store.instances.get("pod")
    assert beat is not None
    del pods.cloud.described["i-9"]
    pods.end("pod", interrupted=True)
    pods.run(int(GRACE.total_seconds()) + 10)
    end = pods.store.ends.get("i-9")
    assert end is not None and end.value.source == "observed"
    last = pods.store.instances.get("pod")
    assert last is not None and end.value.ended_at == last.value.updated_at


def test_what_lives_costs_the_price_of_its_node_once_and_no_node_is_a_stranger(pods: Cluster) -> None:
    watcher = PrometheusWatcher()
    pods.schedulers = [Scheduler(pods.store, pods.manifest, pods.cloud, "s2", watchers=[watcher])]
    pods.store.write_declared_capacity(DeclaredCapacity(capacity=[pods.manifest.cluster]))
    pods.cloud.described["i-8"] = machine(pods, "i-8", pods.clock.now() - timedelta(hours=2))
    pods.run(5)
    families = text_string_to_metric_families(generate_latest(watcher.registry).decode())
    samples = {(s.name, tuple(sorted(s.labels.items()))): s.value for f in families for s in f.samples}
    usd = samples["everspot_usd_per_hour", (("market", "on-demand"), ("role", "agent"))]
    assert usd == pytest.approx(2 * 0.085)
    assert sum(n for (name, _), n in samples.items() if name == "everspot_instances") == 1
    assert not [a for a in pods.schedulers[0].services.anomalies.unusual.open if a.kind == "orphaned_capacity"]
