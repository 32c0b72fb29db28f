"""The history of the small cluster that the command's tests use."""

from typing import Any

from everspot_core.jobs.records import EventKind, Reason


def record_history(world: Any) -> None:
    """Two jobs with a full life: `steady` on-demand; `moved` interrupted with notice, then lost, then finished."""
    for iid, seconds in (("i-brain", 0), ("i-base", 0), ("i-spot1", 0), ("i-spot2", 60), ("i-spot3", 60)):
        world.launch(iid, seconds)
    world.price("i-spot1", 1800, 0.05)
    world.submit("steady", 30, priority="critical")
    world.submit("moved", 40, tags={"Team": "research"})
    world.assign("steady", "i-base", 120)
    world.start("steady", 130)
    world.assign("moved", "i-spot1", 200)
    world.start("moved", 220)
    world.checkpoint("moved", 1200, 500)
    now = world.to(4000)
    world.emit("moved", EventKind.STOP_DEMANDED, source="imds", action_at=None, seen_at=now.isoformat())
    world.checkpoint("moved", 4010, 2000, "notice")
    world.to(4020)
    world.emit("moved", EventKind.INTERRUPTED, reason="notice", step=2000, durable_step=2000,
               notice_to_durable_seconds=10.0)  # fmt: skip
    world.leave("moved", 4020, Reason.NOTICE)
    world.end("i-spot1", 4120, interrupted=True)
    world.assign("moved", "i-spot2", 4030)
    world.start("moved", 4060, 2000)
    world.checkpoint("moved", 5000, 2500)
    world.store.metrics.append("moved", 2, 0, b'{"step": 2400, "metrics": {}}\n{"step": 2540, "metrics": {}}\n{"st')
    world.lose("moved", 5300, 2530)
    world.end("i-spot2", 5250)
    world.assign("moved", "i-spot3", 5310)
    world.start("moved", 5340, 2500)
    world.finish("moved", 8000, 4000, 0.89)
    world.end("i-spot3", 8200)
    world.finish("steady", 9000, 5000, 0.91)
