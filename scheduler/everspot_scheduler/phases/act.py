"""Act: carry out the actions of the plan, by conditional writes on the observed documents."""

from everspot_core.schedule import (
    ClearAssignment,
    CompleteAssignment,
    Expire,
    Finish,
    Hold,
    Launch,
    RestoreAssignment,
    Tariff,
    VoidAssignment,
)

from everspot_scheduler.actor import ActionResult
from everspot_scheduler.phases.part import Tick, TickPart, TickPhase
from everspot_scheduler.phases.services import SchedulerServices

ROUNDS = 4
"""The most plans of a tick: clearing an instance and using it again need not wait for each other."""
_FREEING = (ClearAssignment, CompleteAssignment, Expire, Finish, RestoreAssignment, VoidAssignment)
"""Actions after which a new plan may decide more, because they free or repair an assignment."""


class ActPhase(TickPhase):
    """The third phase of a tick. `decide`: the phase that is done again after actions that freed something."""

    def __init__(self, services: SchedulerServices, decide: TickPhase) -> None:
        self._services, self._decide = services, decide
        super().__init__(
            "act",
            (
                TickPart("assignments", self._carry_out),
                TickPart("offers to peers", self._offer),
                TickPart("launches", self._launch),
                TickPart("releases", self._release),
            ),
        )

    def _carry_out(self, tick: Tick) -> None:
        """Act and plan again until nothing changes, a race is lost, or the rounds are used up."""
        for rounds_left in reversed(range(ROUNDS)):
            acting = [a for a in tick.actions if not isinstance(a, Hold | Launch)]
            outcomes = self._services.actor.carry_out_all(acting, tick.observation)
            done = [a for a, outcome in zip(acting, outcomes, strict=True) if outcome is ActionResult.DONE]
            freed = any(isinstance(action, _FREEING) for action in done)
            if not rounds_left or ActionResult.LOST in outcomes or not freed:
                return
            self._decide.run(tick)

    def _launch(self, tick: Tick) -> None:
        """Launch for the jobs that stay. A job that moves to a peer would leave its instance unused."""
        leaving = self._services.federation.leaving_jobs
        staying = [launch for launch in tick.launches if launch.job_id not in leaving]
        self._services.elastic.launch(staying, Tariff(tick.view))

    def _release(self, tick: Tick) -> None:
        elastic, cloud_calls = self._services.elastic, self._services.cloud_calls
        elastic.release(tick.observation, lambda names: cloud_calls.end(elastic, names))

    def _offer(self, tick: Tick) -> None:
        self._services.federation.choose(tick.view, tick.actions)
