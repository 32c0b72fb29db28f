"""The five phases of a tick, in their order: observe, decide, act, record, publish.

Each phase is a list of parts with one interface. docs/internals/scheduler.md lists the parts in their order, with the
reason where the order matters; a test compares the list with the code.
"""

from everspot_scheduler.phases.act import ActPhase
from everspot_scheduler.phases.decide import DecidePhase
from everspot_scheduler.phases.observe import ObservePhase
from everspot_scheduler.phases.part import Tick, TickPart, TickPhase
from everspot_scheduler.phases.publish import PublishPhase
from everspot_scheduler.phases.record import RecordPhase
from everspot_scheduler.phases.services import SchedulerServices

__all__ = [
    "ActPhase",
    "DecidePhase",
    "ObservePhase",
    "PublishPhase",
    "RecordPhase",
    "SchedulerServices",
    "Tick",
    "TickPart",
    "TickPhase",
]
