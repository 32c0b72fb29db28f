"""Launches with lost answers, and instances without an intent: nothing is launched twice or stays unknown."""

from dataclasses import replace
from datetime import timedelta

import pytest
from elastic_helpers import TYPE, ZONE, elastic, words
from everspot_clouds.aws.rules import BILLING
from everspot_clouds.base import MessageKind, StillPending, Trouble
from everspot_clouds.kubernetes.rules import BILLING as KUBERNETES
from everspot_core.capacity.catalogue import builtin
from everspot_core.costs.bill import bill
from everspot_core.jobs.records import Market, Role
from everspot_scheduler.close_ledger import settle_ledger
from everspot_scheduler.ledger import GRACE


def test_a_lost_answer_is_asked_for_again_by_the_same_intent_and_brings_nothing_twice(here, caplog):
    here.cloud.lost = TimeoutError("the answer is lost")
    here.cloud.hidden = {"e-001"}
    here.length = 10_000
    here.submit("j")
    here.run(3)
    assert len({i.token for i in here.cloud.intents}) == 1 and len(here.cloud.intents) > 1
    assert [i.outcome for i in here.intents()] == [None]
    assert "got no answer" in words(here, "j")
    here.submit("k")
    here.run(3)
    assert len(here.intents()) == 1, "nothing more is launched before it is known what came of this"
    here.cloud.lost = None
    here.run(12)
    assert [len(i.outcome.instances) for i in here.intents()] == [1, 1]
    assert len(here.cloud.described) == 2


def test_where_answers_are_lost_for_good_the_description_tells_what_came(here):
    here.cloud.lost = TimeoutError("the answer is lost")
    here.submit("j")
    here.run(1)
    assert here.intents()[0].outcome is None
    here.run(12)
    (intent,) = here.intents()
    assert [i.instance_id for i in intent.outcome.instances] == ["e-001"]
    assert here.cloud.alive == {"e-001"}


def test_throttled_launches_are_repeated_slower_and_slower(here):
    here.cloud.lost, here.cloud.kind = OSError("slow down"), Trouble.THROTTLED
    here.cloud.hidden = {"e-001"}
    here.submit("j")
    here.run(60)
    assert 3 <= len(here.cloud.intents) <= 12


def test_a_launch_under_way_is_asked_for_in_every_tick_and_called_so(here):
    here.cloud.lost = StillPending("1 of 1 pods have no node yet")
    here.cloud.hidden = {"e-001"}
    here.submit("j")
    here.run(20)
    assert len(here.cloud.intents) == 20
    assert "launch 1 is under way: 1 of 1 pods have no node yet" in words(here, "j")


def test_an_old_intent_without_outcome_is_not_asked_for_again(here):
    here.cloud.lost = TimeoutError("the answer is lost")
    here.cloud.hidden = {"e-001"}
    here.submit("j")
    here.run(1)
    here.schedulers = []
    here.later(hours=2)
    here.cloud.lost, here.cloud.hidden = None, set()
    here.schedulers = [here.scheduler("s2")]
    here.run(1)
    assert [i.seq for i in here.cloud.intents] == [1, 2], "its job is given up on it, and has another one"
    assert [len(i.outcome.instances) for i in here.intents()] == [1, 1]


def test_an_instance_that_no_intent_tells_of_is_ended_after_a_while_and_gets_no_job(here):
    here.submit("j")
    here.run(1)
    here.store.launching.delete("00000001")
    here.schedulers = [here.scheduler("s2")]
    here.run(10)
    assert here.cloud.alive == {"e-001", "e-002"}
    assert here.starts["j"][0][1] == "e-002", "launched anew: of the first nobody knows whose it is"
    here.later(seconds=90)
    here.run(2)
    assert here.cloud.terminated[0] == ["e-001"]


def test_what_another_cluster_of_the_same_name_has_launched_is_left_alone(here):
    here.submit("j")
    here.run(1)
    own = here.cloud.described["e-001"]
    here.cloud.described["x-1"] = replace(own, instance_id="x-1", launch="0" * 32)
    assert own.launch != "0" * 32
    for _ in range(5):
        here.later(minutes=1)
        here.run(3)
    assert "x-1" in here.cloud.alive


def test_where_an_intent_cannot_be_read_no_instance_is_taken_for_a_stranger(here):
    here.length = 10_000
    here.submit("j")
    here.run(4)
    here.store.control.put("launching/00000001.json", b'{"version": 9}')
    here.schedulers = [here.scheduler("s2")]
    for _ in range(5):
        here.later(minutes=1)
        here.run(3)
    assert here.cloud.alive == {"e-001"} and here.cloud.terminated == []
    here.submit("k")
    here.run(4)
    assert [i.seq for i in here.intents()] == [2]


def test_what_runs_under_an_intent_that_cannot_be_read_counts_towards_the_cap(here):
    here.declare(elastic=elastic(max_instances=1))
    here.length = 10_000
    here.submit("j")
    here.run(4)
    here.store.control.put("launching/00000001.json", b'{"version": 9}')
    here.schedulers = [here.scheduler("s2")]
    here.submit("k")
    here.run(8)
    assert here.cloud.alive == {"e-001"}


def test_a_stranger_counts_towards_the_cap_until_it_has_ended(here):
    here.declare(elastic=elastic(max_instances=1))
    here.submit("j")
    here.run(1)
    here.store.launching.delete("00000001")
    here.schedulers = [here.scheduler("s2")]
    here.run(8)
    assert here.cloud.alive == {"e-001"}
    here.later(seconds=90)
    here.run(6)
    assert here.cloud.alive == {"e-002"}


def test_a_launched_instance_that_is_never_described_counts_for_nothing_after_a_while(here):
    here.boots = False
    here.length = 10_000
    here.submit("j")
    here.cloud.hidden = {"e-001"}
    here.run(3)
    here.later(minutes=6)
    here.boots = True
    here.run(6)
    assert here.store.records.get("j").value.owner == "e-002"


@pytest.mark.parametrize("has_event", [True, False])
def test_a_launched_instance_of_which_nobody_ever_tells_is_on_the_bill(here, has_event):
    """It is billed from its launch to the end in the cloud's event. Without an event its length counts as unknown."""
    here.boots = False
    here.length = 10_000
    here.submit("j")
    here.cloud.hidden = {"e-001"}
    here.run(1)
    launched = here.intents()[0].outcome.settled_at
    here.later(minutes=6)
    if has_event:
        here.cloud.send(MessageKind.ENDED, "e-001", at=launched + timedelta(minutes=4))
    here.run(2)
    assert (here.store.ends.get("e-001") is not None) is has_event, "it might still come"
    here.later(minutes=70)
    here.boots = True
    here.run(6)
    launch, end = here.store.launches.get("e-001").value, here.store.ends.get("e-001").value
    assert (launch.instance_type, launch.zone, launch.market) == (TYPE, ZONE, Market.SPOT)
    assert launch.launched_at == launched
    lived, source = (timedelta(minutes=4), "event") if has_event else (timedelta(0), "unknown")
    assert (end.ended_at - launched, end.source, end.interrupted) == (lived, source, False)
    ledgers = [
        [document.value for document in table.scan().values()] for table in (here.store.launches, here.store.ends)
    ]
    billed = bill(
        *ledgers, points=here.store.prices(), events={}, catalogue=builtin(), as_of=here.clock.now(), rules=BILLING
    )
    own = [i for i in billed.instances if i.launch.instance_id == "e-001"]
    assert [(i.running, i.unknown, i.cost > 0) for i in own] == [(False, not has_event, True)]
    assert any("e-001 (c6i.large in us-east-1a, spot)" in note for note in billed.notes) is not has_event


@pytest.mark.parametrize("reported", [True, False])
def test_a_pod_that_was_never_described_is_not_billed_beside_its_node(here, monkeypatch, reported):
    """Given a pod whose launch was answered, and that was deleted before a scheduler described it."""
    begin = here.cloud._begin
    monkeypatch.setattr(here.cloud, "_begin", lambda *args: replace(begin(*args), node="i-9"))
    here.boots, here.length, here.cloud.hidden = reported, 10_000, {"e-001"}
    here.submit("j")
    here.run(3)
    here.cloud.described["i-9"] = replace(here.cloud.described["e-001"], instance_id="i-9", role=Role.NODE, launch="")
    here.boots = False
    for agent in here.agents.values():
        agent.alive = False
    here.later(minutes=70)
    here.run(int(GRACE.total_seconds()) + 10)
    launch = here.store.launches.get("e-001").value
    assert launch.node == "i-9" and here.store.ends.get("e-001") is not None
    ledgers = [[d.value for d in table.scan().values()] for table in (here.store.launches, here.store.ends)]
    billed = bill(
        *ledgers, points=here.store.prices(), events={}, catalogue=builtin(), as_of=here.clock.now(), rules=KUBERNETES
    )
    assert "e-001" not in {i.launch.instance_id for i in billed.instances}
    assert "i-9" in {i.launch.instance_id for i in billed.instances} and billed.cost > 0


def test_a_report_without_a_scheduler_finds_what_nobody_ever_saw(here):
    here.boots = False
    here.submit("j")
    here.cloud.hidden = {"e-001"}
    here.run(1)
    here.schedulers = []
    here.later(minutes=59)
    settle_ledger(here.store, here.manifest, here.cloud)
    assert here.store.launches.get("e-001") is None
    here.later(minutes=1)
    settle_ledger(here.store, here.manifest, here.cloud)
    assert here.store.ends.get("e-001").value.source == "unknown"


def test_intents_are_forgotten_once_they_say_nothing_more_and_never_the_newest(here):
    for n in range(3):
        here.submit(f"j{n}")
        here.run(12)
        here.later(minutes=10)
        here.run(3)
    assert [i.seq for i in here.intents()] == [1, 2, 3]
    here.later(hours=2)
    here.run(8)
    assert [i.seq for i in here.intents()] == [3]
    here.submit("last")
    here.run(3)
    assert [i.seq for i in here.intents()] == [4]
