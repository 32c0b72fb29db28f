"""Launched instances under random events: gangs stay whole, standing instances stay, and no instance is left behind."""

from dataclasses import replace

from everspot_core.schedule import (
    Assign,
    Launch,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from provision_helpers import (
    OFTEN,
    ON_DEMAND,
    SPOT,
    TICK,
    World,
    dry,
    instance,
    job,
    outlook,
    pool,
)

# Whatever happens


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Some jobs, gangs among them, some of them due; a standing fleet; pools that may be scarce."""
    jobs = []
    for n in range(draw(st.integers(1, 4))):
        remaining, nodes = draw(st.sampled_from([1.0, 5.0])), draw(st.sampled_from([1, 1, 2, 3]))
        due = draw(st.none() | st.floats(0.5, 4.0).map(lambda times, remaining=remaining: remaining * times + 0.3))
        lost_at = OFTEN if draw(st.booleans()) else ()
        critical = draw(st.integers(0, 3)) == 0
        work = outlook(remaining) if draw(st.integers(0, 3)) else None
        jobs.append(job(f"j{n}", due=due, work=work, nodes=nodes, critical=critical, preempted_at=lost_at))
    standing = [
        instance(f"s-{n}", draw(st.sampled_from([SPOT, ON_DEMAND])), launched_for=None, ago=99)
        for n in range(draw(st.integers(0, 3)))
    ]
    count = st.none() | st.integers(0, 4)
    pools = [pool(available=draw(count)), pool(zone="b", usd=draw(st.floats(0.5, 4.0)), available=draw(count))]
    pools += [pool(ON_DEMAND, available=draw(count)), dry("c")]
    return World(jobs, standing, pools)


FATES = st.lists(st.tuples(st.sampled_from(["boot", "lose", "pass", "plan", "cancel", "turn"]), st.integers(0, 99)))


@given(world=worlds(), fates=FATES)
@settings(max_examples=settings.default.max_examples * 3 // 5, deadline=None)
def test_random_events_keep_gangs_whole_and_standing_instances(world, fates):
    """`World` itself sees to it that only what was launched and is idle is released, and that every plan settles."""
    standing = {n for n, i in world.instances.items() if i.launched_for is None}
    for fate, dice in fates:
        befall(world, fate, dice, standing)
        world.settle()
        check_gangs(world)
        assert standing <= set(world.instances)
        assert on_its_way_at_most_once(world)
    world.more["draining"] = True
    for _ in range(2):
        world.settle()
    assert set(world.instances) == standing


def befall(world: World, fate: str, dice: int, standing: set[str]) -> None:
    names_, jobs = sorted(world.instances), sorted(world.jobs)
    match fate:
        case "boot":
            world.boot()
        case "lose" if names_:
            name = names_[dice % len(names_)]
            standing.discard(name)
            world.lose(name)
        case "pass":
            world.now += dice * TICK
        case "cancel":
            view = world.jobs[jobs[dice % len(jobs)]]
            world.jobs[view.job_id] = replace(view, cancel=True)
        case "turn":  # a scarce pool gains or loses capacity
            pools = list(world.pools)
            pools[dice % 3] = replace(pools[dice % 3], available=dice % 5)
            world.pools = tuple(pools)


def check_gangs(world: World) -> None:
    for view in world.jobs.values():
        assigned_instances = [
            i for i in world.instances.values() if i.assignment is not None and i.assignment.job_id == view.job_id
        ]
        assert len(assigned_instances) == (view.nodes if view.state.owned else 0)
    for action in world.changes:
        if isinstance(action, Assign):
            assert len({action.instance_id, *action.gang}) == world.jobs[action.job_id].nodes
        elif isinstance(action, Launch):
            assert action.count == world.jobs[action.job_id].nodes


def on_its_way_at_most_once(world: World) -> bool:
    """Beside what a job holds there is one launch at most."""
    for view in world.jobs.values():
        idle = [i for i in world.instances.values() if i.launched_for == view.job_id and i.idle]
        if len(idle) > view.nodes:
            return False
    return True
