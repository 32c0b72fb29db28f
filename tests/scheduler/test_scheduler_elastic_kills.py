"""A scheduler is killed at every call of a launch and of a release, alone and beside a second one: no instance is
launched twice, stays unknown or is left behind."""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from elastic_helpers import ElasticCluster, Killed, Killer, LocalAccount, LocalElastic, Through
from everspot_core.jobs.records import Request
from everspot_scheduler.loop import Scheduler
from everspot_store import ManualClock
from google_helpers import GoogleElastic, GoogleProject
from scheduler_helpers import folder_store

JOBS = ("a", "b")
Make = Callable[[str], ElasticCluster]


def scripted(root: Path) -> Make:
    def make(name: str) -> ElasticCluster:
        clock = ManualClock()
        return ElasticCluster(folder_store(root / name, clock), clock)

    return make


def on_local(root: Path, cloud: LocalAccount | GoogleProject) -> Make:
    def make(name: str) -> ElasticCluster:
        clock = ManualClock(datetime.now().astimezone())
        store = folder_store(root / name, clock)
        if isinstance(cloud, GoogleProject):
            return GoogleElastic(store, clock, name, cloud)
        return LocalElastic(store, clock, name, **cloud.where)

    return make


@pytest.fixture(params=["scripted", "aws", "gcp"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    if request.param == "scripted":
        return scripted(tmp_path)
    return on_local(tmp_path, request.getfixturevalue("local" if request.param == "aws" else "google"))


def begin(here: ElasticCluster, killer: Killer) -> None:
    """A scheduler that is counted: its own view of the store, and the cloud through something of its own."""
    store = folder_store(Path(here.store.control.url.removeprefix("file://")).parent, here.clock)
    cloud = Through(here.cloud)
    killer.around(store.launching, "launching", "create", "replace", "delete")
    if not isinstance(
        here, LocalElastic | GoogleElastic
    ):  # there the calls of the cloud are what counts, and take their time
        killer.around(store.assignments, "assignments", "create", "replace")
    killer.around(cloud, "cloud", "launch", "terminate")
    if isinstance(here, GoogleElastic):
        here.count(killer)
    here.schedulers = [Scheduler(store, here.manifest, cloud, "s1")]  # type: ignore[arg-type]
    here.length = 1
    for job in JOBS:
        here.submit(job)


def work(here: ElasticCluster) -> None:
    """Everything from the submission to the last instance's end."""
    for _ in range(20):
        here.run(1)
        if {here.state(job) for job in JOBS} == {"SUCCEEDED"}:
            break
    here.run(2)  # it is seen
    here.later(minutes=6)
    here.run(8)


def test_a_scheduler_killed_at_any_call_leaves_nothing_twice_unknown_or_behind(make: Make) -> None:
    counted = Killer()
    here = make("counted")
    begin(here, counted)
    work(here)
    assert here.living() == {}
    methods = {call.split(" ", 1)[1] for call in counted.calls}
    assert methods >= {"launching.create", "launching.replace", "cloud.launch", "cloud.terminate"}
    for at in range(1, len(counted.calls) + 1):
        here = make(f"killed-{at}")
        begin(here, Killer(at))
        with pytest.raises(Killed) as killed:
            work(here)
        here.schedulers = [here.successor("s2")]
        here.run(1)
        recorded_ids = {i.instance_id for intent in here.intents() if intent.outcome for i in intent.outcome.instances}
        where = f"killed {killed.value}, call {at}"
        assert set(here.living()) <= recorded_ids, where
        work(here)
        assert {here.state(job) for job in JOBS} == {"SUCCEEDED"}, where
        here.store.request_drain(Request(at=here.clock.now()))
        here.run(4)
        assert here.living() == {}, where
        assert len(here.launched()) == len(JOBS), f"{where}: an instance for each job, and no more"


def test_two_schedulers_at_once_launch_for_each_job_once(make: Make) -> None:
    here = make("two")
    here.schedulers = [here.scheduler("s1"), here.scheduler("s2")]
    for job in JOBS:
        here.submit(job)
    here.run(1)
    assert len(here.living()) == len(JOBS)
    work(here)
    assert {here.state(job) for job in JOBS} == {"SUCCEEDED"}
    assert (here.living(), len(here.launched())) == ({}, len(JOBS))


def test_of_two_that_have_seen_the_same_one_launches(tmp_path: Path) -> None:
    """The second one reads before the first one writes, and writes after it."""
    here = scripted(tmp_path)("overlap")
    first, second = here.scheduler("s1"), here.scheduler("s2")
    for job in JOBS:
        here.submit(job)
    plan, looked = second.services.elastic.launch, []

    def late(*args: Any) -> None:
        first.tick()
        looked.append(len(here.cloud.described))
        plan(*args)

    second.services.elastic.launch = late  # type: ignore[method-assign]
    second.tick()
    assert looked == [len(JOBS)]
    assert len(here.cloud.described) == len(JOBS)
    assert [(i.seq, i.scheduler_id) for i in here.intents()] == [(1, "s1")]
    second.services.elastic.launch = plan  # type: ignore[method-assign]
    here.schedulers = [first, second]
    work(here)
    assert ({here.state(job) for job in JOBS}, here.living()) == ({"SUCCEEDED"}, {})
    assert len(here.launched()) == len(JOBS)


def test_of_two_that_settle_the_same_intent_one_is_believed(tmp_path: Path) -> None:
    here = scripted(tmp_path)("settled")
    here.cloud.lost = TimeoutError("the answer is lost")
    here.cloud.hidden = {"e-001", "e-002"}
    for job in JOBS:
        here.submit(job)
    here.run(1)
    here.cloud.lost, here.cloud.hidden = None, set()
    other = here.scheduler("s2")
    launch = here.cloud.launch

    def meanwhile(intent: Any) -> Any:
        here.cloud.launch = launch  # type: ignore[method-assign]
        other.tick()
        return launch(intent)

    here.cloud.launch = meanwhile  # type: ignore[method-assign]
    here.run(6)
    assert sorted(i.job_id for i in here.intents()[0].outcome.instances) == list(JOBS)
    here.schedulers.append(other)
    work(here)
    assert (here.living(), len(here.launched())) == ({}, len(JOBS))


def test_a_release_lost_between_two_schedulers_puts_no_job_on_what_is_ended(tmp_path: Path) -> None:
    """One plans to release an instance; before it writes, the other one puts a job there. The write fails."""
    here = scripted(tmp_path)("released")
    here.submit("a")
    for _ in range(20):
        here.run(1)
        if here.state("a") == "SUCCEEDED":
            break
    first, second = here.schedulers[0], here.scheduler("s2")
    second.tick()
    here.later(minutes=6)
    release = first.services.actor._release

    def late(action: Any, observation: Any) -> Any:
        here.submit("b")
        document = here.store.assignments.get(action.instance_id)
        reassigned = document.value.model_copy(update={"job_id": "b", "epoch": 1, "changed_at": here.clock.now()})
        here.store.assignments.replace(action.instance_id, document, reassigned)
        return release(action, observation)

    first.services.actor._release = late  # type: ignore[method-assign]
    first.tick()
    assert here.cloud.terminated == []
    first.services.actor._release = release  # type: ignore[method-assign]
    here.schedulers = [first, second]
    here.run(12)
    assert here.state("b") == "SUCCEEDED"
    assert here.starts["b"][0][1] == "e-001"
