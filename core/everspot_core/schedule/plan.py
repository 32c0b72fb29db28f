"""The plan: who runs where, who must stop, and what has to be repaired.

The order of the passes is the order of importance: dead owners, half-done and finished assignments, what the cloud
takes away, what users want stopped, what can be ended, what can start on present instances, and last what must be
launched or can leave.

There are two entry points. `plan_standing` is for the driver of standing fleets, whose capacity the cloud maintains. It
never launches and never releases, as the type of its actions says. `plan` is for a driver that also launches
instances, in the pools of the view, and releases them.
"""

from datetime import datetime

from everspot_core.records import JobState
from everspot_core.schedule.actions import Action, Assign, Cordon, Hold, StandingAction
from everspot_core.schedule.conditions import reckoned
from everspot_core.schedule.placement.place import place
from everspot_core.schedule.plan_state import PlanState
from everspot_core.schedule.provisioning.leaving import leave
from everspot_core.schedule.provisioning.provision import provision
from everspot_core.schedule.repairs import expire_dead_owners, repair_assignments, restore_assignments
from everspot_core.schedule.stops import cordon_instances, end_waiting_jobs, settle_drills, stop_owners
from everspot_core.schedule.view import ClusterView


def plan_standing(view: ClusterView, now: datetime) -> list[StandingAction]:
    """The next actions on standing fleets. Pure: they depend on the view and on `now` (market time) alone.

    At most one action changes each job, and each instance or each seat of it. The order of `view.jobs` and
    `view.instances` is of no consequence.
    """
    decided, placed = _decide(reckoned(view, now), now)
    return [*decided.actions, *placed]


def plan(view: ClusterView, now: datetime) -> list[Action]:
    """The next actions where instances can also be launched, in the pools of the view. Otherwise as `plan_standing`."""
    view = reckoned(view, now)
    decided, placed = _decide(view, now)
    if view.pools or any(i.launched_for is not None for i in view.instances):
        cordoned = {a.instance_id for a in decided.actions if isinstance(a, Cordon)}
        provisioned = provision(placed, view, now, decided.touched_jobs, decided.touched_instances, cordoned)
        return [*decided.actions, *provisioned]
    return [*decided.actions, *placed]


def _decide(view: ClusterView, now: datetime) -> tuple[PlanState, list[Assign | Hold]]:
    """Decide everything before the launches: repairs, stops, ends, and the placement of waiting jobs."""
    draft = PlanState(view, now)
    expire_dead_owners(draft)
    repair_assignments(draft)
    restore_assignments(draft)
    cordon_instances(draft)
    stop_owners(draft)
    settle_drills(draft)
    end_waiting_jobs(draft)
    _let_go(draft)
    placed = place(
        jobs=[j for j in draft.jobs.values() if j.state is JobState.PENDING and j.job_id not in draft.touched_jobs],
        instances=[i for i in draft.instances.values() if i.instance_id not in draft.touched_instances],
        view=view,
        now=now,
    )
    return draft, placed


def _let_go(draft: PlanState) -> None:
    """Decide which broken, excess or old instances leave."""
    untouched = [i for i in draft.instances.values() if i.instance_id not in draft.touched_instances]
    for action in leave(untouched, draft.view, draft.now):
        assignment = draft.instances[action.instance_id].assignment
        job_ids = set(assignment.jobs) if assignment is not None else set[str]()
        if job_ids & draft.touched_jobs:
            continue  # the instance goes in the next plan, when what was decided of its jobs stands
        draft.do(action, instance=action.instance_id)
        draft.touched_jobs |= job_ids
