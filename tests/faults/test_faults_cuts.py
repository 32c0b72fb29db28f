"""Machines and schedulers end during any call to the store, and answers are lost: every job ends as without faults."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from fault_helpers import World

STEPS = 24
EVERY = 6
JOBS = ("job-a", "job-b")


@pytest.fixture
def world(request: pytest.FixtureRequest, quick_path: Path) -> Iterator[World]:
    yield World(quick_path, request.param)


def submit_all(world: World) -> None:
    for job in JOBS:
        world.submit(job, TOY_STEPS=str(STEPS), TOY_EVERY=str(EVERY))


@pytest.mark.parametrize("world", [0], indirect=True)
def test_undisturbed_every_step_is_done_once(world: World) -> None:
    submit_all(world)
    world.run_until(lambda: world.finished(*JOBS))
    for job in JOBS:
        world.check_job(job, STEPS)
        assert [fact["step"] for fact in world.trace() if fact["job"] == job] == list(range(STEPS))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # a helper thread may be cut
@pytest.mark.parametrize("world", range(1, 25), indirect=True)
def test_machines_cut_at_any_call_lose_no_job(world: World, request: pytest.FixtureRequest) -> None:
    """Three machines in a row are cut, each at a call of its own; every third seed also loses answers."""
    dice = world.dice
    submit_all(world)
    seed = request.node.callspec.params["world"]
    cuts = 3
    armed: set[str] = set()

    def arm() -> None:
        for machine in world.machines:
            if seed % 3 == 0:
                machine.knife.loses = 0.03
            if machine.name not in armed and len(armed) < cuts and machine.trainer is not None:
                armed.add(machine.name)
                machine.knife.cut_at = machine.knife.calls + dice.randint(1, 25)
                machine.knife.cut_after = dice.random() < 0.5

    def done() -> bool:
        arm()
        return world.finished(*JOBS)

    world.run_until(done)

    assert world.deaths > 0
    for job in JOBS:
        world.check_job(job, STEPS)
    redone = len(world.trace()) - STEPS * len(JOBS)
    lost = sum(record.preemptions for job in JOBS if (record := world.record(job)))
    assert redone <= lost * EVERY


@pytest.mark.parametrize("world", range(100, 108), indirect=True)
def test_schedulers_cut_at_any_call_lose_no_job_and_assign_nothing_twice(world: World) -> None:
    dice = world.dice
    submit_all(world)

    def done() -> bool:
        knife = world.scheduler_knife
        if world.scheduler_deaths < 12 and (knife.cut_at is None or knife.cut_at < knife.calls):
            knife.cut_at = knife.calls + dice.randint(1, 40)
            knife.cut_after = dice.random() < 0.5
        return world.finished(*JOBS)

    world.run_until(done)

    assert world.scheduler_deaths > 3
    for job in JOBS:
        world.check_job(job, STEPS)
    # An owner that the dice did not let renew in time loses its lease; nothing else may cost a step.
    lost = sum(record.preemptions for job in JOBS if (record := world.record(job)))
    assert len(world.trace()) - STEPS * len(JOBS) <= lost * EVERY


@pytest.mark.parametrize("world", [300], indirect=True)
def test_no_object_is_rewritten_more_often_than_every_five_seconds(world: World) -> None:
    """Except the release of a lease, which happens immediately and once."""
    world.submit(JOBS[0], TOY_STEPS="150", TOY_EVERY="40")
    world.run_until(lambda: world.finished(JOBS[0]))
    gaps: dict[str, list[float]] = {}
    for machine in world.machines:
        last: dict[str, float] = {}
        for at, key in machine.knife.rewrites:
            if key in last:
                gaps.setdefault(key, []).append(at.total_seconds() - last[key])
            last[key] = at.total_seconds()
    instances = [gap for key, key_gaps in gaps.items() if key.startswith("instances/") for gap in key_gaps]
    renewals = gaps[f"records/{JOBS[0]}.json"][:-1]
    assert len(instances) > 10
    assert len(renewals) > 5
    assert min(instances) >= 5
    assert min(renewals) >= 5
