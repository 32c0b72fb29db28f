"""The plan's input: plain values about a cluster, collected before anything is decided.

A driver (the scheduler's loop, a simulator) makes a view, and the plan knows nothing else. No field has a default: a
driver that does not know a value says so, and one that forgets a field does not pass the type checker. All times are
market time. Whether a lease is stale is a flag and not a time, because only the observer's own clock can measure it.
"""

from everspot_core.schedule.view.cluster import Cap, ClusterView
from everspot_core.schedule.view.instance import InstanceView, instance_pool
from everspot_core.schedule.view.job import Drill, JobView, MeasuredUse, Outlook, Spent, StageRun
from everspot_core.schedule.view.pool import PoolKey, PoolView

__all__ = [
    "Cap",
    "ClusterView",
    "Drill",
    "InstanceView",
    "JobView",
    "MeasuredUse",
    "Outlook",
    "PoolKey",
    "PoolView",
    "Spent",
    "StageRun",
    "instance_pool",
]
