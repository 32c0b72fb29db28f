"""The scheduler against the local clouds: real calls of each, and a market that takes instances."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from everspot_clouds.registry import provider
from everspot_core.jobs.records import Market, Order, Reason
from everspot_scheduler.close_ledger import settle_ledger
from market_helpers import AwsHere, GoogleHere, Here


@pytest.fixture(params=[AwsHere, GoogleHere], ids=["aws", "gcp"])
def here(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Here]:
    here = request.param(tmp_path / "local")
    with here.local:
        for name, value in here.environment.items():
            monkeypatch.setenv(name, value)
        here.begin()
        yield here
        here.end()


@pytest.mark.parametrize("here", [AwsHere], ids=["aws"], indirect=True)
def test_an_interruption_is_told_by_the_queue_ahead_of_time_and_the_job_moves(here: Here) -> None:
    here.cluster.length = 100_000
    first = here.agent(Market.SPOT)
    foreign = here.launch(Market.SPOT, cluster="somebody-else")
    here.cluster.submit("j")
    here.until(lambda: here.owner("j") == first)
    second = here.agent(Market.SPOT)

    here.local.do("interrupt", instance=foreign)
    here.local.do("interrupt", instance=first)
    taken_at = here.local.machines.find(first).reclaim_at
    assignments = here.cluster.store.assignments
    here.until(lambda: (document := assignments.get(first)) is not None and document.value.cordoned)
    assignment = assignments.get(first).value
    assert (assignment.order, assignment.reason, assignment.deadline) == (
        Order.STOP,
        Reason.NOTICE,
        taken_at,
    )  # only the queue knows it; Google's tells no notice
    here.until(lambda: here.owner("j") == second)
    assert here.record("j").last_reason is Reason.NOTICE
    assert assignments.get(foreign) is None


def test_the_ledger_agrees_with_the_markets_own_log(here: Here) -> None:
    first, second, base = (here.agent(market) for market in (Market.SPOT, Market.SPOT, Market.ON_DEMAND))
    foreign = here.launch(Market.SPOT, cluster="somebody-else")
    here.until(lambda: len(here.cluster.store.launches.scan()) == 3)
    here.local.do("interrupt", instance=foreign, notice=False)
    here.local.do("interrupt", instance=first, notice=False)
    here.until(lambda: here.cluster.store.ends.get(first) is not None)
    here.local.do("price", pool=f"{here.kind}/{here.zone}", factor=1.25)
    here.terminate([second, base])
    for iid in (first, second, base):
        here.cluster.agents[iid].alive = False
    here.until(lambda: len(here.cluster.store.ends.scan()) == 3)
    reader = provider(here.cluster.manifest.cloud).reading(here.cluster.manifest, here.cluster.clock)
    settle_ledger(here.cluster.store, here.cluster.manifest, reader)
    reader.close()

    launches = {n: d.value for n, d in here.cluster.store.launches.scan().items()}
    ends = {n: d.value for n, d in here.cluster.store.ends.scan().items()}
    own_ids = {first, second, base}
    assert launches.keys() == ends.keys() == own_ids
    began = {e["id"]: e["at"] for e in here.logged("launch") if e["id"] in own_ids}
    ended = {e["id"]: (e["at"], e["interrupted"]) for e in here.logged("end") if e["id"] in own_ids}
    assert {n: whole_seconds(launch.launched_at) for n, launch in launches.items()} == moments(began)
    assert {n: (whole_seconds(e.ended_at), e.interrupted) for n, e in ends.items()} == {
        n: (moment(at), interrupted) for n, (at, interrupted) in ended.items()
    }
    assert {n for n, e in ends.items() if e.interrupted} == {first}
    stated = {(p.at, p.usd_per_hour) for p in here.cluster.store.prices() if p.market is Market.SPOT}
    last = max(e.ended_at for e in ends.values())
    changes = {
        (moment(e["at"]), e["usd"]) for e in here.logged("price") if (e["type"], e["zone"]) == (here.kind, here.zone)
    }
    assert {c for c in changes if c[0] <= last} <= stated <= changes


def test_an_instance_that_is_taken_without_notice_loses_its_job_by_the_clouds_word(here: Here) -> None:
    here.cluster.length = 100_000
    first = here.agent(Market.SPOT)
    here.cluster.submit("j")
    here.until(lambda: here.owner("j") == first)
    second = here.agent(Market.ON_DEMAND)
    here.local.do("interrupt", instance=first, notice=False)
    here.cluster.agents[first].alive = False
    here.until(lambda: here.owner("j") == second, limit=timedelta(seconds=10))  # less than the lease of 15 s
    record = here.record("j")
    assert (record.preemptions, record.last_reason) == (1, Reason.LOST)


def test_messages_that_come_twice_and_in_another_order_count_once(here: Here) -> None:
    """SQS and Pub/Sub promise at least once and no order."""
    here.local.do("disturbances", duplicate=1, reorder=1)
    here.cluster.length = 100_000
    spot_instances = [here.agent(Market.SPOT) for _ in range(3)]
    for number in range(3):
        here.cluster.submit(f"j{number}")
    jobs = [f"j{number}" for number in range(3)]
    here.until(lambda: {here.owner(job) for job in jobs} == set(spot_instances))
    replacements = [here.agent(Market.ON_DEMAND) for _ in range(3)]
    for iid in spot_instances:
        here.local.do("interrupt", instance=iid, notice=False)
        here.cluster.agents[iid].alive = False
    here.until(lambda: {here.owner(job) for job in jobs} == set(replacements))
    counts = here.local.market.disturbances.counts
    here.until(lambda: len(here.cluster.store.ends.scan()) == 3 and counts["duplicate"] > 0 and counts["reorder"] > 0)
    here.local.do("disturbances", duplicate=0, reorder=0)
    here.until(lambda: here.queued_messages() == 0, limit=timedelta(seconds=90))
    here.scheduler.tick()  # with the last of them
    assert {here.owner(job) for job in jobs} == set(replacements)
    assert [(here.record(job).preemptions, here.record(job).last_reason) for job in jobs] == [(1, Reason.LOST)] * 3
    ends = here.cluster.store.ends.scan()
    assert {iid: document.value.interrupted for iid, document in ends.items()} == dict.fromkeys(spot_instances, True)


def test_the_description_alone_is_enough_when_the_queue_is_silent(here: Here) -> None:
    deaf = here.deafen()
    here.cluster.length = 100_000
    first = here.agent(Market.SPOT)
    here.cluster.submit("j")
    here.until(lambda: here.owner("j") == first)
    here.terminate([first])
    here.cluster.agents[first].alive = False
    second = here.agent(Market.SPOT)
    here.until(lambda: here.owner("j") == second, limit=timedelta(seconds=14))
    assert here.cluster.store.assignments.get(second).value.order is Order.RUN
    deaf.close()


def whole_seconds(at: datetime) -> datetime:
    """The market's log has whole seconds."""
    return at.replace(microsecond=0)


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def moments(texts: dict[str, str]) -> dict[str, datetime]:
    return {name: moment(text) for name, text in texts.items()}
