"""The ends of launched instances: preempted, drained, broken, or released by a scheduler whose order is lost."""

from dataclasses import replace

import pytest
from everspot_clouds.base import MessageKind, Phase
from everspot_core.costs.ledger import FaultKind
from everspot_core.jobs.records import InstanceState, Order, Reason, Request


def test_what_the_cloud_takes_from_a_job_is_launched_anew(here):
    here.length = 10_000
    here.submit("j")
    here.run(4)
    here.cloud.end_one("e-001", interrupted=True)
    here.cloud.send(MessageKind.ENDED, "e-001", here.clock.now())
    here.run(12)
    assert here.cloud.alive == {"e-002"}
    assert here.store.records.get("j").value.owner == "e-002"


@pytest.mark.parametrize("recorded", [True, False])
def test_an_instance_that_somebody_stopped_and_started_again_is_not_left_idle(here, recorded):
    """With its end on the ledger it gets no job, which would cost nothing by the bill, and is ended. Without, it goes
    on."""
    here.submit("j")
    here.run(12)
    assert here.state("j") == "SUCCEEDED"
    here.agents["e-001"].alive = False
    stopped_at = here.clock.now()
    here.cloud.end_one("e-001")
    here.cloud.send(MessageKind.ENDED, "e-001", stopped_at)
    if recorded:
        here.run(3)
    assert ("e-001" in here.store.ends.scan()) is recorded
    here.later(seconds=5)
    here.cloud.described["e-001"] = replace(
        here.cloud.described["e-001"], phase=Phase.ALIVE, ended_at=None, launched_at=here.clock.now()
    )
    del here.agents["e-001"]
    here.run(3)
    here.submit("k")
    here.run(12)
    assert here.state("k") == "SUCCEEDED"
    assert here.store.records.get("k").value.last_owner == ("e-002" if recorded else "e-001")
    if recorded:
        here.schedulers = [here.scheduler("s2")]  # which has no message of the end
        here.run(3)
        here.later(seconds=100)
        here.run(3)
        assert "e-001" in {name for names in here.cloud.terminated for name in names}
    assert [message.kind for message in here.cloud.acknowledged] == [MessageKind.ENDED]


def test_a_drain_ends_everything_that_was_launched(here):
    here.length = 10_000
    for n in range(3):
        here.submit(f"j{n}")
    here.run(5)
    assert len(here.cloud.alive) == 3
    here.submit("late")
    here.store.request_drain(Request(at=here.clock.now()))
    here.run(12)
    assert here.cloud.alive == set()
    assert {here.state(name) for name in ("j0", "j1", "j2", "late")} == {"PENDING"}
    here.store.clear_drain()
    here.length = 4
    here.run(30)
    assert {here.state(name) for name in ("j0", "j1", "j2", "late")} == {"SUCCEEDED"}


def test_where_nothing_is_elastic_any_more_jobs_finish_and_their_instances_go(here):
    here.length = 30
    here.submit("j")
    here.run(4)
    here.declare(elastic=None)
    here.run(8)
    here.submit("late")
    here.run(20)
    assert here.cloud.alive == {"e-001"}
    here.length = 1
    here.run(40)
    assert (here.state("j"), here.state("late")) == ("SUCCEEDED", "SUCCEEDED")
    here.later(minutes=6)
    here.run(5)
    assert here.cloud.alive == set()


def test_an_end_that_was_lost_is_asked_for_again(here):
    here.submit("j")
    here.run(12)
    here.cloud.stubborn = True
    here.agents["e-001"].alive = False
    here.later(minutes=6)
    here.run(3)
    assert len(here.cloud.terminated) == 1
    here.run(15)
    assert len(here.cloud.terminated) == 1, "not at every tick"
    here.run(40)
    assert len(here.cloud.terminated) == 2
    here.cloud.stubborn = False
    here.schedulers = [here.scheduler("s2")]
    here.run(3)
    assert here.cloud.alive == set(), "the next scheduler finds the order to leave and asks at once"


def test_a_job_is_not_put_on_an_instance_that_is_released_and_not_gone_yet(here):
    here.submit("j")
    here.run(12)
    here.cloud.stubborn = True
    here.agents["e-001"].alive = False
    here.later(minutes=6)
    here.run(2)
    assert here.store.assignments.get("e-001").value.order is Order.LEAVE
    here.submit("k")
    here.run(12)
    assert here.state("k") == "SUCCEEDED"
    assert here.starts["k"][0][1] == "e-002"


def test_a_launched_machine_that_is_broken_goes_and_is_written_down(here):
    here.boots = False
    here.length = 10_000
    here.submit("j")
    here.run(1)
    here.boot()
    here.agents["e-001"].unfit = InstanceState.CORDONED
    here.agents["e-001"].record = here.agents["e-001"].record.model_copy(update={"detail": "0 of the 1 GPUs are seen"})
    here.boots = True
    here.run(12)
    assert here.store.faults.get("e-001").value.kind is FaultKind.GPUS
    assert here.store.assignments.get("e-001").value.reason is Reason.CORDON
    assert here.cloud.alive == {"e-002"}
    assert here.store.records.get("j").value.owner == "e-002"
