"""Machines and schedulers end in the middle of any call to the store, answers are lost: every job ends as if not."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from kill_kit import World

STEPS = 24
EVERY = 6
JOBS = ("job-a", "job-b")


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    yield World(tmp_path, request.param)


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
                machine.knife.cut_at = machine.knife.calls + dice.randint(1, 60)
                machine.knife.cut_after = dice.random() < 0.5

    def done() -> bool:
        arm()
        return world.finished(*JOBS)

    world.run_until(done)

    assert world.deaths > 0
    for job in JOBS:
        world.check_job(job, STEPS)
    redone = len(world.trace()) - STEPS * len(JOBS)
    assert redone <= world.deaths * EVERY


@pytest.mark.parametrize("world", range(100, 108), indirect=True)
def test_schedulers_cut_at_any_call_lose_no_job_and_assign_nothing_twice(world: World) -> None:
    dice = world.dice
    submit_all(world)

    def done() -> bool:
        knife = world.scheduler_knife
        if knife.cut_at is None or knife.cut_at < knife.calls:
            knife.cut_at = knife.calls + dice.randint(1, 40)
            knife.cut_after = dice.random() < 0.5
        return world.finished(*JOBS)

    world.run_until(done)

    assert world.scheduler_deaths > 3
    for job in JOBS:
        world.check_job(job, STEPS)
        assert [fact["step"] for fact in world.trace() if fact["job"] == job] == list(range(STEPS))
