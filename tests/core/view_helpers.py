"""Views for tests: those of the schedule, with defaults for fields that a test does not set."""

from datetime import timedelta

from everspot_core.cluster.manifest import Limits
from everspot_core.schedule import (
    Behaviour,
    ClusterView,
    InstanceView,
    JobView,
    MeasuredUse,
    Outlook,
    PoolView,
    Spent,
)

UNSPENT = Spent(dollars=0.0, gpu_hours=0.0)


def spent(**kw) -> Spent:
    return Spent(**{"dollars": 0.0, "gpu_hours": 0.0, **kw})


def outlook_view(**kw) -> Outlook:
    return Outlook(**{"changing": timedelta(0), **kw})


def measured_view(**kw) -> MeasuredUse:
    return MeasuredUse(**{"gpu_memory_gib": 0.0, "mixed": False, **kw})


def job_view(**kw) -> JobView:
    return JobView(
        **{
            "record": None,
            "stale": False,
            "cancel": False,
            "drills": (),
            "spent": UNSPENT,
            "nodes": 1,
            "after": (),
            "condition_result": None,
            "missing_metric": None,
            "awaits": None,
            "same_stage": (),
            "outlook": None,
            "head_epoch": None,
            "changeover": None,
            "preempted_at": (),
            "measured": None,
            "speeds": {},
            "measured_speeds": frozenset(),
            "withheld": timedelta(0),
            "accepted_deadline_at": None,
            **kw,
        }
    )


def instance_view(**kw) -> InstanceView:
    return InstanceView(
        **{
            "may_exist": True,
            "record": None,
            "assignment": None,
            "stale": False,
            "is_gone": False,
            "ending": False,
            "rebalance": False,
            "deadline": None,
            "launched_for": None,
            "launched_at": None,
            "idle_since": None,
            "pool": None,
            "residents": (),
            **kw,
        }
    )


def pool_view(**kw) -> PoolView:
    return PoolView(
        **{
            "available": None,
            "reserved": False,
            "behaviour": Behaviour(),
            "placement_score": None,
            "refused_at": (),
            "noticed_at": None,
            "changeover": None,
            **kw,
        }
    )


def cluster_view(**kw) -> ClusterView:
    return ClusterView(
        **{
            "jobs": (),
            "instances": (),
            "draining": False,
            "types": (),
            "limits": Limits(),
            "pools": (),
            "unions": {},
            "usage": {},
            "shares": {},
            "tick": timedelta(seconds=5),
            "shared": False,
            "standing": None,
            "generation": "",
            "rolling": False,
            "booting": 0,
            "faults": (),
            "idle_limit": timedelta(0),
            "cap": None,
            "cap_uses": (),
            "lasting_changeover": None,
            **kw,
        }
    )
