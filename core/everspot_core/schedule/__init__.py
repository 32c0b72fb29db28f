"""The scheduler's policy: `plan_standing(view, now)` and `plan(view, now)` say what a cluster should do next.

Both are pure and deterministic: the same view and moment give the same actions. `view` is the input of a plan,
`actions` are its possible results, and `messages` describes an action in a sentence for people. The decisions are in
`market` (the value of capacity to a job), `placement` (who goes where) and `provisioning` (launches and releases).
"""

from everspot_core.schedule.actions import (
    NO_WAIT,
    Action,
    Assign,
    ClearAssignment,
    CompleteAssignment,
    Cordon,
    DropDrills,
    Expire,
    Finish,
    Hold,
    Launch,
    Leave,
    Refuse,
    Release,
    RestoreAssignment,
    StandingAction,
    Stay,
    Stop,
    VoidAssignment,
    Why,
)
from everspot_core.schedule.market.behaviour import Behaviour
from everspot_core.schedule.messages import describe_action
from everspot_core.schedule.plan import plan, plan_standing
from everspot_core.schedule.tariff import Tariff
from everspot_core.schedule.view import (
    Cap,
    ClusterView,
    Drill,
    InstanceView,
    JobView,
    MeasuredUse,
    Outlook,
    PoolKey,
    PoolView,
    Spent,
    StageRun,
)

__all__ = [
    "NO_WAIT",
    "Action",
    "Assign",
    "Behaviour",
    "Cap",
    "ClearAssignment",
    "ClusterView",
    "CompleteAssignment",
    "Cordon",
    "Drill",
    "DropDrills",
    "Expire",
    "Finish",
    "Hold",
    "InstanceView",
    "JobView",
    "Launch",
    "Leave",
    "MeasuredUse",
    "Outlook",
    "PoolKey",
    "PoolView",
    "Refuse",
    "Release",
    "RestoreAssignment",
    "Spent",
    "StageRun",
    "StandingAction",
    "Stay",
    "Stop",
    "Tariff",
    "VoidAssignment",
    "Why",
    "describe_action",
    "plan",
    "plan_standing",
]
