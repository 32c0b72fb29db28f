"""Decide: compute the plan of a view and a moment, by core. This phase does no I/O."""

from everspot_core.schedule import plan, plan_standing

from everspot_scheduler.phases.part import Tick, TickPart, TickPhase
from everspot_scheduler.phases.services import SchedulerServices
from everspot_scheduler.view import ViewBuilder


class DecidePhase(TickPhase):
    """The second phase of a tick. It is done again after actions that freed something."""

    def __init__(self, services: SchedulerServices) -> None:
        self._services = services
        self._viewer = ViewBuilder(services.manifest_watch, services.store.clock)
        super().__init__("decide", (TickPart("view", self._build_view), TickPart("plan", self._plan)))

    def _build_view(self, tick: Tick) -> None:
        tick.view = self._viewer.view(tick.observation, tick.inputs)

    def _plan(self, tick: Tick) -> None:
        """Plan with launches if anything is or may be launched, else for the standing fleets alone."""
        now = self._services.store.clock.now()
        tick.actions = plan(tick.view, now) if self._services.elastic.active else plan_standing(tick.view, now)
