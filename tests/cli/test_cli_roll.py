"""`everspot cluster roll`, and what the commands print about unusable machines and the scheduler's instance."""

from datetime import UTC, datetime, timedelta

import pytest
from everspot_core.cluster.manifest import Elastic
from everspot_core.costs.ledger import FaultKind, FaultRecord
from everspot_core.jobs.records import Assignment, InstanceState, Market, Order, Reason
from everspot_store import SchedulerBeat


def declare(world, generation):
    world.store.write_manifest(world.store.manifest().model_copy(update={"generation": generation}))


def agents(world, **generations):
    for name, generation in generations.items():
        iid = name.replace("_", "-")
        world.launch(iid, 0)
        world.beat(iid, job="j" if iid == "i-spot1" else None)
        record = world.store.instances.get(iid).value
        world.store.instances.put(iid, record.model_copy(update={"generation": generation}))


def test_roll_asks_for_the_generation_that_is_declared_and_tells_how_far_it_is(world):
    declare(world, "g2")
    agents(world, i_base="g2", i_spot1="g1", i_spot2="g1")
    leaving = Assignment(instance_id="i-spot1", order=Order.LEAVE, reason=Reason.ROLL, changed_at=world.clock.now())
    world.store.assignments.create("i-spot1", leaving)
    shown = world.run("--json", "roll", "--show").json
    assert (shown["requested"], world.store.roll_request()) == (False, None)
    assert (shown["current"], shown["old"], shown["busy"], shown["leaving"]) == (
        ["i-base"], ["i-spot1", "i-spot2"], ["i-spot1"], ["i-spot1"],
    )  # fmt: skip
    late = world.run("roll", "--wait", "--timeout", "1s")
    assert "1 of 3 instances are of generation g2; 1 of the 2 old ones are leaving, 1 of them hold a job." in late.out
    assert (late.code, "i-spot1, i-spot2 are still old" in late.err) == (1, True)
    assert world.store.roll_request().generation == "g2"


def test_roll_is_refused_where_generations_are_not_known(world):
    answer = world.run("roll")
    assert (answer.code, "names no generation" in answer.err) == (1, True)
    assert world.store.roll_request() is None


def test_a_timeout_that_is_none_is_refused_before_anything_is_asked_for(world):
    declare(world, "g2")
    answer = world.run("roll", "--timeout=soon")
    assert (answer.code, "--timeout" in answer.err) == (2, True)
    assert world.store.roll_request() is None


@pytest.mark.parametrize(("ago", "state"), [(timedelta(0), "RUNNING"), (timedelta(hours=1), "SILENT")])
def test_the_schedulers_own_instance_is_no_booting_one(world, ago, state):
    world.launch("i-brain", 0)
    now = datetime.now(UTC)
    beat = SchedulerBeat(scheduler_id="s", instance_id="i-brain", started_at=now, updated_at=now - ago)
    world.store.schedulers.put("s", beat)
    (row,) = world.run("--json", "instances").json
    assert (row["instance_id"], row["state"]) == ("i-brain", state)


def fault(world, iid, kind=FaultKind.NEVER_REPORTED, detail="its agent has never reported"):
    pool = {"instance_type": "c6i.large", "zone": "us-east-1b", "market": Market.SPOT}
    at = datetime.now(UTC)
    world.store.faults.create(iid, FaultRecord(instance_id=iid, kind=kind, image="ami-1", detail=detail, at=at, **pool))


SENTENCE = "2 of 2 instances of image ami-1 never reported: the image or its egress is at fault"


def test_an_image_of_which_no_instance_reports_is_named_wherever_somebody_waits(world):
    for iid in ("i-1", "i-2"):
        fault(world, iid)
    world.submit("waits")
    assert SENTENCE in world.run("jobs").out
    assert world.run("--json", "job", "waits").json["waits_because"].endswith(SENTENCE)
    checks = {check["name"]: check for check in world.run("--json", "doctor").json["checks"]}
    assert (checks["faults"]["verdict"], checks["faults"]["detail"]) == ("fail", SENTENCE)


@pytest.mark.parametrize("elastic", [True, False])
def test_doctor_says_which_type_is_launched_no_more(world, elastic):
    capacity = Elastic(
        types=["c6i.large"], markets=[Market.SPOT], max_instances=2, template="lt-1", template_version="1", places={}
    )
    manifest = world.store.manifest()
    world.store.write_manifest(manifest.model_copy(update={"elastic": capacity if elastic else None}))
    for iid in ("i-1", "i-2"):
        fault(world, iid, FaultKind.GPUS, "CUDA error 802 on GPUs")
    check = {check["name"]: check for check in world.run("--json", "doctor").json["checks"]}["faults"]
    assert check["detail"].startswith("no c6i.large is launched: 2 instances of it had fewer GPUs") is elastic
    assert (check["verdict"], "CUDA error 802 on GPUs" in check["detail"]) == ("fail", elastic)


def test_an_unfit_instance_says_why(world):
    world.launch("i-spot1", 0)
    world.beat("i-spot1", state=InstanceState.CORDONED)
    fault(world, "i-spot1", FaultKind.DISK, "1 GiB of room is left")
    (row,) = world.run("--json", "instances").json
    assert row["detail"] == "1 GiB of room is left"
