"""The mind of the scheduler: `plan(view, now)` looks at a cluster and says what to do next.

Pure and deterministic: the same view and moment give the same actions, whoever asks. `view` is what the plan may
know, `actions` is what it may ask for, `words` says an action in a sentence for people.
"""

from everspot_core.schedule.actions import (
    Action,
    Assign,
    Clear,
    Complete,
    Cordon,
    DropDrills,
    Expire,
    Finish,
    Hold,
    Launch,
    Leave,
    Refuse,
    Release,
    Restore,
    Stay,
    Stop,
    Void,
    Why,
)
from everspot_core.schedule.market.behaviour import Behaviour
from everspot_core.schedule.plan import plan
from everspot_core.schedule.view import (
    ClusterView,
    Drill,
    InstanceView,
    JobView,
    Measured,
    Outlook,
    PoolKey,
    PoolView,
    Spent,
)
from everspot_core.schedule.words import say

__all__ = [
    "Action",
    "Assign",
    "Behaviour",
    "Clear",
    "ClusterView",
    "Complete",
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
    "Measured",
    "Outlook",
    "PoolKey",
    "PoolView",
    "Refuse",
    "Release",
    "Restore",
    "Spent",
    "Stay",
    "Stop",
    "Void",
    "Why",
    "plan",
    "say",
]
