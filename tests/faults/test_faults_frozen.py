"""An owner is held in the middle of a call to the store, past its lease, while its successor publishes. Then it wakes.

This is SIGSTOP and SIGCONT at every place where they could matter, one place a seed. What was under way when the owner
was held is carried out late, as a request that the kernel had already taken: it must do no harm either.
"""

from pathlib import Path

import pytest
from fault_helpers import World, expected

STEPS = 30
JOB = "job-a"


@pytest.mark.parametrize("deaf", [False, True], ids=["", "deaf"])
@pytest.mark.parametrize("seed", range(200, 216))
def test_an_owner_that_wakes_up_late_changes_nothing(quick_path: Path, seed: int, deaf: bool) -> None:
    """`deaf`: its program does not look at the lease, so that the agent and the fence are alone to hold it. It may then
    do a step and upload a part of its own epoch before the agent kills it; neither is ever seen by the job."""
    world = World(quick_path, seed, machines=2)
    world.submit(JOB, TOY_STEPS=str(STEPS), TOY_EVERY="4", TOY_DEAF="1" if deaf else "0")
    world.run_until(lambda: any(machine.trainer for machine in world.machines))
    owner = next(machine for machine in world.machines if machine.trainer)
    epoch = world.record(JOB).epoch  # type: ignore[union-attr]
    before: dict[str, str] = {}
    late: list[str] = []
    executed: list[int] = []

    def successor_has_published() -> bool:
        head = world.store.heads.get(JOB)
        return head is not None and any(c.epoch > epoch for c in head.value.checkpoints)

    def hold(key: str) -> None:
        """The owner stands still here; the others go on until the successor has published."""
        late.append(key)
        world.frozen.add(owner.name)
        world.run_until(successor_has_published)
        before.update(world.keys())
        executed.append(len(world.trace()))
        world.frozen = {machine.name for machine in world.machines} - {owner.name}
        world.scheduler_frozen = True

    owner.knife.hold_at = owner.knife.calls + 1 + (seed - 200) * 3 + world.dice.randint(0, 2)
    owner.knife.hold = hold
    world.run_until(lambda: bool(before))

    # Only the owner goes on now, and everything it changes is its own doing.
    for _ in range(300):
        owner.turn(world.dice)
    after = world.keys()
    own_key = f"control/instances/{owner.name}.json"
    in_flight = {f"control/{late[0]}", f"data/{late[0]}"}
    overwritten = {key for key in before if key in after and after[key] != before[key]} - {own_key}
    deleted = set(before) - set(after)
    added = set(after) - set(before)
    assert overwritten == set()
    assert deleted <= in_flight, "only a deletion that was under way already, of a part that no head names"
    own_parts = {key for key in added if key.startswith(f"data/jobs/{JOB}/checkpoints/{epoch:06d}/")} if deaf else set()
    assert added - own_parts <= in_flight, "only a write-once key of its own epoch that was under way already"
    assert owner.trainer is not None
    assert owner.trainer.exit_code() is not None, "its training process is over"
    assert deaf or len(world.trace()) == executed[0], "it trained on"

    world.frozen.clear()
    world.scheduler_frozen = False
    world.run_until(lambda: world.finished(JOB))
    assert world.final_state(JOB) == {"step": STEPS, "weight": expected(STEPS)}
    if not deaf:
        world.check_job(JOB, STEPS)
