"""A part of a tick, a phase of parts, and what one tick has read and decided so far."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from everspot_core.schedule import Action, ClusterView, Hold, Launch, StandingAction
from everspot_store import StoreError

from everspot_scheduler.observer import Observation
from everspot_scheduler.view import PlanInputs

_log = logging.getLogger(__name__)


class Tick:
    """What one tick has read and decided so far. A part sets a field, and only later parts read it.

    Attributes:
        observation: The documents of the store, set by the part "tables". Every part that writes a document puts the
            new version there.
        inputs: The plan's input beside the documents, set by the part "plan inputs".
        view: The input of the tick's last plan, set by the part "view".
        actions: The last plan of the tick, set by the part "plan".
    """

    observation: Observation
    inputs: PlanInputs
    view: ClusterView
    actions: Sequence[Action | StandingAction]

    @property
    def waiting_jobs(self) -> list[Hold]:
        """The jobs that wait."""
        return [action for action in self.actions if isinstance(action, Hold)]

    @property
    def launches(self) -> list[Launch]:
        """The launches."""
        return [action for action in self.actions if isinstance(action, Launch)]


@dataclass(frozen=True)
class TickPart:
    """One part of a tick.

    Attributes:
        name: Names the part in the documentation and in the log.
        run: Does the part's work. Raises the store's errors, which end the tick.
        best_effort: Whether any other error is only logged, because the part only informs users.
    """

    name: str
    run: Callable[[Tick], None]
    best_effort: bool = False


class TickPhase:
    """Parts of a tick that are done one after the other.

    Attributes:
        name: The phase.
        parts: Its parts in their order.
    """

    def __init__(self, name: str, parts: Sequence[TickPart]) -> None:
        self.name, self.parts = name, tuple(parts)
        self._best_effort = BestEffort()

    def run(self, tick: Tick) -> None:
        """Do each part.

        Raises:
            StoreError: if the store failed. The documents written until then remain.
        """
        for part in self.parts:
            if part.best_effort:
                self._best_effort.do(part.name, partial(part.run, tick))
            else:
                part.run(tick)


class BestEffort:
    """Runs parts that only inform users, such as status documents and figures, so that their failure does not stop the
    tick. Errors of the store are raised."""

    def __init__(self) -> None:
        self._last_errors: dict[str, str] = {}

    def do(self, subject: str, call: Callable[[], object]) -> None:
        """Call the function, and log its error, once as long as it stays the same. `subject`: the name for the log."""
        try:
            call()
        except StoreError:
            raise
        except Exception as error:
            message = f"{type(error).__name__}: {error}"
            if self._last_errors.get(subject) != message:
                self._last_errors[subject] = message
                _log.exception("%s failed, and the tick continues", subject)
        else:
            self._last_errors.pop(subject, None)
