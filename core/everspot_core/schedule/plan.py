"""The plan: who runs where, who must stop, and which assignments need repair.

The passes run in the order of importance: dead owners, half-written and finished assignments, instances with an
interruption notice, jobs to stop, drills, waiting jobs to end, instances to leave, jobs that can start on present
instances, and last launches and releases.

There are two entry points. `plan_standing` is for standing fleets, whose capacity the cloud maintains: its actions
neither launch nor release instances. `plan` is for elastic capacity: it also launches instances, in the pools of the
view, and releases them.
"""

from datetime import datetime

from everspot_core.schedule.actions import Action, Assign, Hold, StandingAction
from everspot_core.schedule.conditions import shorten_deadlines_by_windows
from everspot_core.schedule.placement.place import place
from everspot_core.schedule.plan_state import PlanState
from everspot_core.schedule.provisioning.leaving import choose_leaving
from everspot_core.schedule.provisioning.provision import provision
from everspot_core.schedule.repairs import expire_dead_owners, repair_assignments, restore_assignments
from everspot_core.schedule.stage_waits import await_no_held_stages
from everspot_core.schedule.stops import cordon_instances, end_waiting_jobs, settle_drills, stop_owners
from everspot_core.schedule.view import ClusterView


def plan_standing(view: ClusterView, now: datetime) -> list[StandingAction]:
    """Return the next actions on standing fleets. Pure: they depend on the view and on `now` (market time) alone.

    Each job, each instance and each seat of an instance is changed by at most one action. The result does not depend on
    the order of `view.jobs` and `view.instances`.
    """
    state = _begin(view, now)
    placed = _decide(state)
    return [*state.actions, *placed]


def plan(view: ClusterView, now: datetime) -> list[Action]:
    """Return the next actions, including launches in the pools of the view and releases. Otherwise as
    `plan_standing`."""
    state = _begin(view, now)
    placed = _decide(state)
    if view.pools or any(i.launched_for is not None for i in view.instances):
        return [*state.actions, *provision(state, placed)]
    return [*state.actions, *placed]


def _begin(view: ClusterView, now: datetime) -> PlanState:
    """Return the state of a plan in which nothing is decided."""
    state = PlanState(shorten_deadlines_by_windows(view, now), now)
    await_no_held_stages(state)
    return state


def _decide(state: PlanState) -> list[Assign | Hold]:
    """Decide everything before the launches: repairs, stops and ends.

    Returns:
        The placement of the waiting jobs.
    """
    expire_dead_owners(state)
    repair_assignments(state)
    restore_assignments(state)
    cordon_instances(state)
    stop_owners(state)
    settle_drills(state)
    end_waiting_jobs(state)
    _decide_leaving(state)
    return place(state)


def _decide_leaving(state: PlanState) -> None:
    """Decide which broken, excess or old instances leave."""
    for action in choose_leaving(state):
        assignment = state.instances[action.instance_id].assignment
        job_ids = set(assignment.jobs) if assignment is not None else set[str]()
        if job_ids & state.touched_jobs:
            continue  # the instance leaves in the next plan, after the actions on its jobs
        state.do(action, instance=action.instance_id)
        state.touched_jobs |= job_ids
