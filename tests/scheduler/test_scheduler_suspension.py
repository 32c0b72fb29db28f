"""A type whose machines are all unusable is launched only twice, because the next machine would be like the last."""

from datetime import timedelta
from pathlib import Path

import pytest
from elastic_helpers import ElasticCluster, elastic, words
from everspot_core.costs.ledger import FaultKind, FaultRecord
from everspot_core.governance.anomalies import AnomalyKind
from everspot_core.jobs.records import InstanceState, Reason
from everspot_core.schedule.provisioning.suspension import CLOSE_TOGETHER, RETRY_AFTER
from everspot_store import ManualClock
from scheduler_helpers import folder_store

ERROR_802 = "CUDA error 802 on GPUs: system not yet initialized; the fabric manager has not set the NVSwitch up"


class BrokenMachines(ElasticCluster):
    """Every machine of `broken` types finds itself unfit as soon as it has booted."""

    broken = frozenset({"c6i.large"})

    def boot(self) -> None:
        earlier = set(self.agents)
        super().boot()
        for name in set(self.agents) - earlier:
            agent = self.agents[name]
            agent.record = agent.record.model_copy(update={"instance_type": self.cloud.described[name].instance_type})
            if agent.record.instance_type in self.broken:
                agent.unfit = InstanceState.CORDONED
                agent.record = agent.record.model_copy(update={"detail": ERROR_802})


def broken_cluster(tmp_path: Path, clock: ManualClock, **settings: object) -> BrokenMachines:
    return BrokenMachines(folder_store(tmp_path, clock), clock, **settings)


@pytest.fixture
def broken(tmp_path: Path, clock: ManualClock) -> BrokenMachines:
    return broken_cluster(tmp_path, clock)


def faults(here: ElasticCluster) -> dict[str, FaultRecord]:
    return {name: document.value for name, document in here.store.faults.scan().items()}


def test_after_two_equal_faults_no_more_is_launched_and_job_and_anomalies_say_why(broken: BrokenMachines) -> None:
    broken.submit("j")
    for _ in range(8):
        broken.run(10)
        broken.later(minutes=2)
    assert [(f.kind, f.detail) for f in faults(broken).values()] == [
        (FaultKind.GPUS, f"it is not fit for jobs: {ERROR_802}")
    ] * 2
    assert (len(broken.cloud.intents), broken.cloud.alive, broken.state("j")) == (2, set(), "PENDING")
    message = words(broken, "j")
    assert message.startswith("no c6i.large is launched: 2 instances of it had fewer GPUs than their type has, or")
    assert ERROR_802 in message
    broken.later(minutes=6)
    broken.run(12)
    (anomaly,) = broken.store.notes.anomalies.read().open
    assert (anomaly.kind, anomaly.subject, anomaly.words) == (AnomalyKind.TYPE_SUSPENDED, "c6i.large", message)


def test_a_new_generation_is_launched_at_once_and_the_old_one_is_tried_after_six_hours(broken: BrokenMachines) -> None:
    broken.declare(elastic=elastic(), generation="before the bake")
    broken.submit("j")
    for _ in range(8):
        broken.run(10)
        broken.later(minutes=2)
    assert len(broken.cloud.intents) == 2
    broken.later(hours=RETRY_AFTER / timedelta(hours=1))
    broken.run(20)
    assert len(broken.cloud.intents) == 3, "one more is tried"
    broken.run(20)
    assert (len(broken.cloud.intents), len(faults(broken))) == (3, 3), "and ends the trial"
    broken.broken = frozenset()
    broken.declare(elastic=elastic(), generation="after the next bake")
    broken.run(40)
    assert broken.state("j") == "SUCCEEDED"


def test_a_job_that_another_type_can_hold_goes_there(tmp_path: Path, clock: ManualClock) -> None:
    here = broken_cluster(tmp_path, clock, types=["c6i.large", "m6i.large"])
    here.submit("j")
    for _ in range(8):
        here.run(10)
        here.later(minutes=2)
    types = [here.cloud.described[name].instance_type for name in sorted(here.launched())]
    assert (types, here.state("j")) == (["c6i.large", "c6i.large", "m6i.large"], "SUCCEEDED")


def test_faults_that_are_far_apart_suspend_nothing(broken: BrokenMachines) -> None:
    broken.submit("j")
    while not faults(broken):
        broken.run(1)
    broken.boots = False  # the next machine takes its time
    broken.later(seconds=CLOSE_TOGETHER.total_seconds() + 60)
    broken.run(4)
    assert (len(faults(broken)), len(broken.cloud.intents)) == (2, 3)


def test_launched_machines_that_are_broken_all_leave(tmp_path: Path, clock: ManualClock) -> None:
    here = broken_cluster(tmp_path, clock)
    for n in range(4):
        here.submit(f"j{n}")
    for _ in range(4):
        here.run(10)
        here.later(minutes=2)
    assert here.cloud.alive == set()
    assert {here.store.assignments.get(name).value.reason for name in here.launched()} == {Reason.CORDON}
