"""The scheduler enforces the caps of teams and of the environment, and its sums equal the bill's."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pytest
from everspot_clouds.aws.rules import BILLING
from everspot_core.costs.bill import bill
from everspot_core.costs.team_budgets import ENVIRONMENT, Allowance, Budgets, Caps, Period, Unit
from everspot_core.governance.usage import usage_rows
from everspot_core.jobs.records import Event, EventKind, JobState, Market, Reason, Request
from everspot_scheduler.budget_spending import READ_EVERY, BudgetSpending
from scheduler_helpers import Cluster

TEAM = {"tags": {"Team": "vision"}}
RATE = 0.085  # dollars an hour of c6i.large on-demand in us-east-1


def cap(cluster: Cluster, team: str = "vision", **allowance: float) -> None:
    """Write a cap as `everspot cost budget set` does, and wait until the scheduler reads it at its next tick."""
    caps = Caps(day=Allowance(**allowance))
    cluster.store.change_budgets(lambda b: b.changed(team, caps, cluster.clock.now(), "ann"))
    cluster.clock.advance(READ_EVERY)


def billed(cluster: Cluster):
    store, scheduler = cluster.store, cluster.schedulers[0]
    archived = store.archive.scan()
    events = store.events_by_job(list(store.jobs.scan())) | {job: d.events for job, d in archived.items()}
    ledgers = [[d.value for d in table.scan().values()] for table in (store.launches, store.ends)]
    return bill(
        *ledgers,
        points=store.prices(),
        events=events,
        catalogue=scheduler.services.ledger.catalogue,
        as_of=cluster.clock.now(),
        rules=BILLING,
    )


def append_finish_events(cluster: Cluster) -> None:
    """Append the events that an agent writes for a finished job."""
    for job, document in cluster.store.records.scan().items():
        record, name = document.value, document.value.last_owner
        if record.state is JobState.SUCCEEDED:
            fields = {"writer": name, "instance_id": name, "data": {"step": 20}}
            event = Event(job_id=job, kind=EventKind.FINISHED, at=record.changed_at, epoch=record.epoch, **fields)
            cluster.store.append_event(event)


def cap_uses(cluster: Cluster, budget_spending: BudgetSpending | None = None) -> dict[tuple[str, Unit], float]:
    """Return the spending so far, as computed by a new scheduler or by the running one."""
    scheduler = cluster.schedulers[0]
    spending = (budget_spending or BudgetSpending(cluster.store)).look(
        scheduler.observe.observer.look(), scheduler.services.ledger
    )
    return {(p.team, p.unit): p.spent for p in spending}


def test_a_job_is_put_off_at_its_teams_cap_and_goes_on_once_it_is_raised(cluster: Cluster) -> None:
    cluster.length = 10_000
    cluster.agent("i-1", Market.ON_DEMAND)
    cap(cluster, dollars=RATE * 100 / 3600)
    cluster.submit("mine", expected_duration="60s", **TEAM)
    cluster.run(60)
    assert cluster.state("mine") == "RUNNING"
    cluster.run(60)
    record = cluster.store.records.get("mine").value
    assert (record.state.value, record.last_reason, record.preemptions, record.errors) == ("PENDING", Reason.CAP, 0, 0)
    step = record.progress.step
    assert 60 < step < 110, "held within a tick and a poll of the cap"
    wait = cluster.store.notes.waiting.read().jobs["mine"]
    assert wait.why == "team-budget"
    assert wait.words.startswith("team vision has spent $") and "until 2026-01-02 00:00 UTC" in wait.words
    cluster.submit("theirs", tags={"Team": "speech"})
    cluster.run(5)
    assert (cluster.state("mine"), cluster.state("theirs")) == ("PENDING", "RUNNING"), (
        "others have budgets of their own"
    )
    cluster.store.cancels.create("theirs", Request(at=cluster.clock.now(), by="ann"))
    cap(cluster, dollars=1.0)
    cluster.run(30)
    record = cluster.store.records.get("mine").value
    assert record.state.value == "RUNNING"
    assert record.progress.step > step, "it goes on where it was"


def test_the_next_period_lets_go_on_what_the_last_one_put_off(cluster: Cluster) -> None:
    cluster.length = 10_000
    cluster.agent("i-1", Market.ON_DEMAND)
    cluster.clock.advance(timedelta(hours=23, minutes=57))
    cap(cluster, dollars=RATE * 60 / 3600)
    cluster.submit("mine", expected_duration="1s", **TEAM)
    cluster.run(90)
    assert cluster.store.records.get("mine").value.last_reason is Reason.CAP
    cluster.run(120)
    assert cluster.state("mine") == "RUNNING", "it is the next day"


def test_the_environments_budget_counts_idle_instances_and_holds_everybody(cluster: Cluster) -> None:
    cluster.agent("i-1", Market.ON_DEMAND)
    cluster.run(100)
    cap(cluster, ENVIRONMENT, dollars=RATE * 90 / 3600)
    cluster.submit("mine")
    cluster.run(5)
    assert cluster.state("mine") == "PENDING"
    assert cluster.store.notes.waiting.read().jobs["mine"].why == "environment-budget"


def test_what_is_spent_is_the_bill_whoever_adds_it_up(cluster: Cluster) -> None:
    """One scheduler that has run all along, and one that has just begun; jobs archived, and instances long gone."""
    cluster.declare(limits=cluster.manifest.limits.model_copy(update={"archive_after": timedelta(minutes=5)}))
    cluster.schedulers = [cluster.scheduler()]
    cap(cluster, "vision", dollars=1000, gpu_hours=1000)
    cap(cluster, ENVIRONMENT, dollars=1000)
    cluster.length = 20
    for n in range(3):
        cluster.agent(f"i-{n}", Market.ON_DEMAND)
    for n in range(6):
        cluster.submit(f"j-{n}", **(TEAM if n % 2 else {}))
    cluster.run(60)
    append_finish_events(cluster)
    cluster.end("i-0", interrupted=False)
    cluster.run(5)
    cluster.clock.advance(timedelta(hours=3))
    cluster.run(3)
    cluster.clock.advance(timedelta(hours=3))
    cluster.submit("late", **TEAM)
    cluster.run(30)
    append_finish_events(cluster)
    assert cluster.store.archive.scan(), "some have left the tables"
    bill = billed(cluster)
    team_usd = sum(float(j.cost) for j in bill.jobs if j.job_id in ("j-1", "j-3", "j-5", "late"))
    running = cluster.schedulers[0].services.budget_spending
    for budget_spending in (running, BudgetSpending(cluster.store)):
        spent = cap_uses(cluster, budget_spending)
        assert spent[ENVIRONMENT, Unit.DOLLARS] == pytest.approx(float(bill.cost))
        assert spent["vision", Unit.DOLLARS] == pytest.approx(team_usd)
    assert "i-0" in running._done, "what is over is not reckoned anew"


def test_yesterday_is_whole_when_a_month_has_begun(cluster: Cluster) -> None:
    """At the end of a month one instance ends and another one goes on, whoever adds it up, before or after midnight."""
    ledger, last_day = cluster.schedulers[0].services.ledger, date(2026, 1, 31)
    cluster.clock.advance(datetime(2026, 1, 31, 18, tzinfo=UTC) - cluster.clock.now())
    for n in range(2):
        cluster.agent(f"i-{n}", Market.ON_DEMAND)
    cluster.length = 20
    cluster.submit("short", **TEAM)
    cluster.run(40)
    append_finish_events(cluster)
    cluster.end("i-0", interrupted=False)
    cluster.run(5)
    running, observer = BudgetSpending(cluster.store), cluster.schedulers[0].observe.observer
    running.days(observer.look(), ledger)
    for hours in (3.5, 3):
        cluster.clock.advance(timedelta(hours=hours))
        cluster.run(2)
        running.days(observer.look(), ledger)
    rows = usage_rows(billed(cluster))
    expected = float(sum(row.cost for row in rows if row.hour.date() == last_day))
    for budget_spending in (running, BudgetSpending(cluster.store)):
        days = budget_spending.days(observer.look(), ledger)
        assert sum(a.dollars for (day, _), a in days.items() if day == last_day) == pytest.approx(expected)
        assert days[last_day, "vision"].dollars > 0
        assert min(day for day, _ in days) == last_day


def test_without_a_cap_nothing_is_read_but_that_there_is_none(cluster: Cluster, monkeypatch) -> None:
    cluster.agent("i-1")
    cluster.submit("j")
    cluster.run(3)
    monkeypatch.setattr(cluster.store, "events", None)
    cluster.run(3)
    assert cluster.state("j") == "SUCCEEDED"


def test_caps_that_cannot_be_read_leave_those_that_were(cluster: Cluster, caplog) -> None:
    cluster.length = 10_000
    cluster.agent("i-1", Market.ON_DEMAND)
    cap(cluster, dollars=0.0)
    cluster.submit("mine", **TEAM)
    cluster.run(2)
    cluster.store.control.put("budgets.json", b"no document")
    cluster.run(30)
    assert cluster.state("mine") == "PENDING"
    assert "budgets.json" in caplog.text


OUTAGE = timedelta(hours=60)
RATE_30S = RATE * 30 / 3600


def lose_instance_in_outage(cluster: Cluster, *, described: bool) -> None:
    """Stop the scheduler, let the cloud take the instance half a minute later, and start the next scheduler after
    OUTAGE. `described`: whether the cloud still describes the ended instance then."""
    cluster.schedulers = []
    cluster.run(30)
    cluster.end("i-1", interrupted=False)
    if not described:
        del cluster.cloud.described["i-1"]
    cluster.clock.advance(OUTAGE)
    cluster.agent("i-2", Market.ON_DEMAND)
    cluster.schedulers = [cluster.scheduler("s2")]


@pytest.mark.parametrize("described", [True, False])
def test_an_outage_of_the_scheduler_spends_no_budget_of_a_job(cluster: Cluster, described: bool) -> None:
    cluster.length = 10_000
    cluster.agent("i-1", Market.ON_DEMAND)
    cluster.submit("mine", budget={"dollars": RATE}, expected_duration="30m")
    cluster.run(30)
    lose_instance_in_outage(cluster, described=described)
    cluster.run(120)
    record = cluster.store.records.get("mine").value
    assert (record.state, record.owner) == (JobState.RUNNING, "i-2"), record.detail


@pytest.mark.parametrize("described", [True, False])
def test_an_outage_of_the_scheduler_spends_no_cap_and_no_share_of_a_team(cluster: Cluster, described: bool) -> None:
    cluster.length = 10_000
    cluster.agent("i-1", Market.ON_DEMAND)
    cap(cluster, dollars=RATE)
    cluster.submit("mine", expected_duration="30m", **TEAM)
    cluster.run(30)
    lose_instance_in_outage(cluster, described=described)
    cluster.run(1)
    assert cluster.schedulers[0].observe._usage._dollars["vision"] < 4 * RATE_30S
    cluster.run(120)
    assert cluster.state("mine") == "RUNNING"
    running = cap_uses(cluster, cluster.schedulers[0].services.budget_spending)
    assert running["vision", Unit.DOLLARS] == pytest.approx(cap_uses(cluster)["vision", Unit.DOLLARS])
    assert running["vision", Unit.DOLLARS] < 10 * RATE_30S


def test_time_without_descriptions_does_not_count_once_the_end_is_known(cluster: Cluster) -> None:
    cluster.agent("i-1", Market.ON_DEMAND)
    cluster.agent("i-2", Market.ON_DEMAND)
    cap(cluster, ENVIRONMENT, dollars=100.0)
    cluster.run(30)
    cluster.cloud.error = RuntimeError("UnauthorizedOperation")
    for _ in range(2):  # the reports of both are the only signs of life
        cluster.clock.advance(timedelta(hours=6))
        cluster.run(40)
    running = cluster.schedulers[0].services.budget_spending
    assert cap_uses(cluster, running)[ENVIRONMENT, Unit.DOLLARS] == pytest.approx(24 * RATE, rel=0.01)
    ended = cluster.clock.now() - timedelta(hours=11)
    cluster.end("i-1", interrupted=False)
    cluster.cloud.described["i-1"] = replace(cluster.cloud.described["i-1"], ended_at=ended)
    cluster.cloud.error = None
    cluster.clock.advance(timedelta(minutes=5))
    cluster.run(60)
    assert cap_uses(cluster, running)[ENVIRONMENT, Unit.DOLLARS] == pytest.approx(13 * RATE, rel=0.02)


def test_a_waiting_job_is_not_charged_until_its_agents_late_event(cluster: Cluster) -> None:
    cluster.length = 10_000
    cluster.clock.advance(timedelta(hours=5, minutes=59))
    cluster.agent("i-1", Market.ON_DEMAND)
    cluster.submit("night", window="22:00-06:00", budget={"dollars": RATE})
    cluster.run(90)
    record = cluster.store.records.get("night").value
    assert (record.state, record.last_reason) == (JobState.PENDING, Reason.WINDOW), "its agent wrote no event"
    for _ in range(10):
        cluster.clock.advance(timedelta(hours=1))
        cluster.run(1)
    assert cluster.store.records.get("night").value.state is JobState.PENDING


def test_two_that_change_budgets_at_once_both_have_their_way(cluster: Cluster) -> None:
    caps, done = Caps(month=Allowance(dollars=5)), []

    def change(budgets: Budgets) -> Budgets:
        if not done:
            done.append(True)
            cluster.store.change_budgets(lambda b: b.changed("speech", caps, cluster.clock.now(), "bob"))
        return budgets.changed("vision", caps, cluster.clock.now(), "ann")

    assert set(cluster.store.change_budgets(change).teams) == {"speech", "vision"}
    assert [p.value for _, p, _, _ in cluster.store.budgets().limits()] == [Period.MONTH.value] * 2
